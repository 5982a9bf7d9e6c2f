"""Community lightweight gangs: two labels on every pod. Strict, without a gang group, total equal to the minimum."""

from typing import Final

from msgspec.structs import replace

from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.match_policy import MATCH_POLICY_ALIAS, read_match_policy
from muster.dialects.sources import blocking, choose, from_pods, gang_facts, member_of, pod_terms
from muster.dialects.values import parse_count
from muster.gangs.facts import GangFacts, Problem

NAME: Final = "lightweight"

GANG_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"

WAITING_SECONDS: Final = 600.0
"""Koordinator's default: both dialects come from the same engine."""


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's label names; None without that label."""
    name = marks.label(GANG_NAME)
    if name is None:
        return None
    return member_of(NAME, marks.namespace, name, f"label {GANG_NAME}")


def read(declaration: Declaration) -> GangFacts:
    """Reads the minimum and the match policy from the pods."""
    pods = declaration.pods
    problems: list[Problem] = []
    sources, differences = from_pods(pods, GangMarks.label, MIN_AVAILABLE, f"label {MIN_AVAILABLE}")
    problems += differences
    remedy = "set it to the number of pods that must start together"
    if not sources:
        problems.append(blocking(f"no pod of the gang has the label {MIN_AVAILABLE}: {remedy}"))
    minimum = choose(sources, parse_count, 0, problems, blocking, remedy)
    sources, differences = from_pods(pods, GangMarks.annotation, MATCH_POLICY_ALIAS, f"annotation {MATCH_POLICY_ALIAS}")
    problems += differences
    return replace(
        gang_facts(NAME, declaration),
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


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        labels=frozenset({GANG_NAME, MIN_AVAILABLE}),
        annotations=frozenset({MATCH_POLICY_ALIAS}),
        naming=f"label {GANG_NAME}",
    ),
    membership=membership,
    read=read,
)
