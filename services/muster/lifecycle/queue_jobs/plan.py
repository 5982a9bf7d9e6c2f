"""What is to be done about one QueueJob now. Pure: the job, its pods and the time in, a plan out.

    incarnation 1 --made, enough have a node--> started --one fails, enough are left--> that one is made anew
         ^                                        |
         +-- incarnation + 1, all are made anew --+-- fewer than minAvailable are left
                                                  +-- a template changed

Enough are left if pods that have a node or succeeded are as many as minAvailable: a pod that is about to run has the
room that it needs, and one that succeeded has done what it is for. So a job that is only beginning, or ending, is never
taken for one that broke. Pods have names that follow from their places, so making one twice makes one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.status import JobStatus
from muster.retry.backoff import backoff_seconds

MOST_REPLACED_AT_ONCE: Final = 500
"""Failed pods whose replacement is decided in one step; the others follow in the next."""
LONGEST_PAUSE_SECONDS: Final = 300
"""Between attempts at a job whose pods fail again and again."""
CALM_SECONDS: Final = 600
"""A job that had no failure for so long begins anew with the shortest pause."""


class JobPod(Struct, frozen=True, gc=False):
    """A pod of a job. `task` and `index` are -1, and `incarnation` 0, for one that says nothing of that."""

    uid: str
    name: str
    task: int = -1
    index: int = -1
    incarnation: int = 0
    templates: str = ""
    phase: str = "Pending"
    placed: bool = False
    leaving: bool = False


class Slot(Struct, frozen=True):
    """A place for a pod in a job. `needed`: it is one of those without which the job does not run."""

    task: int
    index: int
    needed: bool = False


class Step(Struct, frozen=True):
    """Something that was decided, for the job's events."""

    reason: str
    message: str
    warning: bool = False


class Plan(Struct, frozen=True):
    """`status` is what is to be written; if it `decides` something, only then may anything else be done, by the next
    plan. `doomed` are to be deleted, `missing` to be made, the first first. `again_seconds`: when to look again.
    """

    status: JobStatus
    decides: Step | None = None
    doomed: tuple[JobPod, ...] = ()
    missing: tuple[Slot, ...] = ()
    again_seconds: float | None = None


def plan(job: Job, pods: Sequence[JobPod], now_seconds: float) -> Plan:
    """What follows from what there is. Carried out and planned again it comes to rest."""
    if job.deleting or job.problems:
        return Plan(job.status)
    status = job.status
    if status.incarnation == 0:
        return Plan(
            _first(job, pods),
            Step("Created", f"it is to have {job.size} pods, {job.needed} of which must start together"),
        )
    current = [pod for pod in pods if pod.incarnation == status.incarnation and _wanted(job, pod)]
    if job.templates != status.templates:
        status = _anew(replace(status, replaced=0, attempts=0), job, ())
        return Plan(status, Step("TemplateChanged", "a template changed: all pods are made anew"))
    if 0 < job.size <= status.completed:
        return Plan(replace(status, pending=0, running=0, succeeded=status.completed, min_available=job.needed))
    here = [pod for pod in current if not pod.leaving]
    return _decision(job, here, now_seconds) or _doing(job, pods, here, now_seconds)


def slots(job: Job) -> Iterator[Slot]:
    """All places of a job, in the order in which they are filled: by priority of their templates, then as listed."""
    order = sorted(range(len(job.tasks)), key=lambda task: (-job.tasks[task].priority, task))
    places = ((task, index) for task in order for index in range(job.tasks[task].replicas))
    needed = job.needed
    return (Slot(task, index, number < needed) for number, (task, index) in enumerate(places))


def pod_name(job: Job, slot: Slot) -> str:
    """Name of the pod in that place."""
    return f"{job.name}-{slot.task}-{slot.index}"


def _first(job: Job, pods: Sequence[JobPod]) -> JobStatus:
    """A new job; or one that lost its status, as when it was restored from a backup: its pods tell then."""
    latest = max(pods, key=lambda pod: pod.incarnation, default=None)
    if latest is None or latest.incarnation == 0:
        return replace(job.status, incarnation=1, templates=job.templates)
    return replace(job.status, incarnation=latest.incarnation, templates=latest.templates)


def _anew(status: JobStatus, job: Job, failed: Sequence[JobPod]) -> JobStatus:
    """The next incarnation begins, without any pod."""
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


def _decision(job: Job, here: Sequence[JobPod], now_seconds: float) -> Plan | None:
    """Something that has to be written before it is done; None: there is nothing."""
    status = job.status
    failed = [pod for pod in here if pod.phase == "Failed"]
    left = _left(here)
    if job.size and sum(pod.phase == "Succeeded" for pod in here) == job.size:
        done = replace(_counted(job, here), completed=job.size, replacing=())
        return Plan(done, Step("Completed", f"all {job.size} pods succeeded"))
    needed = job.needed
    if not status.started and 0 < needed <= left + len(failed):
        return Plan(
            replace(_counted(job, here), started=True), Step("Started", f"{left + len(failed)} pods have a node")
        )
    if status.started and left < needed:
        if needed > status.min_available:  # it asks for more than before, and never had that many
            return Plan(
                replace(_counted(job, here), started=False), Step("MinimumRaised", f"{needed} pods are needed now")
            )
        if pause_seconds(status, now_seconds) > 0:
            return None
        why = f"{left} pods are left of the {needed} that are needed: all are made anew"
        return Plan(_attempted(_anew(status, job, failed), now_seconds), Step("Restarting", why, warning=True))
    fresh = [pod.uid for pod in failed if pod.uid not in status.replacing][:MOST_REPLACED_AT_ONCE]
    if fresh and pause_seconds(status, now_seconds) == 0:
        return _replacement(job, here, fresh, now_seconds)
    return None


def _replacement(job: Job, here: Sequence[JobPod], fresh: list[str], now_seconds: float) -> Plan:
    """Failed pods are made anew, the others are enough."""
    status = _attempted(_counted(job, here), now_seconds)
    replacing = (*status.replacing, *fresh)
    why = f"{len(fresh)} pods failed and are made anew; the others are enough to go on"
    return Plan(
        replace(status, replacing=replacing, replaced=status.replaced + len(fresh)),
        Step("Replacing", why, warning=True),
    )


def _doing(job: Job, pods: Sequence[JobPod], here: Sequence[JobPod], now_seconds: float) -> Plan:
    """Nothing is to be decided: bring the pods in line with what was."""
    status, names = job.status, {pod.name for pod in pods}
    doomed = tuple(
        pod
        for pod in pods
        if not pod.leaving
        and (pod.incarnation != status.incarnation or not _wanted(job, pod) or pod.uid in status.replacing)
    )
    broken = status.started and _left(here) < job.needed  # and is made anew after a pause
    missing = () if broken else tuple(slot for slot in slots(job) if pod_name(job, slot) not in names)
    waits = broken or any(pod.phase == "Failed" and pod.uid not in status.replacing for pod in here)
    again = max(0.1, pause_seconds(status, now_seconds)) if waits else None
    return Plan(_counted(job, here), None, doomed, missing, again)


def _left(here: Sequence[JobPod]) -> int:
    """Pods that the job can count on."""
    return sum(pod.phase == "Succeeded" or (pod.placed and pod.phase != "Failed") for pod in here)


def _counted(job: Job, here: Sequence[JobPod]) -> JobStatus:
    """The status with the counts that are true now."""
    status = job.status
    phases = [pod.phase for pod in here]
    there = {pod.uid for pod in here}
    fresh = sum(pod.phase == "Failed" and pod.uid not in status.replacing for pod in here)
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
    calm = now_seconds - status.last_attempt_seconds >= CALM_SECONDS
    return replace(status, attempts=1 if calm else status.attempts + 1, last_attempt_seconds=int(now_seconds))


def pause_seconds(status: JobStatus, now_seconds: float) -> float:
    """How long to wait before pods are made anew once more: nothing at first, then 1 s, doubling."""
    since = now_seconds - status.last_attempt_seconds
    if status.attempts == 0 or since >= CALM_SECONDS:
        return 0.0
    pause = backoff_seconds(1.0, LONGEST_PAUSE_SECONDS, status.attempts)
    return min(pause, max(0.0, pause - since))


def _wanted(job: Job, pod: JobPod) -> bool:
    return 0 <= pod.task < len(job.tasks) and 0 <= pod.index < job.tasks[pod.task].replicas
