"""Every subscriber gets everything in order, encoded once; a slow one gets a snapshot and blocks nobody."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from builders.wait import WAIT_SECONDS
from muster.clusterstate.broadcaster import Broadcaster
from muster.clusterstate.chunks import CHUNK_OBJECTS, change_count, delta_chunks
from muster.clusterstate.v1 import clusterstate_pb2 as pb
from muster.gangs.facts import Batch, NodeFacts, PodClass, PodFacts, TopologyTree
from muster.rpc.watch_codec import decode_batch
from muster.topology.trees import flat_tree


class Cluster:
    """A state with pods only, and its broadcaster."""

    def __init__(self, backlog_changes: int = 1000) -> None:
        self.pods: dict[str, PodFacts] = {}
        self.revision = 0
        self.snapshots = 0
        """How often the whole state was taken."""
        self.broadcaster = Broadcaster(self.snapshot, backlog_changes)

    def snapshot(self) -> Batch:
        self.snapshots += 1
        return Batch(
            pod_classes=(PodClass("c"),),
            nodes=(NodeFacts("n"),),
            pods=tuple(self.pods.values()),
            through={"pods": self.revision},
        )

    def put(self, *names: str) -> None:
        """Update pods in one batch."""
        self.revision += 1
        pods = tuple(PodFacts(name, "ml", name, "c", revision=self.revision) for name in names)
        self.pods.update((pod.uid, pod) for pod in pods)
        self.broadcaster.publish(Batch(pods=pods, changed={"pods": self.revision}, through={"pods": self.revision}))

    def restore(self, *names: str) -> None:
        """The API server is restored from a backup with these pods at revision 1."""
        self.revision = 1
        self.pods = {name: PodFacts(name, "ml", name, "c", revision=1) for name in names}
        self.broadcaster.publish(Batch(pods=tuple(self.pods.values()), through={"pods": 1}))
        self.broadcaster.restart("restored")

    def bookmark(self) -> None:
        """Raise the revision without a change."""
        self.revision += 1
        self.broadcaster.publish(Batch(through={"pods": self.revision}))


class Subscriber:
    """Reads steps one by one and applies them as the contract says."""

    def __init__(self, messages: AsyncGenerator[bytes]) -> None:
        self._messages = messages
        self.pods: dict[str, int] = {}
        self.reasons: list[str] = []
        self.through: dict[str, int] = {}
        self.synced = False

    async def step(self) -> pb.WatchResponse:
        async with asyncio.timeout(WAIT_SECONDS):
            message = pb.WatchResponse.FromString(await anext(self._messages))
        match message.WhichOneof("step"):
            case "snapshot_begin":
                self.pods, self.synced = {}, False
                self.reasons.append(message.snapshot_begin.reason)
            case "batch":
                batch = decode_batch(message.batch)
                self.pods.update((pod.name, pod.revision) for pod in batch.pods)
                if batch.through:
                    assert self.synced, "revisions hold only for the whole"
                    self.through = batch.through
            case "synced":
                self.synced = True
                self.through = dict(message.synced.through.kinds)
        return message

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.step()


@asynccontextmanager
async def subscribed(cluster: Cluster, name: str = "test") -> AsyncIterator[Subscriber]:
    async with aclosing(cluster.broadcaster.subscribe(name)) as messages:
        yield Subscriber(messages)


async def test_a_snapshot_is_followed_by_deltas() -> None:
    cluster = Cluster()
    cluster.put("a")
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        assert (subscriber.reasons, subscriber.pods, subscriber.through) == (["subscribed"], {"a": 1}, {"pods": 1})
        cluster.put("b")
        cluster.put("a")
        await subscriber.until(lambda: subscriber.through == {"pods": 3})
        assert subscriber.pods == {"a": 3, "b": 2}


async def test_who_subscribes_while_a_snapshot_is_sent_shares_it_until_something_changes() -> None:
    cluster = Cluster()
    cluster.put(*(f"pod-{number}" for number in range(3 * CHUNK_OBJECTS)))
    async with subscribed(cluster) as first, subscribed(cluster) as second, subscribed(cluster) as third:
        await first.until(lambda: len(first.pods) >= CHUNK_OBJECTS)
        await second.step()
        assert cluster.snapshots == 1
        cluster.put("new")
        await third.step()
        assert cluster.snapshots == 2
        for each in (third, second, first):
            await each.until(lambda each=each: each.through == {"pods": 2})  # type: ignore[misc]
            assert each.pods.keys() == cluster.pods.keys()
            assert each.reasons == ["subscribed"]


async def test_a_snapshot_is_not_kept_for_those_who_subscribe_after_it_was_sent() -> None:
    cluster = Cluster()
    cluster.put("a")
    for number in (1, 2):
        async with subscribed(cluster) as subscriber:
            await subscriber.until(lambda subscriber=subscriber: subscriber.synced)  # type: ignore[misc]
        assert cluster.snapshots == number


async def test_who_shares_a_snapshot_that_cannot_be_encoded_does_not_take_it_for_complete() -> None:
    def fail(_: object) -> None:
        raise ValueError("reporting failed")

    cannot = Batch(nodes=(NodeFacts("n", revision=1 << 64),), pod_classes=(PodClass("c"),))
    broadcaster = Broadcaster(lambda: cannot, report=fail)
    async with aclosing(broadcaster.subscribe("a")) as first, aclosing(broadcaster.subscribe("b")) as second:
        for messages in (first, second):
            assert pb.WatchResponse.FromString(await anext(messages)).HasField("snapshot_begin")
            assert pb.WatchResponse.FromString(await anext(messages)).batch.pod_classes
        with pytest.raises(ValueError, match="reporting failed"):
            await anext(first)
        with pytest.raises(RuntimeError, match="could not be encoded"):
            await anext(second)


async def test_classes_and_nodes_come_before_pods() -> None:
    cluster = Cluster()
    cluster.put("a")
    kinds = []
    async with subscribed(cluster) as subscriber:
        while not subscriber.synced:
            message = await subscriber.step()
            kinds += [field.name for field, _ in message.batch.ListFields()]
    assert kinds == ["pod_classes", "nodes", "pods"]


async def test_a_snapshot_is_sent_in_chunks() -> None:
    cluster = Cluster()
    cluster.put(*(f"pod-{n}" for n in range(2_500)))
    sizes = []
    async with subscribed(cluster) as subscriber:
        while not subscriber.synced:
            sizes.append(len((await subscriber.step()).batch.pods))
    assert [size for size in sizes if size] == [1000, 1000, 500]


async def test_a_large_delta_is_sent_in_chunks_with_revisions_in_the_last() -> None:
    cluster = Cluster(backlog_changes=10_000)
    cluster.put("a")
    sizes = []
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        for pods in (2_500, 2_000, 1_000):
            revision = cluster.revision + 1
            cluster.put(*(f"pod-{n}" for n in range(pods)))
            while subscriber.through["pods"] < revision:
                message = await subscriber.step()
                sizes.append(len(message.batch.pods))
                assert (message.batch.changed.kinds == {"pods": revision}) is (subscriber.through["pods"] == revision)
            assert all(subscriber.pods[f"pod-{n}"] == revision for n in range(pods))
    assert sizes == [1000, 1000, 500, 1000, 1000, 1000]


async def test_changes_during_a_snapshot_follow_it() -> None:
    cluster = Cluster()
    cluster.put(*(f"pod-{n}" for n in range(2_500)))
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: "pod-0" in subscriber.pods)
        cluster.put("pod-2400", "late")
        await subscriber.until(lambda: subscriber.synced)
        assert "late" not in subscriber.pods
        assert (subscriber.pods["pod-2400"], subscriber.through) == (1, {"pods": 1}), "the snapshot is of one moment"
        await subscriber.until(lambda: subscriber.through == {"pods": 2})
        assert (subscriber.pods["pod-2400"], subscriber.pods["late"]) == (2, 2)


async def test_a_subscriber_that_falls_behind_gets_a_snapshot_alone() -> None:
    cluster = Cluster(backlog_changes=10)
    async with subscribed(cluster) as slow, subscribed(cluster) as quick:
        await slow.until(lambda: slow.synced)
        await quick.until(lambda: quick.synced)
        for _ in range(11):
            cluster.put("a")
            await quick.step()
        assert (quick.pods, quick.reasons) == ({"a": 11}, ["subscribed"])
        await slow.until(lambda: slow.through == {"pods": 11})
        assert slow.reasons == ["subscribed", "subscriber fell behind by 11 changes"]
        assert slow.pods == {"a": 11}
        cluster.put("b")
        await slow.until(lambda: "b" in slow.pods)


async def test_a_snapshot_allows_as_many_changes_as_objects() -> None:
    cluster = Cluster(backlog_changes=10)
    cluster.put(*(f"pod-{n}" for n in range(2_500)))
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: bool(subscriber.pods))
        for n in range(2_500):
            cluster.put(f"late-{n}")
        await subscriber.until(lambda: len(subscriber.pods) == 5_000)
        assert subscriber.reasons == ["subscribed"]


async def test_falling_further_behind_restarts_the_snapshot() -> None:
    cluster = Cluster(backlog_changes=10)
    cluster.put(*(f"pod-{n}" for n in range(2_500)))
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: bool(subscriber.pods))
        cluster.put(*(f"late-{n}" for n in range(2_600)))
        await subscriber.until(lambda: subscriber.synced)
        assert subscriber.reasons == ["subscribed", "subscriber fell behind by 2600 changes"]
        assert len(subscriber.pods) == 5_100


async def test_a_batch_is_encoded_once_for_all_subscribers() -> None:
    cluster = Cluster()
    async with (
        aclosing(cluster.broadcaster.subscribe("one")) as one,
        aclosing(cluster.broadcaster.subscribe("two")) as two,
    ):
        for messages in (one, two):
            while pb.WatchResponse.FromString(await anext(messages)).WhichOneof("step") != "synced":
                pass
        cluster.put("a")
        assert await anext(one) is await anext(two)


async def test_batches_that_only_raise_revisions_are_throttled() -> None:
    cluster = Cluster()
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        cluster.bookmark()
        await subscriber.step()
        assert subscriber.through == {"pods": 1}
        for _ in range(50):
            cluster.bookmark()
        await subscriber.step()
        assert subscriber.through == {"pods": 51}


async def test_a_delta_carries_the_revision_that_was_held_back() -> None:
    cluster = Cluster()
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        for _ in range(5):
            cluster.bookmark()
        cluster.put("a")
        await subscriber.step()
        assert (subscriber.through, subscriber.pods) == ({"pods": 1}, {})
        await subscriber.step()
        assert (subscriber.through, subscriber.pods) == ({"pods": 6}, {"a": 6})


async def test_a_closed_subscription_is_dropped() -> None:
    cluster = Cluster()
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        assert len(cluster.broadcaster) == 1
    assert len(cluster.broadcaster) == 0


async def test_a_tree_is_sent_whole_and_counts_by_its_size() -> None:
    cluster = Cluster(backlog_changes=20)
    flat, removed = Batch(trees=(flat_tree(),)), Batch(removed_trees=("flat",))
    large = Batch(trees=(TopologyTree("large", leaves=tuple((f"n{number}", -1) for number in range(300))),))
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        cluster.broadcaster.publish(flat)
        assert [tree.name for tree in (await subscriber.step()).batch.trees] == ["flat"]
        cluster.broadcaster.publish(removed)
        assert list((await subscriber.step()).batch.removed_trees) == ["flat"]
        cluster.broadcaster.publish(large)
        await subscriber.until(lambda: len(subscriber.reasons) == 2)
        assert "fell behind" in subscriber.reasons[1]


async def test_lower_revisions_reach_subscribers_in_a_snapshot() -> None:
    cluster = Cluster()
    cluster.put("a")
    cluster.put("b")
    async with subscribed(cluster) as subscriber:
        await subscriber.until(lambda: subscriber.synced)
        cluster.put("c")
        cluster.restore("a")
        await subscriber.until(lambda: subscriber.through == {"pods": 1})
        assert (subscriber.pods, subscriber.reasons) == ({"a": 1}, ["subscribed", "restored"])
        cluster.put("d")
        await subscriber.until(lambda: subscriber.through == {"pods": 2})
        assert subscriber.pods == {"a": 1, "d": 2}


def test_many_removed_classes_selectors_and_label_sets_are_sent_in_chunks() -> None:
    ids = tuple(map(str, range(2500)))
    delta = Batch(removed_pod_classes=ids, removed_selectors=ids, removed_label_sets=ids[:10], through={"pods": 8})
    chunks = list(delta_chunks(delta, {"pods": 7}))
    assert max(map(change_count, chunks)) <= 1000
    assert tuple(id_ for each in chunks for id_ in each.removed_pod_classes) == ids
    assert tuple(id_ for each in chunks for id_ in each.removed_selectors) == ids
    assert tuple(id_ for each in chunks for id_ in each.removed_label_sets) == ids[:10]
    assert [each.through["pods"] for each in chunks[-2:]] == [7, 8]
