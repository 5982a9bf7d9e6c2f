"""Plans the next step for one QueueJob. Pure: takes the job, its pods and the time, and returns a plan.

    incarnation 1 --created, enough have a node--> started --one fails, enough are left--> replace that pod
         ^                                           |
         +-- incarnation + 1, recreate all pods -----+-- fewer than minAvailable are left
                                                     +-- a template changed

Enough are left if at least minAvailable pods have a node or succeeded: a scheduled pod has the capacity that it needs,
and a succeeded one is done. A job that is starting or ending is therefore never taken for a broken one. Pod names are
derived from their slots, so creating a pod twice creates one.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.status import JobStatus
from muster.retry.backoff import backoff_seconds

MAX_REPLACED_AT_ONCE: Final = 500
"""Limit on failed pods whose replacement is decided in one step; the others follow in the next one."""
MAX_PAUSE_SECONDS: Final = 300
"""Longest pause between attempts at a job whose pods keep failing."""
BACKOFF_RESET_SECONDS: Final = 600
"""Time without failures after which the backoff starts over."""


class JobPod(Struct, frozen=True, gc=False):
    """A pod of a job. `task` and `index` are -1, and `incarnation` is 0, if its annotations lack them."""

    uid: str
    name: str
    task: int = -1
    index: int = -1
    incarnation: int = 0
    templates: str = ""
    phase: str = "Pending"
    scheduled: bool = False
    deleting: bool = False


class Slot(Struct, frozen=True):
    """A slot for a pod in a job. `needed`: the job does not run without it."""

    task: int
    index: int
    needed: bool = False


class Missing(Struct, frozen=True):
    """Slots of a job without a pod, in the order in which they are filled. `names`: those of its pods.

    Computed as they are read: thousands of jobs may each lack thousands of pods that a quota does not admit.
    """

    job: Job
    names: Set[str] = frozenset()

    def __iter__(self) -> Iterator[Slot]:
        return self._without_pod(slots(self.job))

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def needed(self) -> Iterator[Slot]:
        """The pods without which the job does not run."""
        return self._without_pod(slots(self.job, last=self.job.needed))

    def further(self) -> Iterator[Slot]:
        """All others."""
        return self._without_pod(slots(self.job, first=self.job.needed))

    def _without_pod(self, among: Iterator[Slot]) -> Iterator[Slot]:
        return (slot for slot in among if pod_name(self.job, slot) not in self.names)


_NOTHING_MISSING: Final = Missing(Job("", "", ""))


class Step(Struct, frozen=True):
    """A decision, as reported in the job's events."""

    reason: str
    message: str
    warning: bool = False


class Plan(Struct, frozen=True):
    """The next step for a job.

    `status` is to be written. With a `decision`, nothing else is done before that is written and planned again.
    `missing` slots are to be filled in their order. `requeue_seconds` is when to reconcile again.
    """

    status: JobStatus
    decision: Step | None = None
    to_delete: tuple[JobPod, ...] = ()
    missing: Missing = _NOTHING_MISSING
    requeue_seconds: float | None = None


def plan(job: Job, pods: Sequence[JobPod], now_seconds: float) -> Plan:
    """Returns the plan for a job. Carrying out plans repeatedly converges."""
    if job.deleting or job.problems:
        return Plan(job.status)
    status = job.status
    if status.incarnation == 0:
        return Plan(
            _first(job, pods),
            Step("Created", f"{job.size} pods are created, {job.needed} of which must start together"),
        )
    current = [pod for pod in pods if pod.incarnation == status.incarnation and _has_slot(job, pod)]
    if job.templates != status.templates:
        status = _next_incarnation(replace(status, replaced=0, attempts=0), job, ())
        return Plan(status, Step("TemplateChanged", "a template changed: all pods are recreated"))
    if 0 < job.size <= status.completed:
        return Plan(replace(status, pending=0, running=0, succeeded=status.completed, min_available=job.needed))
    active = [pod for pod in current if not pod.deleting]
    return _decision(job, active, now_seconds) or _carry_out(job, pods, active, now_seconds)


def slots(job: Job, first: int = 0, last: int | None = None) -> Iterator[Slot]:
    """Yields the slots of a job in the order in which they are filled: by template priority, then as listed. Of these,
    those from number `first` up to `last`.
    """
    needed, number, end = job.needed, 0, job.size if last is None else last
    for task in sorted(range(len(job.tasks)), key=lambda task: (-job.tasks[task].priority, task)):
        replicas = job.tasks[task].replicas
        for index in range(max(0, first - number), min(replicas, end - number)):
            yield Slot(task, index, number + index < needed)
        number += replicas


def pod_name(job: Job, slot: Slot) -> str:
    """Returns the name of the pod in a slot."""
    return f"{job.name}-{slot.task}-{slot.index}"


def _first(job: Job, pods: Sequence[JobPod]) -> JobStatus:
    """Returns the first status of a new job, or rebuilds it from the pods if it was lost, for example in a restore."""
    latest = max(pods, key=lambda pod: pod.incarnation, default=None)
    if latest is None or latest.incarnation == 0:
        return replace(job.status, incarnation=1, templates=job.templates)
    return replace(job.status, incarnation=latest.incarnation, templates=latest.templates)


def _next_incarnation(status: JobStatus, job: Job, failed: Sequence[JobPod]) -> JobStatus:
    """Returns the status at the start of the next incarnation, without pods."""
    fresh = [pod for pod in failed if pod.uid not in status.replacing]
    return replace(
        status,
        pending=0,
        running=0,
        succeeded=0,
        failed=status.replaced + len(fresh),
        incarnation=status.incarnation + 1,
        templates=job.templates,
        started=False,
        completed=0,
        replaced=status.replaced + len(fresh),
        replacing=(),
    )


def _decision(job: Job, active: Sequence[JobPod], now_seconds: float) -> Plan | None:
    """Returns the plan with a decision to write first; None if there is nothing to decide."""
    status = job.status
    failed = [pod for pod in active if pod.phase == "Failed"]
    left = _left(active)
    if job.size and sum(pod.phase == "Succeeded" for pod in active) == job.size:
        done = replace(_counted(job, active), completed=job.size, replacing=())
        return Plan(done, Step("Completed", f"all {job.size} pods succeeded"))
    needed = job.needed
    if not status.started and 0 < needed <= left + len(failed):
        return Plan(
            replace(_counted(job, active), started=True), Step("Started", f"{left + len(failed)} pods have a node")
        )
    if status.started and left < needed:
        if needed > status.min_available:  # raised since: the job never had that many
            return Plan(
                replace(_counted(job, active), started=False), Step("MinimumRaised", f"{needed} pods are needed now")
            )
        if pause_seconds(status, now_seconds) > 0:
            return None
        message = f"{left} pods are left of the {needed} that are needed: all are recreated"
        return Plan(
            _attempted(_next_incarnation(status, job, failed), now_seconds), Step("Restarting", message, warning=True)
        )
    fresh = [pod.uid for pod in failed if pod.uid not in status.replacing][:MAX_REPLACED_AT_ONCE]
    if fresh and pause_seconds(status, now_seconds) == 0:
        return _replacement(job, active, fresh, now_seconds)
    return None


def _replacement(job: Job, active: Sequence[JobPod], fresh: list[str], now_seconds: float) -> Plan:
    """Plans the replacement of failed pods while the others are enough."""
    status = _attempted(_counted(job, active), now_seconds)
    replacing = (*status.replacing, *fresh)
    message = f"{len(fresh)} pods failed and are replaced; enough others are left"
    return Plan(
        replace(status, replacing=replacing, replaced=status.replaced + len(fresh)),
        Step("Replacing", message, warning=True),
    )


def _carry_out(job: Job, pods: Sequence[JobPod], active: Sequence[JobPod], now_seconds: float) -> Plan:
    """Plans the deletions and creations that follow from earlier decisions."""
    status, names = job.status, {pod.name for pod in pods}
    to_delete = tuple(
        pod
        for pod in pods
        if not pod.deleting
        and (pod.incarnation != status.incarnation or not _has_slot(job, pod) or pod.uid in status.replacing)
    )
    broken = status.started and _left(active) < job.needed  # restarted after the backoff
    missing = _NOTHING_MISSING if broken else Missing(job, names)
    waits = broken or any(pod.phase == "Failed" and pod.uid not in status.replacing for pod in active)
    again = max(0.1, pause_seconds(status, now_seconds)) if waits else None
    return Plan(_counted(job, active), None, to_delete, missing, again)


def _left(active: Sequence[JobPod]) -> int:
    """Counts pods that have a node or succeeded."""
    return sum(pod.phase == "Succeeded" or (pod.scheduled and pod.phase != "Failed") for pod in active)


def _counted(job: Job, active: Sequence[JobPod]) -> JobStatus:
    """Returns the status with current counts."""
    status = job.status
    phases = [pod.phase for pod in active]
    there = {pod.uid for pod in active}
    fresh = sum(pod.phase == "Failed" and pod.uid not in status.replacing for pod in active)
    return replace(
        status,
        pending=phases.count("Pending"),
        running=phases.count("Running"),
        succeeded=phases.count("Succeeded"),
        failed=status.replaced + fresh,
        min_available=job.needed,
        replacing=tuple(uid for uid in status.replacing if uid in there),
    )


def _attempted(status: JobStatus, now_seconds: float) -> JobStatus:
    reset = now_seconds - status.last_attempt_seconds >= BACKOFF_RESET_SECONDS
    return replace(status, attempts=1 if reset else status.attempts + 1, last_attempt_seconds=int(now_seconds))


def pause_seconds(status: JobStatus, now_seconds: float) -> float:
    """Returns the backoff before pods are recreated again: none at first, then 1 s, doubling."""
    since = now_seconds - status.last_attempt_seconds
    if status.attempts == 0 or since >= BACKOFF_RESET_SECONDS:
        return 0.0
    pause = backoff_seconds(1.0, MAX_PAUSE_SECONDS, status.attempts)
    return min(pause, max(0.0, pause - since))


def _has_slot(job: Job, pod: JobPod) -> bool:
    return 0 <= pod.task < len(job.tasks) and 0 <= pod.index < job.tasks[pod.task].replicas
