"""Workloads of kube-controller-manager."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from interop.gang import JSON, Gang
from interop.workload_kind import (
    OnFailure,
    Patch,
    Withheld,
    WorkloadKind,
    has_condition,
    patch_of,
    suspended_and_resumed,
)

CONTROLLER: Final = "kube-controller-manager"
_LABELS: Final = "the gang's labels and `schedulerName` in the pod template"
_BATCH: Final = "batch/v1"
_APPS: Final = "apps/v1"
_EVICTIONS_DO_NOT_COUNT: Final = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
}
_BACKOFF: Final = (
    "After a preemption of n pods the Job controller waits 10 s · 2^(n-1), at most 10 minutes, before it creates pods"
    " again, also if the policy ignores the failures; use `backoffLimitPerIndex`."
)


def job(gang: Gang, **spec: Any) -> list[JSON]:
    """A Job. `gang.options` are fields of its spec; None removes a field."""
    spec = {
        "parallelism": gang.size,
        "completions": gang.size,
        "completionMode": "Indexed",
        "backoffLimit": 100,
        "podFailurePolicy": _EVICTIONS_DO_NOT_COUNT,
        **spec,
        **gang.options,
    }
    spec = {field: value for field, value in spec.items() if value is not None}
    spec["template"] = gang.template(restartPolicy="Never", marked="scheduling" not in spec)
    return [{"apiVersion": _BATCH, "kind": "Job", "metadata": gang.metadata(), "spec": spec}]


def _scaled_job(gang: Gang, size: int) -> list[Patch]:
    return [patch_of(gang, _BATCH, "Job", {"spec": {"parallelism": size, "completions": size}})]


def _scaled_parallelism(gang: Gang, size: int) -> list[Patch]:
    return [patch_of(gang, _BATCH, "Job", {"spec": {"parallelism": size}})]


def _scaled_native_job(gang: Gang, size: int) -> list[Patch]:
    """Changes the number of pods, and keeps the minimum at the size of the gang."""
    [patch] = _scaled_job(gang, size)
    minimum = with_minimum(gang, min(size, gang.size)).body["spec"]
    return [patch_of(gang, _BATCH, "Job", {"spec": patch.body["spec"] | minimum})]


def with_minimum(gang: Gang, minimum: int) -> Patch:
    """Changes the minimum of a Job whose gang is a native PodGroup."""
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return patch_of(gang, _BATCH, "Job", {"spec": {"scheduling": policy}})


def _replicated(kind: str, gang: Gang, **spec: Any) -> list[JSON]:
    selector = {"matchLabels": gang.labels()}
    body = {"replicas": gang.size, "selector": selector, "template": gang.template(), **spec}
    return [{"apiVersion": _APPS, "kind": kind, "metadata": gang.metadata(), "spec": body}]


def _scaled(kind: str, gang: Gang, size: int) -> Patch:
    return patch_of(gang, _APPS, kind, {"spec": {"replicas": size}})


def _new_template(kind: str, gang: Gang) -> Patch:
    annotations = {"interop.muster.dev/restarted": "true"}
    return patch_of(gang, _APPS, kind, {"spec": {"template": {"metadata": {"annotations": annotations}}}})


CHILDREN: Final = 3
CHILDREN_NEEDED: Final = 2


def in_composite(objects: list[JSON]) -> None:
    """Replaces a Job by its pods in CHILDREN PodGroups of as many, of which CHILDREN_NEEDED start together."""
    [job] = objects
    name, child = job["metadata"]["name"], _group_of_whole(job)
    policy = {"gang": {"minGroupCount": CHILDREN_NEEDED}}
    root = {"name": name, "schedulingPolicy": policy}
    objects[:] = [
        _scheduling(job, "Workload", spec={"compositePodGroupTemplates": [{**root, "podGroupTemplates": [child]}]}),
        _composite(job, name, policy),
        *(each for number in range(CHILDREN) for each in _pod_group(job, f"{name}-{number}", name)),
    ]


def with_basic_composite(objects: list[JSON]) -> None:
    """Replaces a Job by its pods in CHILDREN PodGroups of as many. The first starts together with a basic
    CompositePodGroup that has the others, of which one suffices.
    """
    [job] = objects
    name, child = job["metadata"]["name"], _group_of_whole(job)
    policy: JSON = {"gang": {"minGroupCount": 2}}
    any_: JSON = {"name": f"{name}-any", "schedulingPolicy": {"basic": {}}}
    root = {"name": name, "schedulingPolicy": policy, "podGroupTemplates": [child]}
    inner = {**any_, "podGroupTemplates": [{**child, "name": "other"}]}
    objects[:] = [
        _scheduling(
            job, "Workload", spec={"compositePodGroupTemplates": [{**root, "compositePodGroupTemplates": [inner]}]}
        ),
        _composite(job, name, policy),
        _composite(job, any_["name"], any_["schedulingPolicy"], parent=name),
        *_pod_group(job, f"{name}-0", name),
        *(each for number in range(1, CHILDREN) for each in _pod_group(job, f"{name}-{number}", any_["name"], "other")),
    ]


def _group_of_whole(job: JSON) -> JSON:
    """Template of a PodGroup with as many pods as the Job."""
    return {"name": "child", "schedulingPolicy": {"gang": {"minCount": job["spec"]["completions"]}}}


def _scheduling(job: JSON, kind: str, name: str = "", **body: Any) -> JSON:
    """An object of scheduling.k8s.io, by default with the Job's name."""
    metadata = {"name": name or job["metadata"]["name"], "namespace": job["metadata"]["namespace"]}
    return {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": kind, "metadata": metadata, **body}


def _composite(job: JSON, name: str, policy: JSON, *, parent: str = "") -> JSON:
    """A CompositePodGroup of the Job's Workload, from the template of its name."""
    reference = {"workloadName": job["metadata"]["name"], "templateName": name}
    above = {"parentCompositePodGroupName": parent} if parent else {}
    spec = {"workloadRef": reference, "schedulingPolicy": policy, **above}
    return _scheduling(job, "CompositePodGroup", name, spec=spec)


def _pod_group(job: JSON, name: str, parent: str, template: str = "child") -> list[JSON]:
    """A PodGroup in a CompositePodGroup, with its pods."""
    reference = {"workloadName": job["metadata"]["name"], "templateName": template}
    policy = _group_of_whole(job)["schedulingPolicy"]
    spec = {"workloadRef": reference, "parentCompositePodGroupName": parent, "schedulingPolicy": policy}
    of_pods = job["spec"]["template"]
    pod = {"schedulingGroup": {"podGroupName": name}, **of_pods["spec"]}
    return [
        _scheduling(job, "PodGroup", name, spec=spec),
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **of_pods["metadata"],
                    "name": f"{name}-{member}",
                    "namespace": job["metadata"]["namespace"],
                },
                "spec": pod,
            }
            for member in range(job["spec"]["completions"])
        ),
    ]


_COMPLETE: Final = has_condition("Complete")

_QUOTA: Final = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": "1"}}}


def _set(field: str, value: Any) -> Callable[[list[JSON]], None]:
    """Changes a field of the workload's spec."""

    def change(objects: list[JSON]) -> None:
        objects[-1]["spec"][field] = value

    return change


def _limit_pods(objects: list[JSON]) -> None:
    """Adds a quota of one pod."""
    metadata = objects[-1]["metadata"]
    objects.insert(0, _QUOTA | {"metadata": {"name": metadata["name"], "namespace": metadata["namespace"]}})


_QUOTA_EXCEEDED: Final = Withheld(_limit_pods, "raise the ResourceQuota", reason="exceeded quota: ")
_TOO_FEW: Final = Withheld(_set("parallelism", 1), "creates at most 1 pod at a time")
"""Native PodGroups of Jobs have the parallelism as minimum."""

_STATEFUL_SET: Final = WorkloadKind(
    controller=CONTROLLER,
    name="StatefulSet",
    user_sets=f"{_LABELS}; `podManagementPolicy: Parallel`",
    objects=lambda gang: _replicated("StatefulSet", gang, serviceName="none", podManagementPolicy="Parallel"),
    on_failure=OnFailure.REPLACED,
    scaled=lambda gang, size: [_scaled("StatefulSet", gang, size)],
    restart=lambda gang: [_scaled("StatefulSet", gang, 0), _scaled("StatefulSet", gang, gang.size)],
    withheld=(
        Withheld(_set("podManagementPolicy", "OrderedReady"), "recreate it with podManagementPolicy: Parallel"),
        Withheld(_set("replicas", 1), "raise replicas"),
    ),
)
_DEPLOYMENT: Final = WorkloadKind(
    controller=CONTROLLER,
    name="Deployment",
    user_sets=f"{_LABELS}; `strategy: {{type: Recreate}}`",
    objects=lambda gang: _replicated("Deployment", gang, strategy={"type": "Recreate"}),
    on_failure=OnFailure.REPLACED,
    scaled=lambda gang, size: [_scaled("Deployment", gang, size)],
    restart=lambda gang: [_new_template("Deployment", gang)],
    withheld=(Withheld(_set("replicas", 1), "raise replicas"), _QUOTA_EXCEEDED),
)


def _job_kind(
    name: str,
    *,
    scaled: Callable[[Gang, int], list[Patch]] = _scaled_job,
    elastic: Mapping[str, Any] | None = None,
    notes: str = "",
    sets: str = _LABELS,
    **spec: Any,
) -> WorkloadKind:
    return WorkloadKind(
        controller=CONTROLLER,
        name=name,
        user_sets=f"{sets}; a `podFailurePolicy` that ignores `DisruptionTarget`, so that evictions do not count",
        notes=notes,
        objects=lambda gang: job(gang, **spec),
        on_failure=OnFailure.REPLACED,
        scaled=scaled,
        elastic=elastic or {},
        restart=lambda gang: suspended_and_resumed(gang, _BATCH, "Job"),
        finished=_COMPLETE,
        withheld=(_QUOTA_EXCEEDED,) if "scheduling" in spec else (_QUOTA_EXCEEDED, _TOO_FEW),
    )


KUBERNETES: Final = (
    _job_kind("Job, Indexed", notes=_BACKOFF),
    _job_kind(
        "Job, NonIndexed",
        scaled=_scaled_parallelism,
        elastic={"completions": None},
        notes="An elastic one has no `completions`: only `parallelism` may change.",
        completionMode="NonIndexed",
    ),
    _job_kind("Job, podReplacementPolicy Failed", podReplacementPolicy="Failed"),
    _job_kind(
        "Job, backoffLimitPerIndex",
        notes="The Job controller creates the pods again 10 s after a preemption.",
        backoffLimitPerIndex=100,
        backoffLimit=None,
    ),
    _job_kind(
        "Job, scheduling",
        scaled=_scaled_native_job,
        sets="`spec.scheduling: {schedulingPolicy: {gang: {}}}` and `schedulerName`",
        notes="The Job controller creates the Workload and the native PodGroup (feature gate `WorkloadWithJob`). An"
        " elastic one sets `minCount`; without it the minimum is `parallelism`.",
        scheduling={"schedulingPolicy": {"gang": {}}},
        backoffLimitPerIndex=100,
        backoffLimit=None,
    ),
    _STATEFUL_SET,
    _DEPLOYMENT,
)
