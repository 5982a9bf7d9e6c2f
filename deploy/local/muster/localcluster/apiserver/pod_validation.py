"""Validation of pods, with the texts of kube-apiserver."""

from collections.abc import Iterator
from typing import Any, Final

from muster.gangs.quantity import NANOS_PER_UNIT, parse_quantity
from muster.localcluster.apiserver.devices.pod_claims import pod_claims_causes
from muster.localcluster.apiserver.metadata import (
    label_problems,
    labels_causes,
    qualified_name_problems,
    subdomain_problems,
)
from muster.localcluster.apiserver.status import (
    Cause,
    duplicate,
    forbidden_value,
    invalid_value,
    not_supported,
    required,
)
from muster.localcluster.apiserver.store import Object

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_CHANGEABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_spec_causes(spec: Object, field: str = "spec") -> Iterator[Cause]:
    """Problems of a pod spec or pod template."""
    if not spec.get("containers"):
        yield required(f"{field}.containers")
    names: set[str] = set()
    for listed in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(listed) or ()):
            yield from _container_causes(container, f"{field}.{listed}[{index}]", names)
    yield from pod_claims_causes(spec, field)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield not_supported(f"{field}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    if selector := spec.get("nodeSelector"):
        yield from labels_causes(selector, f"{field}.nodeSelector")
    if affinity := spec.get("affinity"):
        yield from _node_affinity_causes(affinity.get("nodeAffinity") or {}, f"{field}.affinity.nodeAffinity")
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        yield from _toleration_causes(toleration, f"{field}.tolerations[{index}]")
    if node := spec.get("nodeName"):
        for problem in subdomain_problems(node):
            yield invalid_value(f"{field}.nodeName", node, problem)
        if spec.get("schedulingGates"):
            yield forbidden_value(f"{field}.nodeName", "cannot be set until all schedulingGates have been cleared")
    for problem in subdomain_problems(spec["schedulerName"]):
        yield invalid_value(f"{field}.schedulerName", spec["schedulerName"], problem)
    yield from _gate_causes(spec.get("schedulingGates") or (), f"{field}.schedulingGates")
    if (group := spec.get("schedulingGroup")) is not None:
        yield from _group_causes(group.get("podGroupName") or "", f"{field}.schedulingGroup")
    if spec["terminationGracePeriodSeconds"] < 0:
        grace = spec["terminationGracePeriodSeconds"]
        yield invalid_value(f"{field}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")


def pod_update_causes(new: Object, old: Object) -> Iterator[Cause]:
    """Problems of changes to the immutable parts of a pod's spec."""
    if new is old or new == old:
        return
    changed = {name for name in (*new, *old) if new.get(name) != old.get(name)}
    changed -= {"activeDeadlineSeconds", "terminationGracePeriodSeconds"}
    for name in ("containers", "initContainers"):
        if name in changed and _without_images(new.get(name)) == _without_images(old.get(name)):
            changed.discard(name)
    if "tolerations" in changed:
        unchanged = [each for each in old.get("tolerations") or () if each not in (new.get("tolerations") or ())]
        if unchanged:
            yield forbidden_value(
                "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
            )
        changed.discard("tolerations")
    if "schedulingGates" in changed:
        before = old.get("schedulingGates") or []
        if any(gate not in before for gate in new.get("schedulingGates") or ()):
            yield forbidden_value("spec.schedulingGates", "only deletion is allowed, but found new scheduling gates")
        changed.discard("schedulingGates")
    if old.get("schedulingGates"):
        changed -= {"nodeSelector", "affinity"}  # may be narrowed while the pod has scheduling gates
    if changed:
        yield forbidden_value("spec", f"{_CHANGEABLE}\n  changed: {', '.join(sorted(changed))}")


def _container_causes(container: Object, field: str, names: set[str]) -> Iterator[Cause]:
    name = container.get("name") or ""
    if not name:
        yield required(f"{field}.name")
    else:
        for problem in label_problems(name):
            yield invalid_value(f"{field}.name", name, problem)
        if name in names:
            yield duplicate(f"{field}.name", name)
        names.add(name)
    image = container.get("image") or ""
    if not image:
        yield required(f"{field}.image")
    elif image != image.strip():
        yield invalid_value(f"{field}.image", image, "must not have leading or trailing whitespace")
    yield from _resource_causes(container.get("resources") or {}, f"{field}.resources")


def _resource_causes(resources: Object, field: str) -> Iterator[Cause]:
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for listed, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _amount_causes(name, amount, f"{field}.{listed}[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if _overcommitable(name):
            if limit is not None and parse_quantity(amount) > parse_quantity(limit):
                detail = f"must be less than or equal to {name} limit of {limit}"
                yield invalid_value(f"{field}.requests", amount, detail)
        elif limit is None:
            yield required(f"{field}.limits", "Limit must be set for non overcommitable resources")
        elif parse_quantity(amount) != parse_quantity(limit):
            yield invalid_value(f"{field}.requests", amount, f"must be equal to {name} limit of {limit}")


def _amount_causes(name: str, amount: str, field: str) -> Iterator[Cause]:
    for problem in qualified_name_problems(name):
        yield invalid_value(field, name, problem)
    standard = name in _STANDARD or name.startswith("hugepages-")
    if "/" not in name and not standard:
        yield invalid_value(field, name, "must be a standard resource type or fully qualified")
        yield invalid_value(field, name, "must be a standard resource for containers")
    nanos = parse_quantity(amount)
    if nanos < 0:
        yield invalid_value(field, amount, "must be greater than or equal to 0")
    elif not standard and nanos % NANOS_PER_UNIT:
        yield invalid_value(field, amount, "must be an integer")


def _overcommitable(name: str) -> bool:
    return name in _STANDARD or "/" not in name or name.partition("/")[0].endswith("kubernetes.io")


def _node_affinity_causes(affinity: Object, field: str) -> Iterator[Cause]:
    required_terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required_terms is not None:
        at = f"{field}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not required_terms.get("nodeSelectorTerms"):
            yield required(at, "must have at least one node selector term")
        for index, term in enumerate(required_terms.get("nodeSelectorTerms") or ()):
            yield from node_term_causes(term, f"{at}[{index}]")
    for index, preferred in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()):
        at = f"{field}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"
        weight = preferred.get("weight") or 0
        if not 1 <= weight <= 100:
            yield invalid_value(f"{at}.weight", weight, "must be in the range 1-100")
        yield from node_term_causes(preferred.get("preference") or {}, f"{at}.preference")


def node_term_causes(term: Object, field: str) -> Iterator[Cause]:
    """Problems of a term of a node selector."""
    for listed in ("matchExpressions", "matchFields"):
        for index, requirement in enumerate(term.get(listed) or ()):
            yield from _requirement_causes(requirement, f"{field}.{listed}[{index}]")


def _requirement_causes(requirement: Object, field: str) -> Iterator[Cause]:
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator not in _NODE_OPERATORS:
        yield invalid_value(f"{field}.operator", operator, "not a valid selector operator")
    elif operator in ("In", "NotIn") and not values:
        yield required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist") and values:
        yield forbidden_value(f"{field}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt") and len(values) != 1:
        yield required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    for problem in qualified_name_problems(requirement.get("key") or ""):
        yield invalid_value(f"{field}.key", requirement.get("key") or "", problem)


def _toleration_causes(toleration: Object, field: str) -> Iterator[Cause]:
    key, operator = toleration.get("key") or "", toleration.get("operator") or ""
    if key:
        for problem in qualified_name_problems(key):
            yield invalid_value(f"{field}.key", key, problem)
    elif operator != "Exists":
        yield invalid_value(f"{field}.operator", operator, "operator must be Exists when `key` is empty")
    if operator not in ("", "Equal", "Exists"):
        yield not_supported(f"{field}.operator", operator, ("Equal", "Exists"))
    if operator == "Exists" and toleration.get("value"):
        yield invalid_value(f"{field}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
    effect = toleration.get("effect") or ""
    if effect and effect not in _EFFECTS:
        yield not_supported(f"{field}.effect", effect, _EFFECTS)
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid_value(f"{field}.effect", effect, detail)


def _gate_causes(gates: Any, field: str) -> Iterator[Cause]:
    names_seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        for problem in qualified_name_problems(name):
            yield invalid_value(f"{field}[{index}]", name, problem)
        if name in names_seen:
            yield duplicate(f"{field}[{index}]", name)
        names_seen.add(name)


def _group_causes(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield invalid_value(field, name, "must specify exactly one of: `podGroupName`")
    for problem in subdomain_problems(name) if name else ():
        yield invalid_value(f"{field}.podGroupName", name, problem)


def _without_images(containers: Any) -> list[Object]:
    return [{name: value for name, value in each.items() if name != "image"} for each in containers or ()]
