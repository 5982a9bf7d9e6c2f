"""What the solver answers for one group."""

from msgspec import Struct

from muster.gangs.solve import Explanation, Run, VictimGang


class Placed(Struct, frozen=True):
    """Where the members of a group go, once what is `removed` has gone."""

    runs: tuple[Run, ...]
    victims: tuple[VictimGang, ...] = ()


class PartlyPlaced(Struct, frozen=True):
    """Where those members go that have a place, and what is in the way of the rest."""

    runs: tuple[Run, ...]
    explanation: Explanation


class NotPlaced(Struct, frozen=True):
    """There is no place: `proved` if none can exist in this state."""

    proved: bool
    explanation: Explanation


Answer = Placed | PartlyPlaced | NotPlaced
