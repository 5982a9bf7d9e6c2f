"""Label and field selectors: parsed once per request, then matched with many objects."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.localcluster.apiserver.status import bad_request
from muster.localcluster.apiserver.store import Object

_SET_REQUIREMENT: Final = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
_EQUALITY: Final = re.compile(r"^\s*(?P<key>[^\s!=,()]+)\s*(?P<operator>==|!=|=)\s*(?P<value>[^\s!=,()]*)\s*$")
_PRESENCE: Final = re.compile(r"^\s*(?P<absent>!?)\s*(?P<key>[^\s!=,()]+)\s*$")
_FIELD: Final = re.compile(r"^(?P<path>[^=!]+?)(?P<operator>==|!=|=)(?P<value>.*)$")

_ALWAYS_SELECTABLE: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class LabelRequirement:
    """Requirement on a label: "in", "notin", "exists" or "absent"."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True)
class FieldRequirement:
    """Requirement that a field equals a value, or does not."""

    path: tuple[str, ...]
    value: str
    equal: bool

    def matches(self, obj: Object) -> bool:
        found: Any = obj
        for step in self.path:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, bool):
            found = "true" if found else "false"
        return (str(found if found is not None else "") == self.value) is self.equal


@dataclass(frozen=True)
class Selection:
    """Objects that a list, watch or deletecollection selects."""

    namespace: str | None = None
    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()

    @property
    def everything(self) -> bool:
        return self.namespace is None and not self.labels and not self.fields

    def matches(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        if self.namespace is not None and metadata.get("namespace") != self.namespace:
            return False
        if self.labels:
            labels = metadata.get("labels") or {}
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(requirement.matches(obj) for requirement in self.fields)


def parse_labels(text: str) -> tuple[LabelRequirement, ...]:
    """Parse a label selector in kubectl's syntax. Raises StatusError 400."""
    return tuple(_label_requirement(part) for part in _split_outside_parentheses(text) if part.strip())


def parse_fields(text: str, selectable: tuple[str, ...], rename: Callable[[str], str]) -> tuple[FieldRequirement, ...]:
    """Parse a field selector; `rename` maps a field label to a path in the stored object. Raises StatusError 400."""
    requirements = []
    for part in text.split(","):
        if not part:
            continue
        match = _FIELD.match(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        label = match["path"].strip()
        if label not in _ALWAYS_SELECTABLE and label not in selectable:
            raise bad_request(f"field label not supported: {label}")
        requirements.append(
            FieldRequirement(tuple(rename(label).split(".")), match["value"].strip(), match["operator"] != "!=")
        )
    return tuple(requirements)


def label_selector(selector: Mapping[str, Any] | None) -> tuple[LabelRequirement, ...] | None:
    """Requirements of a LabelSelector object (matchLabels, matchExpressions); None selects nothing."""
    if selector is None:
        return None
    found = [LabelRequirement(k, "in", frozenset((v,))) for k, v in (selector.get("matchLabels") or {}).items()]
    operators = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for expression in selector.get("matchExpressions") or ():
        operator = operators.get(expression.get("operator", ""), "in")
        found.append(LabelRequirement(expression.get("key", ""), operator, frozenset(expression.get("values") or ())))
    return tuple(found)


def _label_requirement(text: str) -> LabelRequirement:
    if match := _SET_REQUIREMENT.match(text):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return LabelRequirement(match["key"], match["operator"], values)
    if match := _EQUALITY.match(text):
        operator = "notin" if match["operator"] == "!=" else "in"
        return LabelRequirement(match["key"], operator, frozenset((match["value"],)))
    if match := _PRESENCE.match(text):
        return LabelRequirement(match["key"], "absent" if match["absent"] else "exists")
    raise bad_request(f"unable to parse requirement: '{text.strip()}' is no requirement on a label")


def _split_outside_parentheses(text: str) -> list[str]:
    return re.split(r",(?![^()]*\))", text)
