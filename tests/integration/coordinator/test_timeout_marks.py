"""Timeout marks are written through binding: of each pod the newest, in the format of its dialect."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from builders.binding.stub import BindingStub, serving
from builders.wait import eventually
from muster.binding.v1 import binding_pb2 as pb
from muster.coordinator import binding_writes
from muster.coordinator.binding_writes import Pods, ReportWriter, TimeoutMarkWriter
from muster.coordinator.core.effects import MarkTimedOut, PodCondition, Report
from muster.coordinator.core.events import PodName
from muster.rpc.channel import open_channel

GANG = "koordinator/ml/gang"
MARK = "gang.scheduling.koordinator.sh/timeout"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding_writes, "MAX_MARK_PAUSE_SECONDS", 0.02)


def pods(count: int) -> tuple[PodName, ...]:
    return tuple(PodName(f"uid-{number}", "ml", f"pod-{number}") for number in range(count))


@asynccontextmanager
async def writing(stub: BindingStub) -> AsyncIterator[TimeoutMarkWriter]:
    async with serving(stub) as channel:
        found = TimeoutMarkWriter(channel, leader_epoch=7)
        task = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def written(writes: list[pb.WriteRequest]) -> dict[str, dict[str, str | None]]:
    """Annotations of the pods after these writes."""
    after: dict[str, dict[str, str | None]] = {}
    for write in writes:
        for each in write.annotations:
            after.setdefault(each.pod.uid, {}).update({**each.set, **dict.fromkeys(each.remove)})
    return after


async def test_timeout_marks_are_written_and_removed() -> None:
    stub = BindingStub()
    async with writing(stub) as found:
        found.put(MarkTimedOut(GANG, pods(2), timed_out=True))
        await stub.until_written(lambda writes: len(written(writes)) == 2)
        assert written(stub.writes) == {"uid-0": {MARK: "true"}, "uid-1": {MARK: "true"}}
        found.put(MarkTimedOut(GANG, pods(1), timed_out=False))
        await stub.until_written(lambda writes: written(writes)["uid-0"][MARK] is None)
    (first, _) = stub.writes
    assert first.leader_epoch == 7
    assert [(each.pod.namespace, each.pod.name) for each in first.annotations] == [("ml", "pod-0"), ("ml", "pod-1")]
    assert written(stub.writes)["uid-1"] == {MARK: "true"}


async def test_a_dialect_without_timeout_mark_writes_nothing() -> None:
    stub = BindingStub()
    async with writing(stub) as found:
        found.put(MarkTimedOut("plain/ml/pod", pods(1), timed_out=True))
        found.put(MarkTimedOut(GANG, pods(2)[1:], timed_out=True))
        await stub.until_written(lambda writes: bool(writes))
    assert list(written(stub.writes)) == ["uid-1"]


async def test_the_newest_mark_of_each_pod_waits_for_binding() -> None:
    stub = BindingStub()
    stub.write_answers = [grpc.StatusCode.UNAVAILABLE] * 3
    async with writing(stub) as found:
        found.put(MarkTimedOut(GANG, pods(2), timed_out=True))
        await stub.until_written(lambda writes: bool(writes))
        found.put(MarkTimedOut(GANG, pods(1), timed_out=False))
        await stub.until_written(
            lambda writes: len(writes) > 3 and written(writes[3:]) == {"uid-0": {MARK: None}, "uid-1": {MARK: "true"}}
        )


async def test_failed_pods_are_written_again() -> None:
    stub = BindingStub()
    stub.write_answers = [pb.WriteResponse(written=1, failures=["annotations of pod ml/pod-1: 500: no"])] * 2
    async with writing(stub) as found:
        found.put(MarkTimedOut(GANG, pods(2), timed_out=True))
        await stub.until_written(lambda writes: len(writes) == 3)
    assert written(stub.writes[2:]) == written(stub.writes[:1])


async def test_an_unwritable_request_does_not_block_others() -> None:
    stub = BindingStub()
    stub.write_answers = [grpc.StatusCode.INVALID_ARGUMENT]
    async with writing(stub) as found:
        found.put(MarkTimedOut(GANG, pods(1), timed_out=True))
        await stub.until_written(lambda writes: len(writes) == 1)
        found.put(MarkTimedOut(GANG, pods(2)[1:], timed_out=True))
        await stub.until_written(lambda writes: len(writes) == 2)
    assert list(written(stub.writes[1:])) == ["uid-1"]


async def test_many_marks_are_split_into_several_calls() -> None:
    stub = BindingStub()
    async with writing(stub) as found:
        found.put(MarkTimedOut(GANG, pods(1200), timed_out=True))
        await stub.until_written(lambda writes: len(written(writes)) == 1200)
    assert [len(write.annotations) for write in stub.writes] == [500, 500, 200]


async def test_i11_nothing_is_kept_of_pods_that_are_gone_while_binding_is_unreachable() -> None:
    existing: set[str] = {"uid-1"}
    channel = open_channel("127.0.0.1:1")
    known = Pods(lambda uid: uid in existing)
    marks, reports = TimeoutMarkWriter(channel, 7, known), ReportWriter(channel, 7, known)
    tasks = [asyncio.create_task(each.run()) for each in (marks, reports)]
    try:
        marks.put(MarkTimedOut(GANG, pods(1000), timed_out=True))
        conditions = [PodCondition(each.uid, "ml", each.name, "Unschedulable", "full") for each in pods(1000)]
        reports.put(Report(GANG, tuple(conditions)), "")
        await eventually(lambda: (list(marks._pending), list(reports._conditions)) == (["uid-1"], ["uid-1"]))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await channel.close()
