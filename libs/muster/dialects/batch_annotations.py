"""Batch annotations: the name of a task and its number of pods, on each of its pods. A task starts as a whole.

No object defines such a task. Pods beyond its number are optional.
"""

from typing import Final

from msgspec.structs import replace

from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.kube_batch import GROUP_NAME, GROUP_POD_NUM, generated
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.sources import blocking, choose, from_pods, gang_facts, member_of, pod_terms
from muster.dialects.values import parse_count
from muster.gangs.facts import GangFacts, Problem

NAME: Final = "batch"


def membership(marks: GangMarks) -> Membership | None:
    """Returns the task that a pod's annotations name; None if one of the two annotations is missing."""
    name = marks.annotation(GROUP_NAME)
    if name is None or marks.annotation(GROUP_POD_NUM) is None:
        return None
    return member_of(NAME, marks.namespace, name, f"annotation {GROUP_NAME}")


def read(declaration: Declaration) -> GangFacts:
    """Reads the number of pods that must start together."""
    pods = declaration.pods
    sources, differences = from_pods(pods, GangMarks.annotation, GROUP_POD_NUM, f"annotation {GROUP_POD_NUM}")
    problems: list[Problem] = list(differences)
    remedy = "set it to the number of pods of the task"
    if not sources:
        problems.append(blocking(f"no pod of the task has the annotation {GROUP_POD_NUM}: {remedy}"))
    number = choose(sources, parse_count, 0, problems, blocking, remedy)
    return replace(
        gang_facts(NAME, declaration),
        minimum=number,
        total=number,
        terms=tuple(pod_terms(pods, GangMarks.annotation, [GROUP_POD_NUM])),
        problems=tuple(problems),
    )


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        annotations=frozenset({GROUP_NAME, GROUP_POD_NUM}), naming=f"annotation {GROUP_NAME}", generated=generated
    ),
    membership=membership,
    read=read,
)
