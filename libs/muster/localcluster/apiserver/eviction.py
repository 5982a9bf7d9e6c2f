"""The eviction subresource: deletion of a pod that asks the disruption budgets first."""

import math
from typing import Any, Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_body
from muster.localcluster.apiserver.deleting import Deleter, check_preconditions
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.selectors import label_selector
from muster.localcluster.apiserver.status import StatusError, bad_request
from muster.localcluster.apiserver.store import Object, Record, in_namespace

BUDGETS: Final = "poddisruptionbudgets.policy"


def evict(cluster: Cluster, deleter: Deleter, call: Call) -> None:
    """Delete the pod unless a budget forbids it. Raises StatusError 400, 404, 409, 429, 500."""
    eviction = decode_body(call.body, call.content_type)
    name = call.target.name or ""
    if not isinstance(eviction, dict):
        raise bad_request("the object provided is unrecognized (must be of type Eviction)")
    if ((eviction.get("metadata") or {}).get("name") or name) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    pods = call.target.kind
    record = cluster.record(pods, call.target.namespace, name)
    options = eviction.get("deleteOptions") or {}
    dry_run = call.dry_run or bool(options.get("dryRun"))
    check_preconditions(pods, record, options.get("preconditions") or {})
    if _counts(record.object):
        _ask_budgets(cluster, record, dry_run=dry_run)
    if not dry_run and "deletionTimestamp" not in record.metadata:
        record = cluster.store.put("pods", record.key, _disrupted(record.object))
    deleter.delete_record(pods, record, options, dry_run=dry_run)


def budget_status(budget: Object, pods: list[Record]) -> Object:
    """How many of the budget's pods are healthy, must be, and may go."""
    selector = label_selector((budget.get("spec") or {}).get("selector"))
    matching = [] if selector is None else [pod.object for pod in pods if _matches(selector, pod.object)]
    expected = sum((pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") for pod in matching)
    healthy = sum(_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in matching)
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    else:
        desired = _scaled(spec.get("minAvailable", 1), expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": max(0, healthy - desired),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }


def _ask_budgets(cluster: Cluster, record: Record, *, dry_run: bool) -> None:
    namespace = record.metadata["namespace"]
    budgets = in_namespace(cluster.store.collection(BUDGETS).records.values(), namespace)
    asked = [budget for budget in budgets if _covers(budget.object, record.object)]
    if len(asked) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, message, reason="")
    if not asked:
        return
    pods = in_namespace(cluster.store.collection("pods").records.values(), namespace)
    status = budget_status(asked[0].object, pods)
    if not _ready(record.object) and status["currentHealthy"] >= status["desiredHealthy"]:
        return  # it is no help to the budget as it is
    if status["disruptionsAllowed"] < 1:
        _refuse(asked[0].metadata["name"], status)
    if not dry_run:
        told = status | {"disruptionsAllowed": status["disruptionsAllowed"] - 1}
        told["disruptedPods"] = {record.metadata["name"]: now_text()}
        changed = {**asked[0].object, "metadata": dict(asked[0].metadata), "status": told}
        cluster.store.put(BUDGETS, asked[0].key, changed)


def _refuse(budget: str, status: Object) -> None:
    needs, has = status["desiredHealthy"], status["currentHealthy"]
    message = f"The disruption budget {budget} needs {needs} healthy pods and has {has} currently"
    cause = {"reason": "DisruptionBudget", "message": message}
    raise StatusError(
        429, "Cannot evict pod as it would violate the pod's disruption budget.", details={"causes": [cause]}
    )


def _disrupted(pod: Object) -> Object:
    status = dict(pod.get("status") or {})
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "DisruptionTarget"]
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now_text(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = [*conditions, target]
    return {**pod, "metadata": dict(pod["metadata"]), "status": status}


def _counts(pod: Object) -> bool:
    """Pods that have not started or have ended are nobody's loss."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Pending", "Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]


def _covers(budget: Object, pod: Object) -> bool:
    selector = label_selector((budget.get("spec") or {}).get("selector"))
    return selector is not None and _matches(selector, pod)


def _matches(selector: Any, pod: Object) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in selector)


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _scaled(amount: Any, expected: int) -> int:
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(int(amount[:-1]) * expected / 100)
    return int(amount)
