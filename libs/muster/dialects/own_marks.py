"""Muster's own annotations, which pods and definitions of any dialect may carry: they say what no dialect can say.

A pod that has no other marks than these is a plain pod.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from muster.dialects.declared import (
    Source,
    blocking,
    chosen,
    definition_terms,
    from_pods,
    pod_terms,
    unless_empty,
    warning,
)
from muster.dialects.marks import Definition, GangMarks, MarkSet, Pairs
from muster.dialects.values import LONGEST_DURATION, BadValue, duration_or_seconds, shown
from muster.gangs.facts import LevelConstraint, Problem, RepairPolicy
from muster.gangs.quoting import quoted
from muster.topology.constraints import BadConstraints, clashes, parse_constraints
from muster.topology.trees import LONGEST_NAME

_PREFIX: Final = "muster.dev/"
EXPECTED_DURATION: Final = _PREFIX + "expected-duration"
REPAIR_POLICY: Final = _PREFIX + "repair-policy"
TOPOLOGY: Final = _PREFIX + "topology"
TOPOLOGY_TREE: Final = _PREFIX + "topology-tree"

ANNOTATIONS: Final = frozenset({EXPECTED_DURATION, REPAIR_POLICY, TOPOLOGY, TOPOLOGY_TREE})

_REPAIR_POLICIES: Final = {"Wait": RepairPolicy.WAIT, "Evict": RepairPolicy.EVICT}


def expected_seconds(annotations: Mapping[str, str] | None) -> float:
    """How long a pod is expected to run, by its annotation; 0 if that does not say, in words that can be read."""
    text = annotations.get(EXPECTED_DURATION) if annotations else None
    if not text:
        return 0.0
    return _expected(text) if len(text) <= LONGEST_DURATION else 0.0


def of_gang(marks: Pairs) -> Pairs:
    """Marks of a pod without what says nothing of its gang, such as a duration that can be read.

    Every pod may have a duration of its own; a gang's pods must not differ in marks by that.
    """
    return tuple([(key, value) for key, value in marks if key != EXPECTED_DURATION or _is_malformed(value)])


def read_repair_policy(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> RepairPolicy:
    """What the gang's pods, oldest first, or its definition say; Wait if none does, with a Warning if malformed."""
    sources = _sources(REPAIR_POLICY, definition, pods, problems)
    return chosen(sources, _repair_policy, RepairPolicy.WAIT, problems, warning, "Wait counts instead")


def read_tree_name(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> str:
    """The topology tree that the gang goes by; empty: the default one."""
    sources = _sources(TOPOLOGY_TREE, definition, pods, problems)
    return chosen(sources, _tree_name, "", problems, blocking, "name a topology tree, or take the annotation away")


def read_constraints(
    definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]
) -> tuple[LevelConstraint, ...]:
    """How the gang wants to be divided over its tree. If that cannot be read, or cannot be, the gang waits: to start
    it just anywhere would not be what the user asked for.
    """
    sources = _sources(TOPOLOGY, definition, pods, problems)
    nothing: tuple[LevelConstraint, ...] = ()
    constraints = chosen(sources, _constraints, nothing, problems, blocking, "correct it, and the gang can start")
    problems += [blocking(f"{sources[0].where}: {clash}") for clash in clashes(constraints)]
    return constraints


def terms(definition: Definition | None, pods: Sequence[MarkSet]) -> tuple[str, ...]:
    """What is said by these annotations of the gang, as it stands there."""
    keys = (TOPOLOGY_TREE, TOPOLOGY, REPAIR_POLICY)
    return (*pod_terms(pods, GangMarks.annotation, keys), *definition_terms(definition, (), keys))


def check_expected_durations(pods: Sequence[MarkSet], problems: list[Problem]) -> None:
    """A Warning about the first of the pods whose duration cannot be read."""
    for each in pods:
        text = each.marks.annotation(EXPECTED_DURATION)
        try:
            if text:
                duration_or_seconds(text)
        except BadValue as error:
            where = f"annotation {EXPECTED_DURATION} of pod {quoted(each.oldest.name)}"
            problems.append(warning(f"{where} is {error}: only activeDeadlineSeconds counts, where the pod has it"))
            return


def _sources(
    annotation: str, definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]
) -> list[Source]:
    """What the pods say of it, then what the definition says."""
    sources, differences = from_pods(pods, unless_empty, annotation, f"annotation {annotation}")
    problems += differences
    if definition is not None and (value := definition.annotations.get(annotation)):
        defined = f"{definition.kind} {quoted(f'{definition.namespace}/{definition.name}')}"
        sources.append(Source(value, f"annotation {annotation} of {defined}"))
    return sources


@lru_cache(maxsize=4096)
def _expected(text: str) -> float:
    try:
        return duration_or_seconds(text)
    except BadValue:
        return 0.0


def _is_malformed(text: str) -> bool:
    return bool(text) and (len(text) > LONGEST_DURATION or not _expected(text))


def _repair_policy(text: Any) -> RepairPolicy:
    policy = _REPAIR_POLICIES.get(text)
    if policy is None:
        raise BadValue(f"{shown(text)}, which is neither Wait nor Evict")
    return policy


def _tree_name(text: Any) -> str:
    name: str = text.strip()
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
        raise BadValue(f"{shown(text)}, but a tree's name has 1 to {LONGEST_NAME} printable characters")
    return name


def _constraints(text: Any) -> tuple[LevelConstraint, ...]:
    try:
        return parse_constraints(text)
    except BadConstraints as error:
        raise BadValue(str(error)) from error
