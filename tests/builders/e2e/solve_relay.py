"""A relay between coordinator and placement that records every Solve and can hold responses back."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from grpc import aio

from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc.channel import MESSAGE_BYTES, open_channel

_MESSAGES = (("grpc.max_send_message_length", MESSAGE_BYTES), ("grpc.max_receive_message_length", MESSAGE_BYTES))


def places(response: pb.SolveResponse) -> bool:
    """The request asks for the placement of groups."""
    return any(result.outcome == pb.GroupResult.OUTCOME_PLACED for result in response.results)


def removes(response: pb.SolveResponse) -> bool:
    """The request offers potential victims."""
    return any(result.victims for result in response.results)


Fault = Callable[[pb.SolveRequest, pb.SolveResponse], bool]
"""Changes a response; false: none is sent."""


class SolveRelay(pb_grpc.PlacementServiceServicer):
    """Relays Solve."""

    def __init__(self, placement: str, on_change: Callable[[], None] = lambda: None) -> None:
        self.asked: list[pb.SolveRequest] = []
        """Every request received, also those that placement never answered."""
        self.answered: list[pb.SolveResponse] = []
        self._told: list[pb.SolveResponse] = []
        self._channel = open_channel(placement)
        self._stub = pb_grpc.PlacementServiceStub(self._channel)
        self._on_change = on_change
        self._open = asyncio.Event()
        self._fault: Fault | None = None
        self._held: tuple[Callable[[pb.SolveResponse], bool], asyncio.Event] | None = None
        self._server = aio.server(options=_MESSAGES)
        pb_grpc.add_PlacementServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    async def start(self) -> None:
        await self._server.start()

    def lead_through(self, coordinator: list[str]) -> None:
        """Make a coordinator's command line call placement through this relay."""
        coordinator[coordinator.index("--placement") + 1] = self.address

    async def stop(self) -> None:
        """Break the calls under way."""
        await self._server.stop(None)
        await self._channel.close()

    @contextlib.contextmanager
    def holding(self, chosen: Callable[[pb.SolveResponse], bool]) -> Iterator[asyncio.Event]:
        """Hold responses of this kind until the end of the block; the event is set when one is held."""
        waits = asyncio.Event()
        self._held = (chosen, waits)
        self._open.clear()
        try:
            yield waits
        finally:
            self._held = None
            self._open.set()

    @contextlib.contextmanager
    def with_fault(self, fault: Fault) -> Iterator[list[pb.SolveResponse]]:
        """Change responses in the block before they are relayed, or drop them; the list has them as sent."""
        self._fault, requests = fault, self._told
        requests.clear()
        try:
            yield requests
        finally:
            self._fault = None

    async def Solve(self, request: pb.SolveRequest, context: aio.ServicerContext[Any, Any]) -> pb.SolveResponse:  # noqa: N802
        self.asked.append(request)
        self._on_change()
        trace = [(str(key), value) for key, value in context.invocation_metadata() or () if key == "traceparent"]
        try:
            response = await self._stub.Solve(request, timeout=context.time_remaining(), metadata=aio.Metadata(*trace))
        except aio.AioRpcError as error:
            await context.abort(error.code(), error.details() or "")
            raise
        if self._fault is not None:
            if not self._fault(request, response):
                await asyncio.Event().wait()
            self._told.append(response)
            self._on_change()
        if self._held is not None and self._held[0](response):
            self._held[1].set()
            await self._open.wait()
        self.answered.append(response)
        self._on_change()
        return response

    async def Describe(  # noqa: N802
        self, request: pb.DescribeRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.DescribeResponse:
        return await self._stub.Describe(request, timeout=context.time_remaining())
