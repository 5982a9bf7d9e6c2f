"""What the coordinator asks of placement and what it is told, as values: those of muster.placement.v1."""

from msgspec import Struct

from muster.gangs.facts import Amounts, LevelConstraint


class Role(Struct, frozen=True):
    """A number of equal members of a gang."""

    class_id: str
    wanted: int


class PodsOnNode(Struct, frozen=True):
    """A number of pods of one class on one node."""

    node: str
    class_id: str
    count: int


class SolveGang(Struct, frozen=True):
    """A gang to place: at least `minimum` members in all, of first roles rather than of later ones.

    `tree`: the topology tree it goes by, "" for the default one. `placed`: members that have a place already and count
    for the constraints. `avoided`: nodes to be used only if it has no place without them.
    """

    id: str
    minimum: int
    roles: tuple[Role, ...]
    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()
    placed: tuple[PodsOnNode, ...] = ()
    avoided: tuple[str, ...] = ()


class SolveGroup(Struct, frozen=True):
    """Gangs that are placed together or not at all; if `partial`, as much of them as has room, failing that."""

    id: str
    gangs: tuple[SolveGang, ...]
    partial: bool = False


class Reservation(Struct, frozen=True):
    """Pods of one class with a claim on one node."""

    node: str
    class_id: str
    pod_uids: tuple[str, ...]


class NominatedCapacity(Struct, frozen=True):
    """Room on a node that is kept free for somebody else."""

    node: str
    amounts: Amounts


class PotentialVictim(Struct, frozen=True):
    """A gang whose pods may be removed: up to `spare` one by one, beyond that all or none. The first pods
    go first; nothing of a level is removed if lower levels suffice.
    """

    id: str
    level: int
    spare: int
    pods: tuple[PodsOnNode, ...]


class VictimGang(Struct, frozen=True):
    """Pods of a gang that have to go before a group can start."""

    id: str
    whole: bool
    pods: tuple[PodsOnNode, ...]


class Assignment(Struct, frozen=True):
    """`count` members of a role (index) of a gang on one node."""

    gang: str
    role: int
    node: str
    count: int


class Explanation(Struct, frozen=True):
    """Why a group has no place; the fields are those of the proto."""

    summary: str = ""
    gang: str = ""
    class_id: str = ""
    fit: int = 0
    needed: int = 0
    filtered_nodes: tuple[tuple[str, int], ...] = ()
    short_by: Amounts = ()
    best_domain: str = ""
    best_domain_fit: int = 0
    remedy: str = ""
