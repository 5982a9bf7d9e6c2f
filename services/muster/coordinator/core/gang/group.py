"""Gangs that are tried together, with their phase while they have no permit."""

from dataclasses import dataclass, field

from muster.coordinator.core.effects import Phase
from muster.coordinator.core.gang.gang import Gang
from muster.gangs.solve import Explanation

QueueKey = tuple[int, int, int, str, str]

EquivalenceKey = tuple[object, ...]
"""What a group asks of placement, without its names: groups of one shape fit where the others do."""


@dataclass(slots=True, eq=False)
class Group:
    """Gangs that are tried together: those of one gang group that have no permit yet, or one gang alone."""

    id: str
    gangs: list[Gang] = field(default_factory=list)
    gathering: str | None = None
    """Why it cannot be tried yet; None: it can."""
    solving: int | None = None
    persisting: int | None = None
    edited: bool = False
    """It changed while something was under way, so that what comes of that may be out of date."""
    alone: bool = False
    """Placement refused a question in which it was: until it has an answer it is asked for alone."""
    refusals: int = 0
    """Answers in a row that could not be used."""
    explanation: Explanation | None = None
    said: Explanation | None = None
    """The explanation in placement's words."""
    yields_to: "Group | None" = None
    """It gave its reservations up for this group, and is not tried before that has started or timed out."""
    infeasible: EquivalenceKey | None = None
    """What it asked for when it was proved to have no place; None: it was not, or asks something else by now."""
    next_plan: float = 0.0
    """Nobody is evicted for it before: the last plan for that could not be written."""
    no_way: str = ""
    """Why nobody could make room for it; empty: not known."""
    trouble: str = ""
    """What went wrong at the last try besides lack of room; empty: nothing."""

    @property
    def key(self) -> QueueKey:
        """Place in the queue: what is half started first (I6), then priority, age, name."""
        first = min(self.gangs, key=_age)
        repairing = any(gang.lost for gang in self.gangs)
        return (0 if repairing else 1, -self.priority, *_age(first))

    @property
    def priority(self) -> int:
        """The highest of its gangs'."""
        return max(gang.priority for gang in self.gangs)

    @property
    def busy(self) -> bool:
        """Something about it is under way; it is not regrouped meanwhile."""
        return self.solving is not None or self.persisting is not None

    @property
    def accumulates(self) -> bool:
        """Its gangs hold what they get until all have their minimum. A group is as strict as its strictest gang."""
        return all(not gang.permitted and gang.facts is not None and not gang.facts.starts_whole for gang in self.gangs)

    @property
    def holds(self) -> bool:
        """Gangs of it have reservations without a permit."""
        return any(gang.seats and not gang.permitted for gang in self.gangs)

    @property
    def complete(self) -> bool:
        """It accumulates, and every gang has its minimum."""
        return self.accumulates and all(gang.lacking <= 0 for gang in self.gangs)

    @property
    def to_seat(self) -> list[Gang]:
        """Gangs with members to place. Of those that accumulate, what goes beyond the minimum comes after the start."""
        accumulates = self.accumulates
        return [gang for gang in self.gangs if gang.waiting and not (accumulates and gang.lacking <= 0)]

    @property
    def wants_seats(self) -> bool:
        """There are members to place, and nothing under way for them."""
        return not self.busy and self.gathering is None and bool(self.to_seat)

    @property
    def phase(self) -> Phase:
        """Phase of its gangs while they have no permit."""
        if self.persisting is not None:
            return Phase.PERMITTED
        if self.holds:
            return Phase.WAITING
        if self.solving is not None:
            return Phase.SOLVING
        return Phase.QUEUED if self.gathering is None or self.yields_to is not None else Phase.GATHERING


def _age(gang: Gang) -> tuple[int, str, str]:
    facts = gang.facts
    return (facts.created_seconds, facts.namespace, facts.name) if facts is not None else (0, "", gang.id)
