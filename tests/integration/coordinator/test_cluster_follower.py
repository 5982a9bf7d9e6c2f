"""A standby that follows cluster-state begins its term with what it has, and never with less than there is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from builders.clusterstate.stream import ClusterStream, serving
from builders.core.objects import node, plain_pod, pod_class
from builders.e2e.coordinators import Coordinator
from builders.etcd.server import etcd_in
from builders.wait import eventually
from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.watch import FULL_NAME, WatchServicer, register
from muster.config.settings import PLAIN_TEXT
from muster.coordinator.cluster_follower import ClusterFollower
from muster.coordinator.core.events import Delta, Snapshot, ViewLost
from muster.gangs.facts import Batch
from muster.gangs.facts_store import FactsStore
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer


class ClusterState:
    """The broadcaster of cluster-state behind a server, with a state that the test changes."""

    def __init__(self) -> None:
        self.store = FactsStore()
        self.revision = 0
        self.snapshots = 0
        known = asyncio.Event()
        known.set()
        self.broadcaster = Broadcaster(self._snapshot)
        self.servicer = Servicer(self.broadcaster, known)

    def change(self, batch: Batch) -> None:
        self.revision += 1
        revisions = {"pods": self.revision}
        self.store.put(batch)
        self.broadcaster.publish(Batch(pods=batch.pods, nodes=batch.nodes, changed=revisions, through=revisions))

    def put_pod(self, name: str) -> None:
        self.change(Batch(pods=(plain_pod(name),)))

    def _snapshot(self) -> Batch:
        self.snapshots += 1
        return self.store.snapshot({}, {"pods": self.revision})


class Servicer(WatchServicer):
    """The servicer of cluster-state, which can count more changes than it has sent."""

    def __init__(self, broadcaster: Broadcaster, complete: asyncio.Event) -> None:
        super().__init__(broadcaster, complete)
        self.ahead = 0
        self.asked = asyncio.Event()

    async def get_revision(
        self, request: pb.GetRevisionRequest, context: aio.ServicerContext[Any, Any]
    ) -> pb.GetRevisionResponse:
        answer = await super().get_revision(request, context)
        answer.changed.kinds["pods"] += self.ahead
        self.asked.set()
        return answer


class Leader:
    """Records the changes that the leader gets."""

    def __init__(self) -> None:
        self.changes: list[Snapshot | Delta | ViewLost] = []

    @property
    def pods(self) -> set[str]:
        """Names of the pods that it knows; none before the first snapshot."""
        store = FactsStore()
        for change in self.changes:
            match change:
                case Snapshot(batch):
                    store = FactsStore()
                    store.put(batch)
                case Delta(batch):
                    assert store.nodes, "a delta before the snapshot"
                    store.put(batch)
        return {pod.name for pod in store.pods.values()}


@asynccontextmanager
async def following(address: str) -> AsyncIterator[ClusterFollower]:
    async with open_channel(address) as channel, ClusterFollower(channel, "standby") as follower:
        yield follower


@asynccontextmanager
async def leading(follower: ClusterFollower) -> AsyncIterator[Leader]:
    leader = Leader()
    task = asyncio.create_task(follower.lead(leader.changes.append))
    try:
        yield leader
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def cluster_state() -> AsyncIterator[ClusterState]:
    state = ClusterState()
    state.change(Batch(pod_classes=(pod_class(1),), nodes=(node("n", 4),)))
    yield state


@asynccontextmanager
async def server_of(state: ClusterState, listen: str = "127.0.0.1:0") -> AsyncIterator[str]:
    server = RpcServer(listen, PLAIN_TEXT, "test")
    server.add(register, state.servicer, FULL_NAME)
    port = await server.start()
    server.set_ready(True)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def test_a_new_leader_needs_no_snapshot(cluster_state: ClusterState) -> None:
    async with server_of(cluster_state) as address, following(address) as follower:
        await eventually(lambda: follower.complete)
        for number in range(1000):
            cluster_state.put_pod(f"p-{number}")
        async with leading(follower) as leader:
            await eventually(lambda: bool(leader.changes))
            (first,) = leader.changes
            assert isinstance(first, Snapshot)
            assert len(first.batch.pods) == 1000, "all that there was when it became the leader"
            assert first.batch.through == {"pods": 1001}
            assert first.batch.changed["pods"] == 1001
            assert [each.id for each in first.batch.pod_classes] == [pod_class(1).id]
            cluster_state.put_pod("late")
            await eventually(lambda: "late" in leader.pods)
            assert isinstance(leader.changes[-1], Delta)
        assert cluster_state.snapshots == 1


async def test_a_standby_that_knows_nothing_yet_reads_a_snapshot(cluster_state: ClusterState) -> None:
    async with server_of(cluster_state) as address, following(address) as follower:
        cluster_state.put_pod("a")
        assert not follower.complete
        async with leading(follower) as leader:
            await eventually(lambda: leader.pods == {"a"})
            assert len(leader.changes) == 1
            cluster_state.put_pod("b")
            await eventually(lambda: leader.pods == {"a", "b"})
    assert cluster_state.snapshots == 1, "that of the subscription which it has already"


async def test_a_new_leader_waits_for_changes_that_another_replica_has(cluster_state: ClusterState) -> None:
    cluster_state.servicer.ahead = 1
    async with server_of(cluster_state) as address, following(address) as follower:
        await eventually(lambda: follower.complete)
        async with leading(follower) as leader:
            await cluster_state.servicer.asked.wait()
            assert not leader.changes
            cluster_state.put_pod("a")
            await eventually(lambda: leader.pods == {"a"})
            assert len(leader.changes) == 1, "in the snapshot"
        assert cluster_state.snapshots == 1


async def test_changes_that_do_not_come_are_not_awaited_for_long(cluster_state: ClusterState) -> None:
    cluster_state.servicer.ahead = 1000
    async with server_of(cluster_state) as address, following(address) as follower:
        await eventually(lambda: follower.complete)
        cluster_state.put_pod("a")
        async with leading(follower) as leader:
            await eventually(lambda: leader.pods == {"a"})
        assert cluster_state.snapshots == 2


async def test_a_standby_of_an_earlier_cluster_state_reads_a_snapshot() -> None:
    stream = ClusterStream()
    stream.opens_with(Batch(nodes=(node("n", 4),)), {"pods": 1})
    async with serving(stream) as address, following(address) as follower:
        await eventually(lambda: follower.complete)
        stream.opens_with(Batch(nodes=(node("n", 4),), pods=(plain_pod("a"),)), {"pods": 2})
        async with leading(follower) as leader:
            await eventually(lambda: leader.pods == {"a"})
        assert stream.subscribers == ["standby", "standby"]


async def test_a_coordinator_that_leads_before_cluster_state_runs_learns_its_state(cluster_state: ClusterState) -> None:
    tried = asyncio.Event()

    def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        tried.set()

    listener = await asyncio.start_server(refuse, "127.0.0.1")
    host, port = listener.sockets[0].getsockname()
    async with following(f"{host}:{port}") as follower, leading(follower) as leader:
        await tried.wait()
        listener.close()
        await listener.wait_closed()
        async with server_of(cluster_state, f"{host}:{port}"):
            cluster_state.put_pod("a")
            await eventually(lambda: leader.pods == {"a"})
    assert cluster_state.snapshots == 1, "it is not read twice"


async def test_a_standby_that_lost_cluster_state_reads_a_snapshot(cluster_state: ClusterState) -> None:
    async with server_of(cluster_state) as address:
        pass  # its port is free now
    async with following(address) as follower:
        async with server_of(cluster_state, address):
            await eventually(lambda: follower.complete)
        await eventually(lambda: not follower.complete)
        async with leading(follower) as leader, server_of(cluster_state, address):
            cluster_state.put_pod("a")
            await eventually(lambda: leader.pods == {"a"})


async def test_a_leader_gets_the_new_snapshot_of_a_restored_cluster(cluster_state: ClusterState) -> None:
    async with server_of(cluster_state) as address, following(address) as follower:
        await eventually(lambda: follower.complete)
        async with leading(follower) as leader:
            await eventually(lambda: bool(leader.changes))
            cluster_state.broadcaster.restart("restored")
            await eventually(lambda: len(leader.changes) == 2)
            assert isinstance(leader.changes[1], Snapshot)


async def test_the_successor_of_a_killed_leader_reads_no_snapshot(cluster_state: ClusterState, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(server_of(cluster_state))
        etcd = await stack.enter_async_context(etcd_in(tmp_path))
        first, second = (
            Coordinator(name, tmp_path, etcd=etcd.endpoint, cluster_state=address) for name in ("first", "second")
        )
        for coordinator in (first, second):
            stack.push_async_callback(coordinator.child.kill)
            await coordinator.start()
            await first.until("this replica leads")
        await second.until_logged("standby_synced")
        before = cluster_state.snapshots
        await first.child.kill()
        await second.until("this replica leads")
        assert cluster_state.snapshots == before
