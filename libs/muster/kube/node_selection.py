"""Node selection of pods: nodeSelector, node affinity and tolerations, decoded from raw JSON into a canonical form."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from muster.gangs.facts import (
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.gangs.quoting import quoted
from muster.kube.objects import decode_field

MAX_TERMS: Final = 100
"""Terms of a pod's node affinity, required ones and preferred ones, that are evaluated on every node."""
MAX_REQUIREMENTS: Final = 200
"""Labels and requirements of a pod's nodeSelector and node affinity together."""
MAX_TOLERATIONS: Final = 500
"""Tolerations of a pod."""

EFFECTS: Final = {
    "": TaintEffect.NONE,
    "NoSchedule": TaintEffect.NO_SCHEDULE,
    "PreferNoSchedule": TaintEffect.PREFER_NO_SCHEDULE,
    "NoExecute": TaintEffect.NO_EXECUTE,
}
"""Taint effects by their names in the API."""

_OPERATORS: Final = {
    "In": NodeOperator.IN,
    "NotIn": NodeOperator.NOT_IN,
    "Exists": NodeOperator.EXISTS,
    "DoesNotExist": NodeOperator.DOES_NOT_EXIST,
    "Gt": NodeOperator.GT,
    "Lt": NodeOperator.LT,
}
_TOLERATION_OPERATORS: Final = {
    None: TolerationOperator.EQUAL,
    "": TolerationOperator.EQUAL,
    "Equal": TolerationOperator.EQUAL,
    "Exists": TolerationOperator.EXISTS,
}

T = TypeVar("T")


class _Requirement(Struct, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(Struct, frozen=True, rename="camel"):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Required(Struct, frozen=True, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _Preferred(Struct, frozen=True):
    weight: int = 0
    preference: _Term = _Term()


class _NodeAffinity(Struct, frozen=True):
    required: _Required | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[_Preferred] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Struct, frozen=True, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _VolumeAffinity(Struct, frozen=True):
    required: _Required | None = None


class _Toleration(Struct, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSelection(Struct, frozen=True):
    """The fields of a pod class that select nodes."""

    node_selector: tuple[tuple[str, str], ...] = ()
    required_node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    preferred_node_affinity: tuple[PreferredNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def node_selection(node_selector: bytes, affinity: bytes, tolerations: bytes, problems: list[str]) -> NodeSelection:
    """Decode the raw JSON of these fields of a pod's spec; empty where absent.

    The result does not depend on order or repetition where these have no meaning. Malformed parts are added to
    `problems` and skipped.
    """
    labels = decode_field(node_selector, dict[str, str], "nodeSelector", problems) or {}
    both = decode_field(affinity, _Affinity, "affinity", problems) or _Affinity()
    node_affinity = both.node_affinity or _NodeAffinity()
    if _has_too_many(labels, node_affinity, problems):
        labels, node_affinity = {}, _NodeAffinity()
    required = node_affinity.required
    return NodeSelection(
        node_selector=tuple(sorted(labels.items())),
        required_node_affinity=None
        if required is None
        else _ordered(_term(each, problems) for each in required.node_selector_terms or ()),
        preferred_node_affinity=_sorted(_preferred(node_affinity.preferred or (), problems)),
        tolerations=_tolerations(tolerations, problems),
    )


def _has_too_many(labels: Mapping[str, str], affinity: _NodeAffinity, problems: list[str]) -> bool:
    """Whether so much is to be evaluated on every node that nothing of it is, which is added to `problems`."""
    required = affinity.required.node_selector_terms or () if affinity.required is not None else ()
    terms = [*required, *(each.preference for each in affinity.preferred or ())]
    requirements = len(labels)
    for term in terms:
        requirements += len(term.match_expressions or ()) + len(term.match_fields or ())
    for count, what, most in (
        (len(terms), "terms of node affinity", MAX_TERMS),
        (requirements, "requirements in nodeSelector and node affinity", MAX_REQUIREMENTS),
    ):
        if count > most:
            problems.append(f"it has {count} {what}: at most {most} are supported")
            return True
    return False


def volume_affinity(raw: bytes, problems: list[str]) -> tuple[NodeSelectorTerm, ...] | None:
    """Decode a PersistentVolume's nodeAffinity: terms of which one must match a node; None: any node."""
    affinity = decode_field(raw, _VolumeAffinity, "nodeAffinity", problems)
    if affinity is None or affinity.required is None:
        return None
    return _ordered(_term(each, problems) for each in affinity.required.node_selector_terms or ())


def _term(term: _Term, problems: list[str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        labels=_ordered(_requirements(term.match_expressions or (), "matchExpressions", problems)),
        fields=_ordered(_requirements(term.match_fields or (), "matchFields", problems)),
    )


def _preferred(wishes: Iterable[_Preferred], problems: list[str]) -> Iterable[PreferredNodeTerm]:
    for wish in wishes:
        if not 1 <= wish.weight <= 100:
            problems.append(f"preferred node affinity has weight {wish.weight}: it must be 1 to 100")
        else:
            yield PreferredNodeTerm(weight=wish.weight, term=_term(wish.preference, problems))


def _requirements(given: Iterable[_Requirement], field: str, problems: list[str]) -> Iterable[NodeRequirement]:
    for each in given:
        operator = _OPERATORS.get(each.operator)
        values = tuple(sorted(set(each.values or ())))
        if operator is None:
            problems.append(
                f"{field} on {quoted(each.key)} has operator {quoted(each.operator)}: it must be one of "
                + ", ".join(_OPERATORS)
            )
        elif not _fitting(operator, values):
            problems.append(f"{field} on {quoted(each.key)}: {each.operator} cannot have {_listed(values)}")
        else:
            yield NodeRequirement(each.key, operator, values)


def _fitting(operator: NodeOperator, values: tuple[str, ...]) -> bool:
    match operator:
        case NodeOperator.IN | NodeOperator.NOT_IN:
            return bool(values)
        case NodeOperator.EXISTS | NodeOperator.DOES_NOT_EXIST:
            return not values
        case _:
            return len(values) == 1 and is_int64(values[0])


def is_int64(text: str) -> bool:
    """Whether Kubernetes parses the label value as an integer for Gt and Lt."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    return digits.isascii() and digits.isdecimal() and len(digits) <= 4000 and -(2**63) <= int(text) < 2**63


def _listed(values: tuple[str, ...]) -> str:
    return "values " + ", ".join(quoted(value) for value in values[:3]) if values else "no values"


def _tolerations(raw: bytes, problems: list[str]) -> tuple[Toleration, ...]:
    read = []
    listed = decode_field(raw, list[_Toleration], "tolerations", problems) or []
    if len(listed) > MAX_TOLERATIONS:
        problems.append(f"it has {len(listed)} tolerations: at most {MAX_TOLERATIONS} are supported")
        listed = []
    for each in listed:
        operator, effect = _TOLERATION_OPERATORS.get(each.operator), EFFECTS.get(each.effect or "")
        if operator is None:
            problems.append(f"a toleration has operator {quoted(each.operator or '')}: only Equal and Exists are known")
        elif effect is None:
            problems.append(
                f"a toleration has effect {quoted(each.effect or '')}: it must be NoSchedule, PreferNoSchedule, "
                "NoExecute or empty"
            )
        else:
            value = (each.value or "") if operator is TolerationOperator.EQUAL else ""
            read.append(Toleration(each.key or "", operator, value, effect))
    return _ordered(read)


def _sorted(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(values, key=_sort_key))


def _ordered(values: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(dict.fromkeys(values), key=_sort_key))


def _sort_key(value: Any) -> bytes:
    return msgspec.json.encode(value)
