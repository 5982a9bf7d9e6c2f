"""Several coordinator processes on a real etcd: one leads, another takes over, and all name the leader."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from builders.e2e.coordinators import Coordinator
from builders.etcd.server import etcd_in
from builders.wait import WAIT_SECONDS, eventually
from muster.localcluster.etcd import EtcdProcess
from muster.localcluster.probes import grpc_serving, wait_until_ready


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    async with etcd_in(tmp_path) as process:
        yield process


@asynccontextmanager
async def coordinators(etcd: EtcdProcess, directory: Path, *names: str) -> AsyncIterator[list[Coordinator]]:
    """Started one after the other, the first leads."""
    started: list[Coordinator] = []
    try:
        for name in names:
            coordinator = Coordinator(name, directory, etcd=etcd.endpoint)
            started.append(coordinator)
            await coordinator.start()
            if len(started) == 1:
                await coordinator.until("this replica leads")
        yield started
    finally:
        for coordinator in started:
            await coordinator.child.kill()


async def test_the_standby_names_the_leader_and_takes_over_when_it_is_killed(etcd: EtcdProcess, tmp_path: Path) -> None:
    async with coordinators(etcd, tmp_path, "first", "second") as (first, second):
        assert await second.ask() == "this replica does not lead; first leads"
        await first.child.kill()
        await second.until("this replica leads")


async def test_the_standby_is_connected_to_every_service_that_a_leader_calls(etcd: EtcdProcess, tmp_path: Path) -> None:
    async with connections() as (port, connected), coordinators(etcd, tmp_path, "first"):
        address = f"127.0.0.1:{port}"
        for service in ("cluster_state", "placement", "binding"):
            connected.clear()
            standby = Coordinator(f"standby-{service}", tmp_path, etcd=etcd.endpoint, **{service: address})
            try:
                await standby.start()
                async with asyncio.timeout(WAIT_SECONDS):
                    await connected.wait()
                assert "first leads" in await standby.ask()
            finally:
                await standby.child.kill()


@asynccontextmanager
async def connections() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """The port of a server that never answers, and an event that each connection to it sets."""
    connected = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], connected


async def test_a_stopped_leader_hands_over_and_exits_cleanly(etcd: EtcdProcess, tmp_path: Path) -> None:
    async with coordinators(etcd, tmp_path, "first", "second") as (first, second):
        await first.child.stop()
        assert first.child.returncode == 0
        await second.until("this replica leads")


async def test_a_coordinator_is_not_ready_without_etcd_and_recovers(etcd: EtcdProcess, tmp_path: Path) -> None:
    async with coordinators(etcd, tmp_path, "first") as (first,):
        ready = grpc_serving(first.address)
        await etcd.kill()

        async def not_ready() -> bool:
            return not await ready()

        await eventually(not_ready)
        await first.until("does not lead")
        await etcd.start()
        await first.until("this replica leads")
        async with asyncio.timeout(WAIT_SECONDS):
            await wait_until_ready(first.child, ready)
