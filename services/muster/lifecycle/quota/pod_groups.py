"""Reads the PodGroups that reserve quota, and the pods that count toward it."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from muster.dialects import coscheduling, kube_batch
from muster.dialects.definitions import DefinitionKind
from muster.dialects.quota import QUOTA_RESERVED, QUOTA_WAITS
from muster.dialects.registry import membership_of
from muster.dialects.resources import parse_amounts
from muster.dialects.values import BadValue
from muster.gangs.facts import ObjectReference
from muster.gangs.quantity import parse_quantity
from muster.gangs.quoting import quoted
from muster.kube.gang_marks import definition, gang_marks
from muster.kube.objects import Pod, PodGroup
from muster.kube.paths import object_path
from muster.kube.resource_quota import by_quota_names, has_ended, pod_usage
from muster.lifecycle.quota.messages import QuotaCondition
from muster.lifecycle.quota.usage import QuotaGroup, QuotaPod


class QuotaGroupKind(Struct, frozen=True):
    """A kind of PodGroup, and the fields of its spec with the total to reserve, in order of precedence."""

    dialect: str
    definition: DefinitionKind
    fields: tuple[str, ...]


QUOTA_GROUP_KINDS: Final = (
    QuotaGroupKind(kube_batch.NAME, kube_batch.DEFINITION, ("totalResources", "minResources")),
    QuotaGroupKind(coscheduling.NAME, coscheduling.DEFINITION, ("minResources",)),
)
_BY_DIALECT: Final = {kind.dialect: kind for kind in QUOTA_GROUP_KINDS}


class ObservedGroup(Struct, frozen=True):
    """A PodGroup and the quota condition that it has; None: no condition."""

    group: QuotaGroup
    reference: ObjectReference
    path: str
    condition: QuotaCondition | None = None


def quota_gang_id(pod: Pod) -> str:
    """Returns the id of the pod's gang if its dialect can reserve quota; else an empty string."""
    marks = gang_marks(pod)
    membership = membership_of(marks) if marks else None
    gang_id = (membership.gang_id or "") if membership is not None else ""
    return gang_id if gang_id.partition("/")[0] in _BY_DIALECT else ""


def quota_pod(pod: Pod) -> QuotaPod:
    """Returns the pod as quotas count it."""
    metadata = pod.metadata
    ended = (pod.status.phase or "") if has_ended(pod) else ""
    return QuotaPod(metadata.uid, metadata.name, pod_usage(pod), quota_gang_id(pod), ended, metadata.revision)


def group_path(gang_id: str) -> str:
    """Returns the path of the gang's PodGroup."""
    dialect, namespace, name = gang_id.split("/", 2)
    kind = _BY_DIALECT[dialect].definition
    return object_path(kind.api_version, kind.plural, namespace, name)


def group_kind(gang_id: str) -> QuotaGroupKind:
    """Returns the kind of the gang's PodGroup."""
    return _BY_DIALECT[gang_id.partition("/")[0]]


def observe_group(pod_group: PodGroup, kind: QuotaGroupKind) -> ObservedGroup:
    """Reads a PodGroup of the given kind."""
    defined = definition(pod_group, kind.definition)
    gang_id = f"{kind.dialect}/{defined.namespace}/{defined.name}"
    field = next((each for each in kind.fields if defined.spec.get(each)), kind.fields[0])
    title = f"{kind.definition.kind} {quoted(f'{defined.namespace}/{defined.name}')}"
    total, problem = _total(defined.spec.get(field), f"spec.{field}")
    priority_class = defined.spec.get("priorityClassName")
    return ObservedGroup(
        QuotaGroup(
            id=gang_id,
            uid=defined.uid,
            title=title,
            field=f"spec.{field}",
            total=total,
            revision=pod_group.metadata.revision,
            created_seconds=defined.created_seconds,
            priority_class=priority_class if isinstance(priority_class, str) else "",
            problem=problem,
        ),
        defined.reference,
        group_path(gang_id),
        _current_condition(defined.annotations, defined.status.get("conditions")),
    )


def condition_of(conditions: object) -> dict[str, Any] | None:
    """Returns the condition about quota among conditions."""
    found = (each for each in conditions if isinstance(each, dict)) if isinstance(conditions, list) else ()
    return next((each for each in found if each.get("type") == QUOTA_RESERVED), None)


def _current_condition(annotations: Mapping[str, str], conditions: object) -> QuotaCondition | None:
    if (waits := annotations.get(QUOTA_WAITS)) is not None:
        return QuotaCondition("False", "", waits)
    condition = condition_of(conditions)
    if condition is None:
        return None
    return QuotaCondition(*(str(condition.get(name) or "") for name in ("status", "reason", "message")))


def _total(value: Any, where: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """Returns the total by the resource names of quotas, and what is wrong with it."""
    if not value:
        return (), ""
    try:
        named = [name for name, _ in parse_amounts(value)]
    except BadValue as error:
        return (), f"{where} is {error}"
    exact = {name: parse_quantity(str(value[name])) for name in named}
    return tuple(sorted(by_quota_names(exact).items())), ""
