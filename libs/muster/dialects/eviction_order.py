"""Reads the marks of a pod that decide when it is evicted if its gang shrinks: its deletion cost, and its position.

Controllers write these on pods of every dialect. Invalid values count as absent, as for the controllers.
"""

import re
from collections.abc import Mapping
from typing import Final

from muster.dialects.koordinator import TOPOLOGY_INDEX
from muster.dialects.kueue import POD_INDEX
from muster.dialects.values import parse_index
from muster.dialects.volcano import TASK_INDEX
from muster.gangs.facts import INDEX_0, LEADER

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
PREEMPTABLE: Final = "volcano.sh/preemptable"
"""Annotation of a pod, or label of one without the annotation: one that is not true makes it the last that its gang
gives up.
"""

_INT32: Final = 2**31
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""As Go's strconv.ParseBool; Volcano takes invalid values for false."""
_COST: Final = re.compile(r"0|[1-9][0-9]{0,9}|-[0-9]{1,10}", re.ASCII)
_ANNOTATED_INDEX: Final = (TOPOLOGY_INDEX, TASK_INDEX, "batch.kubernetes.io/job-completion-index")
_LABELLED_INDEX: Final = (
    "batch.kubernetes.io/job-completion-index",
    "apps.kubernetes.io/pod-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "training.kubeflow.org/replica-index",
    POD_INDEX,
)
"""Labels and annotations with the index of a pod, the first valid one counts."""
_LEADERS: Final = {
    "training.kubeflow.org/job-role": frozenset({"launcher", "master"}),
    "ray.io/node-type": frozenset({"head"}),
    "spark-role": frozenset({"driver"}),
}
"""Labels whose values mark the leader, without which the others are useless."""


def deletion_cost(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> int:
    """Returns the deletion cost, an int32; 0 without one, or with one that the controllers of Jobs and ReplicaSets
    would ignore. That of a pod which Volcano's mark protects is the highest.
    """
    for marks in (annotations, labels):
        if marks and (preemptable := marks.get(PREEMPTABLE)) is not None:
            if preemptable not in _TRUE:
                return _INT32 - 1
            break
    text = annotations.get(DELETION_COST) if annotations else None
    if not text or not _COST.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -_INT32 <= cost < _INT32 else 0


def ordinal(annotations: Mapping[str, str] | None, labels: Mapping[str, str] | None) -> int:
    """Returns the position of a pod within its gang, as in PodFacts; 0 if nothing says it."""
    for key, leaders in _LEADERS.items() if labels else ():
        if labels and labels.get(key) in leaders:
            return LEADER
    for marks, keys in ((annotations, _ANNOTATED_INDEX), (labels, _LABELLED_INDEX)):
        for key in keys if marks else ():
            if marks and (index := parse_index(marks.get(key))) >= 0:
                return INDEX_0 + index
    return 0
