"""Batch annotations: the name of a task and its number of pods on each of them. It starts whole or not at all.

There is no object that defines such a task, and no member beyond its number need ever come.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from muster.dialects.declared import blocking, chosen, facts, from_pods, member_of, oldest_first, pod_terms
from muster.dialects.kube_batch import GROUP_NAME, GROUP_POD_NUM
from muster.dialects.marks import NO_PRIORITIES, Definition, DefinitionKind, GangMarks, MarkSet, Membership
from muster.dialects.values import count
from muster.gangs.facts import GangFacts, Problem

NAME: Final = "batch"
DEFINITION: Final[DefinitionKind | None] = None

LABELS: Final[frozenset[str]] = frozenset()
ANNOTATIONS: Final = frozenset({GROUP_NAME, GROUP_POD_NUM})


def membership(marks: GangMarks) -> Membership | None:
    """The task that a pod's annotations name; None if one of the two is missing."""
    name = marks.annotation(GROUP_NAME)
    if name is None or marks.annotation(GROUP_POD_NUM) is None:
        return None
    return member_of(NAME, marks.namespace, name, f"annotation {GROUP_NAME}")


def read(
    namespace: str,
    name: str,
    definition: Definition | None,
    mark_sets: Iterable[MarkSet],
    priorities: Mapping[str, int] = NO_PRIORITIES,
) -> GangFacts:
    """What the pods declare of their task: all of them must start together."""
    pods = oldest_first(mark_sets)
    sources, differences = from_pods(pods, GangMarks.annotation, GROUP_POD_NUM, f"annotation {GROUP_POD_NUM}")
    problems: list[Problem] = list(differences)
    remedy = "set it to the number of pods of the task"
    if not sources:
        problems.append(blocking(f"no pod of the task has the annotation {GROUP_POD_NUM}: {remedy}"))
    number = chosen(sources, count, 0, problems, blocking, remedy)
    return replace(
        facts(NAME, namespace, name, None, pods),
        minimum=number,
        total=number,
        starts_anew=True,
        terms=tuple(pod_terms(pods, GangMarks.annotation, [GROUP_POD_NUM])),
        problems=tuple(problems),
    )
