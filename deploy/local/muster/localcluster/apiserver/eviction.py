"""The pods/eviction subresource: deletion within the limits of disruption budgets."""

from typing import Any, Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.decoding import decode_body
from muster.localcluster.apiserver.delete import Deleter, check_preconditions
from muster.localcluster.apiserver.disruption_budgets import BUDGETS, covers, is_ready, with_condition
from muster.localcluster.apiserver.routing import Call
from muster.localcluster.apiserver.status import StatusError, bad_request, forbidden
from muster.localcluster.apiserver.store import Object, Record, in_namespace

_MAX_DISRUPTED_PODS: Final = 2000  # allowed evictions that the budget's status does not count yet
_UNCOUNTED_RETRY_SECONDS: Final = 10
_REJECTION: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(cluster: Cluster, deleter: Deleter, call: Call) -> None:
    """Delete the pod unless a budget forbids it. Raises StatusError 400, 403, 404, 409, 429, 500.

    As in kube-apiserver, the budget is charged before the preconditions are checked.
    """
    eviction = decode_body(call.body, call.content_type)
    name = call.target.name or ""
    if not isinstance(eviction, dict):
        raise bad_request("the object provided is unrecognized (must be of type Eviction)")
    if (eviction.get("metadata") or {}).get("name") != name:
        raise bad_request("name in URL does not match name in Eviction object")
    pods = call.target.kind
    record = cluster.record(pods, call.target.namespace, name)
    options = eviction.get("deleteOptions") or {}
    dry_run = call.dry_run or bool(options.get("dryRun"))
    if _is_protected(record.object):
        _charge_budgets(cluster, record, dry_run=dry_run)
    check_preconditions(pods, record, options.get("preconditions") or {})
    if not dry_run and "deletionTimestamp" not in record.metadata:
        record = cluster.store.put("pods", record.key, _disrupted(record.object))
    deleter.delete_record(pods, record, _without_resource_version(options), dry_run=dry_run)


def _charge_budgets(cluster: Cluster, record: Record, *, dry_run: bool) -> None:
    budgets = in_namespace(cluster.store.collection(BUDGETS).records.values(), record.metadata["namespace"])
    selecting = [budget for budget in budgets if covers(budget.object, record.object)]
    if len(selecting) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, message, reason="")
    if not selecting:
        return
    [budget] = selecting
    status = budget.object.get("status") or {}
    if not is_ready(record.object) and _allows_unready(budget.object):
        return
    _check(budget, status)
    if not dry_run:
        charged = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        charged["disruptedPods"] = {**(status.get("disruptedPods") or {}), record.metadata["name"]: now_text()}
        changed = {**budget.object, "metadata": dict(budget.metadata), "status": with_condition(charged, status)}
        cluster.store.put(BUDGETS, budget.key, changed)


def _allows_unready(budget: Object) -> bool:
    """Whether an unready pod may be evicted without charging the budget."""
    status, policy = budget.get("status") or {}, (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy")
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    return policy == "AlwaysAllow" or healthy >= desired > 0


def _check(budget: Record, status: Object) -> None:
    """Raises StatusError 403 and 429."""
    name = budget.metadata["name"]
    if status.get("observedGeneration", 0) < budget.metadata.get("generation", 0):
        raise _rejection(
            f"The disruption budget {name} is still being processed by the server.", _UNCOUNTED_RETRY_SECONDS
        )
    if len(status.get("disruptedPods") or ()) > _MAX_DISRUPTED_PODS:
        message = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("poddisruptionbudget", "policy", name, message)
    if status.get("disruptionsAllowed", 0) < 1:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        if has > needs:  # the status does not count the last evictions yet
            raise _rejection(f"The disruption budget {name} does not allow evicting pods currently")
        raise _rejection(f"The disruption budget {name} needs {needs} healthy pods and has {has} currently")


def _rejection(cause: str, retry_after_seconds: int | None = None) -> StatusError:
    causes: list[Any] = [{"reason": "DisruptionBudget", "message": cause}]
    return StatusError(429, _REJECTION, details={"causes": causes}, retry_after_seconds=retry_after_seconds)


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


def _without_resource_version(options: Object) -> Object:
    """Delete options without resourceVersion, since the condition DisruptionTarget has made a new version."""
    preconditions = {key: value for key, value in (options.get("preconditions") or {}).items() if key == "uid"}
    return {**options, "preconditions": preconditions}


def _is_protected(pod: Object) -> bool:
    """Whether budgets protect the pod: it is running and not being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Pending", "Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
