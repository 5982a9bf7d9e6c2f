"""A placement for a virtual cluster: mirrors it, and answers the solve requests of the machine that plays on it."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final

import grpc
from grpc import aio

from muster.clusterstate.v1 import clusterstate_pb2_grpc as state_grpc
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.forecast.cluster_stream import FULL_NAME, ClusterStream
from muster.gangs.solve import SolveRequest
from muster.placement.v1 import placement_pb2 as pb
from muster.placement.v1 import placement_pb2_grpc as pb_grpc
from muster.rpc import parent_watchdog
from muster.rpc.channel import open_channel
from muster.rpc.errors import describe
from muster.rpc.server import RpcServer
from muster.rpc.solve_codec import decode_solve_results, encode_solve_request

SOLVE_SECONDS: Final = 10.0
"""Timeout of a solve request, as the coordinator's."""
ATTEMPTS: Final = 3
"""Calls for one solve request."""
_START_SECONDS: Final = 180.0
_STOP_SECONDS: Final = 5.0
_PROGRAM: Final = (sys.executable, "-m", "muster.cli", "run")


class NoPlacement(RuntimeError):
    """Placement did not start, or ended."""


class Solver:
    """Client of that placement."""

    def __init__(
        self,
        channel: aio.Channel,
        process: asyncio.subprocess.Process | None = None,
        solve_seconds: float = SOLVE_SECONDS,
    ) -> None:
        """`process`: the one that serves it, if that is a child of this process; `solve_seconds`: timeout of a call."""
        self._stub, self._process = pb_grpc.PlacementServiceStub(channel), process
        self._solve_seconds = solve_seconds

    async def until_ended(self) -> None:
        """Raises NoPlacement when the child process ends."""
        if self._process is not None:
            raise NoPlacement(f"placement ended with exit code {await self._process.wait()}")

    async def describe(self) -> pb.DescribeResponse:
        """Wait until it answers. Raises NoPlacement."""
        try:
            return await self._stub.Describe(pb.DescribeRequest(), timeout=_START_SECONDS, wait_for_ready=True)
        except aio.AioRpcError as error:
            raise NoPlacement(f"placement does not answer: {describe(error)}") from None

    async def solve(self, effect: Solve) -> Solved | SolveFailed:
        """Answers of placement as events of the core. A call that fails on a busy machine is repeated: no virtual time
        passes, and what is played does not depend on it.
        """
        request = encode_solve_request(
            SolveRequest(
                effect.min_revision, effect.reservations, effect.groups, effect.nominated, effect.potential_victims
            ),
            {},
        )
        for attempt in count(1):
            try:
                response = await self._stub.Solve(request, timeout=self._solve_seconds)
                return Solved(effect.solve_id, decode_solve_results(response.results))
            except aio.AioRpcError as error:
                refused = error.code() is grpc.StatusCode.INVALID_ARGUMENT
                if refused or attempt == ATTEMPTS:
                    return SolveFailed(effect.solve_id, describe(error), refused)
            except ValueError as error:
                return SolveFailed(effect.solve_id, f"its answer cannot be decoded: {error}", unreadable=True)
        raise AssertionError


@asynccontextmanager
async def serving(stream: ClusterStream, listen: str) -> AsyncIterator[str]:
    """Serve the virtual cluster on an address of this machine; yields the address."""
    server = RpcServer(listen, PLAIN_TEXT, "virtual cluster")
    server.add(state_grpc.add_ClusterStateServiceServicer_to_server, stream, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    try:
        yield f"{listen.rpartition(':')[0]}:{port}"
    finally:
        await server.stop(grace_seconds=0)


@asynccontextmanager
async def own_placement(
    stream: ClusterStream, service: Sequence[str] = ("placement",), solve_seconds: float = SOLVE_SECONDS
) -> AsyncIterator[Solver]:
    """Run a placement as a child process beside this one, until the block ends.

    `service`: arguments of `muster run`. Raises NoPlacement.
    """
    async with serving(stream, "127.0.0.1:0") as cluster_state:
        listen = f"127.0.0.1:{_free_port()}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", parent_watchdog.__file__, str(os.getpid())),
            *(*_PROGRAM, *service, "--listen", listen, "--cluster-state", cluster_state, "--log-level", "error"),
            stdin=asyncio.subprocess.DEVNULL,
        )
        channel = open_channel(listen)
        try:
            solver = Solver(channel, process, solve_seconds)
            await _first(solver, process)
            yield solver
        finally:
            await stream.end()
            await channel.close()
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


@asynccontextmanager
async def external_placement(stream: ClusterStream, listen: str, target: str) -> AsyncIterator[Solver]:
    """Use a placement at `target` that watches the cluster-state at `listen`. Raises NoPlacement."""
    async with serving(stream, listen):
        channel = open_channel(target)
        try:
            solver = Solver(channel)
            await solver.describe()
            yield solver
        finally:
            await channel.close()


async def _first(solver: Solver, process: asyncio.subprocess.Process) -> None:
    """Wait for the first answer. Raises NoPlacement if the process ends before."""
    answer, end = asyncio.ensure_future(solver.describe()), asyncio.ensure_future(process.wait())
    await asyncio.wait([answer, end], return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        raise NoPlacement(f"placement ended with exit code {end.result()}")
    end.cancel()
    await asyncio.gather(end, return_exceptions=True)
    answer.result()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
