"""A gang group: gangs that are placed together, with their phase while they have no permit."""

from dataclasses import dataclass, field

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import PreemptionState, QueueState, SolveState

QueueKey = tuple[int, int, int, str, str]


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are placed together: the gangs of one gang group that have no permit yet, or one gang alone."""

    id: str
    gangs: list[Gang] = field(default_factory=list)
    not_ready: str | None = None
    """Why the group fails the pre-enqueue check; None: it passes."""
    persist_id: int | None = None
    """The write of its permit, while that is not durable."""
    edited: bool = False
    """The group changed while a solve or a write was under way, whose outcome may be out of date."""
    solve: SolveState = field(default_factory=SolveState)
    queueing: QueueState = field(default_factory=QueueState)
    preemption: PreemptionState = field(default_factory=PreemptionState)

    @property
    def key(self) -> QueueKey:
        """Position in the queue: started gangs under repair first (I6), then priority, age, name."""
        first = min(self.gangs, key=_age)
        repairing = any(gang.lost for gang in self.gangs)
        return (0 if repairing else 1, -self.priority, *_age(first))

    @property
    def priority(self) -> int:
        """The highest priority of its gangs."""
        return max(gang.priority for gang in self.gangs)

    @property
    def busy(self) -> bool:
        """A solve or the write of its permit is under way; the group keeps its gangs meanwhile."""
        return self.solve.solve_id is not None or self.persist_id is not None

    @property
    def accumulates(self) -> bool:
        """Its gangs hold reservations until all have their minimum (NonStrict). The strictest gang decides."""
        return all(
            not gang.permit.granted and gang.facts is not None and not gang.facts.starts_whole for gang in self.gangs
        )

    @property
    def holds(self) -> bool:
        """Gangs of it have reservations without a permit."""
        return any(gang.seats and not gang.permit.granted for gang in self.gangs)

    @property
    def holds_minimum(self) -> bool:
        """The group accumulates, and every gang has its minimum."""
        return self.accumulates and all(gang.missing <= 0 for gang in self.gangs)

    @property
    def gangs_to_place(self) -> list[Gang]:
        """Gangs with pending members. Members of accumulating gangs beyond the minimum are placed after the start."""
        accumulates = self.accumulates
        return [gang for gang in self.gangs if gang.pending and not (accumulates and gang.missing <= 0)]

    @property
    def wants_seats(self) -> bool:
        """There are members to place, and no solve or write is under way."""
        return not self.busy and self.not_ready is None and bool(self.gangs_to_place)

    @property
    def phase(self) -> Phase:
        """Phase of its gangs while they have no permit."""
        if self.persist_id is not None:
            return Phase.PERMITTED
        if self.holds:
            return Phase.WAITING
        if self.solve.solve_id is not None:
            return Phase.SOLVING
        queued = self.not_ready is None or self.preemption.yields_to is not None
        return Phase.QUEUED if queued else Phase.GATHERING


def _age(gang: Gang) -> tuple[int, str, str]:
    facts = gang.facts
    return (facts.created_seconds, facts.namespace, facts.name) if facts is not None else (0, "", gang.id)
