"""A scripted binding service that records its requests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from grpc import aio

from builders.wait import WAIT_SECONDS
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.config.settings import PLAIN_TEXT
from muster.rpc.channel import open_channel
from muster.rpc.errors import RpcError
from muster.rpc.server import RpcServer

FULL_NAME = "muster.binding.v1.BindingService"


class BindingStub(pb_grpc.BindingServiceServicer):
    """Binds all pods. Streams `evict_answers`, then fails with `evict_error` if it is set. Answers writes with
    `write_answers` in turn, then with success.
    """

    def __init__(self) -> None:
        self.binds: list[pb.BindRequest] = []
        self.evictions: list[pb.EvictRequest] = []
        self.evict_answers: list[pb.EvictResponse] = []
        self.evict_error: RpcError | None = None
        self.deallocations: list[pb.DeallocateRequest] = []
        self.deallocate_answer: pb.DeallocateResponse | RpcError = pb.DeallocateResponse()
        self.writes: list[pb.WriteRequest] = []
        self.write_answers: list[pb.WriteResponse | grpc.StatusCode] = []
        self._asked = asyncio.Event()

    async def Bind(self, request: pb.BindRequest, context: Any) -> AsyncIterator[pb.BindResponse]:  # noqa: N802
        self.binds.append(request)
        bound = pb.BindResult.OUTCOME_BOUND
        yield pb.BindResponse(
            results=[pb.BindResult(uid=pod.uid, outcome=bound, node=pod.node) for pod in request.pods]
        )

    async def Evict(self, request: pb.EvictRequest, context: Any) -> AsyncIterator[pb.EvictResponse]:  # noqa: N802
        self.evictions.append(request)
        for answer in self.evict_answers:
            yield answer
        if self.evict_error is not None:
            raise self.evict_error

    async def Deallocate(self, request: pb.DeallocateRequest, context: Any) -> pb.DeallocateResponse:  # noqa: N802
        self.deallocations.append(request)
        if isinstance(self.deallocate_answer, RpcError):
            raise self.deallocate_answer
        return self.deallocate_answer

    async def Write(self, request: pb.WriteRequest, context: Any) -> pb.WriteResponse:  # noqa: N802
        self.writes.append(request)
        self._asked.set()
        answer = self.write_answers.pop(0) if self.write_answers else pb.WriteResponse()
        if isinstance(answer, grpc.StatusCode):
            raise RpcError(answer, "scripted by the test")
        return answer

    async def until_written(self, holds: Callable[[list[pb.WriteRequest]], bool]) -> None:
        """Wait until the condition holds for the recorded writes."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds(self.writes):
                self._asked.clear()
                await self._asked.wait()


@asynccontextmanager
async def serving(stub: BindingStub) -> AsyncIterator[aio.Channel]:
    """Serve the stub; yields a channel to it."""
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "binding-stub")
    server.add(pb_grpc.add_BindingServiceServicer_to_server, stub, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    channel = open_channel(f"127.0.0.1:{port}")
    try:
        yield channel
    finally:
        await channel.close()
        await server.stop(grace_seconds=0)
