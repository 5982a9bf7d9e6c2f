"""The service of cluster-state: Watch passes on messages that the broadcaster has encoded."""

import asyncio
from contextlib import aclosing, suppress
from typing import Any, Final

import grpc
from grpc import aio

from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.encodable import encodable_revisions
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.rpc.errors import RpcError
from muster.rpc.watch_codec import encode_revision

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"
_MAX_NAME_LENGTH: Final = 253
_HOLD_SECONDS: Final = 5.0
"""For so long a subscriber waits for the initial lists; then it may try another replica."""


class WatchServicer:
    """ClusterStateService, with responses as bytes."""

    def __init__(self, broadcaster: Broadcaster, complete: asyncio.Event, hold_seconds: float = _HOLD_SECONDS) -> None:
        """`complete` is set once snapshots may be sent; subscribers that come before wait for it, so that after a start
        none loses time with attempts, and all share a snapshot.
        """
        self._broadcaster = broadcaster
        self._complete = complete
        self._hold_seconds = hold_seconds

    async def watch(self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]) -> None:
        """Write to the stream until the subscriber closes it."""
        if len(request.subscriber) > _MAX_NAME_LENGTH:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"subscriber {request.subscriber[:64]!r}… has {len(request.subscriber)} characters; "
                f"at most {_MAX_NAME_LENGTH} are allowed",
            )
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), self._hold_seconds)
        self._require_complete()
        async with aclosing(self._broadcaster.subscribe(request.subscriber)) as messages:
            async for message in messages:
                await context.write(message)

    async def get_revision(
        self, _request: pb.GetRevisionRequest, _context: aio.ServicerContext[Any, Any]
    ) -> pb.GetRevisionResponse:
        """Revisions of the newest changes that were published."""
        self._require_complete()
        return pb.GetRevisionResponse(changed=encode_revision(encodable_revisions(self._broadcaster.changed)))

    def _require_complete(self) -> None:
        if not self._complete.is_set():
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the initial lists from the API server are not complete yet")


def register(servicer: WatchServicer, server: aio.Server) -> None:
    """Add the service to a server as generated code would, but for responses that are encoded already."""
    watch = grpc.unary_stream_rpc_method_handler(
        servicer.watch, request_deserializer=pb.WatchRequest.FromString, response_serializer=_identity
    )
    get_revision = grpc.unary_unary_rpc_method_handler(
        servicer.get_revision,
        request_deserializer=pb.GetRevisionRequest.FromString,
        response_serializer=pb.GetRevisionResponse.SerializeToString,
    )
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {"Watch": watch, "GetRevision": get_revision}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FULL_NAME, handlers),))


def _identity(message: bytes) -> bytes:
    return message
