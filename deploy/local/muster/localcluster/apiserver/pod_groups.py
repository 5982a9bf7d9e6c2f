"""PodGroup, Workload and CompositePodGroup of scheduling.k8s.io in all versions; real clusters serve them behind
feature gates.

PodGroups are stored as v1beta1, which equals v1alpha3. v1alpha2 differs:

    podGroupTemplateRef.workload: {workloadName, podGroupTemplateName}    workloadRef: {workloadName, templateName}
    disruptionMode: "Pod" or "PodGroup"                                   disruptionMode: {single: {}} or {all: {}}
    condition PodGroupScheduled                                           condition PodGroupInitiallyScheduled

The specs of Workloads and CompositePodGroups are not validated.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from muster.localcluster.apiserver.custom_kinds import CustomRules
from muster.localcluster.apiserver.kinds import STATUS, Kind, Rules
from muster.localcluster.apiserver.metadata import qualified_name_problems
from muster.localcluster.apiserver.pods import priority_class
from muster.localcluster.apiserver.status import Cause, forbidden, forbidden_value, invalid_value
from muster.localcluster.apiserver.store import Object, key_of
from muster.localcluster.apiserver.tables import TABLES

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

GROUP: Final = "scheduling.k8s.io"
COLLECTION: Final = f"podgroups.{GROUP}"
PROTECTION: Final = f"{GROUP}/podgroup-protection"
"""Finalizer of every PodGroup: it is removed after its pods."""
_WORKLOADS: Final = f"workloads.{GROUP}"
_STORED: Final = "v1beta1"
_ALPHA2: Final = "v1alpha2"
_MODES: Final = {"Pod": "single", "PodGroup": "all"}
_NAMES_OF_MODES: Final = {mode: name for name, mode in _MODES.items()}
_CONDITIONS: Final = {"PodGroupScheduled": "PodGroupInitiallyScheduled"}
_CONDITIONS_OF_ALPHA2: Final = {new: old for old, new in _CONDITIONS.items()}
_MAX_PRIORITY: Final = 1_000_000_000

_TEXT: Final = {"type": "string", "minLength": 1, "maxLength": 253}
_EMPTY: Final = {"type": "object"}


def _fields(*required: str, **fields: Any) -> Object:
    return {"type": "object", "properties": fields, **({"required": list(required)} if required else {})}


def _listed(maximum: int, item: Object) -> Object:
    return {"type": "array", "maxItems": maximum, "items": item}


_CLAIM: Final = _fields("name", name=_TEXT, resourceClaimName=_TEXT, resourceClaimTemplateName=_TEXT)
_GANG: Final = _fields("minCount", minCount={"type": "integer", "format": "int32", "minimum": 1})
_CONDITION: Final = _fields(
    *("type", "status", "lastTransitionTime", "reason"),
    type=_TEXT,
    status={"type": "string", "enum": ["True", "False", "Unknown"]},
    observedGeneration={"type": "integer"},
    lastTransitionTime={"type": "string"},
    reason={"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    message={"type": "string", "maxLength": 32768},
)
_COMMON: Final = {
    "schedulingPolicy": _fields(basic=_EMPTY, gang=_GANG),
    "schedulingConstraints": _fields(topology=_listed(1, _fields("key", key={"type": "string"}))),
    "resourceClaims": _listed(4, _CLAIM),
    "priorityClassName": _TEXT,
    "priority": {"type": "integer", "format": "int32", "maximum": _MAX_PRIORITY},
}
_ALPHA2_FIELDS: Final = {
    "podGroupTemplateRef": _fields(
        workload=_fields(
            *("workloadName", "podGroupTemplateName"),
            workloadName=_TEXT,
            podGroupTemplateName=_TEXT,
        )
    ),
    "disruptionMode": {"type": "string", "enum": list(_MODES), "default": "Pod"},
}
_BETA_FIELDS: Final = {
    "workloadRef": _fields("workloadName", "templateName", workloadName=_TEXT, templateName=_TEXT),
    "parentCompositePodGroupName": _TEXT,
    "disruptionMode": {**_fields(single=_EMPTY, all=_EMPTY), "default": {"single": {}}},
    "preemptionPolicy": {"type": "string", "enum": ["Never", "PreemptLowerPriority"]},
}


def _schema(fields: Object) -> Object:
    status = _fields(conditions={"type": "array", "items": _CONDITION}, resourceClaimStatuses=_listed(4, _ANY))
    return _fields("spec", spec=_fields("schedulingPolicy", **_COMMON, **fields), status=status)


_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def kinds() -> list[Kind]:
    """All versions of each kind, newest first."""
    return [
        *(_pod_group(version) for version in (_STORED, "v1alpha3", _ALPHA2)),
        *(_workload(version) for version in (_STORED, "v1alpha3", _ALPHA2)),
        _composite(),
    ]


class PodGroupRules(CustomRules):
    """Defaults and validation of PodGroups."""

    def __init__(self, schema: Object, *, minimum_may_change: bool) -> None:
        super().__init__(schema, has_status=True)
        self._minimum_may_change = minimum_may_change

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        """Set the priority from the priority class, 0 without one; check that the referenced Workload exists."""
        finalizers = obj["metadata"].get("finalizers") or []
        if PROTECTION not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, PROTECTION]
        spec, metadata = obj.get("spec"), obj["metadata"]
        if isinstance(spec, dict):
            _admit_priority(cluster, metadata.get("name", ""), spec)
            _check_workload(cluster, metadata, spec)

    def validate(self, obj: Object) -> Iterable[Cause]:
        causes = list(super().validate(obj))
        return causes or list(_spec_causes(obj["spec"]))

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        before, after = copy.deepcopy(old["spec"]), copy.deepcopy(new["spec"])
        if self._minimum_may_change:
            for each in (before, after):
                (each["schedulingPolicy"].get("gang") or {}).pop("minCount", None)
        for field in sorted(before.keys() | after.keys()):
            if before.get(field) != after.get(field):
                yield invalid_value(f"spec.{field}", after.get(field), "field is immutable")


def _admit_priority(cluster: "Cluster", name: str, spec: Object) -> None:
    class_name = spec.get("priorityClassName") or ""
    if not isinstance(class_name, str):
        return
    chosen = priority_class(cluster, class_name)
    if chosen is None:
        raise forbidden("podgroups", GROUP, name, f"no PriorityClass with name {class_name} was found")
    requested, computed = spec.get("priority"), chosen.get("value", 0)
    if requested is not None and requested != computed:
        message = (
            f"priority set in the pod group ({requested}) must match the priority computed ({computed}) based on the "
            "priority class set in the spec"
        )
        raise forbidden("podgroups", GROUP, name, message)
    if chosen:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = computed


def _check_workload(cluster: "Cluster", metadata: Object, spec: Object) -> None:
    reference = spec.get("workloadRef") or (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
    workload = reference.get("workloadName")
    if workload and cluster.store.get(_WORKLOADS, key_of(metadata["namespace"], workload)) is None:
        message = f'PodGroup rejected: Workload "{workload}" not found'
        raise forbidden("podgroups", GROUP, metadata.get("name", ""), message)


class _WorkloadRules(Rules):
    counts_generations = True


def _spec_causes(spec: Object) -> Iterator[Cause]:
    policy = spec["schedulingPolicy"]
    if len(policy) != 1:
        yield invalid_value("spec.schedulingPolicy", policy, "must specify exactly one of: `basic`, `gang`")
    mode = spec.get("disruptionMode")
    if isinstance(mode, dict) and len(mode) != 1:
        yield invalid_value("spec.disruptionMode", mode, "must specify exactly one of: `single`, `all`")
    for index, each in enumerate((spec.get("schedulingConstraints") or {}).get("topology") or ()):
        for problem in qualified_name_problems(each["key"]):
            yield invalid_value(f"spec.schedulingConstraints.topology[{index}].key", each["key"], problem)
    if spec.get("parentCompositePodGroupName") and not spec.get("workloadRef"):
        yield forbidden_value("spec.parentCompositePodGroupName", "workloadRef must be set with it")


def _pod_group(version: str) -> Kind:
    old = version == _ALPHA2
    schema = _schema(_ALPHA2_FIELDS if old else _BETA_FIELDS)
    to_stored, from_stored = _conversions(version)
    return Kind(
        GROUP,
        version,
        "PodGroup",
        "podgroups",
        subresources=(STATUS,),
        rules=PodGroupRules(schema, minimum_may_change=not old),
        table=TABLES[COLLECTION],
        schema=schema,
        to_stored=to_stored,
        from_stored=from_stored,
    )


def _workload(version: str) -> Kind:
    stored = version == _STORED
    return Kind(
        GROUP,
        version,
        "Workload",
        "workloads",
        rules=_WorkloadRules(),
        to_stored=None if stored else lambda obj: {**obj, "apiVersion": f"{GROUP}/{_STORED}"},
        from_stored=None if stored else lambda obj: {**obj, "apiVersion": f"{GROUP}/{version}"},
    )


def _composite() -> Kind:
    rules = _WorkloadRules()
    return Kind(GROUP, "v1alpha3", "CompositePodGroup", "compositepodgroups", subresources=(STATUS,), rules=rules)


Conversion = Callable[[Object], Object]


def _conversions(version: str) -> tuple[Conversion | None, Conversion | None]:
    if version == _STORED:
        return None, None
    own_version, stored = {"apiVersion": f"{GROUP}/{version}"}, {"apiVersion": f"{GROUP}/{_STORED}"}
    if version == _ALPHA2:
        return lambda obj: _from_alpha2(obj) | stored, lambda obj: _to_alpha2(obj) | own_version
    return lambda obj: obj | stored, lambda obj: obj | own_version


def _from_alpha2(obj: Object) -> Object:
    spec = dict(obj.get("spec") or {})
    if reference := (spec.pop("podGroupTemplateRef", None) or {}).get("workload"):
        name, template = reference.get("workloadName"), reference.get("podGroupTemplateName")
        spec["workloadRef"] = {"workloadName": name, "templateName": template}
    if mode := _MODES.get(spec.get("disruptionMode", "")):
        spec["disruptionMode"] = {mode: {}}
    return _with_conditions({**obj, "spec": spec}, _CONDITIONS)


def _to_alpha2(obj: Object) -> Object:
    spec = dict(obj.get("spec") or {})
    spec.pop("preemptionPolicy", None)
    spec.pop("parentCompositePodGroupName", None)
    if reference := spec.pop("workloadRef", None):
        name, template = reference.get("workloadName"), reference.get("templateName")
        spec["podGroupTemplateRef"] = {"workload": {"workloadName": name, "podGroupTemplateName": template}}
    if mode := next(iter(spec.get("disruptionMode") or {}), None):
        spec["disruptionMode"] = _NAMES_OF_MODES[mode]
    return _with_conditions({**obj, "spec": spec}, _CONDITIONS_OF_ALPHA2)


def _with_conditions(obj: Object, names: dict[str, str]) -> Object:
    conditions = (obj.get("status") or {}).get("conditions")
    if not conditions:
        return obj
    renamed = [{**each, "type": names.get(each.get("type"), each.get("type"))} for each in conditions]
    return {**obj, "status": {**obj["status"], "conditions": renamed}}
