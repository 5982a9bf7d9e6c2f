"""The RPCs Watch and Follow, which pass on messages that the broadcaster has encoded."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

import grpc
from grpc import aio

from muster.clusterstate.broadcaster import Broadcaster, Subscription
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.rpc.errors import RpcError

FULL_NAME: Final = "muster.clusterstate.v1.ClusterStateService"
_MAX_NAME_LENGTH: Final = 253


class WatchServicer:
    """ClusterStateService, with responses as bytes."""

    def __init__(self, broadcaster: Broadcaster, complete: asyncio.Event) -> None:
        """`complete` is set once snapshots may be sent."""
        self._broadcaster = broadcaster
        self._complete = complete

    async def watch(self, request: pb.WatchRequest, context: aio.ServicerContext[Any, Any]) -> None:
        """Write to the stream until the subscriber closes it."""
        await self._send(request.subscriber, self._broadcaster.subscription(), context)

    async def follow(self, requests: AsyncIterator[pb.FollowRequest], context: aio.ServicerContext[Any, Any]) -> None:
        """Write to the stream, with the marks that are requested, until the subscriber closes it."""
        first = await anext(requests, None)
        if first is None:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT, "the first request, with the subscriber's name, is missing"
            )
        subscription = self._broadcaster.subscription()
        marking = asyncio.create_task(_pass_on_marks(requests, subscription))
        try:
            await self._send(first.subscriber, subscription, context)
        finally:
            marking.cancel()
            await asyncio.gather(marking, return_exceptions=True)

    async def _send(self, name: str, subscription: Subscription, context: aio.ServicerContext[Any, Any]) -> None:
        if len(name) > _MAX_NAME_LENGTH:
            raise RpcError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"subscriber {name[:64]!r}… has {len(name)} characters; at most {_MAX_NAME_LENGTH} are allowed",
            )
        if not self._complete.is_set():
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "the initial lists from the API server are not complete yet")
        async with aclosing(self._broadcaster.subscribe(name, subscription)) as messages:
            async for message in messages:
                await context.write(message)


async def _pass_on_marks(requests: AsyncIterator[pb.FollowRequest], subscription: Subscription) -> None:
    async for request in requests:
        subscription.mark(request.mark)


def register(servicer: WatchServicer, server: aio.Server) -> None:
    """Add the service to a server as generated code would, but for responses that are encoded already."""
    watch = grpc.unary_stream_rpc_method_handler(
        servicer.watch, request_deserializer=pb.WatchRequest.FromString, response_serializer=_identity
    )
    follow = grpc.stream_stream_rpc_method_handler(
        servicer.follow, request_deserializer=pb.FollowRequest.FromString, response_serializer=_identity
    )
    handler = grpc.method_handlers_generic_handler(FULL_NAME, {"Watch": watch, "Follow": follow})
    server.add_generic_rpc_handlers((handler,))


def _identity(message: bytes) -> bytes:
    return message
