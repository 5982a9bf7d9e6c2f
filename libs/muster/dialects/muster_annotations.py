"""Reads Muster's own annotations, which pods and definitions of every dialect may have.

A pod that has only these marks is a plain pod.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.dialects.definitions import Definition
from muster.dialects.marks import GangMarks, MarkSet, Pairs
from muster.dialects.sources import (
    Source,
    annotation_unless_empty,
    blocking,
    choose,
    definition_terms,
    from_pods,
    pod_terms,
    warning,
)
from muster.dialects.values import MAX_DURATION_LENGTH, BadValue, parse_duration_or_seconds, quoted_value
from muster.gangs.byte_cache import cached_by_number
from muster.gangs.facts import LevelConstraint, Problem, RepairPolicy
from muster.gangs.quoting import quoted
from muster.topology.constraints import BadConstraints, clashes, parse_constraints
from muster.topology.trees import MAX_NAME_LENGTH

_PREFIX: Final = "muster.dev/"
ELASTIC: Final = _PREFIX + "elastic"
EXPECTED_DURATION: Final = _PREFIX + "expected-duration"
REPAIR_POLICY: Final = _PREFIX + "repair-policy"
PROVISIONING_REQUEST: Final = _PREFIX + "provisioning-request"
"""On pods, "true": the gang wants a ProvisioningRequest. No mark of a gang: only lifecycle reads it."""
TOPOLOGY: Final = _PREFIX + "topology"
TOPOLOGY_TREE: Final = _PREFIX + "topology-tree"

ANNOTATIONS: Final = frozenset({ELASTIC, EXPECTED_DURATION, REPAIR_POLICY, TOPOLOGY, TOPOLOGY_TREE})

_REPAIR_POLICIES: Final = {"Yield": RepairPolicy.YIELD, "Evict": RepairPolicy.EVICT, "Wait": RepairPolicy.WAIT}


def expected_seconds(annotations: Mapping[str, str] | None) -> float:
    """Returns how long a pod is expected to run, by its annotation; 0 if it is absent or malformed."""
    text = annotations.get(EXPECTED_DURATION) if annotations else None
    if not text:
        return 0.0
    return _expected(text) if len(text) <= MAX_DURATION_LENGTH else 0.0


def without_valid_duration(marks: Pairs) -> Pairs:
    """Returns the marks without a valid expected duration.

    Durations may differ from pod to pod. Dropping them keeps the number of distinct marks of a gang small; a malformed
    one stays, to be reported.
    """
    return tuple([(key, value) for key, value in marks if key != EXPECTED_DURATION or _is_malformed(value)])


def read_repair_policy(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> RepairPolicy:
    """Returns the policy of the gang's pods, oldest first, else of its definition, else Yield; Warning if malformed."""
    sources = _sources(REPAIR_POLICY, definition, pods, problems)
    return choose(sources, _repair_policy, RepairPolicy.YIELD, problems, warning, "Yield is used instead")


def read_elastic(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> bool:
    """Returns whether preemption may evict single pods above the gang's minimum. A malformed value protects them."""
    sources = _sources(ELASTIC, definition, pods, problems)
    protected = "none of its pods is evicted alone"
    return choose(sources, _elastic, False, problems, warning, protected) if sources else True


def read_tree_name(definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]) -> str:
    """Returns the name of the gang's topology tree; empty for the default tree."""
    sources = _sources(TOPOLOGY_TREE, definition, pods, problems)
    return choose(sources, _tree_name, "", problems, blocking, "name a topology tree, or remove the annotation")


def read_constraints(
    definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]
) -> tuple[LevelConstraint, ...]:
    """Returns the gang's topology constraints. Malformed or contradictory ones block the gang."""
    sources = _sources(TOPOLOGY, definition, pods, problems)
    none: tuple[LevelConstraint, ...] = ()
    constraints = choose(sources, _constraints, none, problems, blocking, "correct it, and the gang can start")
    problems += [blocking(f"{sources[0].where}: {clash}") for clash in clashes(constraints)]
    return constraints


def terms(definition: Definition | None, pods: Sequence[MarkSet]) -> tuple[str, ...]:
    """Quotes these annotations of pods and definition."""
    keys = (TOPOLOGY_TREE, TOPOLOGY, REPAIR_POLICY, ELASTIC)
    return (*pod_terms(pods, GangMarks.annotation, keys), *definition_terms(definition, (), keys))


def check_expected_durations(pods: Sequence[MarkSet], problems: list[Problem]) -> None:
    """Adds a Warning about the first pod with a malformed duration."""
    for each in pods:
        text = each.marks.annotation(EXPECTED_DURATION)
        try:
            if text:
                parse_duration_or_seconds(text)
        except BadValue as error:
            where = f"annotation {EXPECTED_DURATION} of pod {quoted(each.oldest.name)}"
            problems.append(warning(f"{where} is {error}: only activeDeadlineSeconds is used, if the pod has it"))
            return


def _sources(
    annotation: str, definition: Definition | None, pods: Sequence[MarkSet], problems: list[Problem]
) -> list[Source]:
    """Returns the value of the pods, then that of the definition."""
    sources, differences = from_pods(pods, annotation_unless_empty, annotation, f"annotation {annotation}")
    problems += differences
    if definition is not None and (value := definition.annotations.get(annotation)):
        defined = f"{definition.kind} {quoted(f'{definition.namespace}/{definition.name}')}"
        sources.append(Source(value, f"annotation {annotation} of {defined}"))
    return sources


@cached_by_number(4096)
def _expected(text: str) -> float:
    try:
        return parse_duration_or_seconds(text)
    except BadValue:
        return 0.0


def _is_malformed(text: str) -> bool:
    return bool(text) and (len(text) > MAX_DURATION_LENGTH or not _expected(text))


def _repair_policy(text: Any) -> RepairPolicy:
    policy = _REPAIR_POLICIES.get(text)
    if policy is None:
        raise BadValue(f"{quoted_value(text)}, which is none of Yield, Evict and Wait")
    return policy


def _elastic(text: Any) -> bool:
    if text not in ("true", "false"):
        raise BadValue(f"{quoted_value(text)}, which is neither true nor false")
    return bool(text == "true")


def _tree_name(text: Any) -> str:
    name: str = text.strip()
    if not 1 <= len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise BadValue(f"{quoted_value(text)}, but a tree's name has 1 to {MAX_NAME_LENGTH} printable characters")
    return name


def _constraints(text: Any) -> tuple[LevelConstraint, ...]:
    try:
        return parse_constraints(text)
    except BadConstraints as error:
        raise BadValue(str(error)) from error
