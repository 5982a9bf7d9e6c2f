"""Job controller: creates pods for batch/v1 Jobs, indexed or not, until enough have succeeded or too many failed.

Failed pods are replaced without backoff, and deleted pods do not count as failures, unlike in kube-controller-manager.
A pod that a quota or a webhook rejects is retried with backoff, and the job gets an event. Not implemented:
activeDeadlineSeconds, podFailurePolicy, successPolicy, suspend, ttlSecondsAfterFinished, limits per index.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import structlog

from muster.localcluster.apiserver.admission import Admission
from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.job_pods import INDEX, pod_of
from muster.localcluster.apiserver.routing import Call, Target
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.store import Change, Collection, Object, Record
from muster.localcluster.apiserver.work_queue import WorkQueue
from muster.localcluster.apiserver.write import Writer

_JOBS: Final = "jobs.batch"
_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 10.0

_log: Final = structlog.get_logger(__name__)


@dataclass
class _Progress:
    """Pods of a job; finished ones count even after their deletion."""

    pods: set[str] = field(default_factory=set)  # keys
    succeeded: dict[str, int | None] = field(default_factory=dict)  # uid -> completion index
    failed: set[str] = field(default_factory=set)  # uids
    creating: bool = False
    """Webhook calls for its pods are in flight."""
    failures: int = 0
    """Consecutive rejections."""
    backing_off: bool = False
    """Whether it backs off before the next attempt to create pods."""


class JobController:
    """Reconciles every job's pods and status with its spec."""

    def __init__(self, cluster: Cluster, writer: Writer, admission: Admission, deleter: Deleter) -> None:
        self._cluster, self._writer, self._deleter = cluster, writer, deleter
        self._admission = admission
        self._creations: set[asyncio.Task[None]] = set()
        self._progress: dict[str, _Progress] = {}  # by job uid
        self._queue: WorkQueue[str] = WorkQueue(self._reconcile)

    async def run(self) -> None:
        try:
            await self._queue.run()
        finally:
            for creation in self._creations:
                creation.cancel()
            await asyncio.gather(*self._creations, return_exceptions=True)

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == _JOBS:
            if change.type == "DELETED":
                self._progress.pop(change.record.metadata["uid"], None)
            else:
                self._queue.add(change.record.key)
        elif collection.name == "pods" and (owner := _job_of(change.record)) is not None:
            progress = self._progress.setdefault(owner["uid"], _Progress())
            _count(progress, change)
            self._queue.add(f"{change.record.metadata['namespace']}/{owner['name']}")

    def _reconcile(self, key: str) -> None:
        record = self._cluster.store.get(_JOBS, key)
        if record is None or "deletionTimestamp" in record.metadata:
            return
        job, progress = record.object, self._progress.setdefault(record.metadata["uid"], _Progress())
        status = dict(job.get("status") or {})
        if _ended(status) or progress.creating:
            return
        pods = self._cluster.store.collection("pods").records
        active = [pods[each] for each in progress.pods if each in pods and _is_active(pods[each])]
        status.setdefault("startTime", now_text())
        active = self._proceed(job, status, progress, active)
        self._update_status(record, status, progress, active)

    def _proceed(self, job: Object, status: Object, progress: _Progress, active: list[Record]) -> list[Record]:
        """Create or delete pods, or finish the job. Returns the active pods."""
        spec = job["spec"]
        done, completions = _completed(spec, progress), spec.get("completions")
        if len(progress.failed) > spec["backoffLimit"]:
            self._delete(active)
            message = "Job has reached the specified backoff limit"
            status["conditions"] = _with_condition(status, "Failed", "BackoffLimitExceeded", message)
            return []
        if (done >= completions) if completions is not None else (done > 0 and not active):
            status["completionTime"] = now_text()
            message = "Reached expected number of succeeded pods"
            status["conditions"] = _with_condition(status, "Complete", "CompletionsReached", message)
            return active
        desired = spec["parallelism"]
        if completions is not None:
            desired = min(desired, completions - done)
        elif done:
            desired = len(active)
        surplus = active[desired:]
        self._delete(surplus)
        active = active[:desired]
        return active + self._create(job, progress, active, desired - len(active))

    def _create(self, job: Object, progress: _Progress, active: list[Record], count: int) -> list[Record]:
        indexes: list[int | None] = [None] * count
        if job["spec"]["completionMode"] == "Indexed":
            taken = {*progress.succeeded.values(), *map(_index_of, active)}
            free = (index for index in range(job["spec"].get("completions") or 0) if index not in taken)
            indexes = [index for index, _ in zip(free, range(count), strict=False)]
        kind = self._cluster.kinds.storing("pods")
        assert kind is not None
        target = Target(kind, job["metadata"]["namespace"])
        if progress.backing_off or count <= 0:
            return []
        if self._admission.applies_to(Call("POST", target, {})):
            progress.creating = True
            creation = asyncio.create_task(self._create_admitted(job, progress, target, indexes))
            self._creations.add(creation)
            creation.add_done_callback(self._creations.discard)
            return []
        created = []
        for index in indexes:
            try:
                created.append(self._writer.create_object(Call("POST", target, {}), pod_of(job, index)))
                progress.failures = 0
            except StatusError as error:
                self._creation_failed(job, progress, error)
                break
        return created

    async def _create_admitted(
        self, job: Object, progress: _Progress, target: Target, indexes: list[int | None]
    ) -> None:
        """Create pods through admission webhooks, then reconcile the job again."""
        key = f"{target.namespace}/{job['metadata']['name']}"
        try:
            for index in indexes:
                await self._admission.create(Call("POST", target, {}), pod_of(job, index))
                progress.failures = 0
        except StatusError as error:
            self._creation_failed(job, progress, error)
        finally:
            progress.creating = False
            self._queue.add(key)

    def _creation_failed(self, job: Object, progress: _Progress, error: StatusError) -> None:
        metadata = job["metadata"]
        _log.warning("job_pod_rejected", job=metadata["name"], error=error.message)
        progress.failures += 1
        pause = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(progress.failures - 1, 16))
        progress.backing_off = True
        asyncio.get_running_loop().call_later(
            pause, self._retry, progress, f"{metadata['namespace']}/{metadata['name']}"
        )
        if progress.failures == 1:
            self._report_failure(job, error)

    def _retry(self, progress: _Progress, key: str) -> None:
        progress.backing_off = False
        self._queue.add(key)

    def _report_failure(self, job: Object, error: StatusError) -> None:
        kind = self._cluster.kinds.named("v1", "Event")
        assert kind is not None
        metadata, now = job["metadata"], now_text()
        job_reference = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            **{each: metadata[each] for each in ("namespace", "name", "uid")},
        }
        event: Object = {"kind": "Event", "apiVersion": "v1", "metadata": {"generateName": f"{metadata['name']}."}}
        event |= {"type": "Warning", "reason": "FailedCreate", "message": f"Error creating: {error.message}"}
        event |= {"involvedObject": job_reference, "source": {"component": "job-controller"}}
        event |= {"firstTimestamp": now, "lastTimestamp": now, "count": 1}
        try:
            self._writer.create_object(Call("POST", Target(kind, metadata["namespace"]), {}), event)
        except StatusError as event_error:
            _log.warning("job_event_rejected", job=metadata["name"], error=event_error.message)

    def _delete(self, records: list[Record]) -> None:
        kind = self._cluster.kinds.storing("pods")
        assert kind is not None
        for record in records:
            if "deletionTimestamp" not in record.metadata:
                self._deleter.delete_record(kind, record)

    def _update_status(self, record: Record, status: Object, progress: _Progress, active: list[Record]) -> None:
        status |= {
            "active": len(active),
            "ready": sum(_is_ready(each) for each in active),
            "succeeded": _completed(record.object["spec"], progress),
            "failed": len(progress.failed),
        }
        status = {name: value for name, value in status.items() if value or name == "ready"}
        if record.object["spec"]["completionMode"] == "Indexed":
            status["completedIndexes"] = _ranges({index for index in progress.succeeded.values() if index is not None})
        if status != record.object.get("status"):
            changed = {**record.object, "metadata": dict(record.metadata), "status": status}
            self._cluster.store.put(_JOBS, record.key, changed)


def _count(progress: _Progress, change: Change) -> None:
    record = change.record
    uid, phase = record.metadata["uid"], (record.object.get("status") or {}).get("phase")
    if change.type == "DELETED":
        progress.pods.discard(record.key)
    else:
        progress.pods.add(record.key)
    if phase == "Succeeded":
        progress.succeeded[uid] = _index_of(record)
    elif phase == "Failed":
        progress.failed.add(uid)


def _job_of(record: Record) -> Object | None:
    for owner in record.metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") == "Job" and owner["apiVersion"] == "batch/v1":
            return owner  # type: ignore[no-any-return]
    return None


def _index_of(record: Record) -> int | None:
    text = (record.metadata.get("annotations") or {}).get(INDEX)
    return int(text) if text is not None and text.isdigit() else None


def _completed(spec: Object, progress: _Progress) -> int:
    if spec["completionMode"] == "Indexed":
        return len({index for index in progress.succeeded.values() if index is not None})
    return len(progress.succeeded)


def _is_active(record: Record) -> bool:
    phase = (record.object.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and "deletionTimestamp" not in record.metadata


def _is_ready(record: Record) -> bool:
    conditions = (record.object.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _ended(status: Object) -> bool:
    conditions = status.get("conditions") or ()
    return any(each.get("type") in ("Complete", "Failed") and each.get("status") == "True" for each in conditions)


def _with_condition(status: Object, name: str, reason: str, message: str) -> list[Object]:
    present: list[Object] = status.get("conditions") or []
    if any(each["type"] == name for each in present):
        return present
    now = now_text()
    condition = {"type": name, "status": "True", "lastProbeTime": now, "lastTransitionTime": now}
    return [*present, condition | {"reason": reason, "message": message}]


def _ranges(numbers: set[int]) -> str:
    """Indexes in the format of a job's status: "0-2,4"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
