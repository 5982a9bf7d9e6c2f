"""Inputs of the state machine: events, settings, values that events and effects share, and what events change."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from msgspec import Struct

from muster.devices.facts import Allocation
from muster.gangs.facts import Batch
from muster.gangs.solve import PodsOnNode, SolveResult


class Now(Struct, frozen=True):
    """The time of a step."""

    monotonic_seconds: float
    unix_seconds: float


class BindOutcome(IntEnum):
    """Outcomes of a bind; values as in the proto."""

    BOUND = 1
    CONFLICT = 2
    GONE = 3
    FAILED = 4
    WITHHELD = 5


class EvictOutcome(IntEnum):
    """Outcomes of an eviction; values as in the proto."""

    EVICTED = 1
    GONE = 2
    FAILED = 3


class DeallocateOutcome(IntEnum):
    """Outcomes of a deallocation; values as in the proto."""

    DEALLOCATED = 1
    KEPT = 2
    FAILED = 3


class RecordState(IntEnum):
    """States of a record; values as in the proto."""

    BINDING = 1
    SATISFIED = 2
    UNPERMITTED = 3


class Seat(Struct, frozen=True):
    """A pod with a decided node. `volumes`: pairs of its claims without provisioner and the volumes chosen for them;
    `devices`: pairs of its ResourceClaims and the allocations chosen for them.
    """

    uid: str
    namespace: str
    name: str
    class_id: str
    node: str
    label_set: str = ""
    volumes: tuple[tuple[str, str], ...] = ()
    devices: tuple[tuple[str, Allocation], ...] = ()


class PodName(Struct, frozen=True):
    """Names a pod."""

    uid: str
    namespace: str
    name: str


class ShrunkSubgroup(Struct, frozen=True):
    """A subgroup of which preemption took pods: how many times in a row, and before which time it gets no others."""

    name: str
    shrinks: int
    grows_after_unix_millis: int


class Record(Struct, frozen=True):
    """The durable state of one gang; `seats` are those not known to be bound. Fields are those of the proto, but for
    `ranks`: uid and rank of members, by rank.
    """

    gang: str
    incarnation: str
    state: RecordState
    seats: tuple[Seat, ...] = ()
    schedule_cycle: int = 1
    group: tuple[str, ...] = ()
    permitted_unix_millis: int = 0
    waiting_since_unix_millis: int = 0
    timed_out_declaration: str = ""
    timing_out: tuple[PodName, ...] = ()
    evicting: tuple[PodName, ...] = ()
    evicted_for: str = ""
    nominated: tuple[PodsOnNode, ...] = ()
    ranks: tuple[tuple[str, int], ...] = ()
    tries: int = 0
    preempted_by: str = ""
    shrinks: int = 0
    grows_after_unix_millis: int = 0
    met_minimum: int = 0
    revoked: bool = False
    shrunk_subgroups: tuple[ShrunkSubgroup, ...] = ()
    claims_first: bool = False


class BindResult(Struct, frozen=True):
    """Outcome of one bind."""

    uid: str
    outcome: BindOutcome
    node: str = ""
    message: str = ""


class EvictResult(Struct, frozen=True):
    """Outcome of one eviction."""

    uid: str
    outcome: EvictOutcome
    message: str = ""


class DeallocateResult(Struct, frozen=True):
    """Outcome of the deallocation of one claim, by its uid."""

    uid: str
    outcome: DeallocateOutcome
    message: str = ""


class Recovered(Struct, frozen=True):
    """The records in etcd at the beginning of the term: once, before the first snapshot."""

    records: tuple[Record, ...]


class Snapshot(Struct, frozen=True):
    """The whole state of the cluster; objects that are not in it are gone."""

    batch: Batch


class Delta(Struct, frozen=True):
    """Changes since the snapshot or the last delta."""

    batch: Batch


class ViewLost(Struct, frozen=True):
    """cluster-state is unreachable; a new snapshot follows once it is back."""

    reason: str


class Solved(Struct, frozen=True):
    """Placement answered."""

    solve_id: int
    results: tuple[SolveResult, ...]


class SolveFailed(Struct, frozen=True):
    """Placement did not answer. `refused`: it never will answer this request. `unreadable`: the answer could not be
    decoded. `away`: no replica could be reached.
    """

    solve_id: int
    message: str
    refused: bool = False
    unreadable: bool = False
    away: bool = False


class Replicas(Struct, frozen=True):
    """Number of placement replicas that may solve at the same time."""

    count: int


class Persisted(Struct, frozen=True):
    """A Persist effect is durable."""

    persist_id: int


class NotPersisted(Struct, frozen=True):
    """A Persist effect can never be made durable; nothing of it was written."""

    persist_id: int
    message: str


class BindResults(Struct, frozen=True):
    """The binding service reports binds."""

    results: tuple[BindResult, ...]


class BindCallFailed(Struct, frozen=True):
    """The call to the binding service failed before these pods had a result."""

    uids: tuple[str, ...]
    message: str


class EvictResults(Struct, frozen=True):
    """The binding service reports evictions."""

    results: tuple[EvictResult, ...]


class EvictCallFailed(Struct, frozen=True):
    """The call to the binding service failed before these pods had a result."""

    uids: tuple[str, ...]
    message: str


class DeallocateResults(Struct, frozen=True):
    """The binding service reports deallocations of a gang's claims."""

    gang: str
    results: tuple[DeallocateResult, ...]


class DeallocateCallFailed(Struct, frozen=True):
    """The call to the binding service failed before these claims, by uid, had a result."""

    gang: str
    uids: tuple[str, ...]
    message: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = (
    Recovered
    | Snapshot
    | Delta
    | ViewLost
    | Solved
    | SolveFailed
    | Replicas
    | Persisted
    | NotPersisted
    | BindResults
    | BindCallFailed
    | EvictResults
    | EvictCallFailed
    | DeallocateResults
    | DeallocateCallFailed
    | Tick
)


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


@dataclass(frozen=True)
class Rules:
    """Times after which the coordinator acts for pending or incomplete gangs."""

    starvation_after_seconds: float = 30.0
    """The head of the queue gets a backfill reservation when it had no place for this long."""
    repair_timeout_seconds: float = 300.0
    """A started gang below its minimum that cannot be completed for this long follows its repair policy."""
    deadlock_after_seconds: float = 1.0
    """Gangs that hold reservations may block each other for this long before one of them must release its own."""
    eviction_timeout_seconds: float = 300.0
    """Victims have left this long after their eviction, or others are chosen; then the preemptor has as long to start.
    """
    reservation_timeout_seconds: float = 3600.0
    """A backfill reservation ends after this time if pods of which the end is not known have not ended."""
    max_reserved_share: float = 1.0
    """Share of each resource of the cluster that a backfill reservation may withhold."""
    max_waiting_time_seconds: float = 3600.0
    """NonStrict gangs hold reservations for at most this long, whatever waiting-time they declare."""
    max_held_share: float = 1.0
    """Share of each resource of the cluster that gangs may hold in all while they wait for the rest of their members.
    """
    growth_hold_off_seconds: float = 10.0
    """A gang of which preemption took surplus pods gets no others for this long, doubling with every time in a row."""
    max_growth_hold_off_seconds: float = 300.0
    """Longest such time; a time as long without preemption ends the row."""
    growth_batch_seconds: float = 30.0
    """Pending members of a gang that has its minimum are placed together if all fit, after this time those that do."""
    evictions_per_hour: int = 0
    """Pods that are evicted for preemptors per hour, about; 0: no limit."""
    trust_declared_priority: bool = False
    """The priority of a group-level object is a right to preempt, as if admission had checked it."""
    groups_per_solve: int = 100
    """Most groups of one solve request: few enough that the first permits of a long queue are written while the rest is
    still being placed.
    """
