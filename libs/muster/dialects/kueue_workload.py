"""Kueue's Workloads as gangs: all pods of an admitted Job, JobSet, RayCluster or whatever Kueue has admitted.

Kueue writes the name of the Workload on all pods that it admits. Not every workload is a gang, so only pods that have
the annotation `muster.dev/kueue-workload`, too, are members; the chart's policy adds it in labelled namespaces. The
gang starts with as many pods as Kueue admitted, which may be fewer than requested (partial admission). A Workload that
is not admitted has no pods, or Kueue is removing them: what is left of them waits.

Pods of plain pod groups belong to the dialect `kueue`, or start alone as it says.
"""

from typing import Any, Final

from msgspec.structs import replace

from muster.dialects import kueue
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.dialect import Declaration, Dialect, PodMarks
from muster.dialects.kueue_slices import SIZE, TOPOLOGY, read_slices
from muster.dialects.marks import GangMarks, Membership
from muster.dialects.quota import WAITING_FOR_QUOTA
from muster.dialects.sources import blocking, gang_facts, member_of, pod_terms, undeclared
from muster.dialects.values import MAX_COUNT
from muster.gangs.facts import GangFacts, MatchPolicy, Problem
from muster.gangs.quoting import quoted

NAME: Final = "kueue-workload"
DEFINITION: Final = DefinitionKind(
    "kueue.x-k8s.io",
    "v1beta2",
    "Workload",
    "workloads",
    older=("v1beta1",),
    keys=("active",),
    status=("admission",),
)

WORKLOAD: Final = "kueue.x-k8s.io/workload"
"""Annotation of a pod, which Kueue writes: its Workload."""
ASKED_FOR: Final = "muster.dev/kueue-workload"
"""Annotation of a pod: its Workload is a gang."""


def membership(marks: GangMarks) -> Membership | None:
    """Returns the gang of a pod that asks for it; None for others, and for those of plain pod groups."""
    value, name = marks.annotation(ASKED_FOR), marks.annotation(WORKLOAD)
    if value is None or value == "false" or kueue.starts_alone(marks):
        return None
    if value != "true":
        return Membership(problem=f'annotation {ASKED_FOR} is {quoted(value)}: set it to "true" or "false"')
    if name is None:
        return Membership(
            problem=f"{ASKED_FOR} without {WORKLOAD}, which Kueue writes when it admits the pod's workload: put the "
            "workload into a queue, and enable the feature gate TopologyAwareScheduling of Kueue"
        )
    return member_of(NAME, marks.namespace, name, f"annotation {WORKLOAD}")


def read(declaration: Declaration) -> GangFacts:
    """Reads how many pods Kueue admitted. Those that succeeded count, as Jobs do not replace them."""
    definition = declaration.definition
    workload = f"Workload {quoted(f'{declaration.namespace}/{declaration.name}')}"
    problems: list[Problem] = []
    count = 0
    if definition is None:
        remedy = "wait for Kueue, or let Muster read Workloads (kueue.workloads of its chart)"
        problems.append(undeclared(f"{workload} does not exist, or is not read: {remedy}"))
    else:
        count = _admitted(definition, workload, problems)
    slices = read_slices(declaration.pods, problems)
    admitted = (f"pods admitted by Kueue: {count}",) if count else ()
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
        terms=(*admitted, *pod_terms(declaration.pods, GangMarks.annotation, (TOPOLOGY, SIZE))),
    )


def _admitted(definition: Definition, workload: str, problems: list[Problem]) -> int:
    """Number of pods of all pod sets that are admitted; 0 with a problem."""
    admission = definition.status.get("admission")
    if not isinstance(admission, dict):
        active = definition.spec.get("active", True)
        why = "has not admitted" if active is not False else "has deactivated"
        problems.append(blocking(f"Kueue {why} {workload}", WAITING_FOR_QUOTA))
        return 0
    assignments = admission.get("podSetAssignments")
    total = sum(_count(each) for each in assignments) if isinstance(assignments, list) else 0
    if 1 <= total <= MAX_COUNT:
        return total
    must = f"the counts in status.admission.podSetAssignments must add up to 1 to {MAX_COUNT}"
    problems.append(blocking(f"Kueue has admitted {workload} with {total} pods, but {must}: recreate the workload"))
    return 0


def _count(assignment: Any) -> int:
    """Number of pods of a pod set; 0 if it is none."""
    count = assignment.get("count") if isinstance(assignment, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


DIALECT: Final = Dialect(
    name=NAME,
    marks=PodMarks(
        annotations=frozenset({WORKLOAD, ASKED_FOR}),
        naming=f"annotation {WORKLOAD}",
        shared=True,
    ),
    membership=membership,
    read=read,
    definition=DEFINITION,
    defined_by_pods=True,
)
