"""The controller of QueueJobs: it makes their pods and SchedulingSpecs, replaces what fails, and tells how they are.

What is to be done the plan says; here it is done. A job goes with all that it owns by garbage collection.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import structlog

from muster.dialects import kube_arbitrator
from muster.gangs.facts import ObjectReference
from muster.gangs.quoting import quoted
from muster.kube.api_resources import PODS, PRIORITY_CLASSES, definitions
from muster.kube.object_changes import ObjectChanges
from muster.kube.objects import Pod, decode_pod_group
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.lifecycle.calls import Calls, Object
from muster.lifecycle.event_log import EventLog
from muster.lifecycle.queue_jobs.bodies import merge_patch, spec_body
from muster.lifecycle.queue_jobs.job import API_VERSION, KIND, PLURAL, QUEUE_JOBS, Job, decode_queue_job
from muster.lifecycle.queue_jobs.making import CONFLICT, FORMER, Making
from muster.lifecycle.queue_jobs.order import Demand
from muster.lifecycle.queue_jobs.plan import JobPod, Step, plan
from muster.lifecycle.queue_jobs.status import RECORD, JobStatus, Obstacle, with_obstacle
from muster.lifecycle.queue_jobs.store import JobStore
from muster.lifecycle.surroundings import Surroundings
from muster.lifecycle.work_queue import WorkQueue

_TOGETHER_SECONDS: Final = 0.1
"""Changes of pods that come within it are looked at together: a large job starts with hundreds of them."""
_AT_ONCE: Final = 16
"""Pods that are deleted at the same time."""
_QUOTA_SECONDS: Final = (1.0, 10.0)
"""Pauses before pods that were refused are asked for again: who frees a quota, and when, is not told to us."""
_MALFORMED: Final = "Malformed"
_ACTION: Final = "Reconciling"

_log = structlog.get_logger(__name__)


class QueueJobs:
    """Two queues: of jobs, to be brought in line one by one; and of namespaces, whose jobs get pods in turn."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._calls = Calls(surroundings.session)
        self._events = EventLog(self._calls, surroundings.settings.instance)
        self._scheduler_name = surroundings.settings.scheduler_names[0]
        self._store = JobStore()
        self._obstacles: dict[str, Obstacle] = {}
        self._refusals: dict[str, int] = {}  # passes in a row in which something was refused, by namespace
        self._not_before: dict[str, float] = {}  # when the next pass may be, by namespace, on the loop's clock
        self._told: dict[str, tuple[str, str]] = {}
        leadership, watches = surroundings.leadership, surroundings.watches
        self._steps = WorkQueue("queue-jobs", self._look, lambda: list(self._store.jobs), leadership, watches)
        self._makings = WorkQueue("queue-job-pods", self._make, self._namespaces, leadership, watches)
        watches.follow(QUEUE_JOBS, self._taking(self._store.take_job))
        watches.follow(PODS, self._taking(self._store.take_pod, _TOGETHER_SECONDS))
        watches.follow(definitions(kube_arbitrator.DEFINITION), self._taking(self._store.take_spec))
        watches.follow(PRIORITY_CLASSES, self._taking(self._store.take_priority_class))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._steps.run())
            tasks.create_task(self._makings.run())

    def _taking(
        self, take: Callable[[Any], list[str]], within_seconds: float = 0.0
    ) -> Callable[[ObjectChanges[Any]], None]:
        def taken(changes: ObjectChanges[Any]) -> None:
            for item in changes.items:
                for uid in take(item):
                    if uid in self._store.jobs:
                        self._steps.add(uid, within_seconds)
                    else:
                        self._forget(uid)

        return taken

    def _namespaces(self) -> Iterable[str]:
        return self._store.namespaces

    # -- one job

    async def _look(self, uid: str) -> float | None:
        job = self._store.jobs.get(uid)
        if job is None or job.deleting:
            self._forget(uid)
            return None
        if job.problems:
            malformed = Obstacle(_MALFORMED, "; ".join(job.problems))
            await self._show(job, self._said(job.status, malformed, all_made=False))
            await self._tell_once(job, malformed)
            return None
        found = plan(job, self._store.pods(job), time.time())
        if found.decides is not None:
            if await self._remember(job, found.status):
                await self._announce(job, found.decides)
                self._steps.add(uid)
            return _TOGETHER_SECONDS
        conflict = await self._keep_spec(job)
        await self._delete(job, found.doomed)
        if found.missing:
            self._want(job.namespace)
        else:
            self._obstacles.pop(uid, None)
        obstacle = conflict or self._obstacles.get(uid)
        await self._show(job, self._said(found.status, obstacle, all_made=not found.missing))
        if obstacle is not None:
            await self._tell_once(job, obstacle)
        elif not found.missing:
            self._told.pop(uid, None)
        return _QUOTA_SECONDS[0] if conflict is not None else found.again_seconds

    async def _keep_spec(self, job: Job) -> Obstacle | None:
        """Its SchedulingSpec is there and says what the job says; else what stands in the way."""
        wanted, known = spec_body(job), self._store.spec(job)
        definition = kube_arbitrator.DEFINITION
        path = object_path(definition.api_version, definition.plural, job.namespace)
        answer: Object | None = None
        if known is None:
            answer = await self._calls.create(path, wanted) or await self._calls.get(f"{path}/{job.name}")
        elif known.job == job.uid and (changed := merge_patch(known.content, job.scheduling)):
            answer = await self._calls.patch(f"{path}/{job.name}", {"metadata": {"uid": known.uid}, "spec": changed})
        if answer is not None:
            self._store.take_spec(decode_pod_group(msgspec.json.encode(answer)))
            known = self._store.spec(job)
        if known is not None and known.job != job.uid:
            named = quoted(f"{job.namespace}/{job.name}")
            if known.job:
                return Obstacle(FORMER, f"SchedulingSpec {named} of a former job of this name is not gone yet")
            return Obstacle(
                CONFLICT, f"SchedulingSpec {named} exists and is not this job's: delete it, or rename the job"
            )
        return None

    async def _delete(self, job: Job, doomed: tuple[JobPod, ...]) -> None:
        for start in range(0, len(doomed), _AT_ONCE):
            await asyncio.gather(*(self._delete_one(job, pod) for pod in doomed[start : start + _AT_ONCE]))

    async def _delete_one(self, job: Job, pod: JobPod) -> None:
        await self._calls.delete(object_path("v1", "pods", job.namespace, pod.name), pod.uid)
        self._store.doom(job, pod)

    async def _remember(self, job: Job, status: JobStatus) -> bool:
        """Write down what was decided. False: the job has changed since, and is looked at again."""
        annotations = {RECORD: status.record(job.uid)}
        body = {"metadata": {"uid": job.uid, "resourceVersion": str(job.revision), "annotations": annotations}}
        try:
            answer = await self._calls.patch(_path(job), body)
        except ApiStatusError as error:
            if error.status != 409:
                raise
            return False
        self._know(answer)
        return answer is not None

    async def _show(self, job: Job, status: JobStatus) -> None:
        """Tell users how it is."""
        changed = {name: value for name, value in status.shown.items() if job.told.get(name) != value}
        if changed:
            self._know(await self._calls.patch_status(_path(job), {"metadata": {"uid": job.uid}, "status": changed}))

    def _know(self, answer: Object | None) -> None:
        """What was written is known before the watch tells it."""
        if answer is not None:
            self._store.take_job(decode_queue_job(msgspec.json.encode(answer)))

    @staticmethod
    def _said(status: JobStatus, obstacle: Obstacle | None, *, all_made: bool) -> JobStatus:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return with_obstacle(status, obstacle, all_made=all_made, now_text=now)

    # -- all jobs of a namespace

    def _want(self, namespace: str) -> None:
        """Pods are missing there; while a quota is short, they are asked for only now and then."""
        if asyncio.get_running_loop().time() >= self._not_before.get(namespace, 0.0):
            self._makings.add(namespace)

    async def _make(self, namespace: str) -> float | None:
        now = asyncio.get_running_loop().time()
        if (pause := self._not_before.get(namespace, 0.0) - now) > 0:
            return pause
        demands = [demand for job in self._store.in_namespace(namespace) if (demand := self._demand(job)) is not None]
        making = Making(self._calls, self._scheduler_name, self._learn)
        try:
            await making.make(demands)
        finally:
            for demand in demands:
                self._note(demand.job, making.obstacles.get(demand.job.uid))
        if not making.obstacles:
            self._refusals.pop(namespace, None)
            self._not_before.pop(namespace, None)
            return None
        refusals = self._refusals[namespace] = self._refusals.get(namespace, 0) + 1
        first, longest = _QUOTA_SECONDS
        pause = float(min(longest, first * 2.0 ** min(refusals - 1, 10)))
        self._not_before[namespace] = asyncio.get_running_loop().time() + pause
        return pause

    def _learn(self, pod: Pod) -> None:
        for uid in self._store.take_pod(pod):
            self._steps.add(uid, _TOGETHER_SECONDS)

    def _demand(self, job: Job) -> Demand | None:
        if job.problems or job.deleting:
            return None
        found = plan(job, self._store.pods(job), time.time())
        return Demand(job, found.missing) if found.decides is None and found.missing else None

    def _note(self, job: Job, obstacle: Obstacle | None) -> None:
        if obstacle is None:
            self._obstacles.pop(job.uid, None)
        else:
            self._obstacles[job.uid] = obstacle
        self._steps.add(job.uid, _TOGETHER_SECONDS)

    # -- what users are told

    async def _announce(self, job: Job, step: Step) -> None:
        _log.info("queue job", job=f"{job.namespace}/{job.name}", step=step.reason, why=step.message)
        await self._events.tell(_reference(job), step.reason, step.message, action=_ACTION, warning=step.warning)

    async def _tell_once(self, job: Job, obstacle: Obstacle) -> None:
        """Amounts in what a quota says change all the time; it is told again when something else is wrong."""
        if obstacle.reason == FORMER:
            return
        said = (obstacle.reason, "" if obstacle.reason not in (_MALFORMED, CONFLICT) else obstacle.message)
        if self._told.get(job.uid) != said:
            await self._events.tell(_reference(job), obstacle.reason, obstacle.message, action=_ACTION)
            self._told[job.uid] = said

    def _forget(self, uid: str) -> None:
        self._obstacles.pop(uid, None)
        self._told.pop(uid, None)


def _path(job: Job) -> str:
    return object_path(API_VERSION, PLURAL, job.namespace, job.name)


def _reference(job: Job) -> ObjectReference:
    return ObjectReference(API_VERSION, KIND, job.namespace, job.name, job.uid)
