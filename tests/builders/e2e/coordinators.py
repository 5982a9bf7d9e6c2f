"""Coordinators as processes, each with the given addresses."""

import asyncio
import sys
from pathlib import Path

import grpc

from builders.wait import eventually
from muster.coordinator.v1 import coordinator_pb2 as pb
from muster.coordinator.v1.coordinator_pb2_grpc import CoordinatorServiceStub
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import grpc_serving, wait_until_ready

LEASE_SECONDS = 2
_SECONDS = 60.0


class Coordinator:
    """A coordinator's process. Services without an address do not exist."""

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        etcd: str,
        cluster_state: str | None = None,
        placement: str | None = None,
        binding: str | None = None,
    ) -> None:
        self.name, self.address = name, f"127.0.0.1:{free_port()}"
        nobody = f"127.0.0.1:{free_port()}"
        self.child = Child(
            name,
            [
                *(sys.executable, "-m", "muster.cli", "run", "coordinator", "--listen", self.address),
                *("--instance", name, "--etcd", etcd, "--lease-seconds", str(LEASE_SECONDS)),
                *("--cluster-state", cluster_state or nobody, "--placement", placement or nobody),
                *("--binding", binding or nobody),
            ],
            directory / f"{name}.log",
        )

    async def start(self) -> None:
        """Start it; returns when it is ready to lead."""
        await self.child.start()
        async with asyncio.timeout(_SECONDS):
            await wait_until_ready(self.child, grpc_serving(self.address))

    async def ask(self) -> str:
        """The response to List: "this replica leads", or the reason why it does not answer."""
        async with grpc.aio.insecure_channel(self.address) as channel:
            try:
                await CoordinatorServiceStub(channel).List(pb.ListRequest(), timeout=30)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE
                return error.details() or ""
        return "this replica leads"

    async def until(self, answer: str) -> None:
        """Wait until the response contains `answer`."""
        output = ""

        async def answered() -> bool:
            nonlocal output
            output = await self.ask()
            assert answer in output or self.child.running, (output, self.child.log.read_text())
            return answer in output

        await eventually(answered, lambda: f"{answer!r} in {output!r}", seconds=_SECONDS, every_seconds=0.05)

    async def until_logged(self, words: str) -> None:
        """Wait until its log contains the words."""
        await eventually(lambda: words in self.child.log.read_text(), f"{words!r} is logged", seconds=_SECONDS)

    def freeze(self) -> None:
        """Stop the process with SIGSTOP; messages to it wait."""
        self.child.freeze()

    def resume(self) -> None:
        """Continue the process with SIGCONT."""
        self.child.resume()
