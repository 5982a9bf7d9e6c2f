"""Kueue's plain pod groups: a name and the number of pods, on each pod. Kueue admits them, Muster places them.

Kueue removes the scheduling gates of an admitted group pod by pod; a gated pod is no member yet, so the gang waits for
the last one. As Kueue counts pods of a group, the minimum holds after the start too, and pods that succeeded count:
users replace failed pods by new ones of the same group.

Kueue also makes groups for the pods of StatefulSets and LeaderWorkerSets, to reserve quota for all of them at once.
Such a group is no declaration of users, and its controller may create the second pod only when the first one runs.
Their pods, and those of groups that ask to be admitted at their first pod, are plain pods.

Kueue needs these marks itself. They may stand beside the marks of another dialect, which then apply alone.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from muster.dialects import kueue_slices
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.kueue_slices import read_slices
from muster.dialects.marks import GangMarks, MarkSet, Membership
from muster.dialects.sources import (
    blocking,
    choose,
    from_pods,
    gang_facts,
    member_of,
    pod_terms,
    warning,
)
from muster.dialects.values import parse_count, parse_index
from muster.gangs.facts import GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kueue"

_PREFIX: Final = "kueue.x-k8s.io/"
GROUP_NAME: Final = _PREFIX + "pod-group-name"
"""Label, else annotation, of a pod."""
TOTAL_COUNT: Final = _PREFIX + "pod-group-total-count"
FAST_ADMISSION: Final = _PREFIX + "pod-group-fast-admission"
"""Annotation of any value: Kueue admits the group at its first pod."""
SUSPENDING_PARENT: Final = _PREFIX + "pod-suspending-parent"
"""Annotation that Kueue writes: the controller for whose pods it made the group."""
POD_INDEX: Final = _PREFIX + "pod-group-pod-index"
"""Label of a pod: its index in the group. Not part of the marks, since every pod has another one."""


def starts_alone(marks: GangMarks) -> bool:
    """Returns whether a pod's group is not for starting together."""
    return marks.annotation(FAST_ADMISSION) is not None or bool(marks.annotation(SUSPENDING_PARENT))


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang that a pod's label or annotation names; None for a pod that starts alone."""
    if starts_alone(marks):
        return None
    label, annotation = marks.label(GROUP_NAME), marks.annotation(GROUP_NAME)
    if label is None and annotation is None:
        if marks.annotation(TOTAL_COUNT) is None:
            return None
        return Membership(problem=f"{TOTAL_COUNT} without the gang's name: add it (label {GROUP_NAME})")
    if label or annotation is None:
        return member_of(NAME, marks.namespace, label or "", f"label {GROUP_NAME}")
    return member_of(NAME, marks.namespace, annotation, f"annotation {GROUP_NAME}")


def read(declaration: Declaration) -> GangFacts:
    """Reads the number of pods of the group."""
    pods = declaration.pods
    sources, differences = from_pods(pods, GangMarks.annotation, TOTAL_COUNT, f"annotation {TOTAL_COUNT}")
    problems: list[Problem] = list(differences)
    remedy = "set it to the number of pods of the group, on each of them"
    if not sources:
        problems.append(blocking(f"no pod of the group has the annotation {TOTAL_COUNT}: {remedy}"))
    count = choose(sources, parse_count, 0, problems, blocking, remedy)
    problems += _two_names(pods)
    slices = read_slices(pods, problems)
    return replace(
        gang_facts(NAME, declaration),
        minimum=count,
        total=count,
        match_policy=MatchPolicy.WAITING_AND_RUNNING,
        counts_succeeded=True,
        tree=slices.tree,
        constraints=slices.constraints,
        subgroups=slices.subgroups,
        problems=tuple(problems),
        terms=tuple(pod_terms(pods, GangMarks.annotation, (TOTAL_COUNT, kueue_slices.TOPOLOGY, kueue_slices.SIZE))),
    )


def wanted_rank(_annotations: Mapping[str, str], labels: Mapping[str, str]) -> int:
    """Returns the index of a pod within its group; -1 if it has none, or an invalid one."""
    return parse_index(labels.get(POD_INDEX))


def _two_names(pods: Sequence[MarkSet]) -> list[Problem]:
    for each in pods:
        label, annotation = each.marks.label(GROUP_NAME), each.marks.annotation(GROUP_NAME)
        if label and annotation and label != annotation:
            given = f"annotation {GROUP_NAME} {quoted(annotation)}, but label {GROUP_NAME} {quoted(label)}"
            return [warning(f"pod {quoted(each.oldest.name)} has {given}: the label is used")]
    return []


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        labels=frozenset({GROUP_NAME}),
        annotations=frozenset({GROUP_NAME, TOTAL_COUNT}),
        roles=frozenset({FAST_ADMISSION, SUSPENDING_PARENT}) | kueue_slices.MARKS,
        naming=f"label {GROUP_NAME}",
        shared=True,
    ),
    membership=membership,
    read=read,
    wanted_rank=wanted_rank,
)
