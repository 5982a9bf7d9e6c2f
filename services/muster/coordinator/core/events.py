"""What can happen to the coordinator, and what it wants done: the two languages of the core."""

from enum import IntEnum, StrEnum

from msgspec import Struct

from muster.gangs.facts import Batch, ObjectReference
from muster.gangs.placing import Explanation, GroupToPlace, Reservation, Run


class Now(Struct, frozen=True):
    """The time of a step."""

    monotonic_seconds: float
    unix_seconds: float


# ---------------------------------------------------------------------------- values that events and effects share


class SolveOutcome(IntEnum):
    """Outcomes of a solve; values as in the proto."""

    PLACED = 1
    INFEASIBLE = 2
    NOT_FOUND = 3


class BindOutcome(IntEnum):
    """Outcomes of a bind; values as in the proto."""

    BOUND = 1
    CONFLICT = 2
    GONE = 3
    FAILED = 4


class RecordState(IntEnum):
    """States of a record; values as in the proto."""

    BINDING = 1
    SATISFIED = 2


class Seat(Struct, frozen=True):
    """A pod with a decided node."""

    uid: str
    namespace: str
    name: str
    class_id: str
    node: str


class Record(Struct, frozen=True):
    """What is durable about one gang; seats are those not known to be bound."""

    gang: str
    incarnation: str
    state: RecordState
    seats: tuple[Seat, ...] = ()
    schedule_cycle: int = 1
    group: tuple[str, ...] = ()
    permitted_unix_millis: int = 0


class SolveResult(Struct, frozen=True):
    """Placement's answer for one group."""

    id: str
    outcome: SolveOutcome
    runs: tuple[Run, ...] = ()
    explanation: Explanation | None = None


class BindResult(Struct, frozen=True):
    """What came of one bind."""

    uid: str
    outcome: BindOutcome
    node: str = ""
    message: str = ""


# ------------------------------------------------------------------------------------------------------------- events


class Recovered(Struct, frozen=True):
    """The records in etcd at the beginning of the term. Comes once, before the first snapshot."""

    records: tuple[Record, ...]


class Snapshot(Struct, frozen=True):
    """All there is in the cluster; what is not in it is gone."""

    batch: Batch


class Changes(Struct, frozen=True):
    """What changed since."""

    batch: Batch


class ViewLost(Struct, frozen=True):
    """The cluster is not seen until the next snapshot."""

    reason: str


class Solved(Struct, frozen=True):
    """Placement answered."""

    solve_id: int
    results: tuple[SolveResult, ...]


class SolveFailed(Struct, frozen=True):
    """Placement did not answer."""

    solve_id: int
    message: str


class Persisted(Struct, frozen=True):
    """A Persist effect is durable."""

    persist_id: int


class NotPersisted(Struct, frozen=True):
    """A Persist effect can never be made durable as it is; nothing of it was written."""

    persist_id: int
    message: str


class BindResults(Struct, frozen=True):
    """Binding reports."""

    results: tuple[BindResult, ...]


class BindCallFailed(Struct, frozen=True):
    """Binding could not be reached, or broke off, before these pods had a result."""

    uids: tuple[str, ...]
    message: str


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = (
    Recovered
    | Snapshot
    | Changes
    | ViewLost
    | Solved
    | SolveFailed
    | Persisted
    | NotPersisted
    | BindResults
    | BindCallFailed
    | Tick
)

# ------------------------------------------------------------------------------------------------------------ effects


class Solve(Struct, frozen=True):
    """Ask placement. Answered by Solved or SolveFailed."""

    solve_id: int
    min_revision: dict[str, int]
    reservations: tuple[Reservation, ...]
    groups: tuple[GroupToPlace, ...]


class Persist(Struct, frozen=True):
    """Make durable, all or nothing, in the order of the ids. Answered by Persisted or NotPersisted; other failures end
    the term.
    """

    persist_id: int
    puts: tuple[Record, ...] = ()
    deletes: tuple[str, ...] = ()


class Bind(Struct, frozen=True):
    """Bind these pods of one gang. Answered by BindResults and BindCallFailed, each pod in exactly one."""

    gang: str
    seats: tuple[Seat, ...]


class PodCondition(Struct, frozen=True):
    """PodScheduled=False, reason Unschedulable, with this message."""

    uid: str
    namespace: str
    name: str
    message: str


class EventType(StrEnum):
    """Types of Kubernetes events."""

    NORMAL = "Normal"
    WARNING = "Warning"


class KubeEvent(Struct, frozen=True):
    """A Kubernetes event."""

    regarding: ObjectReference
    type: EventType
    reason: str
    note: str


class Report(Struct, frozen=True):
    """Tell users. Not answered."""

    gang: str
    conditions: tuple[PodCondition, ...] = ()
    events: tuple[KubeEvent, ...] = ()


class Phase(IntEnum):
    """Phases of a gang; values as in the proto."""

    GATHERING = 1
    QUEUED = 2
    SOLVING = 3
    WAITING = 4
    PERMITTED = 5
    BINDING = 6
    SATISFIED = 7
    REPAIRING = 8
    TIMED_OUT = 9


class PhaseChanged(Struct, frozen=True):
    """A gang went from one phase to another; `before` is None when it appeared, `after` None when it went."""

    gang: str
    before: Phase | None
    after: Phase | None


class GangChanged(Struct, frozen=True):
    """Something about a gang changed that is shown to users."""

    gang: str


Effect = Solve | Persist | Bind | Report | PhaseChanged | GangChanged
