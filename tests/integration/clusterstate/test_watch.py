"""The Watch RPC over real connections: rejected requests and slow subscribers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from grpc import aio

from builders.clusterstate.mirror import mirroring
from builders.wait import WAIT_SECONDS
from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.clusterstate.v1 import clusterstate_pb2_grpc as pb_grpc
from muster.clusterstate.watch import FULL_NAME, WatchServicer, register
from muster.config.settings import PLAIN_TEXT
from muster.gangs.facts import Batch, PodClass, PodFacts
from muster.rpc.channel import open_channel
from muster.rpc.server import RpcServer


class Cluster:
    """A broadcaster behind a server, with pods that change all the time."""

    def __init__(self) -> None:
        self.broadcaster = Broadcaster(self._snapshot, backlog_changes=2_000)
        self.server = RpcServer("127.0.0.1:0", PLAIN_TEXT, "test")
        self.port = 0
        self.known = asyncio.Event()
        """The state is complete."""
        self.revision = 0
        self._pods: tuple[PodFacts, ...] = ()

    def change(self) -> None:
        """Update a hundred pods of 500 bytes."""
        self.revision += 1
        self._pods = tuple(PodFacts(f"{n}", "ml", f"{n}", "c", self.revision, problem="x" * 400) for n in range(100))
        self.broadcaster.publish(
            Batch(pods=self._pods, changed={"pods": self.revision}, through={"pods": self.revision})
        )

    def _snapshot(self) -> Batch:
        return Batch(pod_classes=(PodClass("c"),), pods=self._pods, through={"pods": self.revision})


@asynccontextmanager
async def serving(*, whole: bool = True, hold_seconds: float = WAIT_SECONDS) -> AsyncIterator[Cluster]:
    cluster = Cluster()
    if whole:
        cluster.known.set()
    cluster.server.add(register, WatchServicer(cluster.broadcaster, cluster.known, hold_seconds), FULL_NAME)
    cluster.port = await cluster.server.start()
    try:
        yield cluster
    finally:
        await cluster.server.stop(0)


@asynccontextmanager
async def reading(cluster: Cluster, name: str) -> AsyncIterator[AsyncIterator[pb.WatchResponse]]:
    async with open_channel(f"127.0.0.1:{cluster.port}") as channel:
        yield aiter(pb_grpc.ClusterStateServiceStub(channel).Watch(pb.WatchRequest(subscriber=name)))


async def refusal(cluster: Cluster, name: str) -> aio.AioRpcError:
    async with reading(cluster, name) as messages:
        with pytest.raises(aio.AioRpcError) as refused:
            await anext(messages)
    return refused.value


async def test_a_subscribers_name_has_a_limit() -> None:
    async with serving() as cluster:
        error = await refusal(cluster, "x" * 254)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "254 characters" in str(error.details())


async def test_a_subscriber_waits_until_the_state_is_complete() -> None:
    async with serving(whole=False) as cluster, open_channel(f"127.0.0.1:{cluster.port}") as channel:
        stub = pb_grpc.ClusterStateServiceStub(channel)
        first = asyncio.ensure_future(anext(aiter(stub.Watch(pb.WatchRequest(subscriber="early")))))
        with pytest.raises(aio.AioRpcError):  # the server has got the call before this one
            await stub.GetRevision(pb.GetRevisionRequest(), timeout=WAIT_SECONDS)
        cluster.known.set()
        async with asyncio.timeout(WAIT_SECONDS):
            assert (await first).snapshot_begin.reason == "subscribed"


async def test_watch_is_unavailable_if_the_state_is_not_complete_in_time() -> None:
    async with serving(whole=False, hold_seconds=0.05) as cluster:
        error = await refusal(cluster, "early")
    assert error.code() is grpc.StatusCode.UNAVAILABLE


async def revision(cluster: Cluster) -> dict[str, int]:
    async with open_channel(f"127.0.0.1:{cluster.port}") as channel:
        stub = pb_grpc.ClusterStateServiceStub(channel)
        return dict((await stub.GetRevision(pb.GetRevisionRequest(), timeout=WAIT_SECONDS)).changed.kinds)


async def test_the_revision_is_that_of_the_newest_change_not_of_a_bookmark() -> None:
    async with serving() as cluster:
        assert await revision(cluster) == {}
        cluster.broadcaster.note(Batch(changed={"nodes": 3, "pods": 1 << 64}, through={"nodes": 3}))
        assert await revision(cluster) == {"nodes": 3}, "what cannot be sent is not in batches either"
        cluster.broadcaster.restart("restored")
        cluster.change()
        assert await revision(cluster) == {"pods": 1}
        cluster.broadcaster.publish(Batch(through={"pods": 9}))
        assert await revision(cluster) == {"pods": 1}


async def test_the_revision_is_unavailable_until_the_state_is_complete() -> None:
    async with serving(whole=False) as cluster:
        with pytest.raises(aio.AioRpcError) as refused:
            await revision(cluster)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_slow_subscriber_gets_a_snapshot_and_blocks_nobody() -> None:
    async with serving() as cluster, reading(cluster, "sleepy") as messages, mirroring(cluster.port) as mirror:
        await mirror.until(lambda: True)
        while (await anext(messages)).WhichOneof("step") != "synced":
            pass
        for _ in range(400):  # 20 MB; some of it finds room in the connection
            cluster.change()
            await mirror.until(lambda: mirror.through == {"pods": cluster.revision})
        assert mirror.snapshots == 1
        assert len(cluster.broadcaster) == 2
        reasons = []
        async with asyncio.timeout(WAIT_SECONDS):
            while (message := await anext(messages)).synced.through.kinds.get("pods") != cluster.revision:
                if message.WhichOneof("step") == "snapshot_begin":
                    reasons.append(message.snapshot_begin.reason)
        assert reasons and all("fell behind by" in reason for reason in reasons)


async def test_a_subscriber_that_leaves_is_dropped() -> None:
    async with serving() as cluster:
        async with reading(cluster, "short") as messages:
            await anext(messages)
            assert len(cluster.broadcaster) == 1
        async with mirroring(cluster.port) as mirror:
            await mirror.until(lambda: len(cluster.broadcaster) == 1)


async def test_a_stopping_server_ends_subscriptions() -> None:
    async with serving() as cluster, mirroring(cluster.port) as mirror:
        await mirror.until(lambda: True)
        await cluster.server.stop()
        await mirror.until_disconnected()
        assert len(cluster.broadcaster) == 0
