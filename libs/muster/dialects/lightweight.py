"""Community lightweight gangs: two labels on every pod. Strict, alone, and as many as the minimum."""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from muster.dialects.declared import blocking, chosen, facts, from_pods, member_of, oldest_first, pod_terms
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, MarkSet, Membership
from muster.dialects.match_policy import MATCH_POLICY_ALIAS, read_match_policy
from muster.dialects.values import count
from muster.gangs.facts import GangFacts, Problem

NAME: Final = "lightweight"
DEFINITION: Final[DefinitionKind | None] = None

GANG_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

LABELS: Final = frozenset({GANG_NAME, MIN_AVAILABLE})
ANNOTATIONS: Final = frozenset({MATCH_POLICY_ALIAS})

WAITING_SECONDS: Final = 600.0
"""The same engine as Koordinator's, so the same default."""


def membership(marks: GangMarks) -> Membership | None:
    """The gang that a pod's label names; None if it has no such label."""
    name = marks.label(GANG_NAME)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {GANG_NAME}")


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the pods declare of their gang; there is no definition in this dialect."""
    pods = oldest_first(mark_sets)
    problems: list[Problem] = []
    sources, differences = from_pods(pods, GangMarks.label, MIN_AVAILABLE, f"label {MIN_AVAILABLE}")
    problems += differences
    remedy = "set it to the number of pods that must start together"
    if not sources:
        problems.append(blocking(f"no pod of the gang has the label {MIN_AVAILABLE}: {remedy}"))
    minimum = chosen(sources, count, 0, problems, blocking, remedy)
    sources, differences = from_pods(pods, GangMarks.annotation, MATCH_POLICY_ALIAS, f"annotation {MATCH_POLICY_ALIAS}")
    problems += differences
    return replace(
        facts(NAME, namespace, name, None, pods),
        minimum=minimum,
        total=minimum,
        waiting_time_seconds=WAITING_SECONDS,
        match_policy=read_match_policy(sources, problems),
        problems=tuple(problems),
        terms=(
            *pod_terms(pods, GangMarks.label, (MIN_AVAILABLE,)),
            *pod_terms(pods, GangMarks.annotation, (MATCH_POLICY_ALIAS,)),
        ),
    )
