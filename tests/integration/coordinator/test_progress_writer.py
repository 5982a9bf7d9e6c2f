"""Progress of gangs is written through binding in the format of their dialect: the newest of each, despite failures."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import msgspec
import pytest

from builders.binding.stub import BindingStub, serving
from muster.binding.v1 import binding_pb2 as pb
from muster.coordinator import progress_writer
from muster.coordinator.progress_writer import ProgressWriter
from muster.dialects.dialect import Dialect, PodMarks
from muster.dialects.progress import MemberProgress, ObjectWrite, PodWrite, Progress, Stage, Writes
from muster.dialects.registry import Registry
from muster.dialects.sources import gang_facts
from muster.gangs.facts import GangFacts, ObjectReference

GROUP = "fake/ml/group-a"


def in_words(progress: Progress) -> Writes:
    """A dialect that writes the stage to an object, and bound members to the pods."""
    assert progress.facts.definition is not None
    bound = (each for each in progress.members if each.bound)
    return Writes(
        (ObjectWrite(progress.facts.definition, "configmaps", patch={"data": {"status": progress.stage.name}}),),
        tuple(PodWrite(each.uid, each.name, {"rank": str(each.rank), "gone": None}) for each in bound),
    )


def use_dialects(monkeypatch: pytest.MonkeyPatch, **write_progress: Callable[[Progress], Writes]) -> None:
    """Replaces the dialects by fakes that only write progress."""
    fakes = [
        Dialect(
            name=name,
            marks=PodMarks(naming=""),
            membership=lambda marks: None,
            read=lambda declaration: gang_facts("fake", declaration),
            write_progress=write,
        )
        for name, write in write_progress.items()
    ]
    registry = Registry(fakes)
    monkeypatch.setattr(progress_writer, "writes_progress", registry.writes_progress)
    monkeypatch.setattr(progress_writer, "progress_writes", registry.progress_writes)


@pytest.fixture(autouse=True)
def a_dialect(monkeypatch: pytest.MonkeyPatch) -> None:
    use_dialects(monkeypatch, fake=in_words)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_writer, "WAITING_SECONDS", 0.01)
    monkeypatch.setattr(progress_writer, "MAX_UNREACHABLE_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(progress_writer, "MIN_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(progress_writer, "MAX_RETRY_SECONDS", 0.02)


class Gangs:
    """Progress of gangs as the coordinator reports it."""

    def __init__(self) -> None:
        self.known: dict[str, Progress] = {}
        self.asked = 0
        self.asked_once, self.asked_thrice = asyncio.Event(), asyncio.Event()
        self.failed: list[tuple[str, str]] = []
        self.one_failed = asyncio.Event()

    def fail(self, gang: str, why: str) -> None:
        self.failed.append((gang, why))
        self.one_failed.set()

    def set(self, stage: Stage, gang: str = GROUP, members: int = 2) -> None:
        dialect, namespace, name = gang.split("/")
        facts = GangFacts(
            gang,
            dialect,
            namespace,
            name,
            definition=ObjectReference("v1", "ConfigMap", namespace, name, f"uid-{name}"),
        )
        placed = stage in (Stage.PERMITTED, Stage.BOUND)
        self.known[gang] = Progress(
            facts,
            stage,
            tuple(
                MemberProgress(
                    f"uid-{n}", f"pod-{n}", "node-0" if placed else "", (), n, int(placed), stage is Stage.BOUND
                )
                for n in range(members)
            ),
        )

    def of(self, gang: str) -> Progress | None:
        self.asked += 1
        self.asked_once.set()
        if self.asked == 3:
            self.asked_thrice.set()
        return self.known.get(gang)


@asynccontextmanager
async def writing(stub: BindingStub, gangs: Gangs) -> AsyncIterator[ProgressWriter]:
    async with serving(stub) as channel:
        found = ProgressWriter(channel, 7, gangs.of, gangs.fail)
        task = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def written_statuses(writes: list[pb.WriteRequest], name: str = "group-a") -> list[str]:
    """Statuses written for a group."""
    patches = [each for write in writes for each in write.objects if each.object.name == name]
    return [msgspec.json.decode(each.merge_patch)["data"]["status"] for each in patches]


async def test_a_groups_object_is_written_after_its_pods() -> None:
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.BOUND)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
    pods, group = stub.writes
    assert (pods.leader_epoch, group.leader_epoch) == (7, 7)
    assert [(each.pod.namespace, each.pod.name) for each in pods.annotations] == [("ml", "pod-0"), ("ml", "pod-1")]
    assert [dict(each.set_labels) for each in pods.annotations] == [{"rank": "0"}, {"rank": "1"}]
    assert [list(each.remove_labels) for each in pods.annotations] == [["gone"], ["gone"]]
    (patch,) = group.objects
    assert (patch.object.name, patch.object.uid, patch.plural, patch.subresource) == (
        "group-a",
        "uid-group-a",
        "configmaps",
        "",
    )


async def test_stages_that_follow_each_other_at_once_are_written_once() -> None:
    stub, gangs = BindingStub(), Gangs()
    async with writing(stub, gangs) as found:
        for stage in (Stage.GATHERING, Stage.READY, Stage.PERMITTED):
            gangs.set(stage)
            found.put(GROUP)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
        gangs.set(Stage.BOUND)
        found.put(GROUP)
        await stub.until_written(lambda writes: len(written_statuses(writes)) == 2)
    assert written_statuses(stub.writes) == ["PERMITTED", "BOUND"]


async def test_a_gang_that_starts_at_once_is_not_written_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_writer, "WAITING_SECONDS", 600.0)
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.READY)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await asyncio.wait_for(gangs.asked_once.wait(), 30)
        gangs.set(Stage.BOUND)
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
        gangs.set(Stage.READY)  # users know it as bound
        found.put(GROUP)
        await stub.until_written(lambda writes: len(written_statuses(writes)) == 2)
    assert written_statuses(stub.writes) == ["BOUND", "READY"]


async def test_unchanged_progress_is_not_written_again() -> None:
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.BOUND)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: written_statuses(writes) == ["BOUND"])
        found.put(GROUP)
        gangs.set(Stage.BOUND, "fake/ml/other")
        found.put("fake/ml/other")
        await stub.until_written(lambda writes: written_statuses(writes, "other") == ["BOUND"])
        await asyncio.wait_for(gangs.asked_thrice.wait(), 30)  # both are requested concurrently, in any order
    assert written_statuses(stub.writes) == ["BOUND"]


async def test_dialects_without_progress_cost_no_queries() -> None:
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.BOUND)
    async with writing(stub, gangs) as found:
        for gang in ("plain/ml/pod", "lightweight/ml/gang", "", GROUP):
            found.put(gang)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
    assert gangs.asked == 1


async def test_progress_of_a_deleted_gang_is_dropped() -> None:
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.READY)
    async with writing(stub, gangs) as found:
        found.put("fake/ml/gone")
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
    assert written_statuses(stub.writes, "gone") == []


async def test_the_newest_progress_of_each_gang_waits_for_binding() -> None:
    stub, gangs = BindingStub(), Gangs()
    stub.write_answers = [grpc.StatusCode.UNAVAILABLE] * 3
    gangs.set(Stage.READY)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(writes))
        gangs.set(Stage.PERMITTED)
        found.put(GROUP)
        await stub.until_written(lambda writes: written_statuses(writes)[-1:] == ["PERMITTED"])
    assert gangs.failed == []


async def test_rejected_progress_is_retried_and_reported_once() -> None:
    stub, gangs = BindingStub(), Gangs()
    refused = pb.WriteResponse(failures=["ConfigMap 'ml/group-a': 403: not yours"])
    stub.write_answers = [refused] * 3
    gangs.set(Stage.READY)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: len(writes) == 4)
    assert written_statuses(stub.writes) == ["READY"] * 4
    assert gangs.failed == [(GROUP, "ConfigMap 'ml/group-a': 403: not yours")]


async def test_unwritable_progress_does_not_block_other_gangs() -> None:
    stub, gangs = BindingStub(), Gangs()
    stub.write_answers = [grpc.StatusCode.INVALID_ARGUMENT]
    gangs.set(Stage.READY)
    gangs.set(Stage.READY, "fake/ml/other")
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(writes))
        found.put("fake/ml/other")
        await stub.until_written(lambda writes: written_statuses(writes, "other") == ["READY"])
        await asyncio.wait_for(gangs.one_failed.wait(), 30)  # the first response arrives at any time
    assert [gang for gang, _ in gangs.failed] == [GROUP]


async def test_a_failing_dialect_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(progress: Progress) -> Writes:
        raise ZeroDivisionError

    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.READY, "broken/ml/a")
    gangs.set(Stage.READY)
    use_dialects(monkeypatch, fake=in_words, broken=fails)
    async with writing(stub, gangs) as found:
        found.put("broken/ml/a")
        found.put(GROUP)
        await stub.until_written(lambda writes: written_statuses(writes) == ["READY"])


async def test_many_pods_are_split_into_several_calls() -> None:
    stub, gangs = BindingStub(), Gangs()
    gangs.set(Stage.BOUND, members=1200)
    async with writing(stub, gangs) as found:
        found.put(GROUP)
        await stub.until_written(lambda writes: bool(written_statuses(writes)))
    assert [len(write.annotations) for write in stub.writes] == [500, 500, 200, 0]
