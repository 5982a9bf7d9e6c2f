"""The RPC by which others subscribe: bytes that the broadcaster encoded once go out as they are."""

import asyncio
from contextlib import aclosing
from typing import Any, Final

import grpc
from grpc import aio

from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.rpc.errors import RpcError

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"
_LONGEST_NAME: Final = 253


class WatchServicer:
    """ClusterStateService, with responses as bytes."""

    def __init__(self, broadcaster: Broadcaster, whole: asyncio.Event) -> None:
        """`whole` says that snapshots may be sent."""
        self._broadcaster = broadcaster
        self._whole = whole

    async def watch(self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]) -> None:
        """Write to the stream until the subscriber leaves."""
        if len(request.subscriber) > _LONGEST_NAME:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"subscriber {request.subscriber[:64]!r}… has {len(request.subscriber)} characters; "
                f"at most {_LONGEST_NAME} are allowed",
            )
        if not self._whole.is_set():
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the first lists of the API server are not complete yet")
        async with aclosing(self._broadcaster.subscribe(request.subscriber)) as messages:
            async for message in messages:
                await context.write(message)


def register(servicer: WatchServicer, server: aio.Server) -> None:
    """Add the service to a server, as generated code would, except that responses are bytes already."""
    method = grpc.unary_stream_rpc_method_handler(
        servicer.watch, request_deserializer=pb.WatchRequest.FromString, response_serializer=_as_it_is
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(FULL_NAME, {"Watch": method}),))


def _as_it_is(message: bytes) -> bytes:
    return message
