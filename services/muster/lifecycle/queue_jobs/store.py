"""QueueJobs and what belongs to them, as they were seen last: told by watches, and by the answers to what was written.

An answer may be known before or after the watch tells the same, so the newest revision counts.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.kube.object_changes import Removed
from muster.kube.objects import UNREADABLE, Pod, PodGroup, PriorityClass
from muster.kube.pod_facts import Priorities
from muster.lifecycle.queue_jobs.bodies import job_pod
from muster.lifecycle.queue_jobs.job import API_VERSION, KIND, Job, QueueJob, read_job
from muster.lifecycle.queue_jobs.plan import JobPod

_REMEMBERED: Final = 10_000
"""Jobs and pods whose end is remembered, for answers that come later than it."""


class Spec(Struct, frozen=True):
    """A SchedulingSpec."""

    uid: str
    namespace: str
    name: str
    job: str
    content: Mapping[str, Any]


class JobStore:
    """Methods that take changes return uids of the jobs that they concern."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._given: dict[str, QueueJob] = {}
        self._of_name: dict[str, dict[str, str]] = {}  # namespace -> name -> uid
        self._priorities = Priorities()
        self._classes: dict[str, PriorityClass] = {}
        self._pods: dict[str, dict[str, JobPod]] = {}
        self._of_pod: dict[str, tuple[str, int]] = {}  # job and revision
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._specs: dict[tuple[str, str], Spec] = {}
        self._name_of_spec: dict[str, tuple[str, str]] = {}

    def pods(self, job: Job) -> list[JobPod]:
        """Pods that the job controls."""
        return list(self._pods.get(job.uid, {}).values())

    def spec(self, job: Job) -> Spec | None:
        """The SchedulingSpec that has the job's name."""
        return self._specs.get((job.namespace, job.name))

    @property
    def namespaces(self) -> list[str]:
        """Those that have jobs."""
        return list(self._of_name)

    def in_namespace(self, namespace: str) -> Iterable[Job]:
        """Jobs of a namespace."""
        return [self.jobs[uid] for uid in self._of_name.get(namespace, {}).values()]

    # -- changes

    def take_job(self, change: QueueJob | Removed) -> list[str]:
        """A QueueJob came, changed or went."""
        if isinstance(change, Removed):
            self._drop_job(change.uid)
            return [change.uid]
        uid, known = change.metadata.uid, self.jobs.get(change.metadata.uid)
        if uid in self._ended or (known is not None and known.revision >= change.metadata.revision):
            return []
        self._given[uid] = change
        job = self.jobs[uid] = read_job(change, self._priorities)
        self._of_name.setdefault(job.namespace, {})[job.name] = uid
        return [uid]

    def _drop_job(self, uid: str) -> None:
        self._remember_end(uid)
        self._given.pop(uid, None)
        job = self.jobs.pop(uid, None)
        names = self._of_name.get(job.namespace, {}) if job is not None else {}
        if job is not None and names.get(job.name) == uid:  # another one may have its name by now
            del names[job.name]
            if not names:
                del self._of_name[job.namespace]

    def take_priority_class(self, change: PriorityClass | Removed) -> list[str]:
        """A PriorityClass came, changed or went."""
        if isinstance(change, Removed):
            self._classes.pop(change.uid, None)
        else:
            self._classes[change.metadata.uid] = change
        self._priorities = Priorities.of(self._classes.values())
        again = {uid: read_job(given, self._priorities) for uid, given in self._given.items()}
        changed = [uid for uid, job in again.items() if job != self.jobs[uid]]
        self.jobs = again
        return changed

    def take_pod(self, change: Pod | Removed) -> list[str]:
        """A pod came, changed or went."""
        if isinstance(change, Removed):
            return self._drop_pod(change.uid)
        known = job_pod(change)
        if known is None:
            return self._drop_pod(change.metadata.uid) if change.metadata.uid in self._of_pod else []
        job, pod = known
        revision = change.metadata.revision
        if pod.uid in self._ended or self._of_pod.get(pod.uid, ("", -1))[1] >= revision:
            return []
        self._of_pod[pod.uid] = (job, revision)
        pods = self._pods.setdefault(job, {})
        before = pods.get(pod.uid)
        if before is not None and before.leaving:
            pod = replace(pod, leaving=True)
        pods[pod.uid] = pod
        return [job] if pod != before else []

    def doom(self, job: Job, pod: JobPod) -> None:
        """The pod has been deleted, and will be gone."""
        pods = self._pods.get(job.uid, {})
        if pod.uid in pods:
            pods[pod.uid] = replace(pods[pod.uid], leaving=True)

    def take_spec(self, change: PodGroup | Removed) -> list[str]:
        """A SchedulingSpec came, changed or went."""
        if isinstance(change, Removed):
            key = self._name_of_spec.pop(change.uid, None)
            gone = self._specs.get(key) if key is not None else None
            if key is None or gone is None or gone.uid != change.uid:
                return []
            del self._specs[key]
            return self._called(key)
        metadata = change.metadata
        key = (metadata.namespace, metadata.name)
        owner = metadata.controlling
        ours = owner is not None and owner.kind == KIND and owner.api_version == API_VERSION
        self._specs[key] = Spec(metadata.uid, *key, owner.uid if owner is not None and ours else "", _content(change))
        self._name_of_spec[metadata.uid] = key
        return self._called(key)

    def _called(self, key: tuple[str, str]) -> list[str]:
        namespace, name = key
        uid = self._of_name.get(namespace, {}).get(name)
        return [uid] if uid is not None else []

    def _drop_pod(self, uid: str) -> list[str]:
        job, _ = self._of_pod.pop(uid, ("", 0))
        if not job:
            return []
        self._remember_end(uid)
        pods = self._pods[job]
        del pods[uid]
        if not pods:
            del self._pods[job]
        return [job]

    def _remember_end(self, uid: str) -> None:
        self._ended[uid] = None
        while len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)


def _content(spec: PodGroup) -> Mapping[str, Any]:
    try:
        content = msgspec.json.decode(bytes(spec.spec) or b"{}")
    except UNREADABLE:
        return {}
    return content if isinstance(content, dict) else {}
