"""Workloads of Kubeflow Trainer."""

import copy
from typing import Final

from interop.gang import JSON, Gang
from interop.workload_kind import OnFailure, Withheld, WorkloadKind, has_condition, suspended_and_resumed

_VERSION: Final = "trainer.kubeflow.org/v1alpha1"
_STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"


def _train_job(gang: Gang) -> list[JSON]:
    """A TrainJob with a runtime of its own, whose pods are the nodes of the training."""
    job = {
        "metadata": {"labels": {_STEP: "trainer"}},
        "spec": {"backoffLimit": 0, "template": gang.template(marked=False, container="node", restartPolicy="Never")},
    }
    template = {"failurePolicy": {"maxRestarts": 100}, "replicatedJobs": [{"name": "node", "template": job}]}
    runtime = {
        "apiVersion": _VERSION,
        "kind": "TrainingRuntime",
        "metadata": gang.metadata(),
        "spec": {
            "mlPolicy": {"numNodes": 1},
            "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 60}},
            "template": {"spec": template},
        },
    }
    spec = {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": gang.name},
        "trainer": {"numNodes": gang.size},
    }
    return [runtime, {"apiVersion": _VERSION, "kind": "TrainJob", "metadata": gang.metadata(), "spec": spec}]


def _initialized(objects: list[JSON]) -> None:
    """Adds the initializer of a dataset, which ends before the nodes start."""
    name = "dataset-initializer"
    runtime, train_job = objects
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    [node] = jobs
    initializer = copy.deepcopy(node) | {"name": name}
    initializer["template"]["metadata"]["labels"][_STEP] = name
    initializer["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = name
    node["dependsOn"] = [{"name": name, "status": "Complete"}]
    jobs.insert(0, initializer)
    train_job["spec"]["initializer"] = {"dataset": {"storageUri": "hf://example/data"}}


TRAINER: Final = (
    WorkloadKind(
        controller="trainer",
        name="TrainJob",
        user_sets="`podGroupPolicy: {coscheduling: {}}` and `schedulerName` in the runtime, and `failurePolicy` with"
        " `maxRestarts`, because a preemption is a failure, too",
        notes="Trainer counts initializers in `minMember`, but creates the nodes only after they have ended: with them,"
        " leave `podGroupPolicy` out and use the gang's labels on the nodes.",
        objects=_train_job,
        on_failure=OnFailure.RESTARTS_GANG,
        restart=lambda gang: suspended_and_resumed(gang, _VERSION, "TrainJob"),
        finished=has_condition("Complete"),
        withheld=(
            Withheld(_initialized, "remove podGroupPolicy from the runtime and give the nodes the labels of a gang"),
        ),
        documented="A TrainJob",
        is_example=True,
    ),
)
