"""A subscription survives outages of cluster-state."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from builders.net.grpc import ClusterState, channel_to, serving
from builders.wait import WAIT_SECONDS
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.rpc.subscription import BatchReceived, Disconnected, SnapshotBegun, SnapshotComplete, Step, subscribe


@pytest.fixture
def cluster_state() -> ClusterState:
    return ClusterState()


async def take(steps: AsyncIterator[Step], number: int) -> list[Step]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(steps) for _ in range(number)]


def marks(steps: list[Step]) -> list[str | tuple[str, ...] | int]:
    """A short form of a step: the reason, the removed pods, or the revision of pods."""
    short: list[str | tuple[str, ...] | int] = []
    for step in steps:
        match step:
            case SnapshotBegun(reason):
                short.append(reason)
            case BatchReceived(batch):
                short.append(batch.removed_pods)
            case SnapshotComplete(through):
                short.append(through["pods"])
            case Disconnected():
                short.append("disconnected")
    return short


async def test_a_snapshot_then_deltas(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "placement-0")
        cluster_state.send_snapshot("a", "b", pods_revision=7)
        cluster_state.send_delta("c")
        assert marks(await take(steps, 4)) == ["subscribed", ("a", "b"), 7, ("c",)]
        assert cluster_state.subscribers == ["placement-0"]
        await steps.aclose()


async def test_a_new_snapshot_in_the_middle_of_the_stream(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.send_snapshot("a")
        cluster_state.send_snapshot("b", reason="subscriber fell behind by 20000 changes", pods_revision=9)
        cluster_state.send_delta("c")
        assert marks(await take(steps, 7))[3:] == ["subscriber fell behind by 20000 changes", ("b",), 9, ("c",)]
        await steps.aclose()


async def test_a_snapshot_that_is_replaced_before_it_is_complete(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.messages.put_nowait(pb.WatchResponse(snapshot_begin=pb.SnapshotBegin(reason="subscribed")))
        cluster_state.send_delta("a")
        cluster_state.send_snapshot("b", reason="again", pods_revision=3)
        assert marks(await take(steps, 5)) == ["subscribed", ("a",), "again", ("b",), 3]
        await steps.aclose()


async def test_a_dropped_stream_is_reported_once_before_a_new_snapshot(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.send_snapshot("a")
        cluster_state.end_stream()
        cluster_state.send_snapshot("b", pods_revision=2)
        assert marks(await take(steps, 7)) == ["subscribed", ("a",), 1, "disconnected", "subscribed", ("b",), 2]
        assert len(cluster_state.subscribers) == 2
        await steps.aclose()


async def test_several_failed_attempts_are_one_outage(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.send_snapshot("a")
        for _ in range(4):
            cluster_state.end_stream()
        cluster_state.send_snapshot("b", pods_revision=2)
        assert marks(await take(steps, 7))[3:] == ["disconnected", "subscribed", ("b",), 2]
        assert len(cluster_state.subscribers) == 5
        await steps.aclose()


async def test_an_outage_is_reported_once(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port):
        channel = channel_to(port)
        steps = subscribe(await channel.__aenter__(), "test")
        cluster_state.send_snapshot("a")
        await take(steps, 3)
    (lost,) = await take(steps, 1)
    assert isinstance(lost, Disconnected)
    assert lost.reason.startswith("UNAVAILABLE")
    successor = ClusterState()
    successor.send_snapshot("b", pods_revision=5)
    async with serving(cluster_state=successor, listen=f"127.0.0.1:{port}"):
        assert marks(await take(steps, 3)) == ["subscribed", ("b",), 5]
        await steps.aclose()
        await channel.__aexit__(None, None, None)


async def test_a_server_that_never_existed_is_reported_once(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=ClusterState()) as (_, port):
        pass  # its port is free now
    async with channel_to(port) as channel:
        steps = subscribe(channel, "test")
        assert marks(await take(steps, 1)) == ["disconnected"]
        cluster_state.send_snapshot("a")
        async with serving(cluster_state=cluster_state, listen=f"127.0.0.1:{port}"):
            assert marks(await take(steps, 3)) == ["subscribed", ("a",), 1]
            await steps.aclose()


async def test_changes_before_a_snapshot_are_not_passed_on(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.send_delta("stray")
        assert await take(steps, 1) == [Disconnected("cluster-state sent changes before a snapshot")]
        await cluster_state.all_gone()
        cluster_state.send_snapshot("a")
        assert marks(await take(steps, 3)) == ["subscribed", ("a",), 1]
        await steps.aclose()


async def test_closing_it_ends_the_call_on_the_server(cluster_state: ClusterState) -> None:
    async with serving(cluster_state=cluster_state) as (_, port), channel_to(port) as channel:
        steps = subscribe(channel, "test")
        cluster_state.send_snapshot("a")
        await take(steps, 3)
        await steps.aclose()
        await cluster_state.all_gone()
