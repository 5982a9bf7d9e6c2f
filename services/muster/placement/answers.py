"""What the solver answers for one group."""

from msgspec import Struct

from muster.gangs.placing import Explanation, Run


class Placed(Struct, frozen=True):
    """Where the members of a group go."""

    runs: tuple[Run, ...]


class NotPlaced(Struct, frozen=True):
    """There is no place: `proved` if none can exist in this state."""

    proved: bool
    explanation: Explanation


Answer = Placed | NotPlaced
