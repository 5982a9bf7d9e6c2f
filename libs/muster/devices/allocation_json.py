"""status.allocation of a ResourceClaim as the API has it: AllocationResult of resource.k8s.io/v1."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from muster.devices.facts import Allocation, Alternative, Claim, DeviceClass, DeviceResult, DeviceToleration, Request
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, TaintEffect, TolerationOperator

JSON = dict[str, Any]

_OPERATORS: Final = {
    NodeOperator.IN: "In",
    NodeOperator.NOT_IN: "NotIn",
    NodeOperator.EXISTS: "Exists",
    NodeOperator.DOES_NOT_EXIST: "DoesNotExist",
    NodeOperator.GT: "Gt",
    NodeOperator.LT: "Lt",
}
_EFFECTS: Final = {TaintEffect.NO_SCHEDULE: "NoSchedule", TaintEffect.NO_EXECUTE: "NoExecute"}


def allocation_json(claim: Claim, allocation: Allocation, classes: Mapping[str, DeviceClass]) -> bytes:
    """The allocation with the configuration that applies to it, as kube-scheduler writes it: that of the classes, once
    each, then that of the claim. A configuration for all requests names none.
    """
    ways = dict(_ways(claim, allocation))
    config = [*_of_classes(ways, classes), *_of_claim(claim, ways)]
    for each in config:
        if each.get("requests") and all(_applies(each["requests"], name, path) for name, (path, _) in ways.items()):
            del each["requests"]
    devices: JSON = {"results": [_result(each) for each in allocation.results]}
    if config:
        devices["config"] = config
    result: JSON = {"devices": devices}
    if allocation.node_selector is not None:
        result["nodeSelector"] = {"nodeSelectorTerms": [_term(each) for each in allocation.node_selector]}
    return msgspec.json.encode(result)


def _ways(claim: Claim, allocation: Allocation) -> Iterator[tuple[str, tuple[str, Alternative]]]:
    """For each request the path in results, and the alternative that was allocated."""
    allocated = {each.request for each in allocation.results}
    for request in claim.requests:
        chosen = _chosen(request, allocated)
        if chosen is not None:
            yield request.name, (request.path(chosen), chosen)


def _chosen(request: Request, allocated: set[str]) -> Alternative | None:
    return next((each for each in request.alternatives if request.path(each) in allocated), None)


def _of_classes(ways: Mapping[str, tuple[str, Alternative]], classes: Mapping[str, DeviceClass]) -> list[JSON]:
    requests: dict[str, list[str]] = {}
    for path, way in ways.values():
        requests.setdefault(way.device_class, []).append(path)
    return [
        {"source": "FromClass", "requests": list(paths), "opaque": msgspec.Raw(opaque.encode())}
        for name, paths in requests.items()
        for opaque in (classes[name].config if name in classes else ())
    ]


def _of_claim(claim: Claim, ways: Mapping[str, tuple[str, Alternative]]) -> list[JSON]:
    found = []
    for each in claim.config:
        if not each.requests or any(_applies(each.requests, name, path) for name, (path, _) in ways.items()):
            config: JSON = {"source": "FromClaim", "opaque": msgspec.Raw(each.opaque.encode())}
            if each.requests:
                config["requests"] = list(each.requests)
            found.append(config)
    return found


def _applies(requests: list[str] | tuple[str, ...], name: str, path: str) -> bool:
    return name in requests or path in requests


def _result(result: DeviceResult) -> JSON:
    id_ = result.id
    found: JSON = {"request": result.request, "driver": id_.driver, "pool": id_.pool, "device": id_.device}
    if result.admin_access:
        found["adminAccess"] = True
    if result.tolerations:
        found["tolerations"] = [_toleration(each) for each in result.tolerations]
    return found


def _toleration(toleration: DeviceToleration) -> JSON:
    found: JSON = {"operator": "Exists" if toleration.operator is TolerationOperator.EXISTS else "Equal"}
    if toleration.key:
        found["key"] = toleration.key
    if toleration.value:
        found["value"] = toleration.value
    if toleration.effect in _EFFECTS:
        found["effect"] = _EFFECTS[toleration.effect]
    if toleration.seconds is not None:
        found["tolerationSeconds"] = toleration.seconds
    return found


def _term(term: NodeSelectorTerm) -> JSON:
    parts = (("matchExpressions", term.labels), ("matchFields", term.fields))
    return {key: [_requirement(each) for each in requirements] for key, requirements in parts if requirements}


def _requirement(requirement: NodeRequirement) -> JSON:
    found: JSON = {"key": requirement.key, "operator": _OPERATORS[requirement.operator]}
    if requirement.values:
        found["values"] = list(requirement.values)
    return found
