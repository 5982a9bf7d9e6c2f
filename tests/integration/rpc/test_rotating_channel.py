"""Certificates are rotated under a running client without a failed call."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from structlog.testing import capture_logs

from builders.net.certificates import Authority
from builders.net.grpc import ClusterState, Placement, channel_to, describe, serving
from builders.wait import WAIT_SECONDS, eventually
from muster.config.settings import TlsSettings
from muster.rpc.credentials import BadCertificates, Certificates
from muster.rpc.subscription import SnapshotComplete, Step, subscribe


class Pair:
    """Files of a server and a client, first of one CA, then of another one."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server, self.client = self.replace()

    def replace(self) -> tuple[TlsSettings, TlsSettings]:
        """Replace everything at once."""
        self.authority = Authority(self._directory)
        return self.renew()

    def renew(self) -> tuple[TlsSettings, TlsSettings]:
        """Replace the certificates, with the same CA."""
        return self.authority.issue("server"), self.authority.issue("client")

    def replace_step_by_step(self) -> Iterator[None]:
        """Replace the CA without a gap: trust both, present certificates of the new one, then trust only that one."""
        old = self.authority.certificate.read_bytes()
        new = Authority(self._directory.with_name("new"))
        self.authority.certificate.write_bytes(old + new.certificate.read_bytes())
        yield
        for ours, issued in ((self.server, new.issue("server")), (self.client, new.issue("client"))):
            for kind in ("key_file", "certificate_file"):
                getattr(ours, kind).write_bytes(getattr(issued, kind).read_bytes())
        yield
        self.authority.certificate.write_bytes(new.certificate.read_bytes())
        yield


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "certificates")


def connections_to(port: int) -> int:
    """Channel settings of the client."""
    return sum(bool(each.raddr) and each.raddr.port == port for each in psutil.Process().net_connections("tcp"))


async def test_calls_after_the_rotation_present_the_new_certificate(pair: Pair) -> None:
    peers: list[str] = []

    async def note(context: Any) -> None:
        peers.append(context.peer())

    async with (
        serving(placement=Placement(note), tls=pair.server) as (_, port),
        channel_to(f"localhost:{port}", pair.client) as channel,
    ):
        assert [await describe(channel), await describe(channel)] == ["test", "test"]
        pair.replace()
        assert [await describe(channel), await describe(channel)] == ["test", "test"]
    assert peers[0] == peers[1] != peers[2] == peers[3]


async def test_running_calls_finish_on_the_old_channel_which_then_closes(pair: Pair) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def first_is_slow(_: object) -> None:
        if not arrived.is_set():
            arrived.set()
            await go_on.wait()

    async with (
        serving(placement=Placement(first_is_slow), tls=pair.server) as (_, port),
        channel_to(f"localhost:{port}", pair.client) as channel,
    ):
        running = asyncio.create_task(describe(channel))
        await arrived.wait()
        pair.replace()
        assert await describe(channel) == "test"
        assert connections_to(port) == 2
        go_on.set()
        assert await running == "test"
        await eventually(lambda: connections_to(port) <= 1)
        assert await describe(channel) == "test"


async def test_no_call_fails_while_certificates_and_ca_are_rotated(pair: Pair) -> None:
    replaced, answered = asyncio.Event(), 0
    async with (
        serving(placement=Placement(), tls=pair.server) as (_, port),
        channel_to(f"localhost:{port}", pair.client) as channel,
        asyncio.TaskGroup() as tasks,
    ):

        async def call_on() -> None:
            nonlocal answered
            while not replaced.is_set():
                assert await describe(channel) == "test"
                answered += 1

        for _ in range(4):
            tasks.create_task(call_on())
        steps = pair.replace_step_by_step()
        acts: tuple[Callable[[], object], ...] = (pair.renew, pair.renew, *[partial(next, steps)] * 3)
        for step in acts:
            await asyncio.to_thread(step)
            wanted = answered + 20
            await eventually(lambda: answered >= wanted, seconds=60, every_seconds=0.001)  # noqa: B023
        replaced.set()


async def test_a_subscription_reconnects_with_the_new_certificate(pair: Pair) -> None:
    cluster_state = ClusterState()
    async with (
        serving(cluster_state=cluster_state, tls=pair.server) as (_, port),
        channel_to(f"localhost:{port}", pair.client) as channel,
        aclosing(subscribe(channel, "test")) as steps,
    ):
        cluster_state.send_snapshot("a")
        await _complete(steps)
        pair.replace()
        cluster_state.send_delta("b")
        assert await anext(steps)
        assert cluster_state.subscribers == ["test"]
        cluster_state.end_stream()
        cluster_state.send_snapshot("c")
        await _complete(steps)
        assert cluster_state.subscribers == ["test", "test"]


async def _complete(steps: AsyncIterator[Step]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        async for step in steps:
            if isinstance(step, SnapshotComplete):
                return


async def test_a_key_that_does_not_match_is_reported_and_not_used(pair: Pair, tmp_path: Path) -> None:
    assert pair.client.key_file is not None
    good, other = pair.client.key_file.read_bytes(), Authority(tmp_path / "other").issue("client").key_file
    assert other is not None
    async with (
        serving(placement=Placement(), tls=pair.server) as (_, port),
        channel_to(f"localhost:{port}", pair.client) as channel,
    ):
        assert await describe(channel) == "test"
        with capture_logs() as logs:
            pair.client.key_file.write_bytes(other.read_bytes())
            assert [await describe(channel), await describe(channel)] == ["test", "test"]
        reported = [line for line in logs if line["event"] == "certificate_reload_failed"]
        assert len(reported) == 1
        assert str(pair.client.key_file) in reported[0]["error"]
        pair.client.key_file.write_bytes(good)
        assert await describe(channel) == "test"


@pytest.mark.parametrize("broken", ["certificate_file", "key_file", "ca_file"])
def test_a_file_with_something_else_in_it_is_named(broken: str, pair: Pair) -> None:
    file: Path = getattr(pair.client, broken)
    file.write_text("-----BEGIN NOTHING-----\n")
    assert pair.client.files is not None
    with pytest.raises(BadCertificates, match=file.name):
        Certificates(pair.client.files)


def test_keys_are_not_shown(pair: Pair) -> None:
    assert pair.client.files is not None
    certificates = Certificates(pair.client.files)
    assert "PRIVATE" not in repr(certificates.pem) + repr(certificates) + str(vars(certificates))
