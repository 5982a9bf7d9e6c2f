"""Inputs of the state machine, with the values that events and effects share."""

from enum import IntEnum

from msgspec import Struct

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


class EvictOutcome(IntEnum):
    """Outcomes of an eviction; values as in the proto."""

    EVICTED = 1
    GONE = 2
    FAILED = 3


class RecordState(IntEnum):
    """States of a record; values as in the proto."""

    BINDING = 1
    SATISFIED = 2
    UNPERMITTED = 3


class Seat(Struct, frozen=True):
    """A pod with a decided node."""

    uid: str
    namespace: str
    name: str
    class_id: str
    node: str


class PodName(Struct, frozen=True):
    """Names a pod."""

    uid: str
    namespace: str
    name: str


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
    | Tick
)
