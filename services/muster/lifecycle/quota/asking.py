"""What asks for quota: kinds of PodGroups that say what their pods need in total, and the pods that are theirs."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from muster.dialects import coscheduling, kube_batch
from muster.dialects.definitions import DefinitionKind
from muster.dialects.quota import QUOTA_WAITS
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
from muster.lifecycle.quota.census import CountedPod, Group
from muster.lifecycle.quota.telling import CONDITION, Told


class AskingKind(Struct, frozen=True):
    """A kind of PodGroup, and the fields of its spec that may say what is to be reserved; the first one counts."""

    dialect: str
    definition: DefinitionKind
    fields: tuple[str, ...]


KINDS: Final = (
    AskingKind(kube_batch.NAME, kube_batch.DEFINITION, ("totalResources", "minResources")),
    AskingKind(coscheduling.NAME, coscheduling.DEFINITION, ("minResources",)),
)
_BY_DIALECT: Final = {kind.dialect: kind for kind in KINDS}


class SeenGroup(Struct, frozen=True):
    """A PodGroup, with what it says of its quota at present; None: nothing."""

    group: Group
    reference: ObjectReference
    path: str
    told: Told | None = None


def gang_of(pod: Pod) -> str:
    """Id of the gang that the pod names, if such a gang may have quota; else empty."""
    marks = gang_marks(pod)
    membership = membership_of(marks) if marks else None
    gang_id = (membership.gang_id or "") if membership is not None else ""
    return gang_id if gang_id.partition("/")[0] in _BY_DIALECT else ""


def counted_pod(pod: Pod) -> CountedPod:
    """The pod as quotas see it."""
    metadata = pod.metadata
    ended = (pod.status.phase or "") if has_ended(pod) else ""
    return CountedPod(metadata.uid, metadata.name, pod_usage(pod), gang_of(pod), ended, metadata.revision)


def path_of_group(gang_id: str) -> str:
    """Where the PodGroup of such a gang is."""
    dialect, namespace, name = gang_id.split("/", 2)
    kind = _BY_DIALECT[dialect].definition
    return object_path(kind.api_version, kind.plural, namespace, name)


def kind_of(gang_id: str) -> AskingKind:
    """The kind of such a gang's PodGroup."""
    return _BY_DIALECT[gang_id.partition("/")[0]]


def seen_group(pod_group: PodGroup, kind: AskingKind) -> SeenGroup:
    """A PodGroup as its kind says it."""
    declared = definition(pod_group, kind.definition)
    gang_id = f"{kind.dialect}/{declared.namespace}/{declared.name}"
    field = next((each for each in kind.fields if declared.spec.get(each)), kind.fields[0])
    title = f"{kind.definition.kind} {quoted(f'{declared.namespace}/{declared.name}')}"
    total, problem = _total(declared.spec.get(field), f"spec.{field}")
    priority_class = declared.spec.get("priorityClassName")
    return SeenGroup(
        Group(
            id=gang_id,
            uid=declared.uid,
            title=title,
            field=f"spec.{field}",
            total=total,
            revision=pod_group.metadata.revision,
            created_seconds=declared.created_seconds,
            priority_class=priority_class if isinstance(priority_class, str) else "",
            problem=problem,
        ),
        declared.reference,
        path_of_group(gang_id),
        _told(declared.annotations, declared.status.get("conditions")),
    )


def condition_of(conditions: object) -> dict[str, Any] | None:
    """The condition about quota."""
    found = (each for each in conditions if isinstance(each, dict)) if isinstance(conditions, list) else ()
    return next((each for each in found if each.get("type") == CONDITION), None)


def _told(annotations: Mapping[str, str], conditions: object) -> Told | None:
    if (waits := annotations.get(QUOTA_WAITS)) is not None:
        return Told("False", "", waits)
    condition = condition_of(conditions)
    if condition is None:
        return None
    return Told(*(str(condition.get(name) or "") for name in ("status", "reason", "message")))


def _total(value: Any, where: str) -> tuple[tuple[tuple[str, int], ...], str]:
    """By the names of quotas, and what is wrong with it."""
    if not value:
        return (), ""
    try:
        named = [name for name, _ in parse_amounts(value)]
    except BadValue as error:
        return (), f"{where} is {error}"
    exact = {name: parse_quantity(str(value[name])) for name in named}
    return tuple(sorted(by_quota_names(exact).items())), ""
