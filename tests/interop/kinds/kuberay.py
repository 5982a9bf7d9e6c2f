"""Workloads of KubeRay."""

from typing import Final

from interop.gang import JSON, Gang
from interop.workload_kind import OnFailure, Patch, WorkloadKind, patch_of, suspended_and_resumed

_VERSION: Final = "ray.io/v1"


def _workers(gang: Gang, pods: int) -> list[JSON]:
    group = {"groupName": "workers", "replicas": pods, "minReplicas": 0, "maxReplicas": 100, "rayStartParams": {}}
    return [{**group, "template": gang.template(marked=False, named=False)}]


def _ray_cluster(gang: Gang) -> list[JSON]:
    """A head and workers."""
    spec = {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": gang.template(marked=False, named=False)},
        "workerGroupSpecs": _workers(gang, gang.size - 1),
    }
    metadata = gang.metadata(labels={"ray.io/gang-scheduling-enabled": "true"})
    return [{"apiVersion": _VERSION, "kind": "RayCluster", "metadata": metadata, "spec": spec}]


def _scaled(gang: Gang, size: int) -> list[Patch]:
    return [patch_of(gang, _VERSION, "RayCluster", {"spec": {"workerGroupSpecs": _workers(gang, size - 1)}})]


KUBERAY: Final = (
    WorkloadKind(
        controller="kuberay",
        name="RayCluster",
        user_sets="the label `ray.io/gang-scheduling-enabled` on the RayCluster. The operator runs with"
        " `--batch-scheduler=scheduler-plugins` and forces `schedulerName: scheduler-plugins-scheduler`, so Muster's"
        " scheduler names contain it",
        objects=_ray_cluster,
        on_failure=OnFailure.REPLACED,
        scaled=_scaled,
        documented="A RayCluster",
        is_example=True,
        restart=lambda gang: suspended_and_resumed(gang, _VERSION, "RayCluster"),
    ),
)
