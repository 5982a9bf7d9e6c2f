"""Sakkara: groups of equal pods, defined by ConfigMaps with the label sakkara.group or by labels of the pods.

A pod names its group by the label sakkara.group.name. A ConfigMap defines the group that its key `name` names, by
default the one of its own name. Its other keys are `size`, `priority` and `constraints`. The labels sakkara.group.size,
.priority and .constraint.<key>.<level> of pods have the same meaning; the ConfigMap takes precedence. With a size label
a group needs no ConfigMap; otherwise its pods wait until one exists.

Progress is written to the ConfigMap and to labels of the pods: see sakkara_status.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from muster.dialects import sakkara_status
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, MarkSet, Membership
from muster.dialects.sakkara_constraints import PACK_OTHERS, Constraints, parse_constraints
from muster.dialects.sources import (
    Source,
    blocking,
    choose,
    definition_terms,
    from_pods,
    gang_facts,
    label_unless_empty,
    member_of,
    pod_terms,
    unknown_fields,
    warning,
)
from muster.dialects.values import BadValue, parse_count, parse_gang_name, quoted_value
from muster.gangs.facts import GangFacts, LevelConstraint, Problem
from muster.gangs.quoting import quoted
from muster.topology.constraints import MAX_PROBLEMS, clashes

GROUP_LABEL: Final = "sakkara.group"
"""Label of ConfigMaps that define groups, with any value."""

_NAME, _SIZE, _PRIORITY, _CONSTRAINTS = _KEYS = ("name", "size", "priority", "constraints")

NAME: Final = "sakkara"
DEFINITION: Final = DefinitionKind(
    "",
    "v1",
    "ConfigMap",
    "configmaps",
    content="data",
    label_selector=GROUP_LABEL,
    keys=_KEYS,
    written=sakkara_status.KEYS,
)

GROUP_NAME: Final = GROUP_LABEL + ".name"
GROUP_SIZE: Final = GROUP_LABEL + ".size"
GROUP_PRIORITY: Final = GROUP_LABEL + ".priority"
CONSTRAINT_LABELS: Final = GROUP_LABEL + ".constraint."
"""Prefix of labels; the key of the constraint and the level follow it."""

WAITING_SECONDS: Final = 600.0
"""Without effect, since a group is placed as a whole; the coordinator requires a value."""

_DEFAULT_SIZE: Final = 1
_DEFAULT_PRIORITY: Final = 0
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_MAX_TERM_LENGTH: Final = 512


def membership(marks: GangMarks) -> Membership | None:
    """Returns the group that a pod's label names; None without that label."""
    name = marks.label(GROUP_NAME)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {GROUP_NAME}")


def gang_name(definition: Definition) -> str:
    """Returns the name of the group that a ConfigMap defines: its key `name` if that is valid, else its own name."""
    try:
        return parse_gang_name(_text(definition, _NAME))
    except BadValue:
        return definition.name


def read(declaration: Declaration) -> GangFacts:
    """Reads the ConfigMap and the pods' labels. Priority classes have no effect."""
    group = _Reader(declaration)
    group.check_keys()
    size = group.size()
    priority = group.priority()
    constraints = group.constraints(size)
    return replace(
        gang_facts(NAME, declaration),
        minimum=size,
        total=size,
        waiting_time_seconds=WAITING_SECONDS,
        priority=priority,
        never_preempts=priority <= 0,
        uniform=True,
        evicted_whole=True,
        constraints=(*constraints, PACK_OTHERS),
        terms=tuple(group.terms()),
        problems=tuple(group.problems),
    )


class _Reader:
    """Reads one declaration value by value and collects the problems in it."""

    def __init__(self, declaration: Declaration) -> None:
        self.problems: list[Problem] = []
        self._pods: Sequence[MarkSet] = declaration.pods
        self._group = f"{declaration.namespace}/{declaration.name}"
        self._definition = definition = declaration.definition
        self._object_name = f"{definition.namespace}/{definition.name}" if definition is not None else ""
        self._config_map = f"ConfigMap {quoted(self._object_name)}"

    def check_keys(self) -> None:
        """Reports keys of the ConfigMap that are not read, and an invalid name."""
        if self._definition is None:
            return
        self.problems += unknown_fields(dict.fromkeys(self._definition.unknown), _KEYS, self._config_map)
        if not (name := _text(self._definition, _NAME)):
            return
        try:
            parse_gang_name(name)
        except BadValue as error:
            own = f"the name of the ConfigMap, {quoted(self._definition.name)}, is used instead"
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
        return choose(sources, parse_count, no_size, self.problems, blocking, remedy)

    def priority(self) -> int:
        sources = self._sources(_PRIORITY, GROUP_PRIORITY)
        default = _DEFAULT_PRIORITY
        return choose(sources, _priority, default, self.problems, warning, f"{default} is used instead")

    def constraints(self, size: int) -> tuple[LevelConstraint, ...]:
        """Returns the constraints. Malformed or contradictory ones block the group rather than being ignored."""
        sources = self._of_config_map(_CONSTRAINTS) + self._constraint_labels()

        def parse(declared: Any) -> Constraints:
            return parse_constraints(declared, size)

        remedy = "correct it, and the group can start"
        parsed = choose(sources, parse, Constraints(), self.problems, blocking, remedy)
        if sources:
            where = sources[0].where
            self.problems += [
                warning(f"{where}: {key} is unknown and ignored") for key in parsed.ignored[:MAX_PROBLEMS]
            ]
            self.problems += [blocking(f"{where}: {clash}") for clash in clashes(parsed.constraints)]
        return parsed.constraints

    def terms(self) -> Iterator[str]:
        """Quotes the values in effect in the user's own words."""
        yield from definition_terms(self._definition, (_SIZE, _PRIORITY))
        if text := _text(self._definition, _CONSTRAINTS):
            yield f"{_CONSTRAINTS}: {_on_one_line(text)} (ConfigMap {self._object_name})"
        labels = {_SIZE: [GROUP_SIZE], _PRIORITY: [GROUP_PRIORITY], _CONSTRAINTS: self._constraint_keys()}
        for key, label_keys in labels.items():
            if not _text(self._definition, key):
                yield from pod_terms(self._pods, label_unless_empty, label_keys)

    def _sources(self, key: str, label: str) -> list[Source]:
        """Returns the value of the ConfigMap, then that of the pods."""
        return self._of_config_map(key) + self._of_pods(label)

    def _of_config_map(self, key: str) -> list[Source]:
        text = _text(self._definition, key)
        return [Source(text, f"{key} of {self._config_map}")] if text else []

    def _of_pods(self, label: str) -> list[Source]:
        sources, differences = from_pods(self._pods, label_unless_empty, label, f"label {label}")
        self.problems += differences
        return sources

    def _constraint_labels(self) -> list[Source]:
        """Returns all constraint labels as one source, since each is part of a constraint."""
        requested: dict[str, dict[str, Any]] = {}
        for key in self._constraint_keys():
            constraint, _, level = key.removeprefix(CONSTRAINT_LABELS).partition(".")
            requested.setdefault(level, {}).update((constraint, source.value) for source in self._of_pods(key))
        if not any(requested.values()):
            return []
        return [Source(requested, f"the set of labels {CONSTRAINT_LABELS}* of the pods")]

    def _constraint_keys(self) -> list[str]:
        return sorted({key for each in self._pods for key, _ in each.marks.labels if key.startswith(CONSTRAINT_LABELS)})


def _text(definition: Definition | None, key: str) -> str:
    """Returns a value of the ConfigMap's data; empty if it is absent."""
    value = definition.spec.get(key) if definition is not None else None
    return "" if value is None else str(value).strip()


def _priority(text: Any) -> int:
    if not _INTEGER.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise BadValue(f"{quoted_value(text)}, which is not a whole number from -2147483648 to 2147483647")
    return int(text)


def _on_one_line(text: str) -> str:
    line = " ".join(text[: 4 * _MAX_TERM_LENGTH].split())
    return line if len(line) <= _MAX_TERM_LENGTH else f"{line[: _MAX_TERM_LENGTH - 1]}…"


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        labels=frozenset({GROUP_NAME, GROUP_SIZE, GROUP_PRIORITY}),
        label_prefix=CONSTRAINT_LABELS,
        naming=f"label {GROUP_NAME}",
    ),
    membership=membership,
    read=read,
    definition=DEFINITION,
    gang_name=gang_name,
    write_progress=sakkara_status.write_progress,
    labels_at_bind=sakkara_status.labels_at_bind,
)
