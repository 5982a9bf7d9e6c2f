"""What is asked of the solver and what it answers, as values."""

from msgspec import Struct

from muster.gangs.facts import Amounts


class Role(Struct, frozen=True):
    """A number of equal members of a gang."""

    class_id: str
    wanted: int


class Gang(Struct, frozen=True):
    """A gang to place: at least `minimum` members in all, of first roles rather than of later ones."""

    id: str
    minimum: int
    roles: tuple[Role, ...]


class Group(Struct, frozen=True):
    """Gangs that are placed together or not at all."""

    id: str
    gangs: tuple[Gang, ...]


class Run(Struct, frozen=True):
    """`count` members of a role (index) of a gang on one node."""

    gang: str
    role: int
    node: str
    count: int


class Explanation(Struct, frozen=True):
    """Why a group has no place; the fields are those of the proto."""

    summary: str
    gang: str
    class_id: str
    fit: int
    needed: int
    nodes_lost: tuple[tuple[str, int], ...]
    short_by: Amounts


class Placed(Struct, frozen=True):
    """Where the members of a group go."""

    runs: tuple[Run, ...]


class NotPlaced(Struct, frozen=True):
    """There is no place: `proved` if none can exist in this state."""

    proved: bool
    explanation: Explanation


Answer = Placed | NotPlaced
