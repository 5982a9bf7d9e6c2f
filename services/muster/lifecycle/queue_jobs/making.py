"""Makes the pods that QueueJobs of a namespace lack, in the order that makes a short quota hit the lowest job first."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, islice
from typing import Final

import msgspec
import structlog

from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.gangs.quoting import quoted
from muster.kube.objects import Pod, decode_pod
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.lifecycle.calls import Calls
from muster.lifecycle.queue_jobs.bodies import job_pod, pod_body
from muster.lifecycle.queue_jobs.job import Job
from muster.lifecycle.queue_jobs.order import Demand, in_order
from muster.lifecycle.queue_jobs.plan import Slot, pod_name
from muster.lifecycle.queue_jobs.status import Obstacle

EXCEEDED: Final = "ExceededQuota"
REFUSED: Final = "Refused"
CONFLICT: Final = "Conflict"
FORMER: Final = "FormerJob"
"""Something of a job that had the name before is on its way out: it is waited for."""

_AT_ONCE: Final = 16
"""Pods of one job that are made at the same time. Which of them a quota lets in makes no difference to others."""
_SHORT_OF: Final = re.compile(r"requested: (?P<requested>\S+), used: \S+, limited: (?P<limited>\S+)")
_LONGEST_MESSAGE: Final = 1000

_log = structlog.get_logger(__name__)


class Making:
    """One pass over the pods that are missing in a namespace. `obstacles` has then why some could not be made."""

    def __init__(self, calls: Calls, scheduler_name: str, learn: Callable[[Pod], None]) -> None:
        self._calls, self._scheduler_name, self._learn = calls, scheduler_name, learn
        self.obstacles: dict[str, Obstacle] = {}

    async def make(self, demands: Iterable[Demand]) -> None:
        """Make all of them, as far as the API server lets us.

        When a quota is exceeded, nothing more is made: whoever stands behind would take what the first one lacks. Only
        a pod that asks for more than the whole quota has holds nobody up. Raises KubeUnreachable, and ApiStatusError
        for what has nothing to do with the pod.
        """
        wanted = list(demands)
        for batch in _batches(in_order(wanted)):
            job = batch[0][0]
            if job.uid in self.obstacles:
                continue
            found = await self._make_together(batch)
            if found is None:
                continue
            self.obstacles[job.uid] = found
            if found.reason == EXCEEDED and not _asks_too_much(found.message):
                self._tell_those_behind(job, wanted)
                return

    async def _make_together(self, batch: list[tuple[Job, Slot]]) -> Obstacle | None:
        outcomes = await asyncio.gather(*(self._make_one(*each) for each in batch), return_exceptions=True)
        for outcome in outcomes:  # when all have come to an end
            if isinstance(outcome, BaseException):
                raise outcome
        return next((each for each in outcomes if isinstance(each, Obstacle)), None)

    def _tell_those_behind(self, first: Job, wanted: list[Demand]) -> None:
        why = f"the namespace's quota is used up, and QueueJob {quoted(first.name)} stands before this one"
        for demand in wanted:
            self.obstacles.setdefault(demand.job.uid, Obstacle(EXCEEDED, why))

    async def _make_one(self, job: Job, slot: Slot) -> Obstacle | None:
        name = pod_name(job, slot)
        path = object_path("v1", "pods", job.namespace)
        try:
            created = await self._calls.create(path, pod_body(job, slot, self._scheduler_name))
            if created is None:
                return await self._meet(job, name)
        except ApiStatusError as error:
            if error.status not in (400, 403, 404, 413, 422):
                raise
            reason = EXCEEDED if error.status == 403 and "exceeded quota" in error.message else REFUSED
            _log.info("pod of a QueueJob was refused", pod=f"{job.namespace}/{name}", why=error.message)
            return Obstacle(reason, f"pod {quoted(name)}: {error.message}"[:_LONGEST_MESSAGE])
        self._learn(decode_pod(msgspec.json.encode(created)))
        return None

    async def _meet(self, job: Job, name: str) -> Obstacle | None:
        """There is a pod of that name: one that we made, or somebody else's."""
        found = await self._calls.get(object_path("v1", "pods", job.namespace, name))
        if found is None:
            return Obstacle(CONFLICT, f"pod {quoted(name)} was there a moment ago; it is made now")
        pod = decode_pod(msgspec.json.encode(found))
        known = job_pod(pod)
        if known is not None and known[0] == job.uid:
            self._learn(pod)
            return None
        if known is not None or pod.metadata.deletion_timestamp is not None:
            return Obstacle(FORMER, f"pod {quoted(name)} of a former job of this name is not gone yet")
        return Obstacle(CONFLICT, f"pod {quoted(name)} exists and is not this job's: delete it, or rename the job")


def _batches(wanted: Iterator[tuple[Job, Slot]]) -> Iterator[list[tuple[Job, Slot]]]:
    """Neighbours in the order that are of the same job, some at a time."""
    for _, of_job in groupby(wanted, key=lambda each: each[0].uid):
        while batch := list(islice(of_job, _AT_ONCE)):
            yield batch


def _asks_too_much(message: str) -> bool:
    """The quota could not hold the pod if nothing else were there: "requested: cpu=9, used: cpu=0, limited: cpu=8"."""
    found = _SHORT_OF.search(message)
    if found is None:
        return False
    limits = _amounts(found["limited"])
    return any(asked > limits.get(name, asked) for name, asked in _amounts(found["requested"]).items())


def _amounts(text: str) -> dict[str, int]:
    amounts = {}
    for each in text.split(","):
        name, _, amount = each.partition("=")
        try:
            amounts[name] = parse_quantity(amount)
        except BadQuantity:
            continue
    return amounts
