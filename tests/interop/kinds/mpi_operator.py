"""Workloads of the MPI operator."""

from typing import Final

from interop.gang import JSON, Gang
from interop.workload_kind import OnFailure, Patch, Withheld, WorkloadKind, has_condition, patch_of

_VERSION: Final = "kubeflow.org/v2beta1"


def _mpi_job(gang: Gang) -> list[JSON]:
    """A launcher and workers."""
    template = gang.template(marked=False, named=False)
    spec = {
        "slotsPerWorker": 1,
        "runPolicy": {
            "cleanPodPolicy": "All",
            "backoffLimit": 100,
            "schedulingPolicy": {"minAvailable": gang.size},
        },
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template},
            "Worker": {"replicas": gang.size - 1, "restartPolicy": "Never", "template": template},
        },
    }
    return [{"apiVersion": _VERSION, "kind": "MPIJob", "metadata": gang.metadata(), "spec": spec}]


def _scaled(gang: Gang, size: int) -> list[Patch]:
    body = {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": size - 1}}}}
    return [patch_of(gang, _VERSION, "MPIJob", body)]


def _restarted(gang: Gang) -> list[Patch]:
    body = {"spec": {"runPolicy": {"suspend": True}}}, {"spec": {"runPolicy": {"suspend": False}}}
    return [patch_of(gang, _VERSION, "MPIJob", each) for each in body]


def _workers_first(objects: list[JSON]) -> None:
    objects[-1]["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"


MPI_OPERATOR: Final = (
    WorkloadKind(
        controller="mpi-operator",
        name="MPIJob",
        user_sets="nothing, if the operator runs with `--gang-scheduling=muster`: it creates a PodGroup of coscheduling"
        " for each MPIJob and sets this `schedulerName`",
        notes="`runPolicy.schedulingPolicy.minAvailable` lets the number of workers grow beyond what must start"
        " together; without it the minimum grows with the workers. With `launcherCreationPolicy: WaitForWorkersReady`"
        " set it to the number of workers, because the launcher comes later.",
        objects=_mpi_job,
        on_failure=OnFailure.REPLACED,
        failing=lambda pods: pods[0],  # the launcher
        scaled=_scaled,
        restart=_restarted,
        finished=has_condition("Succeeded"),
        withheld=(Withheld(_workers_first, "or launcherCreationPolicy: AtStartup"),),
        documented="An MPIJob",
        is_example=True,
    ),
)
