"""What only a leader's memory holds and its next decisions depend on, as values: pauses, turns, reservations, budgets.

Records in etcd and the cluster do not tell it, so a new leader begins without it. Whoever plays the machine forward
from a running one (`muster whatif`, forecasts) resumes with it (`Machine`), and decides as the leader would. Each part
is written and read by the owner of the state that it describes. Gangs and groups are named by their ids. Times are Unix
seconds, since the monotonic clock of another process has another origin; None stands for "never" and "not known".

Not in it, since it begins anew without a difference in what is decided: copies of explanations, the choice of
concurrent solves, calls that are under way.
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from muster.coordinator.core.events import Now, Seat


class PausedGroup(Struct, frozen=True):
    """A group that is tried again at a time. `slow`: it waits for its turn among slow groups."""

    group: str
    until: float
    backoffs: int
    slow: bool = False


class TurnState(Struct, frozen=True):
    """Turns of namespaces: those with active groups, the one that was served the longest ago first."""

    namespaces: tuple[str, ...] = ()
    first: str | None = None
    first_waits: bool = False


class QueueTermState(Struct, frozen=True):
    """Groups in backoff, and turns of namespaces."""

    paused: tuple[PausedGroup, ...] = ()
    turns: TurnState = TurnState()
    next_retry: float = 0.0


class UnschedulableGroup(Struct, frozen=True):
    """A group that had no place, and waits for an event. `proved`: placement proved that; `in_class`: it is in an
    equivalence class, of which a representative is tried.
    """

    group: str
    proved: bool = False
    in_class: bool = False


class SolveTermState(Struct, frozen=True):
    """Unschedulable groups, slow groups in the order of their turns, and groups that are sent alone."""

    unschedulable: tuple[UnschedulableGroup, ...] = ()
    slow: tuple[PausedGroup, ...] = ()
    alone: tuple[str, ...] = ()
    slow_not_before: float = 0.0


class PreemptingGroup(Struct, frozen=True):
    """Results of preemption and of reservations for a group, and what it waits for."""

    group: str
    not_before: float = 0.0
    plans_in_vain: int = 0
    gained_at: float | None = None
    gained: tuple[tuple[str, int], ...] = ()
    reservations_in_vain: int = 0
    no_reservation_before: float = 0.0
    due_at: float | None = None
    cautious: bool = False
    yields_to: str = ""


class SpentBudget(Struct, frozen=True):
    """How many plans of preemption of a namespace were in vain, at a time."""

    namespace: str
    plans: float
    at: float


class BudgetTermState(Struct, frozen=True):
    """Plans of preemption in vain, since when they are counted, and how many starts make room for further plans."""

    began: float | None = None
    in_vain: tuple[SpentBudget, ...] = ()
    gained: dict[str, int] = {}


class RefusedGang(Struct, frozen=True):
    """A gang of which pods could not be evicted, so many times in a row: it is no potential victim until then."""

    gang: str
    refusals: int
    until: float


class PreemptionTermState(Struct, frozen=True):
    """Groups with results of preemption, and the limits of the cluster."""

    groups: tuple[PreemptingGroup, ...] = ()
    not_before: float = 0.0
    tokens: float = 0.0
    tokens_at: float | None = None
    has_next_turn: bool = False
    reservation_is_next: bool = False
    """The next request is for a starving group, if there is one."""
    requests: int = 0
    """Requests for preemptors so far."""
    last_requests: dict[str, int] = {}
    """Number of the last of them by namespace."""
    new_victims_from: int | None = None
    """Lowest priority of gangs that became potential victims, and were not considered yet."""
    budgets: BudgetTermState = BudgetTermState()
    refused: tuple[RefusedGang, ...] = ()


class NominatedGroup(Struct, frozen=True):
    """Capacity that is withheld for a group: `capacity` has nodes, pod classes and counts."""

    group: str
    owner: str
    capacity: tuple[tuple[str, str, int], ...]
    leaving: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    evictions_begun: bool = False
    backfill: bool = False
    lends: bool = False
    lent: tuple[str, ...] = ()
    recalled: tuple[str, ...] = ()
    revoked_from: tuple[str, ...] = ()
    starts_at: float | None = None
    held_before: tuple[str, ...] = ()
    overtaken: bool = False
    begun_at: float = 0.0
    expires_at: float | None = None
    ready: bool = False


class StarvingGroup(Struct, frozen=True):
    """A group without a place: `since` when; None: it starves, at the position `rank`, which may be one that it had
    before. `paused_until`: it gets no reservation before.
    """

    group: str
    rank: tuple[int, int, int, str, str] | None = None
    since: float | None = None
    paused_until: float | None = None


class OverrunOwner(Struct, frozen=True):
    """When pods of an owner were last seen to run longer than they declared."""

    namespace: str
    series: str
    at: float


class BackfillTermState(Struct, frozen=True):
    """Groups without a place, those that have none for the longest first, and the pause of all."""

    groups: tuple[StarvingGroup, ...] = ()
    not_before: float = 0.0
    unpaid_seconds: float = 0.0
    overran: tuple[OverrunOwner, ...] = ()
    """Owners whose declared run time is not believed, the earliest overrun first."""


class RepairedGang(Struct, frozen=True):
    """A gang under repair."""

    gang: str
    since: float
    timed_out: bool


class ShortGang(Struct, frozen=True):
    """A gang whose minimum resources were not free; `until`: then it is tried in any case."""

    gang: str
    since: float | None
    until: float | None
    waived: bool


class GangWithBindTrouble(Struct, frozen=True):
    """Failed binds of a gang."""

    gang: str
    avoided_nodes: tuple[str, ...]
    given_up: tuple[tuple[str, int], ...]
    paused_until: float | None = None


class GrowingGang(Struct, frozen=True):
    """Batches of a gang's surplus, by the id of its parts; and whether anything is lent to it."""

    gang: str
    batches: tuple[tuple[str, float | None, bool], ...]
    """Part, until when only the whole batch is placed, and whether it is placed in part."""
    kept_loan: bool = False


class HoldingGang(Struct, frozen=True):
    """Reservations of a NonStrict gang that waits for the rest of its members."""

    gang: str
    since: float | None
    seats: tuple[Seat, ...]


class TermState(Struct, frozen=True):
    """All of it. Its size is bounded by the gangs that wait, and the pods that they wait for (I11)."""

    revision: dict[str, int] = {}
    """Of the cluster that it belongs to, by kind of objects."""
    exact: bool = True
    """It is of one moment, and of this cluster."""
    queue: QueueTermState = QueueTermState()
    solves: SolveTermState = SolveTermState()
    preemption: PreemptionTermState = PreemptionTermState()
    nominations: tuple[NominatedGroup, ...] = ()
    backfill: BackfillTermState = BackfillTermState()
    repairs: tuple[RepairedGang, ...] = ()
    short: tuple[ShortGang, ...] = ()
    bind_trouble: tuple[GangWithBindTrouble, ...] = ()
    growth: tuple[GrowingGang, ...] = ()
    holds: tuple[HoldingGang, ...] = ()

    def outdated(self) -> "TermState":
        """The same for a cluster that is not exactly the one that it belongs to: groups that were unschedulable are
        tried once, since a change in between may help them.
        """
        return replace(self, solves=replace(self.solves, unschedulable=()), exact=False)


def unix_time(monotonic_seconds: float, now: Now) -> float:
    """A time of the machine's clock as Unix time; one that has never been stays 0."""
    return monotonic_seconds + now.unix_seconds - now.monotonic_seconds if monotonic_seconds else 0.0


def monotonic_time(unix_seconds: float, now: Now) -> float:
    """The reverse."""
    return unix_seconds + now.monotonic_seconds - now.unix_seconds if unix_seconds else 0.0


def unix_time_if_finite(monotonic_seconds: float, now: Now) -> float | None:
    """A time of the machine's clock as Unix time; None if it is infinite."""
    return unix_time(monotonic_seconds, now) if math.isfinite(monotonic_seconds) else None


def monotonic_time_or_never(unix_seconds: float | None, now: Now) -> float:
    """The reverse."""
    return monotonic_time(unix_seconds, now) if unix_seconds is not None else math.inf
