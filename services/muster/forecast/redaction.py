"""Replaces names in a snapshot by others, so that it can be given away: what-if answers the same, with other names.

Replaced are the names and uids of namespaces, gangs, pods, nodes, claims, volumes, budgets and topology domains, values
of labels and taints, and free text. The order of names decides between what is otherwise equal, so the new names have
the order of the old ones, and a short number at the end is kept (`train-7` is the pod with index 7). Kept are what the
rules compare by word: keys of labels and taints, names of resources, storage and device classes, drivers, attributes
of devices, expressions on them, topology trees and levels, dialects, settings.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from muster.coordinator.core.events import Record
from muster.coordinator.core.hold.hold_and_wait import declaration
from muster.coordinator.core.term_state import TermState
from muster.devices import facts as devices
from muster.forecast.snapshot import Snapshot
from muster.gangs.facts import (
    Batch,
    CompositeFacts,
    DeviceObject,
    DeviceObjectKind,
    ExtendedRequest,
    GangFacts,
    HostPort,
    LevelConstraint,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    ObjectReference,
    PodClass,
    PodFacts,
    PodTerm,
    Problem,
    SpreadConstraint,
    StaticClaim,
    StaticVolume,
    SubgroupPolicy,
    Taint,
    Toleration,
    TopologyTree,
    TreeLevel,
)
from muster.gangs.selectors import LabelSet, Requirement

_TEXT: Final = "redacted"
_GROUP: Final = "group"
_SLASHES_OF_GANG: Final = 2
_KEPT: Final[Mapping[type, frozenset[str]]] = {
    NodeFacts: frozenset({"allocatable", "device_backed"}),
    NodeRequirement: frozenset({"key"}),
    Requirement: frozenset({"key"}),
    Toleration: frozenset({"key"}),
    Taint: frozenset({"key"}),
    PodTerm: frozenset({"topology_key"}),
    SpreadConstraint: frozenset({"topology_key"}),
    HostPort: frozenset({"protocol", "ip"}),
    ExtendedRequest: frozenset({"resource"}),
    PodClass: frozenset({"requests"}),
    ObjectReference: frozenset({"api_version", "kind"}),
    Problem: frozenset({"reason"}),
    LevelConstraint: frozenset({"level"}),
    SubgroupPolicy: frozenset({"keys", "tree"}),
    CompositeFacts: frozenset({"tree", "level"}),
    GangFacts: frozenset({"dialect", "tree", "resources"}),
    StaticVolume: frozenset({"storage_class", "access_modes", "volume_mode"}),
    StaticClaim: frozenset({"storage_class", "access_modes", "volume_mode"}),
    TreeLevel: frozenset({"name", "label_key"}),
    TopologyTree: frozenset({"name"}),
    Batch: frozenset({"changed", "through"}),
    TermState: frozenset({"revision"}),
    LabelSet: frozenset({"keys"}),
    devices.DeviceId: frozenset({"driver", "device"}),
    devices.DeviceTaint: frozenset({"key"}),
    devices.DeviceToleration: frozenset({"key"}),
    devices.CounterSet: frozenset({"name", "counters"}),
    devices.Device: frozenset({"name", "driver", "attributes", "capacity"}),
    devices.Slice: frozenset({"driver"}),
    devices.DeviceClass: frozenset({"name", "selectors", "extended_resource"}),
    devices.Alternative: frozenset({"device_class", "selectors"}),
    devices.Constraint: frozenset({"attribute"}),
    devices.Claim: frozenset({"version"}),
}
_TEXTS: Final[Mapping[type, frozenset[str]]] = {
    PodFacts: frozenset({"problem"}),
    Problem: frozenset({"message"}),
    devices.Config: frozenset({"opaque"}),
    devices.DeviceClass: frozenset({"config"}),
    devices.Claim: frozenset({"unmet"}),
}
_GANGS: Final[Mapping[type, frozenset[str]]] = {
    PodFacts: frozenset({"gang"}),
    GangFacts: frozenset({"id", "group"}),
    Record: frozenset({"gang", "group", "evicted_for", "preempted_by"}),
}
"""Fields with ids of gangs, of which the dialect in front is kept. Those of the term's state all may be some."""
_OF_TERM_STATE_WITHOUT_GANGS: Final = frozenset(
    {"capacity", "leaving", "lent", "recalled", "held_before", "avoided_nodes", "given_up"}
)
_WITHOUT_KEYS: Final[Mapping[type, frozenset[str]]] = {
    NodeFacts: frozenset({"labels"}),
    PodClass: frozenset({"node_selector"}),
}
"""Fields with pairs of keys and values, of which the keys are kept."""
_DEVICE_TYPES: Final[Mapping[DeviceObjectKind, type[Struct]]] = {
    DeviceObjectKind.SLICE: devices.Slice,
    DeviceObjectKind.CLASS: devices.DeviceClass,
    DeviceObjectKind.CLAIM: devices.Claim,
}
_PARTS: Final = re.compile(r"[/#=,:@+ ]|[^/#=,:@+ ]+")
_INDEX: Final = re.compile(r"(.*?)(-\d{1,4})$", re.DOTALL)

Rename = Callable[[str], str]


def redact(snapshot: Snapshot) -> Snapshot:
    """The snapshot with other names."""
    return Redaction(snapshot).of_snapshot(snapshot)


class Redaction:
    """New names for all those in some values: the same in each of them."""

    def __init__(self, snapshot: Snapshot, *others: Batch) -> None:
        found: set[str] = set()

        def collect(name: str) -> str:
            if not name.isdecimal():
                found.add(_base(name)[0])
            return name

        collecting = _Walk(collect)
        for value in (snapshot.batch, snapshot.records, snapshot.term_state, *others):
            collecting.of(value)
        width = len(str(len(found)))
        self._names = {name: f"x{number:0{width}}" for number, name in enumerate(sorted(found))}
        self._walk = _Walk(self._renamed)

    def _renamed(self, name: str) -> str:
        if name.isdecimal():
            return name
        base, index = _base(name)
        return self._names[base] + index

    def of(self, value: Any) -> Any:
        """The value with the new names; it must be one of those from which these were made, or a part of it."""
        return self._walk.of(value)

    def gang(self, id_: str) -> str:
        """The new id of a gang."""
        return self._walk.gang(id_)

    def of_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the new names."""
        declared = {gang.id: declaration(gang) for gang in snapshot.batch.gangs}
        batch: Batch = self.of(snapshot.batch)
        renamed = {gang.id: declaration(gang) for gang in batch.gangs}
        records = tuple(self._record(each, declared, renamed) for each in snapshot.records)
        term_state: TermState = self.of(snapshot.term_state)
        return replace(snapshot, batch=batch, records=records, term_state=term_state)

    def _record(self, record: Record, declared: Mapping[str, str], renamed: Mapping[str, str]) -> Record:
        """A declaration in words is only compared with the present one."""
        said = record.timed_out_declaration
        new: Record = self.of(record)
        if said:
            same = declared.get(record.gang) == said
            new = replace(new, timed_out_declaration=renamed[new.gang] if same else _TEXT)
        return new


class _Walk:
    """Rewrites all names of a value with `rename`."""

    def __init__(self, rename: Rename) -> None:
        self._rename = rename
        self._known: dict[str, str] = {}

    def of(self, value: Any, text: Rename | None = None) -> Any:
        """The value with other names; `text` rewrites the strings in it that are no fields of values in it."""
        if isinstance(value, str):
            return (text or self.name)(value)
        if isinstance(value, tuple):
            return tuple(self.of(each, text) for each in value)
        if isinstance(value, dict):
            return {self.of(key, text): self.of(each, text) for key, each in value.items()}
        if isinstance(value, DeviceObject):
            return self._device_object(value)
        return self._struct(value) if isinstance(value, Struct) else value

    def name(self, text: str) -> str:
        """Every part of a name between delimiters is replaced."""
        if (known := self._known.get(text)) is None:
            parts = _PARTS.findall(text)
            known = "".join(each if _is_delimiter(each) else self._rename(each) for each in parts)
            self._known[text] = known
        return known

    def gang(self, text: str) -> str:
        """The same, but the dialect in front is kept; also in the id of a group, which has that of its first gang, or
        the namespace and name of a composite, behind the prefix.
        """
        first, slash, rest = text.partition("/")
        if first == _GROUP and rest.partition("#")[0].count("/") == _SLASHES_OF_GANG:
            return f"{first}/{self.gang(rest)}"
        return f"{first}/{self.name(rest)}" if slash else self.name(text)

    def _struct(self, value: Struct) -> Any:
        kind = type(value)
        kept, texts, gangs = _KEPT.get(kind, ()), _TEXTS.get(kind, ()), _gang_fields(kind)
        without_keys = _WITHOUT_KEYS.get(kind, ())
        new: dict[str, Any] = {}
        for name in value.__struct_fields__:
            field = getattr(value, name)
            if name in kept or not isinstance(field, (str, tuple, dict, Struct)) or not field:
                continue
            if name in texts:
                new[name] = self.of(field, _as_text)
            elif name in without_keys:
                new[name] = self._without_keys(field)
            else:
                new[name] = self.of(field, self.gang if name in gangs else None)
        match value:
            case GangFacts():
                new["terms"] = ()
            case NodeRequirement(operator=NodeOperator.GT | NodeOperator.LT):
                new.pop("values", None)
            case Requirement():
                new["values"] = tuple(sorted(new.get("values", ())))
        return replace(value, **new) if new else value

    def _without_keys(self, pairs: Any) -> Any:
        if isinstance(pairs, dict):
            return {key: self.name(each) for key, each in pairs.items()}
        return tuple((key, self.name(each)) for key, each in pairs)

    def _device_object(self, each: DeviceObject) -> DeviceObject:
        kind = _DEVICE_TYPES[each.kind]
        name = each.name if each.kind is DeviceObjectKind.CLASS else self.name(each.name)
        content = self.of(msgspec.json.decode(each.content, type=kind))
        return replace(each, name=name, content=msgspec.json.encode(content))


@cache
def _gang_fields(kind: type) -> frozenset[str]:
    if kind.__module__ == TermState.__module__:
        return frozenset(each.name for each in fields(kind)) - _OF_TERM_STATE_WITHOUT_GANGS
    return _GANGS.get(kind, frozenset())


def _as_text(text: str) -> str:
    return _TEXT if text else ""


def _is_delimiter(part: str) -> bool:
    return len(part) == 1 and part in "/#=,:@+ "


def _base(name: str) -> tuple[str, str]:
    """The name without a short number at its end, and that number."""
    found = _INDEX.match(name)
    return (found[1], found[2]) if found is not None and found[1] else (name, "")
