"""Caches QueueJobs, their pods and SchedulingSpecs, from informers and from responses to writes.

A response may arrive before or after the informer delivers the same state, so the newest revision is kept.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.kube.json_repair import shallow
from muster.kube.object_changes import Removed
from muster.kube.objects import UNREADABLE, Pod, PodGroup, PriorityClass
from muster.kube.pod_facts import Priorities
from muster.lifecycle.queue_jobs.job import API_VERSION, KIND, Job, QueueJob, read_job
from muster.lifecycle.queue_jobs.manifests import job_pod
from muster.lifecycle.queue_jobs.plan import JobPod

_JOBS_AT_ONCE: Final = 50
_MAX_DELETED: Final = 10_000
"""Deleted jobs and pods that are remembered, for responses that arrive after the deletion."""


class Spec(Struct, frozen=True):
    """A SchedulingSpec. `job` is the uid of the QueueJob that controls it; empty: none."""

    uid: str
    namespace: str
    name: str
    job: str
    content: Mapping[str, Any]


class QueueJobCache:
    """A cache of QueueJobs. Update methods return the uids of the jobs that change.

    Entries end with their object, uids of deleted ones when there are many newer (I11).
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._decoded: dict[str, QueueJob] = {}
        self._uids_by_name: dict[str, dict[str, str]] = {}  # namespace -> name -> uid
        self._priorities = Priorities()
        self._classes: dict[str, PriorityClass] = {}
        self._pods: dict[str, dict[str, JobPod]] = {}
        self._jobs_by_pod: dict[str, tuple[str, int]] = {}  # pod uid -> job uid and revision
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._specs: dict[tuple[str, str], Spec] = {}
        self._spec_names: dict[str, tuple[str, str]] = {}

    def pods(self, job: Job) -> list[JobPod]:
        """Returns the pods that the job controls."""
        return list(self._pods.get(job.uid, {}).values())

    def spec(self, job: Job) -> Spec | None:
        """Returns the SchedulingSpec with the job's name."""
        return self._specs.get((job.namespace, job.name))

    @property
    def namespaces(self) -> list[str]:
        """Namespaces with QueueJobs."""
        return list(self._uids_by_name)

    def in_namespace(self, namespace: str) -> Iterable[Job]:
        """Returns the jobs of a namespace."""
        return [self.jobs[uid] for uid in self._uids_by_name.get(namespace, {}).values()]

    # -- changes

    def update_job(self, change: QueueJob | Removed) -> list[str]:
        """Applies a change of a QueueJob."""
        if isinstance(change, Removed):
            self._drop_job(change.uid)
            return [change.uid]
        uid, known = change.metadata.uid, self.jobs.get(change.metadata.uid)
        if uid in self._deleted or (known is not None and known.revision >= change.metadata.revision):
            return []
        self._decoded[uid] = change
        job = self.jobs[uid] = read_job(change, self._priorities)
        self._uids_by_name.setdefault(job.namespace, {})[job.name] = uid
        return [uid]

    def _drop_job(self, uid: str) -> None:
        self._remember_deleted(uid)
        self._decoded.pop(uid, None)
        job = self.jobs.pop(uid, None)
        names = self._uids_by_name.get(job.namespace, {}) if job is not None else {}
        if job is not None and names.get(job.name) == uid:  # another job may have its name by now
            del names[job.name]
            if not names:
                del self._uids_by_name[job.namespace]

    def update_priority_class(self, change: PriorityClass | Removed) -> None:
        """Applies a change of a PriorityClass. Jobs may have other priorities since, see `reprioritise`."""
        if isinstance(change, Removed):
            self._classes.pop(change.uid, None)
        else:
            self._classes[change.metadata.uid] = change
        self._priorities = Priorities.of(self._classes.values())

    def reprioritise(self) -> Iterator[list[str]]:
        """Reads all jobs again with the present priorities, in slices; yields the uids of those that change (I12)."""
        uids = list(self._decoded)
        for start in range(0, len(uids), _JOBS_AT_ONCE):
            present = [uid for uid in uids[start : start + _JOBS_AT_ONCE] if uid in self._decoded]
            again = {uid: read_job(self._decoded[uid], self._priorities) for uid in present}
            changed = [uid for uid, job in again.items() if job != self.jobs[uid]]
            self.jobs.update((uid, again[uid]) for uid in changed)
            yield changed

    def update_pod(self, change: Pod | Removed) -> list[str]:
        """Applies a change of a pod."""
        if isinstance(change, Removed):
            return self._drop_pod(change.uid)
        known = job_pod(change)
        if known is None:
            return self._drop_pod(change.metadata.uid) if change.metadata.uid in self._jobs_by_pod else []
        job, pod = known
        revision = change.metadata.revision
        if pod.uid in self._deleted or self._jobs_by_pod.get(pod.uid, ("", -1))[1] >= revision:
            return []
        self._jobs_by_pod[pod.uid] = (job, revision)
        pods = self._pods.setdefault(job, {})
        before = pods.get(pod.uid)
        if before is not None and before.deleting:
            pod = replace(pod, deleting=True)
        pods[pod.uid] = pod
        return [job] if pod != before else []

    def mark_deleted(self, job: Job, pod: JobPod) -> None:
        """Marks a pod as being deleted."""
        pods = self._pods.get(job.uid, {})
        if pod.uid in pods:
            pods[pod.uid] = replace(pods[pod.uid], deleting=True)

    def update_spec(self, change: PodGroup | Removed) -> list[str]:
        """Applies a change of a SchedulingSpec."""
        if isinstance(change, Removed):
            key = self._spec_names.pop(change.uid, None)
            spec = self._specs.get(key) if key is not None else None
            if key is None or spec is None or spec.uid != change.uid:
                return []
            del self._specs[key]
            return self._jobs_named(key)
        metadata = change.metadata
        key = (metadata.namespace, metadata.name)
        owner = metadata.controlling
        ours = owner is not None and owner.kind == KIND and owner.api_version == API_VERSION
        self._specs[key] = Spec(metadata.uid, *key, owner.uid if owner is not None and ours else "", _content(change))
        self._spec_names[metadata.uid] = key
        return self._jobs_named(key)

    def _jobs_named(self, key: tuple[str, str]) -> list[str]:
        namespace, name = key
        uid = self._uids_by_name.get(namespace, {}).get(name)
        return [uid] if uid is not None else []

    def _drop_pod(self, uid: str) -> list[str]:
        job, _ = self._jobs_by_pod.pop(uid, ("", 0))
        if not job:
            return []
        self._remember_deleted(uid)
        pods = self._pods[job]
        del pods[uid]
        if not pods:
            del self._pods[job]
        return [job]

    def _remember_deleted(self, uid: str) -> None:
        self._deleted[uid] = None
        while len(self._deleted) > _MAX_DELETED:
            self._deleted.popitem(last=False)


def _content(spec: PodGroup) -> Mapping[str, Any]:
    try:
        content = msgspec.json.decode(shallow(bytes(spec.spec)) or b"{}")
    except UNREADABLE:
        return {}
    return content if isinstance(content, dict) else {}
