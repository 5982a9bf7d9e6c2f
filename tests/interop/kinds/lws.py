"""Workloads of LeaderWorkerSet."""

from typing import Final

from interop.gang import JSON, MINIMUM, NAME, Gang
from interop.workload_kind import OnFailure, Patch, Withheld, WorkloadKind, patch_of

_VERSION: Final = "leaderworkerset.x-k8s.io/v1"


def _leader_worker_set(gang: Gang) -> list[JSON]:
    """One group, or more: its PodGroup is created by LeaderWorkerSet."""
    group = {
        "size": gang.size,
        "restartPolicy": "RecreateGroupOnPodRestart",
        "workerTemplate": gang.template(marked=False),
    }
    spec = {
        "replicas": gang.options.get("replicas", 1),
        "startupPolicy": "LeaderCreated",
        "leaderWorkerTemplate": group,
    }
    return [{"apiVersion": _VERSION, "kind": "LeaderWorkerSet", "metadata": gang.metadata(), "spec": spec}]


def replicas(gang: Gang, count: int) -> Patch:
    """The patch that sets the number of groups."""
    return patch_of(gang, _VERSION, "LeaderWorkerSet", {"spec": {"replicas": count}})


def _leader_first(objects: list[JSON]) -> None:
    """Declares the gang by its labels, too: the controller's own PodGroup does not count pods that come later."""
    spec = objects[-1]["spec"]
    group = spec["leaderWorkerTemplate"]
    labels = group["workerTemplate"]["metadata"]["labels"]
    labels |= {NAME: objects[-1]["metadata"]["name"], MINIMUM: str(group["size"])}
    spec["startupPolicy"] = "LeaderReady"


LWS: Final = (
    WorkloadKind(
        controller="lws",
        name="LeaderWorkerSet",
        user_sets="`schedulerName` in the pod templates; the controller's configuration"
        " `gangSchedulingManagement: {schedulerProvider: volcano}`; `restartPolicy: RecreateGroupOnPodRestart`",
        objects=_leader_worker_set,
        notes="The failure of a worker restarts the group only if LeaderWorkerSet sees it before the StatefulSet"
        " controller has replaced the pod; that of the leader always does. With `startupPolicy: LeaderReady` the"
        " PodGroup has `minMember: 1`: the leader starts, and then as many workers as fit.",
        on_failure=OnFailure.RESTARTS_GANG,
        failing=lambda pods: pods[0],  # the leader
        withheld=(Withheld(_leader_first, "set startupPolicy: LeaderCreated"),),
        documented="A LeaderWorkerSet",
        is_example=True,
    ),
)
