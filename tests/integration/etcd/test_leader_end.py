"""A leader whose process ended is replaced at once, and no other: leases here outlast every test."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from builders.etcd.server import etcd_in, store_at
from builders.wait import WAIT_SECONDS, eventually
from muster.etcd.election import Election
from muster.localcluster.etcd import EtcdProcess
from muster.rpc.process_end import until_process_ended

KEY = "/test/leader"
TTL_SECONDS = 600

LEADS = """
import asyncio, sys
from muster.config.settings import PLAIN_TEXT
from muster.etcd.election import Election
from muster.etcd.store import Store
from muster.rpc.server import RpcServer

async def main():
    etcd, key, ttl, address = sys.argv[1:]
    server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "leader")
    port = await server.start()
    address = address or f"127.0.0.1:{port}"
    leadership = await Election(Store(etcd, 5.0), key, "first", int(ttl), address=address).campaign()
    print("port", port, flush=True)
    await leadership.lost.wait()
    print("lost", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


@asynccontextmanager
async def leader(etcd: EtcdProcess, address: str = "") -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A process that leads and serves, and its port. `address`: what it says of where it serves."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LEADS, etcd.endpoint, KEY, str(TTL_SECONDS), address), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            while not (line := (await process.stdout.readline()).decode()).startswith("port "):
                assert line, "it ended"
        yield process, int(line.split()[1])
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def standby(etcd: EtcdProcess) -> AsyncIterator[tuple[Election, "asyncio.Task[object]"]]:
    """An election in which a second candidate campaigns, and the campaign."""
    async with store_at(etcd.endpoint, timeout_seconds=1.0) as store:
        election = Election(store, KEY, "second", TTL_SECONDS, until_ended=until_process_ended)
        campaign = asyncio.create_task(election.campaign())
        try:
            yield election, campaign
        finally:
            campaign.cancel()
            await asyncio.gather(campaign, return_exceptions=True)
            await election.resign()


class Forwarder:
    """Forwards TCP connections to a port, and cuts them."""

    def __init__(self) -> None:
        self.target = 0
        self.accepted = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self) -> asyncio.Server:
        """Listens on a free port."""
        return await asyncio.start_server(self._forward, "127.0.0.1", 0)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self._writers += [writer, back]
        self.accepted += 1
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()


@pytest.fixture
def followed() -> Iterator[Callable[[int], Awaitable[object]]]:
    """Waits until standbys here have connected to leaders so many times."""

    async def wait(times: int) -> None:
        await eventually(lambda: sum(each["event"] == "process_followed" for each in logs) >= times, "it is followed")

    with capture_logs() as logs:
        yield wait


Followed = Callable[[int], Awaitable[object]]


async def test_a_killed_leader_is_replaced_before_its_lease_expires(etcd: EtcdProcess, followed: Followed) -> None:
    async with leader(etcd) as (process, _), standby(etcd) as (election, campaign):
        await followed(1)
        process.kill()
        async with asyncio.timeout(WAIT_SECONDS):
            await campaign
        found = await election.leader()
        assert found is not None
        assert found.identity == "second"


async def test_one_of_two_standbys_replaces_a_killed_leader(etcd: EtcdProcess, followed: Followed) -> None:
    async with leader(etcd) as (process, _), standby(etcd) as (_, second), standby(etcd) as (_, third):
        await followed(2)
        process.kill()
        async with asyncio.timeout(WAIT_SECONDS):
            done, waiting = await asyncio.wait([second, third], return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, 1)


async def test_a_broken_connection_is_no_end(etcd: EtcdProcess, followed: Followed) -> None:
    forwarder = Forwarder()
    async with await forwarder.serve() as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with leader(etcd, address) as (_, forwarder.target), standby(etcd) as (election, campaign):
            await followed(1)
            for _ in range(2):
                times = forwarder.accepted
                forwarder.cut()
                await eventually(lambda: forwarder.accepted > times, "it is connected again")  # noqa: B023
            found = await election.leader()
            assert found is not None
            assert (found.identity, campaign.done()) == ("first", False)


async def test_a_frozen_leader_keeps_its_lease(etcd: EtcdProcess, followed: Followed) -> None:
    """Its connection breaks, and its kernel accepts another one."""
    forwarder = Forwarder()
    async with await forwarder.serve() as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with leader(etcd, address) as (process, forwarder.target), standby(etcd) as (election, campaign):
            await followed(1)
            process.send_signal(signal.SIGSTOP)
            times = forwarder.accepted
            forwarder.cut()
            await eventually(lambda: forwarder.accepted > times, "the standby tries again")
            found = await election.leader()
            assert found is not None
            assert (found.identity, campaign.done()) == ("first", False)
            process.send_signal(signal.SIGCONT)


async def test_a_leader_with_a_wrong_address_keeps_its_lease() -> None:
    """There is no process at the address. A candidate that was never connected to one has not seen it end."""
    async with await Forwarder().serve() as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await until_process_ended(address)
