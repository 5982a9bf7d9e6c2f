"""Changes in the cluster, and of what Muster decided, that may let a pending gang group start."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple


class EventKind(Enum):
    """Kinds of changes. `queue/wake.py` has a queueing hint for each. Changes of a gang's own declaration or pods are
    not among them: they put its group back into the active queue directly.
    """

    NODE_ADDED = auto()
    NODE_REMOVED = auto()
    NODE_LABELS_CHANGED = auto()
    NODE_TAINTS_CHANGED = auto()
    NODE_SCHEDULABLE = auto()
    """A node was uncordoned or became ready."""
    NODE_ALLOCATABLE_INCREASED = auto()
    CAPACITY_FREED = auto()
    """A pod was deleted, ended, or was resized."""
    RESERVATION_RELEASED = auto()
    ASSIGNMENT_UNUSED = auto()
    """A solve counted capacity as used that its answer does not use in the end."""
    POD_SCHEDULED = auto()
    """A pod that inter-pod rules of other pods select was observed on a node."""
    POD_BOUND_BY_OTHERS = auto()
    """Another scheduler bound a pod for which a solve may have assumed capacity elsewhere."""
    POD_PRIORITY_LOWERED = auto()
    EVICTION_CANCELLED = auto()
    BUDGET_INCREASED = auto()
    """A disruption budget allows more evictions, or is gone."""
    NOMINATION_ENDED = auto()
    TOPOLOGY_TREE_CHANGED = auto()


class ClusterEvent(NamedTuple):
    """A change; `nodes` are where capacity or filters changed, `label_keys` the labels that changed."""

    kind: EventKind
    nodes: Iterable[str] = ()
    label_keys: Iterable[str] = ()
