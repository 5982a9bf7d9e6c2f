"""Creates the missing pods of a namespace's QueueJobs, in the order in which a short quota affects the lowest job."""

import asyncio
import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.gangs.quoting import quoted
from muster.kube.objects import Pod, decode_pod
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.manifests import job_pod, pod_manifest
from muster.lifecycle.queue_jobs.plan import Missing, Slot, pod_name
from muster.lifecycle.queue_jobs.status import Obstacle

QUOTA_EXCEEDED: Final = "ExceededQuota"
REJECTED: Final = "Rejected"
CONFLICT: Final = "Conflict"
PREVIOUS_JOB: Final = "PreviousJobTerminating"
"""An object of an earlier job of the same name is still being deleted."""

_CONCURRENT_CALLS: Final = 16
"""Pods of one job that are created concurrently. Which of them a quota admits makes no difference."""
_QUOTA_MESSAGE: Final = re.compile(r"requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>\S+)")
MAX_MESSAGE_LENGTH: Final = 1000

_log = structlog.get_logger(__name__)


class Demand(Struct, frozen=True):
    """The missing pods of a job, in the order of their creation."""

    job: Job
    missing: Missing


def creation_order(demands: Sequence[Demand], blocked: Container[str] = ()) -> Iterator[tuple[Job, Slot]]:
    """Orders the pods to create so that a short quota affects the job of the lowest priority.

    First every job, by priority, gets the pods that it needs to run. Then the jobs take turns, one further pod each,
    until all pods are created. No two jobs therefore end up with half of what each needs.

    `blocked`: uids of jobs that get no more pods, which may be added meanwhile.
    """
    queue = sorted(demands, key=lambda each: rank(each.job))
    for demand in queue:
        for slot in demand.missing.needed():
            if demand.job.uid in blocked:
                break
            yield demand.job, slot
    turns = [(demand.job, demand.missing.further()) for demand in queue]
    while turns:
        left = []
        for job, further in turns:
            if job.uid not in blocked and (more := next(further, None)) is not None:
                yield job, more
                left.append((job, further))
        turns = left


def rank(job: Job) -> tuple[int, str, str]:
    """Returns the sort key of a job: priority, age, name."""
    return -job.priority, job.created, job.name


class PodCreator:
    """One pass over the missing pods of a namespace. `obstacles` then says why pods were not created, by job uid."""

    def __init__(self, client: ObjectClient, scheduler_name: str, created: Callable[[Pod], None]) -> None:
        self._client, self._scheduler_name, self._created = client, scheduler_name, created
        self.obstacles: dict[str, Obstacle] = {}

    async def create(self, demands: Iterable[Demand]) -> None:
        """Creates all of them, as far as the API server accepts them.

        Stops when a quota is exceeded: later jobs would take what the first one lacks. Only a pod that exceeds the
        whole quota does not block other jobs. Raises KubeUnreachable, and ApiStatusError for errors that are not about
        the pod.
        """
        demands_ = list(demands)
        for batch in _batches(creation_order(demands_, self.obstacles)):
            job = batch[0][0]
            if job.uid in self.obstacles:
                continue
            found = await self._create_batch(batch)
            if found is None:
                continue
            self.obstacles[job.uid] = found
            if found.reason == QUOTA_EXCEEDED and not _exceeds_whole_quota(found.message):
                self._block_later_jobs(job, demands_)
                return

    async def _create_batch(self, batch: list[tuple[Job, Slot]]) -> Obstacle | None:
        outcomes = await asyncio.gather(*(self._create_pod(*each) for each in batch), return_exceptions=True)
        for outcome in outcomes:  # after all have finished
            if isinstance(outcome, BaseException):
                raise outcome
        return next((each for each in outcomes if isinstance(each, Obstacle)), None)

    def _block_later_jobs(self, first: Job, demands_: list[Demand]) -> None:
        message = f"the namespace's quota is used up, and QueueJob {quoted(first.name)} is before this one"
        for demand in demands_:
            self.obstacles.setdefault(demand.job.uid, Obstacle(QUOTA_EXCEEDED, message))

    async def _create_pod(self, job: Job, slot: Slot) -> Obstacle | None:
        name = pod_name(job, slot)
        path = object_path("v1", "pods", job.namespace)
        try:
            created = await self._client.create(path, pod_manifest(job, slot, self._scheduler_name))
            if created is None:
                return await self._existing_pod(job, name)
        except ApiStatusError as error:
            if error.status not in (400, 403, 404, 413, 422):
                raise
            reason = QUOTA_EXCEEDED if error.status == 403 and "exceeded quota" in error.message else REJECTED
            _log.info("queue_job_pod_rejected", pod=f"{job.namespace}/{name}", error=error.message)
            return Obstacle(reason, f"pod {quoted(name)}: {error.message}"[:MAX_MESSAGE_LENGTH])
        self._created(decode_pod(msgspec.json.encode(created)))
        return None

    async def _existing_pod(self, job: Job, name: str) -> Obstacle | None:
        """Handles an existing pod of that name: the job's own, or another's."""
        found = await self._client.get(object_path("v1", "pods", job.namespace, name))
        if found is None:
            return Obstacle(CONFLICT, f"pod {quoted(name)} existed a moment ago; its creation is retried")
        pod = decode_pod(msgspec.json.encode(found))
        known = job_pod(pod)
        if known is not None and known[0] == job.uid:
            self._created(pod)
            return None
        if known is not None or pod.metadata.deletion_timestamp is not None:
            return Obstacle(PREVIOUS_JOB, f"pod {quoted(name)} of an earlier job of this name is still being deleted")
        return Obstacle(CONFLICT, f"pod {quoted(name)} exists and is not this job's: delete it, or rename the job")


def _batches(demands_: Iterator[tuple[Job, Slot]]) -> Iterator[list[tuple[Job, Slot]]]:
    """Splits the order into batches of consecutive pods of the same job."""
    for _, of_job in groupby(demands_, key=lambda each: each[0].uid):
        while batch := list(islice(of_job, _CONCURRENT_CALLS)):
            yield batch


def _exceeds_whole_quota(message: str) -> bool:
    """Whether the pod exceeds even an unused quota: "requested: cpu=9, used: cpu=0, limited: cpu=8"."""
    found = _QUOTA_MESSAGE.search(message)
    if found is None:
        return False
    limits = _amounts(found["limited"])
    return any(amount > limits.get(name, amount) for name, amount in _amounts(found["requested"]).items())


def _amounts(text: str) -> dict[str, int]:
    amounts = {}
    for each in text.split(","):
        name, _, amount = each.partition("=")
        try:
            amounts[name] = parse_quantity(amount)
        except BadQuantity:
            continue
    return amounts
