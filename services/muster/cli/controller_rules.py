"""Rules by which workload controllers withhold pods, one function per kind, and what to set instead."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct


class Controller(Struct, frozen=True):
    """A controller of a gang's pods, or of their controllers, as the API server returned it."""

    kind: str
    namespace: str
    name: str
    uid: str
    object: Mapping[str, Any]

    @property
    def title(self) -> str:
        """Kind and name for messages."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def spec(self) -> Mapping[str, Any]:
        """The object's spec; empty if it has none."""
        return _mapping(self.object.get("spec"))

    @property
    def creates_pods(self) -> bool:
        """Whether it creates pods itself, so that its events report failures."""
        return self.kind in ("Job", "StatefulSet", "ReplicaSet", "MPIJob", "RayCluster")


class Shortage(Struct, frozen=True):
    """How many members a gang has, of how many, and all controllers above them."""

    minimum: int
    members: int
    controllers: Sequence[Controller]

    def alone(self, kind: str) -> bool:
        """Only this controller creates members, so that it must create all of them."""
        return [each.kind for each in self.controllers if each.kind != "CronJob"] == [kind]


def why_incomplete(controllers: Sequence[Controller], minimum: int, members: int) -> list[str]:
    """Reasons why these controllers do not create all members, and what to do."""
    shortage = Shortage(minimum, members, controllers)
    found: list[str] = []
    for each in controllers:
        if _is_suspended(each):
            found.append(f"{each.title} is suspended: it creates pods when it is resumed (by Kueue or its owner)")
        elif ended := _ended(each):
            found.append(f"{each.title} {ended}: it creates no more pods; delete it, or create it again")
        else:
            found += [f"{each.title} {why}" for why in _RULES.get(each.kind, _no_rule)(each, shortage)]
    return found


def creation_failures(controller: Controller, events: Sequence[Mapping[str, Any]]) -> list[str]:
    """The last failure to create a pod, from FailedCreate events."""
    newest = max(events, key=_last_seen, default=None)
    message = str((newest or {}).get("message") or "")
    if not message:
        return []
    quota = "exceeded quota" in message
    remedy = "; raise the ResourceQuota or lower the gang's requests: the gang starts when all its pods exist"
    return [f"{controller.title} cannot create pods: {message[:500]}{remedy if quota else ''}"]


def _stateful_set(each: Controller, shortage: Shortage) -> Iterator[str]:
    replicas = _count(each.spec.get("replicas"), 1)
    if each.spec.get("podManagementPolicy") in (None, "", "OrderedReady") and replicas > 1:
        yield (
            "creates a pod only after the one before is ready (podManagementPolicy: OrderedReady): "
            "recreate it with podManagementPolicy: Parallel"
        )
    if shortage.alone("StatefulSet"):
        yield from _too_few(replicas, "replicas", shortage)


def _replica_set(each: Controller, shortage: Shortage) -> Iterator[str]:
    if sorted(other.kind for other in shortage.controllers) in (["Deployment", "ReplicaSet"], ["ReplicaSet"]):
        yield from _too_few(_count(each.spec.get("replicas"), 1), "replicas", shortage)


def _job(each: Controller, shortage: Shortage) -> Iterator[str]:
    if shortage.alone("Job"):
        yield from _too_few(_job_pods(each.spec), "parallelism", shortage)


def _job_set(each: Controller, shortage: Shortage) -> Iterator[str]:
    jobs = [_mapping(job) for job in _list(each.spec.get("replicatedJobs"))]
    if _mapping(each.spec.get("startupPolicy")).get("startupPolicyOrder") == "InOrder":
        yield (
            "creates a replicated job only after the one before is ready (startupPolicy: InOrder): set "
            "startupPolicyOrder: AnyOrder, or give each replicated job a gang of its own"
        )
    for job in jobs:
        if depends := [str(_mapping(on).get("name")) for on in _list(job.get("dependsOn"))]:
            yield (
                f"creates replicated job {job.get('name')} only after {', '.join(depends)} (dependsOn): do not count "
                "its pods in the gang's minimum, or remove dependsOn"
            )
    if _is_exclusive(each, jobs):
        yield (
            f"has the annotation {_EXCLUSIVE}, whose webhook rejects followers until their leader is scheduled, which "
            "waits for the whole gang: replace it with muster.dev/topology on the pods"
        )
    pods = sum(
        _count(job.get("replicas"), 1) * _job_pods(_mapping(_mapping(job.get("template")).get("spec"))) for job in jobs
    )
    if jobs:
        yield from _too_few(pods, "replicas and parallelism", shortage)


def _mpi_job(each: Controller, shortage: Shortage) -> Iterator[str]:
    if each.spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        workers = _count(_mapping(_mapping(each.spec.get("mpiReplicaSpecs")).get("Worker")).get("replicas"), 1)
        yield (
            "creates its launcher only after the workers are ready (launcherCreationPolicy: WaitForWorkersReady): set "
            f"runPolicy.schedulingPolicy.minAvailable: {workers}, or launcherCreationPolicy: AtStartup"
        )


def _leader_worker_set(each: Controller, shortage: Shortage) -> Iterator[str]:
    if each.spec.get("startupPolicy") == "LeaderReady":
        yield (
            "creates a group's workers only after its leader is ready (startupPolicy: LeaderReady): set startupPolicy: "
            "LeaderCreated"
        )


def _volcano_job(each: Controller, shortage: Shortage) -> Iterator[str]:
    independent, dependent = 0, []
    for task in map(_mapping, _list(each.spec.get("tasks"))):
        names = _list(_mapping(task.get("dependsOn")).get("name"))
        if names:
            dependent.append(f"{task.get('name')} after {', '.join(map(str, names))}")
        else:
            independent += _count(task.get("replicas"), 1)
    if dependent and independent < shortage.minimum:
        yield (
            f"creates tasks only after others run (dependsOn: {'; '.join(dependent)}): set minAvailable to at most "
            f"{independent}, the pods of the other tasks"
        )


def _train_job(each: Controller, shortage: Shortage) -> Iterator[str]:
    initializer = _mapping(each.spec.get("initializer"))
    if named := [key for key in ("dataset", "model") if initializer.get(key) is not None]:
        yield (
            f"creates its nodes only after its initializers have ended ({', '.join(named)}), but the PodGroup's "
            "minMember counts both: remove podGroupPolicy from the runtime and give the nodes the labels of a gang"
        )


def _spark_application(each: Controller, shortage: Shortage) -> Iterator[str]:
    yield "has executors only after its driver runs: do not count the driver and its executors in one minimum"


def _no_rule(each: Controller, shortage: Shortage) -> Iterator[str]:
    return iter(())


_RULES: Final[Mapping[str, Callable[[Controller, Shortage], Iterator[str]]]] = {
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "Job": lambda each, shortage: (_volcano_job if "tasks" in each.spec else _job)(each, shortage),
    "JobSet": _job_set,
    "MPIJob": _mpi_job,
    "LeaderWorkerSet": _leader_worker_set,
    "TrainJob": _train_job,
    "SparkApplication": _spark_application,
}
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR_STRATEGY: Final = "alpha.jobset.sigs.k8s.io/node-selector"


def _too_few(pods: int, fields: str, shortage: Shortage) -> Iterator[str]:
    if pods < shortage.minimum:
        yield (
            f"creates at most {pods} {'pod' if pods == 1 else 'pods'} at a time, but {shortage.minimum} must start "
            f"together: raise {fields}, or lower the gang's minimum"
        )


def _job_pods(spec: Mapping[str, Any]) -> int:
    """Pods of a Job that may exist at the same time."""
    parallelism = _count(spec.get("parallelism"), 1)
    return min(parallelism, _count(spec.get("completions"), parallelism))


def _is_exclusive(job_set: Controller, jobs: Sequence[Mapping[str, Any]]) -> bool:
    metadata = [_mapping(job_set.object.get("metadata"))]
    metadata += [_mapping(_mapping(job.get("template")).get("metadata")) for job in jobs]
    annotations = [_mapping(each.get("annotations")) for each in metadata]
    return any(_EXCLUSIVE in each and _NODE_SELECTOR_STRATEGY not in each for each in annotations)


def _is_suspended(each: Controller) -> bool:
    return each.spec.get("suspend") is True or _mapping(each.spec.get("runPolicy")).get("suspend") is True


def _ended(each: Controller) -> str:
    """How a controller has ended; empty while it runs."""
    for condition in map(_mapping, _list(_mapping(each.object.get("status")).get("conditions"))):
        if condition.get("status") == "True" and (ended := _ENDED.get(str(condition.get("type")))):
            return ended
    return ""


_ENDED: Final = {
    "Complete": "is complete",
    "Completed": "is complete",
    "Succeeded": "has succeeded",
    "Failed": "has failed",
}


def _last_seen(event: Mapping[str, Any]) -> str:
    metadata = _mapping(event.get("metadata"))
    return str(event.get("lastTimestamp") or event.get("eventTime") or metadata.get("creationTimestamp") or "")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
