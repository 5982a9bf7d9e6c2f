"""Plans for a QueueJob: creation in order, replacement of pods, and recreation of the whole job."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.gangs.queue_jobs import queue_job, read, template
from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.plan import (
    BACKOFF_RESET_SECONDS,
    MAX_PAUSE_SECONDS,
    JobPod,
    Missing,
    Plan,
    Slot,
    pause_seconds,
    plan,
    pod_name,
    slots,
)
from muster.lifecycle.queue_jobs.pod_creation import Demand, creation_order


class CountedNames(frozenset[str]):
    """No names, and how often one was looked for."""

    looked_up = 0

    def __contains__(self, name: object) -> bool:
        self.looked_up += 1
        return False


class World:
    """A job and its pods. Plans are carried out at once; every decision is recorded before any action."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pods: dict[str, JobPod] = {}
        self.now = 1_000_000.0
        self.steps: list[str] = []
        self.made: list[str] = []
        self.deleted: list[str] = []
        self.room = 10**6
        self.idle = False
        self._count = itertools.count(1)

    def begin(self) -> None:
        """Carries out a plan up to the first deletion or creation, then crashes."""
        found = plan(self.job, list(self.pods.values()), self.now)
        if found.decision is not None:
            self.job = replace(self.job, status=found.status)
            self.steps.append(found.decision.reason)
        elif found.to_delete:
            del self.pods[found.to_delete[0].name]
        elif found.missing and len(self.pods) < self.room:
            self.make(next(iter(found.missing)))

    def settle(self) -> Plan:
        """Carries out plans until nothing is left to do now; does nothing while no controller is running."""
        if self.idle:
            return plan(self.job, list(self.pods.values()), self.now)
        for _ in range(100):
            found = plan(self.job, list(self.pods.values()), self.now)
            before = self.job
            self.job = replace(self.job, status=found.status)
            if found.decision is not None:
                assert (found.to_delete, list(found.missing)) == ((), [])
                self.steps.append(found.decision.reason)
                continue
            for pod in found.to_delete:
                del self.pods[pod.name]
                self.deleted.append(pod.name)
            room = self.room - len(self.pods)
            for slot in list(found.missing)[:room]:
                self.make(slot)
            if not found.to_delete and not list(found.missing)[: self.room - len(self.pods)] and self.job == before:
                return found
        raise AssertionError(f"no rest: {found}")

    def make(self, slot: Slot) -> None:
        name, status = pod_name(self.job, slot), self.job.status
        self.made.append(name)
        uid = f"uid-{next(self._count)}"
        self.pods[name] = JobPod(uid, name, slot.task, slot.index, status.incarnation, status.templates)

    def change(self, *names: str, **fields: object) -> None:
        for name in names or list(self.pods):
            self.pods[name] = replace(self.pods[name], **fields)

    def run(self, *names: str) -> None:
        """Pods (all, if none are named) start running."""
        self.change(*names, scheduled=True, phase="Running")
        self.settle()

    def end(self, *names: str, phase: str = "Succeeded") -> None:
        self.change(*names, phase=phase)
        self.settle()

    def fail(self, *names: str) -> None:
        self.end(*names, phase="Failed")

    def lose(self, *names: str) -> None:
        """A user deletes pods."""
        for name in names:
            del self.pods[name]
        self.settle()

    def edit(self, job: Job) -> None:
        self.job = replace(job, status=self.job.status)
        self.settle()

    def uids(self) -> dict[str, str]:
        return {name: pod.uid for name, pod in self.pods.items()}


def job_of(replicas: int = 4, minimum: int | None = 3, cpu: str = "1") -> Job:
    return read(queue_job("train", (replicas, template(cpu=cpu)), minimum=minimum))


def running(replicas: int = 4, minimum: int | None = 3) -> World:
    world = World(job_of(replicas, minimum))
    world.settle()
    world.run()
    world.steps.clear()
    return world


class TestBeginning:
    def test_all_pods_are_created_those_of_the_highest_template_first(self) -> None:
        low, high = template(priorityClassName="low"), template(priorityClassName="high")
        world = World(read(queue_job("train", (2, low), (3, high), minimum=4)))
        world.settle()
        assert world.made == ["train-1-0", "train-1-1", "train-1-2", "train-0-0", "train-0-1"]
        assert [slot.needed for slot in slots(world.job)] == [True, True, True, True, False]

    def test_the_status_has_counts(self) -> None:
        world = World(job_of())
        world.settle()
        status = world.job.status
        assert (status.pending, status.running, status.min_available, status.incarnation) == (4, 0, 3, 1)
        world.run("train-0-0")
        status = world.job.status
        assert (status.pending, status.running, status.started) == (3, 1, False)

    def test_pods_that_fail_before_the_start_are_replaced_one_by_one(self) -> None:
        world = World(job_of())
        world.settle()
        world.change("train-0-0", scheduled=True, phase="Failed")
        world.settle()
        assert (world.steps, world.deleted) == (["Created", "Replacing"], ["train-0-0"])
        assert world.made.count("train-0-0") == 2

    @pytest.mark.parametrize("written", [{}, {"minimum": "three"}, {"minimum": -1}])
    def test_nothing_is_done_about_a_job_that_cannot_be_read(self, written: dict[str, object]) -> None:
        job = read(queue_job("train", minimum=written.get("minimum")))
        assert job.problems
        assert plan(job, [], 0.0) == Plan(job.status)

    def test_nothing_is_done_about_a_job_that_is_being_deleted(self) -> None:
        job = replace(job_of(), deleting=True)
        assert plan(job, [], 0.0) == Plan(job.status)


class TestLosses:
    def test_while_enough_are_left_only_the_failed_pod_is_replaced(self) -> None:
        world = running()
        before = world.uids()
        world.fail("train-0-2")
        assert (world.steps, world.deleted) == (["Replacing"], ["train-0-2"])
        after = world.uids()
        assert {name for name in after if after[name] != before[name]} == {"train-0-2"}
        assert (world.job.status.failed, world.job.status.incarnation) == (1, 1)

    def test_below_the_minimum_the_whole_job_is_recreated(self) -> None:
        world = running()
        before = world.uids()
        world.fail("train-0-1", "train-0-2")
        assert world.steps == ["Restarting"]
        assert sorted(world.deleted) == sorted(before)
        assert not set(world.uids().values()) & set(before.values())
        assert (world.job.status.incarnation, world.job.status.failed, world.job.status.started) == (2, 2, False)

    def test_a_job_that_breaks_before_its_start_was_observed_is_recreated(self) -> None:
        world = World(job_of())
        world.settle()
        world.change("train-0-0", "train-0-1", "train-0-2", scheduled=True)
        world.change("train-0-0", phase="Failed")
        world.settle()
        assert world.steps == ["Created", "Started", "Restarting"]

    def test_a_failed_pod_is_counted_once_even_if_the_job_is_recreated(self) -> None:
        world = running()
        world.idle = True
        world.fail("train-0-0")
        world.begin()
        assert world.steps == ["Replacing"]
        world.idle = False
        world.now += BACKOFF_RESET_SECONDS
        world.fail("train-0-1")
        assert (world.steps[-1], world.job.status.failed) == ("Restarting", 2)

    def test_replaced_pods_are_not_remembered_forever(self) -> None:
        world = running()
        for _ in range(3):
            world.fail("train-0-0")
            world.now += BACKOFF_RESET_SECONDS
            world.run()
        assert (world.job.status.failed, world.job.status.replacing) == (3, ())

    def test_pods_that_somebody_deletes_are_lost_too(self) -> None:
        world = running()
        world.lose("train-0-0")
        assert (world.steps, world.job.status.incarnation, len(world.pods)) == ([], 1, 4)
        world.run()
        world.lose("train-0-0", "train-0-1")
        assert (world.steps, world.job.status.incarnation) == (["Restarting"], 2)

    def test_pods_that_are_being_deleted_are_not_counted_on(self) -> None:
        world = running()
        world.change("train-0-0", "train-0-1", deleting=True)
        found = plan(world.job, list(world.pods.values()), world.now)
        assert found.decision is not None
        assert found.decision.reason == "Restarting"

    def test_a_scheduled_pod_counts(self) -> None:
        world = World(job_of())
        world.settle()
        world.change(scheduled=True)
        world.settle()
        world.steps.clear()
        world.change("train-0-3", phase="Failed")
        world.settle()
        assert world.steps == ["Replacing"]

    def test_a_job_that_ends_pod_by_pod_is_left_alone(self) -> None:
        world = running(4, 4)
        for name in list(world.pods):
            world.end(name)
        assert world.steps == ["Completed"]
        assert (world.deleted, world.job.status.succeeded, world.job.status.completed) == ([], 4, 4)
        world.lose("train-0-0", "train-0-1")
        assert (set(world.pods), world.job.status.succeeded) == ({"train-0-2", "train-0-3"}, 4)

    def test_pods_that_succeeded_count_toward_the_minimum(self) -> None:
        world = running(4, 3)
        world.end("train-0-0", "train-0-1")
        world.fail("train-0-2")
        assert world.steps == ["Replacing"]

    def test_without_a_minimum_the_job_is_never_recreated(self) -> None:
        world = running(2, None)
        world.fail("train-0-0", "train-0-1")
        assert world.job.status.incarnation == 1
        assert len(world.pods) == 2


class TestPauses:
    def test_repeatedly_failing_pods_are_replaced_with_backoff(self) -> None:
        world = running()
        pauses = []
        for _ in range(12):
            world.fail("train-0-0")
            found = plan(world.job, list(world.pods.values()), world.now)
            pauses.append(found.requeue_seconds or 0.0)
            world.now += pauses[-1]
            world.settle()
            world.run()
        assert pauses[:4] == [0.0, 1.0, 2.0, 4.0]
        assert max(pauses) == MAX_PAUSE_SECONDS
        world.now += BACKOFF_RESET_SECONDS
        world.fail("train-0-0")
        assert world.pods["train-0-0"].phase == "Pending"

    def test_a_repeatedly_breaking_job_is_recreated_with_backoff(self) -> None:
        world = running(3, 3)
        world.fail("train-0-0")
        world.run()
        assert world.job.status.incarnation == 2
        world.fail("train-0-0")
        assert world.job.status.incarnation == 2
        found = plan(world.job, list(world.pods.values()), world.now)
        assert (found.requeue_seconds, list(found.missing), found.to_delete) == (1.0, [], ())
        world.now += 1.0
        world.settle()
        assert world.job.status.incarnation == 3

    def test_a_broken_job_gets_no_single_pods_before_it_is_recreated(self) -> None:
        world = running(3, 3)
        world.lose("train-0-0")
        world.run()
        world.lose("train-0-0")
        found = plan(world.job, list(world.pods.values()), world.now)
        assert (found.requeue_seconds, len(world.pods)) == (1.0, 2)
        world.now += 1.0
        world.settle()
        assert (len(world.pods), world.job.status.incarnation) == (3, 3)

    def test_a_clock_set_back_does_not_lengthen_the_backoff(self) -> None:
        status = replace(job_of().status, attempts=3, last_attempt_seconds=10_000)
        assert pause_seconds(status, 0.0) == 4.0


class TestEdits:
    def test_a_template_change_recreates_all_pods(self) -> None:
        world = running()
        before = world.uids()
        world.edit(job_of(cpu="2"))
        assert world.steps == ["TemplateChanged"]
        assert not set(world.uids().values()) & set(before.values())

    def test_more_replicas_add_pods_and_fewer_take_the_last(self) -> None:
        world = running()
        before = world.uids()
        world.edit(job_of(6))
        assert len(world.pods) == 6
        world.edit(job_of(3))
        assert world.uids() == {name: uid for name, uid in before.items() if name != "train-0-3"}
        assert world.steps == []

    def test_a_higher_minimum_is_waited_for(self) -> None:
        world = running(4, 3)
        world.edit(job_of(6, 6))
        assert (world.steps, world.deleted, len(world.pods)) == (["MinimumRaised"], [], 6)
        world.run()
        world.fail("train-0-0")
        assert world.steps[-1] == "Restarting"

    def test_fewer_replicas_than_the_minimum_leave_it_as_it_is(self) -> None:
        world = running(4, 4)
        world.edit(job_of(2, 4))
        assert (world.steps, len(world.pods)) == ([], 4)
        world.edit(job_of(2, 2))
        assert (world.steps, len(world.pods)) == ([], 2)

    def test_without_its_status_a_job_continues_with_existing_pods(self) -> None:
        world = running()
        world.fail("train-0-1", "train-0-2")
        world.run()
        before = world.uids()
        world.job = job_of()
        world.settle()
        assert (world.uids(), world.job.status.incarnation) == (before, 2)


class TestOrder:
    def test_needed_pods_by_priority_come_first_then_jobs_take_turns(self) -> None:
        jobs = {
            name: read(queue_job(name, (replicas, template()), minimum=2, scheduling={"priorityClassName": priority}))
            for name, replicas, priority in (("a", 4, "low"), ("b", 3, "high"), ("c", 5, "low"))
        }
        demands = [Demand(job, Missing(job)) for job in jobs.values()]
        made = [pod_name(job, slot) for job, slot in creation_order(demands)]
        assert made[:6] == ["b-0-0", "b-0-1", "a-0-0", "a-0-1", "c-0-0", "c-0-1"]
        assert made[6:] == ["b-0-2", "a-0-2", "c-0-2", "a-0-3", "c-0-3", "c-0-4"]

    @pytest.mark.parametrize("minimum", [1, 10_000])
    def test_i12_missing_pods_are_computed_one_by_one_for_jobs_that_get_more(self, minimum: int) -> None:
        job = read(queue_job("j", (10_000, template()), minimum=minimum))
        jobs = [replace(job, uid=f"uid-{number}") for number in range(50)]
        names, blocked = CountedNames(), set[str]()
        for job, _ in creation_order([Demand(job, Missing(job, names)) for job in jobs], blocked):
            assert job.uid not in blocked
            blocked.add(job.uid)  # its first pod was refused
        assert len(blocked) == len(jobs)
        assert names.looked_up <= 2 * len(jobs)

    @given(
        st.lists(st.tuples(st.integers(0, 6), st.integers(0, 8), st.sampled_from(["low", "high"])), max_size=6),
        st.integers(0, 40),
    )
    def test_a_quota_never_leaves_two_jobs_half_created(self, sizes: list[tuple[int, int, str]], quota: int) -> None:
        jobs = [
            read(queue_job(f"j{n}", (size, template()), minimum=least, scheduling={"priorityClassName": priority}))
            for n, (size, least, priority) in enumerate(sizes)
        ]
        wanted = list(creation_order([Demand(job, Missing(job)) for job in jobs]))
        made = wanted[:quota]
        assert len(wanted) == sum(job.size for job in jobs)
        had = {job.name: sum(each is job for each, _ in made) for job in jobs}
        half = [job for job in jobs if 0 < had[job.name] < job.needed]
        assert len(half) <= 1
        for job in jobs:  # whoever has less than it needs has nobody behind it with anything
            if had[job.name] < job.needed:
                assert not any(had[other.name] for other in jobs if other.priority < job.priority)


events = st.lists(
    st.tuples(st.sampled_from(["run", "fail", "succeed", "delete", "wait", "scale", "template"]), st.integers(0, 5)),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["fail", "delete", "begin", "template", "run"]), max_size=30), st.data())
def test_wherever_somebody_dies_the_next_one_ends_with_the_same(story: list[str], data: st.DataObject) -> None:
    """The controller runs only for single steps; finally one run converges."""
    world, cpu = World(job_of(4, 3)), 1
    world.settle()
    world.run()
    world.idle = True
    for what in story:
        there = sorted(world.pods)
        name = data.draw(st.sampled_from(there)) if there else ""
        if what == "begin":
            world.begin()
        elif what == "template":
            cpu += 1
            world.edit(job_of(4, 3, str(cpu)))
        elif what == "run":
            world.run()
        elif name and world.pods[name].scheduled:
            {"fail": world.fail, "delete": world.lose}[what](name)
    world.idle = False
    world.now += BACKOFF_RESET_SECONDS
    world.settle()
    world.now += BACKOFF_RESET_SECONDS
    world.settle()
    status = world.job.status
    assert set(world.pods) == {f"train-0-{number}" for number in range(4)}
    assert {(pod.incarnation, pod.templates) for pod in world.pods.values()} == {
        (status.incarnation, world.job.templates)
    }
    assert not any(pod.phase == "Failed" for pod in world.pods.values())
    assert status.failed == status.replaced


@settings(max_examples=200, deadline=None)
@given(events, st.integers(1, 5), st.integers(0, 6), st.integers(1, 8))
def test_every_history_converges_to_pods_of_one_incarnation(
    story: Sequence[tuple[str, int]], replicas: int, minimum: int, room: int
) -> None:
    world = World(job_of(replicas, min(minimum, replicas)))
    world.room = room
    world.settle()
    cpu = 1
    acts: dict[str, Callable[[str], None]] = {
        "run": world.run,
        "fail": world.fail,
        "succeed": world.end,
        "delete": world.lose,
    }
    for what, number in story:
        before, incarnation, started = world.uids(), world.job.status.incarnation, world.job.status.started
        name = f"train-0-{number}"
        if what in acts and name in world.pods:
            if what in ("fail", "succeed") and not world.pods[name].scheduled:
                continue
            acts[what](name)
        elif what == "wait":
            world.now += BACKOFF_RESET_SECONDS
            world.settle()
        elif what == "scale":
            world.edit(job_of(max(1, number), min(minimum, max(1, number)), str(cpu)))
        elif what == "template":
            cpu += 1
            world.edit(job_of(world.job.size, world.job.minimum, str(cpu)))
        status = world.job.status
        assert all(pod.incarnation == status.incarnation for pod in world.pods.values())
        if status.incarnation != incarnation:  # made anew as a whole: nothing is left of what was
            assert started or what == "template"
            assert not set(world.uids().values()) & set(before.values())
    world.now += BACKOFF_RESET_SECONDS
    world.settle()
    if not world.job.status.completed and not any(pod.phase == "Failed" for pod in world.pods.values()):
        assert len(world.pods) == min(room, world.job.size)
