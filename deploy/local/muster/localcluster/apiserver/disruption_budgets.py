"""PodDisruptionBudgets: validation, allowed disruptions, and the controller of their status.

The expected number of pods is that of existing, unfinished pods; kube-controller-manager takes it from their owners. In
this cluster only Jobs create pods.
"""

import asyncio
import contextlib
import math
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, Final

from muster.localcluster.apiserver.clock import now_text, parse_time
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.kinds import Rules
from muster.localcluster.apiserver.metadata import json_type
from muster.localcluster.apiserver.selectors import label_selector
from muster.localcluster.apiserver.status import Cause, bad_request, invalid_value
from muster.localcluster.apiserver.store import Change, Object, Record, in_namespace
from muster.localcluster.apiserver.store import Collection as Stored

BUDGETS: Final = "poddisruptionbudgets.policy"

_PAUSE_SECONDS: Final = 0.1  # collects bursts of changes
_DISRUPTED_SECONDS: Final = 120.0  # then an evicted pod that still exists counts as healthy again

_is_percent: Final = re.compile("[0-9]+%").fullmatch
_PERCENT_MESSAGE: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


class BudgetRules(Rules):
    """Validation of PodDisruptionBudgets."""

    counts_generations = True
    empty_status: ClassVar = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        for name in ("minAvailable", "maxUnavailable"):
            amount = spec.get(name)
            if isinstance(amount, bool) or not isinstance(amount, int | str | None):
                field = f"PodDisruptionBudgetSpec.spec.{name}"
                raise bad_request(
                    'PodDisruptionBudget in version "v1" cannot be handled as a PodDisruptionBudget: json: cannot '
                    f"unmarshal {json_type(amount)} into Go struct field {field} of type int32"
                )

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            yield invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")
        for name in ("minAvailable", "maxUnavailable"):
            amount = spec.get(name)
            if amount is not None and (problem := _amount_problem(amount)):
                yield invalid_value(f"spec.{name}", amount, problem)


def covers(budget: Object, pod: Object) -> bool:
    """Whether the budget selects the pod."""
    selector = label_selector((budget.get("spec") or {}).get("selector"))
    labels = pod["metadata"].get("labels") or {}
    return selector is not None and all(requirement.matches(labels) for requirement in selector)


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def budget_status(budget: Object, pods: list[Record], deleted: Collection[str] = ()) -> Object:
    """Current, desired and expected pods and allowed disruptions.

    `pods`: all pods of the namespace; `deleted`: names of deleted pods, even if new pods have these names.
    """
    covered = [pod.object for pod in pods if covers(budget, pod.object)]
    previous = budget.get("status") or {}
    evicted = {pod: since for pod, since in (previous.get("disruptedPods") or {}).items() if pod not in deleted}
    disrupted = _still_disrupted(evicted, covered)
    expected = sum((pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed") for pod in covered)
    healthy = sum(_is_healthy(pod, disrupted) for pod in covered)
    spec = budget.get("spec") or {}
    if spec.get("maxUnavailable") is not None:
        desired = max(0, expected - _scaled(spec["maxUnavailable"], expected))
    else:
        desired = _scaled(spec.get("minAvailable", 1), expected)
    allowed = max(0, healthy - desired) if expected else 0
    status: Object = {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "disruptionsAllowed": allowed,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
    }
    if disrupted:
        status["disruptedPods"] = disrupted
    return with_condition(status, previous)


def with_condition(status: Object, previous: Object) -> Object:
    """The status with the condition DisruptionAllowed."""
    allowed = status["disruptionsAllowed"] > 0
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if allowed else "False",
        "reason": "SufficientPods" if allowed else "InsufficientPods",
        "message": "",
        "observedGeneration": status["observedGeneration"],
        "lastTransitionTime": now_text(),
    }
    other_conditions = []
    for each in previous.get("conditions") or ():
        if each.get("type") != condition["type"]:
            other_conditions.append(each)
        elif each.get("status") == condition["status"]:
            condition["lastTransitionTime"] = each.get("lastTransitionTime")
    return {**status, "conditions": [*other_conditions, condition]}


class DisruptionController:
    """Updates the budgets of a namespace after changes of its pods."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dirty: set[str] = set()
        self._deleted_pods: defaultdict[str, set[str]] = defaultdict(set)
        """Namespace -> names of pods that were deleted since the last update."""
        self._due: dict[str, float] = {}
        """Namespace -> time at which disrupted pods count again, in seconds since 1970."""
        self._wake = asyncio.Event()

    def note(self, collection: Stored, change: Change) -> None:
        is_pod_change = collection.name == "pods" and self._cluster.store.collection(BUDGETS).records
        if not is_pod_change and collection.name != BUDGETS:
            return
        metadata = change.record.metadata
        if is_pod_change and (change.type == "DELETED" or "deletionTimestamp" in metadata):
            self._deleted_pods[metadata["namespace"]].add(metadata["name"])
        self._dirty.add(metadata["namespace"])
        self._wake.set()

    async def run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, min(self._due.values()) - time.time()) if self._due else None):
                    await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = self._dirty | {each for each, due in self._due.items() if due <= time.time()}, set()
            for namespace in dirty:
                self._recount(namespace)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _recount(self, namespace: str) -> None:
        store = self._cluster.store
        pods = in_namespace(store.collection("pods").records.values(), namespace)
        deleted = self._deleted_pods.pop(namespace, set())
        disrupted: list[float] = []
        for budget in in_namespace(store.collection(BUDGETS).records.values(), namespace):
            status = budget_status(budget.object, pods, deleted)
            if status != budget.object.get("status"):
                store.put(BUDGETS, budget.key, {**budget.object, "metadata": dict(budget.metadata), "status": status})
            disrupted += [parse_time(since) or 0.0 for since in (status.get("disruptedPods") or {}).values()]
        self._due.pop(namespace, None)
        if disrupted:
            self._due[namespace] = min(disrupted) + _DISRUPTED_SECONDS


def _still_disrupted(disrupted: Object, pods: Iterable[Object]) -> Object:
    """Entries of disruptedPods that are still valid."""
    present = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    since = time.time() - _DISRUPTED_SECONDS
    return {pod: when for pod, when in disrupted.items() if pod in present and (parse_time(when) or 0.0) > since}


def _is_healthy(pod: Object, disrupted: Object) -> bool:
    metadata = pod["metadata"]
    return "deletionTimestamp" not in metadata and metadata["name"] not in disrupted and is_ready(pod)


def _amount_problem(amount: int | str) -> str:
    if isinstance(amount, int):
        return "" if amount >= 0 else "must be greater than or equal to 0"
    if not _is_percent(amount):
        return _PERCENT_MESSAGE
    return "" if int(amount[:-1]) <= 100 else "must not be greater than 100%"


def _scaled(amount: Any, expected: int) -> int:
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(int(amount[:-1]) * expected / 100)
    return int(amount)
