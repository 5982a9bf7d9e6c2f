"""The record writer with a real etcd: ordered, atomic, batched, and only while it leads."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.etcd.server import etcd_in, fence_of, store_at
from builders.wait import WAIT_SECONDS
from muster.coordinator import records
from muster.coordinator.core.effects import Persist
from muster.coordinator.core.events import NotPersisted, Persisted, PodName, Record, RecordState, Seat, ShrunkSubgroup
from muster.coordinator.v1 import record_pb2 as pb
from muster.etcd.errors import Fenced
from muster.etcd.store import Fence, Store
from muster.gangs.solve import PodsOnNode

PREFIX = "/test"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with etcd_in(tmp_path) as etcd, store_at(etcd.endpoint) as opened:
        yield opened


def record(gang: str, pods: int = 2, state: RecordState = RecordState.BINDING) -> Record:
    seats = tuple(Seat(f"{gang}-uid-{i}", "ns", f"{gang}-{i}", f"class{i % 2}", f"node{i % 3}") for i in range(pods))
    return Record(gang, "incarnation", state, seats, 3, ("a", "b"), 1_700_000_000_123)


class Written:
    """Events that a writer reported."""

    def __init__(self) -> None:
        self.answers: list[Persisted | NotPersisted] = []
        self.calls = 0
        self._more = asyncio.Event()

    def __call__(self, answers: Sequence[Persisted | NotPersisted]) -> None:
        self.answers.extend(answers)
        self.calls += 1
        self._more.set()

    async def all_of(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.answers) < count:
                self._more.clear()
                await self._more.wait()


async def write(store: Store, fence: Fence, effects: Sequence[Persist]) -> Written:
    """Let a writer write the effects, all queued when it starts."""
    writer = records.RecordWriter(store, PREFIX, fence, lambda gang: f"trace of {gang}")
    for effect in effects:
        writer.put(effect)
    written = Written()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run(written))
        await written.all_of(len(effects))
        running.cancel()
    return written


async def test_records_are_loaded_as_written(store: Store) -> None:
    fence = await fence_of(store)
    effects = [Persist(1, (record("x/ns/a"), record("x/ns/b"))), Persist(2, (record("x/ns/c", 0),))]
    await write(store, fence, effects)
    loaded = await records.load(store, PREFIX)
    assert [(found.gang, trace) for found, trace in loaded] == [
        (name, f"trace of {name}") for name in ("x/ns/a", "x/ns/b", "x/ns/c")
    ]
    for (found, _), written in zip(loaded, [record("x/ns/a"), record("x/ns/b"), record("x/ns/c", 0)], strict=True):
        assert set(found.seats) == set(written.seats)
        assert (found.state, found.schedule_cycle, found.group) == (RecordState.BINDING, 3, ("a", "b"))
        assert (found.incarnation, found.permitted_unix_millis) == ("incarnation", 1_700_000_000_123)


async def test_holds_and_timeouts_survive_a_crash(store: Store) -> None:
    pods = tuple(PodName(f"uid-{i}", "ns", f"pod-{i}") for i in range(3))
    waiting = Record("x/ns/waiting", "a", RecordState.UNPERMITTED, waiting_since_unix_millis=1_700_000_000_123)
    timed_out = Record(
        "x/ns/timed-out", "a", RecordState.UNPERMITTED, timed_out_declaration="min 3", timing_out=pods[:2]
    )
    victim = Record("x/ns/victim", "a", RecordState.UNPERMITTED, evicting=pods, evicted_for="x/ns/preemptor")
    spared = Record("x/ns/spared", "a", RecordState.SATISFIED, evicting=pods[:1], evicted_for="x/ns/preemptor")
    kept = (PodsOnNode("node-0", "class-0", 2), PodsOnNode("node-1", "class-0", 1))
    preemptor = Record("x/ns/preemptor", "a", RecordState.UNPERMITTED, nominated=kept)
    written = (waiting, timed_out, victim, spared, preemptor)
    await write(store, await fence_of(store), [Persist(1, written)])
    loaded = {found.gang: found for found, _ in await records.load(store, PREFIX)}
    assert loaded == {each.gang: each for each in written}


async def test_hold_offs_of_a_gang_and_its_subgroups_survive_a_crash(store: Store) -> None:
    subgroups = (ShrunkSubgroup("workers/0", 1, 1_700_000_000_000), ShrunkSubgroup("workers/1", 3, 1_700_000_040_000))
    shrunk = Record("x/ns/shrunk", "a", RecordState.SATISFIED, shrinks=2, grows_after_unix_millis=1_700_000_020_000)
    divided = replace(shrunk, gang="x/ns/divided", shrunk_subgroups=subgroups)
    await write(store, await fence_of(store), [Persist(1, (shrunk, divided))])
    found = {record.gang: record for record, _ in await records.load(store, PREFIX)}
    assert found == {"x/ns/shrunk": shrunk, "x/ns/divided": divided}


async def test_permits_that_wait_for_claims_survive_a_crash(store: Store) -> None:
    written = replace(record("x/ns/a"), claims_first=True)
    await write(store, await fence_of(store), [Persist(1, (written, record("x/ns/b")))])
    loaded = {found.gang: found.claims_first for found, _ in await records.load(store, PREFIX)}
    assert loaded == {"x/ns/a": True, "x/ns/b": False}


async def test_ranks_of_all_members_survive_a_crash(store: Store) -> None:
    binding = replace(
        record("x/ns/binding"), ranks=(("x/ns/binding-uid-1", 0), ("bound", 1), ("x/ns/binding-uid-0", 2))
    )
    satisfied = Record("x/ns/satisfied", "a", RecordState.SATISFIED, ranks=(("one", 0), ("three", 2)))
    await write(store, await fence_of(store), [Persist(1, (binding, satisfied))])
    loaded = {found.gang: found for found, _ in await records.load(store, PREFIX)}
    assert loaded["x/ns/binding"].ranks == binding.ranks
    assert loaded["x/ns/satisfied"] == satisfied


def test_records_of_an_older_version_are_readable() -> None:
    pods = [pb.SeatedPod(uid="uid-0", namespace="ns", name="pod-0")]
    seats = [pb.Seat(node="node-0", class_id="class-0", pods=pods)]
    old = pb.GangRecord(id="x/ns/a", incarnation="a", state=pb.GangRecord.STATE_BINDING, seats=seats, leader_epoch=7)
    found, _ = records.decode("key", old.SerializeToString())
    assert found == Record("x/ns/a", "a", RecordState.BINDING, (Seat("uid-0", "ns", "pod-0", "class-0", "node-0"),))


async def test_queued_writes_are_one_transaction_with_the_last_value(store: Store) -> None:
    fence = await fence_of(store)
    effects = [Persist(i, (record(f"x/ns/{i}"),)) for i in range(40)]
    effects += [Persist(40, deletes=("x/ns/0",)), Persist(41, (record("x/ns/1", state=RecordState.SATISFIED),))]
    written = await write(store, fence, effects)
    assert written.calls == 1
    assert written.answers == [Persisted(i) for i in range(42)]
    loaded = {found.gang: found.state for found, _ in await records.load(store, PREFIX)}
    assert len(loaded) == 39
    assert loaded["x/ns/1"] is RecordState.SATISFIED


async def test_what_nobody_waits_for_is_written_with_the_next_permit(store: Store) -> None:
    writer = records.RecordWriter(store, PREFIX, await fence_of(store), str, gather_seconds=3600)
    written = Written()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(writer.run(written))
        writer.put(Persist(1, (record("x/ns/started", state=RecordState.SATISFIED),), awaited=False))
        assert await records.load(store, PREFIX) == []
        writer.put(Persist(2, (record("x/ns/permitted"),)))
        await written.all_of(2)
        running.cancel()
    assert written.calls == 1
    assert [found.gang for found, _ in await records.load(store, PREFIX)] == ["x/ns/permitted", "x/ns/started"]


async def test_what_nobody_waits_for_is_written_without_a_permit(store: Store) -> None:
    await write(store, await fence_of(store), [Persist(1, (record("x/ns/started"),), awaited=False)])
    assert [found.gang for found, _ in await records.load(store, PREFIX)] == ["x/ns/started"]


async def test_large_writes_are_split_between_effects(store: Store) -> None:
    fence = await fence_of(store)
    effects = [Persist(i, tuple(record(f"x/ns/{i}-{j}") for j in range(30))) for i in range(10)]
    written = await write(store, fence, effects)
    assert written.answers == [Persisted(i) for i in range(10)]
    assert written.calls == 4  # three of 30 fit in 100
    assert len(await records.load(store, PREFIX)) == 300


async def test_a_permit_too_large_for_etcd_is_reported_and_blocks_no_other(store: Store) -> None:
    fence = await fence_of(store)
    effects = [
        Persist(1, (record("x/ns/a"),)),
        Persist(2, (record("x/ns/huge", 40_000),)),
        Persist(3, (record("x/ns/b"),)),
    ]
    written = await write(store, fence, effects)
    assert [type(answer) for answer in written.answers] == [Persisted, NotPersisted, Persisted]
    assert [found.gang for found, _ in await records.load(store, PREFIX)] == ["x/ns/a", "x/ns/b"]


async def test_i2_a_former_leader_writes_nothing(store: Store) -> None:
    fence = await fence_of(store)
    await store.ask(lambda client: client.delete(fence.key))
    await fence_of(store)
    with pytest.raises(ExceptionGroup) as failed:
        async with asyncio.timeout(WAIT_SECONDS):
            await write(store, fence, [Persist(1, (record("x/ns/a"),))])
    assert failed.group_contains(Fenced)
    assert await records.load(store, PREFIX) == []


async def test_an_undecodable_record_is_kept_and_others_are_loaded(store: Store) -> None:
    fence = await fence_of(store)
    await write(store, fence, [Persist(1, (record("x/ns/a"),))])
    await store.commit(fence, {f"{PREFIX}/gangs/x/ns/bad": b"\xff\xff\xff", f"{PREFIX}/gangs/x/ns/none": b""})
    assert [found.gang for found, _ in await records.load(store, PREFIX)] == ["x/ns/a"]
    assert len(await store.get_prefix(f"{PREFIX}/gangs/")) == 3
