"""What the solver answers for one group."""

from msgspec import Struct

from muster.gangs.solve import Assignment, Explanation, VictimGang


class Placed(Struct, frozen=True):
    """Where the members of a group go, once what is `removed` has gone."""

    assignments: tuple[Assignment, ...]
    victims: tuple[VictimGang, ...] = ()


class PartlyPlaced(Struct, frozen=True):
    """Where those members go that have a place, and what is in the way of the rest."""

    assignments: tuple[Assignment, ...]
    explanation: Explanation


class NotPlaced(Struct, frozen=True):
    """There is no place: `proved` if none can exist in this state."""

    proved: bool
    explanation: Explanation


Answer = Placed | PartlyPlaced | NotPlaced
