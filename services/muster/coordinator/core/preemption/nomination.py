"""Room that is kept for a gang group: while others are evicted for it, or until enough of what runs there has ended."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Seat
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.gangs.capacity import Int64
from muster.gangs.solve import NominatedCapacity, PodsOnNode


@dataclass(slots=True, eq=False)
class Nomination:
    """Where a group is to start, and which pods have to go from there first."""

    group: Group
    owner: str
    """Id of the gang of the group with which it is recorded."""
    room: Counter[tuple[str, str]]
    """Members by node and class."""
    going: set[str] = field(default_factory=set)
    """Uids of pods that are to go: evicted, or expected to end."""
    victims: list[Gang] = field(default_factory=list)
    """Gangs of which pods are evicted for it."""
    evictions_begun: bool = False
    """The evictions have begun."""
    drains: bool = False
    """Nobody is evicted: work ends by itself, and others may use the room for what ends in time."""
    starts_at: float = math.inf
    """When the last of `going` is expected to have ended, on the monotonic clock; infinite: not known."""
    held_before: frozenset[str] = frozenset()
    """Uids of members that had a seat when the room was decided on: that is not for them."""
    used: bool = False
    """The group got seats; what is not theirs of the room is not needed any more."""
    overtaken: bool = False
    """Somebody who stands before the group in the queue took some of it."""
    divided_by: tuple[object, ...] = ()
    """Tree and constraints by which it was chosen."""
    ready: bool = False
    """All that were to be evicted are gone, and the group was sent to be placed."""

    def open_to(self, group: Group, now: float) -> bool:
        """The group may use the room: it is its own; or it drains, and the group goes first, or ends in time."""
        if group is self.group or not self.group.gangs:
            return True
        return self.drains and (group.key < self.group.key or self.outlasts(group, now))

    def outlasts(self, group: Group, now: float) -> bool:
        """The group, started now, ends before the room is needed. One that accumulates may not start now."""
        return not group.accumulates and now + longest_run(group) <= self.starts_at < math.inf

    def vectors(self, ledger: Ledger) -> dict[str, Int64]:
        """What others may not have, int64[resources] by node: the room less what those hold who are to go, and what the
        group holds there already.
        """
        vectors = self._needed(ledger)
        for node, amounts in _held(self._going_or_come(), ledger):
            if node in vectors:
                vectors[node] = vectors[node] - amounts
        return {node: np.maximum(vector, 0) for node, vector in vectors.items()}

    def stands(self, ledger: Ledger) -> bool:
        """Its nodes are there, take such pods, and will have room for them when those that are to go have gone."""
        for node, class_id in self.room:
            if node not in ledger.nodes or ledger.why_unfit(node, class_id) is not None:
                return False
        going = {node: -amounts for node, amounts in _held(self._going_or_come(), ledger)}
        return ledger.refusal(self.room, going) is None

    @property
    def come(self) -> list[Seat]:
        """Seats that the group holds in the room already."""
        seats = (held.seat for gang in self.group.gangs if not gang.permit.granted for held in gang.seats.values())
        return [seat for seat in seats if seat.uid not in self.held_before and (seat.node, seat.class_id) in self.room]

    def _going_or_come(self) -> list[str]:
        return [*self.going, *(seat.uid for seat in self.come)]

    def _needed(self, ledger: Ledger) -> dict[str, Int64]:
        capacity = ledger.capacity
        needed: dict[str, Int64] = {}
        for (node, class_id), count in self.room.items():
            asked = capacity.vectors[capacity.classes[class_id]] * count
            needed[node] = needed[node] + asked if node in needed else asked
        return needed

    def all_gone(self, ledger: Ledger) -> bool:
        """Nothing that was to go holds room any more."""
        return not self.still_there(ledger)

    def still_there(self, ledger: Ledger) -> list[str]:
        """Uids of pods that are to go and hold room yet."""
        return [uid for uid in self.going if ledger.capacity.seated_on(uid) is not None]

    @property
    def members(self) -> Counter[str]:
        """Members that the room is for, by class."""
        members: Counter[str] = Counter()
        for (_, class_id), count in self.room.items():
            members[class_id] += count
        return members

    @property
    def recorded(self) -> tuple[PodsOnNode, ...]:
        """The room as it is remembered."""
        return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(self.room.items()))


def demand(group: Group) -> Counter[str]:
    """Members that the group has to place, by class."""
    return Counter(pod.class_id for gang in group.gangs_to_place for pod in gang.pending.values())


def longest_run(group: Group) -> float:
    """How long the group's members run at most, in seconds; infinite where that is not known."""
    runs = [pod.expected_seconds for gang in group.gangs for pod in gang.pending.values()]
    return max((seconds if seconds > 0 else math.inf for seconds in runs), default=math.inf)


def nominated_for_others(group: Group, kept: Iterable[Nomination], ledger: Ledger, now: float) -> dict[str, Int64]:
    """Room that this group may not have, int64[resources] by node."""
    total: dict[str, Int64] = {}
    for each in kept:
        if not each.open_to(group, now):
            for node, vector in each.vectors(ledger).items():
                total[node] = total[node] + vector if node in total else vector
    return total


def without(vectors: dict[str, Int64], going: Iterable[str], ledger: Ledger) -> dict[str, Int64]:
    """The same, as if these pods had gone: below zero where that leaves more room than there is now."""
    left = dict(vectors)
    for node, amounts in _held(going, ledger):
        left[node] = left[node] - amounts if node in left else -amounts
    return left


def _held(uids: Iterable[str], ledger: Ledger) -> Iterator[tuple[str, Int64]]:
    rows, amounts = ledger.capacity.used_by(uids)
    return zip([ledger.capacity.names[row] for row in rows.tolist()], amounts, strict=True)


def as_amounts(vectors: dict[str, Int64], ledger: Ledger) -> tuple[NominatedCapacity, ...]:
    """The same in the words of placement."""
    names = {column: name for name, column in ledger.capacity.resources.items()}
    told = []
    for node, vector in vectors.items():
        amounts = tuple(sorted((names[int(column)], int(vector[column])) for column in np.flatnonzero(vector)))
        if amounts:
            told.append(NominatedCapacity(node, amounts))
    return tuple(told)
