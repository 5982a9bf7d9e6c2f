"""Sakkara: groups of equal pods that ConfigMaps labelled sakkara.group define, or labels on the pods.

A pod names its group by the label sakkara.group.name. A ConfigMap defines the group that its key `name` says, or else
the one of its own name; other keys are `size`, `priority` and `constraints`. The labels sakkara.group.size, .priority
and .constraint.<what>.<level> on pods say the same; what the ConfigMap says goes before them. With the label of a size
a group needs no ConfigMap; otherwise its pods wait until there is one.

What happens to a group is told in its ConfigMap and in labels of its pods: see sakkara_results.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects.declared import (
    Source,
    blocking,
    chosen,
    definition_terms,
    facts,
    from_pods,
    member_of,
    oldest_first,
    pod_terms,
    warning,
)
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, MarkSet, Membership
from muster.dialects.sakkara_constraints import PACK_OTHERS, Reading, read_constraints
from muster.dialects.values import BadValue, count, gang_name, shown
from muster.gangs.facts import GangFacts, LevelConstraint, Problem
from muster.gangs.quoting import quoted
from muster.topology.constraints import MOST_SAID, clashes

GROUP_LABEL: Final = "sakkara.group"
"""Of ConfigMaps, with any value."""

_NAME, _SIZE, _PRIORITY, _CONSTRAINTS = _KEYS = ("name", "size", "priority", "constraints")

NAME: Final = "sakkara"
DEFINITION: Final = DefinitionKind(
    "", "v1", "ConfigMap", "configmaps", content="data", label_selector=GROUP_LABEL, keys=_KEYS
)

GROUP_NAME: Final = GROUP_LABEL + ".name"
GROUP_SIZE: Final = GROUP_LABEL + ".size"
GROUP_PRIORITY: Final = GROUP_LABEL + ".priority"
CONSTRAINT_LABELS: Final = GROUP_LABEL + ".constraint."
"""What is asked, and the level, follow it."""

LABELS: Final = frozenset({GROUP_NAME, GROUP_SIZE, GROUP_PRIORITY})
ANNOTATIONS: Final[frozenset[str]] = frozenset()

WAITING_SECONDS: Final = 600.0
"""A group is placed whole, and so none of it waits for the rest; the coordinator wants some time."""

_DEFAULT_SIZE: Final = 1
_DEFAULT_PRIORITY: Final = 0
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_LONGEST_TERM: Final = 512


def membership(marks: GangMarks) -> Membership | None:
    """The group that a pod's label names; None if it has no such label."""
    name = marks.label(GROUP_NAME)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {GROUP_NAME}")


def gang_of(definition: Definition) -> str:
    """Name of the group that a ConfigMap defines: what it says, unless that is no name, or else its own."""
    try:
        return gang_name(_text(definition, _NAME))
    except BadValue:
        return definition.name


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the ConfigMap and the pods' labels declare of a group. Priority classes have no say in it."""
    group = _Declaration(namespace, name, definition, oldest_first(mark_sets))
    group.check_name()
    size = group.size()
    priority = group.priority()
    constraints = group.constraints(size)
    return replace(
        facts(NAME, namespace, name, definition, group.pods),
        minimum=size,
        total=size,
        waiting_time_seconds=WAITING_SECONDS,
        priority=priority,
        never_preempts=priority <= 0,
        uniform=True,
        evicted_whole=True,
        starts_anew=True,
        constraints=(*constraints, PACK_OTHERS),
        terms=tuple(group.terms()),
        problems=tuple(group.problems),
    )


class _Declaration:
    """All that was declared of one group, and what is wrong with it so far."""

    def __init__(self, namespace: str, name: str, definition: Definition | None, pods: list[MarkSet]) -> None:
        self.pods = pods
        self.problems: list[Problem] = []
        self._group = f"{namespace}/{name}"
        self._definition = definition
        self._place = f"{namespace}/{definition.name}" if definition is not None else ""
        self._config_map = f"ConfigMap {quoted(self._place)}"

    def check_name(self) -> None:
        if self._definition is None or not (name := _text(self._definition, _NAME)):
            return
        try:
            gang_name(name)
        except BadValue as error:
            own = f"that of the ConfigMap, {quoted(self._definition.name)}, counts instead"
            self.problems.append(warning(f"{_NAME} of {self._config_map} is {error}: {own}"))

    def size(self) -> int:
        sources = self._sources(_SIZE, GROUP_SIZE)
        if not sources and self._definition is None:
            self.problems.append(
                blocking(
                    f"there is no ConfigMap with the label {GROUP_LABEL} for group {quoted(self._group)} yet, and its "
                    f"pods have no label {GROUP_SIZE}: create the one, or set the other to the number of the group's "
                    "pods"
                )
            )
            return 0
        remedy = "set it to the number of the group's pods"
        no_size = 0 if sources else _DEFAULT_SIZE
        return chosen(sources, count, no_size, self.problems, blocking, remedy)

    def priority(self) -> int:
        sources = self._sources(_PRIORITY, GROUP_PRIORITY)
        default = _DEFAULT_PRIORITY
        return chosen(sources, _priority, default, self.problems, warning, f"{default} counts instead")

    def constraints(self, size: int) -> tuple[LevelConstraint, ...]:
        """If they cannot be read, or cannot be, the group waits: to start just anywhere is not what was asked for."""
        sources = self._of_config_map(_CONSTRAINTS) + self._constraint_labels()

        def read_them(declared: Any) -> Reading:
            return read_constraints(declared, size)

        remedy = "correct it, and the group can start"
        reading = chosen(sources, read_them, Reading(), self.problems, blocking, remedy)
        if sources:
            where = sources[0].where
            said = reading.ignored[:MOST_SAID]
            self.problems += [warning(f"{where}: {ignored} means nothing and is ignored") for ignored in said]
            self.problems += [blocking(f"{where}: {clash}") for clash in clashes(reading.constraints)]
        return reading.constraints

    def terms(self) -> Iterator[str]:
        """In the user's words what counts."""
        yield from definition_terms(self._definition, (_SIZE, _PRIORITY))
        if text := _text(self._definition, _CONSTRAINTS):
            yield f"{_CONSTRAINTS}: {_on_one_line(text)} (ConfigMap {self._place})"
        labels = {_SIZE: [GROUP_SIZE], _PRIORITY: [GROUP_PRIORITY], _CONSTRAINTS: self._constraint_keys()}
        for key, those in labels.items():
            if not _text(self._definition, key):
                yield from pod_terms(self.pods, _unless_empty, those)

    def _sources(self, key: str, label: str) -> list[Source]:
        """What the ConfigMap says, then what the pods say."""
        return self._of_config_map(key) + self._of_pods(label)

    def _of_config_map(self, key: str) -> list[Source]:
        text = _text(self._definition, key)
        return [Source(text, f"{key} of {self._config_map}")] if text else []

    def _of_pods(self, label: str) -> list[Source]:
        sources, differences = from_pods(self.pods, _unless_empty, label, f"label {label}")
        self.problems += differences
        return sources

    def _constraint_labels(self) -> list[Source]:
        """All of them are one source, since each is a part of a constraint."""
        asked: dict[str, dict[str, Any]] = {}
        for key in self._constraint_keys():
            what, _, level = key.removeprefix(CONSTRAINT_LABELS).partition(".")
            asked.setdefault(level, {}).update((what, source.value) for source in self._of_pods(key))
        return [Source(asked, f"what the labels {CONSTRAINT_LABELS}* of the pods say")] if any(asked.values()) else []

    def _constraint_keys(self) -> list[str]:
        return sorted({key for each in self.pods for key, _ in each.marks.labels if key.startswith(CONSTRAINT_LABELS)})


def _text(definition: Definition | None, key: str) -> str:
    """A value of the ConfigMap's data; empty if there is none."""
    value = definition.spec.get(key) if definition is not None else None
    return "" if value is None else str(value).strip()


def _unless_empty(marks: GangMarks, label: str) -> str | None:
    return marks.label(label) or None


def _priority(text: Any) -> int:
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise BadValue(f"{shown(text)}, which is not a whole number from -2147483648 to 2147483647")
    return int(text)


def _on_one_line(text: str) -> str:
    line = " ".join(text[: 4 * _LONGEST_TERM].split())
    return line if len(line) <= _LONGEST_TERM else f"{line[: _LONGEST_TERM - 1]}…"
