"""Workloads of JobSet."""

from typing import Final

from interop.gang import JSON, Gang
from interop.workload_kind import OnFailure, Withheld, WorkloadKind, has_condition

_VERSION: Final = "jobset.x-k8s.io/v1alpha2"


def job_set(gang: Gang) -> list[JSON]:
    """A JobSet with a leader Job of one pod and a Job of all others."""

    def replicated(name: str, pods: int) -> JSON:
        spec = {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": gang.template(restartPolicy="Never"),
        }
        return {"name": name, "replicas": 1, "template": {"spec": spec}}

    spec = {
        "failurePolicy": {"maxRestarts": 100},
        "replicatedJobs": [replicated("leader", 1), replicated("workers", gang.size - 1)],
    }
    return [{"apiVersion": _VERSION, "kind": "JobSet", "metadata": gang.metadata(), "spec": spec}]


def _in_order(objects: list[JSON]) -> None:
    objects[-1]["spec"]["startupPolicy"] = {"startupPolicyOrder": "InOrder"}


def _dependent(objects: list[JSON]) -> None:
    objects[-1]["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "leader", "status": "Ready"}]


def _exclusive(objects: list[JSON]) -> None:
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    objects[-1]["metadata"]["annotations"] = {key: "kubernetes.io/hostname"}


def _other_scheduler(objects: list[JSON]) -> None:
    leader = objects[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    leader["spec"]["schedulerName"] = "default-scheduler"


JOBSET: Final = (
    WorkloadKind(
        controller="jobset",
        name="JobSet",
        user_sets="the gang's labels and `schedulerName` in the pod templates of all `replicatedJobs`; `failurePolicy`"
        " with `maxRestarts`, because a preemption is a failure, too",
        notes="With `startupPolicy: InOrder` or `dependsOn`, later Jobs have no pods before earlier ones run or end: do"
        " not count them in `min-available`.",
        objects=job_set,
        on_failure=OnFailure.RESTARTS_GANG,
        finished=has_condition("Completed"),
        withheld=(
            Withheld(_in_order, "startupPolicyOrder: AnyOrder"),
            Withheld(_dependent, "creates replicated job workers only after leader (dependsOn)"),
            Withheld(_other_scheduler, "have another schedulerName and are no members"),
            Withheld(_exclusive, "replace it with muster.dev/topology on the pods"),
        ),
        documented="A JobSet",
        is_example=True,
    ),
)
