"""Workloads of the Spark operator."""

from collections.abc import Sequence
from typing import Any, Final

from interop.gang import IMAGE, JSON, MINIMUM, SCHEDULER, Gang
from interop.workload_kind import OnFailure, Withheld, WorkloadKind, suspended_and_resumed

_VERSION: Final = "sparkoperator.k8s.io/v1beta2"
_DRIVER: Final = "spark-kubernetes-driver"
_EXECUTOR: Final = "spark-kubernetes-executor"


def _application(gang: Gang, *, driver: JSON, executor: JSON, labels: dict[str, str], **spec: Any) -> list[JSON]:
    """A SparkApplication that is submitted again after each failure."""
    often = {"onFailureRetries": 100, "onFailureRetryInterval": 1}
    submission = {"onSubmissionFailureRetries": 100, "onSubmissionFailureRetryInterval": 1}
    body = {
        "type": "Scala",
        "mode": "cluster",
        "sparkVersion": "4.0.1",
        "image": IMAGE,
        "mainApplicationFile": "local:///opt/spark/examples/jars/spark-examples.jar",
        "restartPolicy": {"type": "OnFailure", **often, **submission},
        "driver": {"memory": "512m", **driver},
        "executor": {"cores": 1, "memory": "512m", **executor},
        **spec,
    }
    return [
        {"apiVersion": _VERSION, "kind": "SparkApplication", "metadata": gang.metadata(labels=labels), "spec": body}
    ]


def _gang_of_executors(gang: Gang) -> list[JSON]:
    """The executors are the gang; the driver is a pod of its own."""
    driver = gang.template(marked=False, container=_DRIVER)
    del driver["metadata"]
    return _application(
        gang,
        driver={"coreRequest": "0", "template": driver},
        executor={"instances": gang.size, "template": gang.template(container=_EXECUTOR)},
        labels={},
    )


def _pod_group(gang: Gang) -> list[JSON]:
    """A driver and executors in the PodGroup that the operator creates."""
    driver, executor = (gang.template(marked=False, container=container) for container in (_DRIVER, _EXECUTOR))
    return _application(
        gang,
        driver={"cores": 1, "template": driver},
        executor={"instances": gang.size - 1, "template": executor},
        labels=gang.labels(),
        batchScheduler=SCHEDULER,
    )


def _driver_counted(objects: list[JSON]) -> None:
    """Gives the driver the labels of the executors, and counts it."""
    spec = objects[-1]["spec"]
    labels = spec["executor"]["template"]["metadata"]["labels"]
    labels[MINIMUM] = str(spec["executor"]["instances"] + 1)
    spec["driver"]["template"]["metadata"] = {"labels": labels}


def _completed(application: JSON) -> bool:
    state: str = application.get("status", {}).get("applicationState", {}).get("state", "")
    return state == "COMPLETED"


def _executor(pods: Sequence[JSON]) -> JSON:
    return next(pod for pod in pods if pod["metadata"]["labels"]["spark-role"] == "executor")


def _driver_of(gang: Gang) -> str:
    return f"{gang.name}-driver"


SPARK_OPERATOR: Final = (
    WorkloadKind(
        controller="spark-operator",
        name="SparkApplication",
        user_sets="the gang's labels in `executor.template`, with the number of executors as `min-available`, and"
        " `schedulerName` in both templates; `restartPolicy: {type: OnFailure}`",
        notes="The driver creates the executors when it runs: it is a pod of its own, and the executors are the gang."
        " A change of the number of executors restarts the application.",
        objects=_gang_of_executors,
        on_failure=OnFailure.REPLACED,
        restart=lambda gang: suspended_and_resumed(gang, _VERSION, "SparkApplication"),
        finished=_completed,
        finishing=_driver_of,
        has_plain_pods=True,
        withheld=(Withheld(_driver_counted, "do not count the driver and its executors in one minimum"),),
        documented="A SparkApplication",
        is_example=True,
    ),
    WorkloadKind(
        controller="spark-operator",
        name="SparkApplication with batchScheduler",
        user_sets="`batchScheduler: muster` and `schedulerName` in both templates, if the operator runs with"
        " `--enable-batch-scheduler --kube-scheduler-names=muster`: it creates a PodGroup of coscheduling",
        notes="The PodGroup has `minMember: 1`, and the requests of all pods as `minResources`: the driver starts when"
        " they are free in the cluster, or [after 30 s](scheduling.md#gathering), and then as many executors as fit.",
        objects=_pod_group,
        on_failure=OnFailure.REPLACED,
        failing=_executor,
        restart=lambda gang: suspended_and_resumed(gang, _VERSION, "SparkApplication"),
        finished=_completed,
        finishing=_driver_of,
        starts_whole=False,
    ),
)
