"""The QueueJob controller: creates pods and SchedulingSpecs, replaces failed pods, and reports the jobs' status.

`plan` decides, this module carries out. Garbage collection deletes what a deleted job owns.
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
from muster.kube.objects import Pod, PriorityClass, decode_pod_group
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import Object, ObjectClient
from muster.lifecycle.queue_jobs.cache import QueueJobCache
from muster.lifecycle.queue_jobs.job import API_VERSION, KIND, PLURAL, QUEUE_JOBS, Job, decode_queue_job
from muster.lifecycle.queue_jobs.manifests import merge_patch, scheduling_spec_manifest
from muster.lifecycle.queue_jobs.plan import JobPod, Step, plan
from muster.lifecycle.queue_jobs.pod_creation import CONFLICT, PREVIOUS_JOB, Demand, PodCreator
from muster.lifecycle.queue_jobs.status import RECORD, JobStatus, Obstacle, with_obstacle
from muster.lifecycle.work_queue import WorkQueue

_BATCH_SECONDS: Final = 0.1
"""Changes of pods within this time are reconciled together: a large job causes hundreds of them when it starts."""
_CONCURRENT_CALLS: Final = 16
"""Pods that are deleted concurrently."""
_QUOTA_BACKOFF_SECONDS: Final = (1.0, 10.0)
"""Shortest and longest pause before rejected pods are retried: no event announces free quota."""
_INVALID_SPEC: Final = "InvalidSpec"
_ACTION: Final = "Reconciling"

_log = structlog.get_logger(__name__)


class QueueJobController:
    """Reconciles QueueJobs with two work queues: one of jobs, and one of namespaces, whose jobs get pods in turn.

    Obstacles and recorded events end with their job, rejections with the next pass without any or when this replica
    leads again (I11).
    """

    def __init__(self, context: ControllerContext) -> None:
        self._client = ObjectClient(context.session)
        self._events = EventRecorder(self._client, context.settings.instance)
        self._scheduler_name = context.settings.scheduler_names[0]
        self._cache = QueueJobCache()
        self._obstacles: dict[str, Obstacle] = {}
        self._rejections: dict[str, int] = {}  # consecutive passes with rejections, by namespace
        self._not_before: dict[str, float] = {}  # time of the next pass, by namespace, on the loop's clock
        self._recorded: dict[str, tuple[str, str]] = {}
        leadership, informers = context.leadership, context.informers
        self._job_queue = WorkQueue(
            "queue-jobs",
            self._reconcile,
            lambda: list(self._cache.jobs),
            leadership,
            informers,
            namespace_of=self._namespace_of,
        )
        self._namespace_queue = WorkQueue(
            "queue-job-pods", self._create_pods, self._namespaces, leadership, informers, namespace_of=str
        )
        informers.add_handler(QUEUE_JOBS, self._handler(self._cache.update_job))
        informers.add_handler(PODS, self._handler(self._cache.update_pod, _BATCH_SECONDS))
        informers.add_handler(definitions(kube_arbitrator.DEFINITION), self._handler(self._cache.update_spec))
        informers.add_handler(PRIORITY_CLASSES, self._on_priority_classes)
        self._priorities_changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reprioritise())
            tasks.create_task(self._job_queue.run())
            tasks.create_task(self._namespace_queue.run())

    def _handler(
        self, update: Callable[[Any], list[str]], within_seconds: float = 0.0
    ) -> Callable[[ObjectChanges[Any]], None]:
        def handle(changes: ObjectChanges[Any]) -> None:
            for item in changes.items:
                for uid in update(item):
                    if uid in self._cache.jobs:
                        self._job_queue.add(uid, within_seconds)
                    else:
                        self._drop(uid)

        return handle

    def _on_priority_classes(self, changes: ObjectChanges[PriorityClass]) -> None:
        for item in changes.items:
            self._cache.update_priority_class(item)
        self._priorities_changed.set()

    async def _reprioritise(self) -> None:
        """Reads the jobs again whenever PriorityClasses have changed."""
        while True:
            await self._priorities_changed.wait()
            self._priorities_changed.clear()
            for changed in self._cache.reprioritise():
                for uid in changed:
                    self._job_queue.add(uid)
                await asyncio.sleep(0)

    def _all_keys(self) -> Iterable[str]:
        return list(self._cache.jobs)

    def _namespace_of(self, uid: str) -> str:
        job = self._cache.jobs.get(uid)
        return job.namespace if job is not None else ""

    def _namespaces(self) -> Iterable[str]:
        """All namespaces with jobs, when this replica begins to lead: what another leader met since is not known."""
        self._rejections.clear()
        self._not_before.clear()
        return self._cache.namespaces

    # -- one job

    async def _reconcile(self, uid: str) -> float | None:
        job = self._cache.jobs.get(uid)
        if job is None or job.deleting:
            self._drop(uid)
            return None
        if job.problems:
            invalid = Obstacle(_INVALID_SPEC, "; ".join(job.problems))
            await self._write_status(job, self._with_condition(job.status, invalid, all_created=False))
            await self._record_once(job, invalid)
            return None
        found = plan(job, self._cache.pods(job), time.time())
        if found.decision is not None:
            if await self._write_record(job, found.status):
                await self._record_step(job, found.decision)
                self._job_queue.add(uid)
            return _BATCH_SECONDS
        conflict = await self._ensure_scheduling_spec(job)
        await self._delete(job, found.to_delete)
        if found.missing:
            self._request_pods(job.namespace)
        else:
            self._obstacles.pop(uid, None)
        obstacle = conflict or self._obstacles.get(uid)
        await self._write_status(job, self._with_condition(found.status, obstacle, all_created=not found.missing))
        if obstacle is not None:
            await self._record_once(job, obstacle)
        elif not found.missing:
            self._recorded.pop(uid, None)
        return _QUOTA_BACKOFF_SECONDS[0] if conflict is not None else found.requeue_seconds

    async def _ensure_scheduling_spec(self, job: Job) -> Obstacle | None:
        """Creates or updates the job's SchedulingSpec; returns the obstacle if another object has its name."""
        manifest, known = scheduling_spec_manifest(job), self._cache.spec(job)
        definition = kube_arbitrator.DEFINITION
        path = object_path(definition.api_version, definition.plural, job.namespace)
        answer: Object | None = None
        if known is None:
            answer = await self._client.create(path, manifest) or await self._client.get(f"{path}/{job.name}")
        elif known.job == job.uid and (changed := merge_patch(known.content, job.scheduling)):
            answer = await self._client.patch(f"{path}/{job.name}", {"metadata": {"uid": known.uid}, "spec": changed})
        if answer is not None:
            self._cache.update_spec(decode_pod_group(msgspec.json.encode(answer)))
            known = self._cache.spec(job)
        if known is not None and known.job != job.uid:
            named = quoted(f"{job.namespace}/{job.name}")
            if known.job:
                return Obstacle(
                    PREVIOUS_JOB, f"SchedulingSpec {named} of an earlier job of this name is still being deleted"
                )
            return Obstacle(
                CONFLICT, f"SchedulingSpec {named} exists and is not this job's: delete it, or rename the job"
            )
        return None

    async def _delete(self, job: Job, to_delete: tuple[JobPod, ...]) -> None:
        for start in range(0, len(to_delete), _CONCURRENT_CALLS):
            await asyncio.gather(*(self._delete_one(job, pod) for pod in to_delete[start : start + _CONCURRENT_CALLS]))

    async def _delete_one(self, job: Job, pod: JobPod) -> None:
        await self._client.delete(object_path("v1", "pods", job.namespace, pod.name), pod.uid)
        self._cache.mark_deleted(job, pod)

    async def _write_record(self, job: Job, status: JobStatus) -> bool:
        """Writes the decisions. Returns False if the job has changed since and is reconciled again."""
        annotations = {RECORD: status.record(job.uid)}
        body = {"metadata": {"uid": job.uid, "resourceVersion": str(job.revision), "annotations": annotations}}
        try:
            answer = await self._client.patch(_path(job), body)
        except ApiStatusError as error:
            if error.status != 409:
                raise
            return False
        self._apply(answer)
        return answer is not None

    async def _write_status(self, job: Job, status: JobStatus) -> None:
        """Writes the status if it changed."""
        changed = {name: value for name, value in status.fields.items() if job.reported.get(name) != value}
        if changed:
            self._apply(await self._client.patch_status(_path(job), {"metadata": {"uid": job.uid}, "status": changed}))

    def _apply(self, answer: Object | None) -> None:
        """Applies the response to a write before the informer delivers it."""
        if answer is not None:
            self._cache.update_job(decode_queue_job(msgspec.json.encode(answer)))

    @staticmethod
    def _with_condition(status: JobStatus, obstacle: Obstacle | None, *, all_created: bool) -> JobStatus:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return with_obstacle(status, obstacle, all_created=all_created, now_text=now)

    # -- all jobs of a namespace

    def _request_pods(self, namespace: str) -> None:
        """Queues a namespace with missing pods, unless a rejection requires a pause."""
        if asyncio.get_running_loop().time() >= self._not_before.get(namespace, 0.0):
            self._namespace_queue.add(namespace)

    async def _create_pods(self, namespace: str) -> float | None:
        now = asyncio.get_running_loop().time()
        if (pause := self._not_before.get(namespace, 0.0) - now) > 0:
            return pause
        demands: list[Demand] = []
        for job in self._cache.in_namespace(namespace):
            if (demand := self._demand(job)) is not None:
                demands.append(demand)
            await asyncio.sleep(0)  # I12
        creator = PodCreator(self._client, self._scheduler_name, self._on_created)
        try:
            await creator.create(demands)
        finally:
            for demand in demands:
                self._set_obstacle(demand.job, creator.obstacles.get(demand.job.uid))
        if not creator.obstacles:
            self._rejections.pop(namespace, None)
            self._not_before.pop(namespace, None)
            return None
        rejections = self._rejections[namespace] = self._rejections.get(namespace, 0) + 1
        first, longest = _QUOTA_BACKOFF_SECONDS
        pause = float(min(longest, first * 2.0 ** min(rejections - 1, 10)))
        self._not_before[namespace] = asyncio.get_running_loop().time() + pause
        return pause

    def _on_created(self, pod: Pod) -> None:
        for uid in self._cache.update_pod(pod):
            self._job_queue.add(uid, _BATCH_SECONDS)

    def _demand(self, job: Job) -> Demand | None:
        if job.problems or job.deleting:
            return None
        found = plan(job, self._cache.pods(job), time.time())
        return Demand(job, found.missing) if found.decision is None and found.missing else None

    def _set_obstacle(self, job: Job, obstacle: Obstacle | None) -> None:
        if obstacle is None or job.uid not in self._cache.jobs:  # deleted meanwhile
            self._obstacles.pop(job.uid, None)
        else:
            self._obstacles[job.uid] = obstacle
        self._job_queue.add(job.uid, _BATCH_SECONDS)

    # -- events

    async def _record_step(self, job: Job, step: Step) -> None:
        _log.info("queue_job_step", job=f"{job.namespace}/{job.name}", step=step.reason, message=step.message)
        await self._events.record(_reference(job), step.reason, step.message, action=_ACTION, warning=step.warning)

    async def _record_once(self, job: Job, obstacle: Obstacle) -> None:
        """Records an event for an obstacle, but not again when only the amounts in a quota's message change."""
        if obstacle.reason == PREVIOUS_JOB:
            return
        key = (obstacle.reason, "" if obstacle.reason not in (_INVALID_SPEC, CONFLICT) else obstacle.message)
        if self._recorded.get(job.uid) != key:
            await self._events.record(_reference(job), obstacle.reason, obstacle.message, action=_ACTION)
            if job.uid in self._cache.jobs:  # not deleted meanwhile
                self._recorded[job.uid] = key

    def _drop(self, uid: str) -> None:
        self._obstacles.pop(uid, None)
        self._recorded.pop(uid, None)


def _path(job: Job) -> str:
    return object_path(API_VERSION, PLURAL, job.namespace, job.name)


def _reference(job: Job) -> ObjectReference:
    return ObjectReference(API_VERSION, KIND, job.namespace, job.name, job.uid)
