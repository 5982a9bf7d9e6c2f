"""Solve requests and responses as values: the fields are those of muster.placement.v1.

A `class_id` here is that of a kind of pods (`facts.kind_id`): a pod class and, if selectors may select the pods, one of
their label sets.
"""

from enum import IntEnum

from msgspec import Struct

from muster.gangs.facts import Amounts, LevelConstraint

# -- requests


class Role(Struct, frozen=True, gc=False):
    """A number of members of a gang with the same class, and labels that the same selectors select."""

    class_id: str
    wanted: int


class PodsOnNode(Struct, frozen=True, gc=False):
    """A number of pods of one class on one node."""

    node: str
    class_id: str
    count: int


class SolveGang(Struct, frozen=True, gc=False):
    """A gang to place, or a subgroup of one: at least `minimum` members in all, members of first roles preferred.

    `tree`: name of the topology tree, "" for the default one. `placed`: members that have a node already and count for
    the constraints. `avoided`: nodes to use only if the gang does not fit without them. `composite`: index of its
    composite among those of the group, -1 if it has none.
    """

    id: str
    minimum: int
    roles: tuple[Role, ...]
    tree: str = ""
    constraints: tuple[LevelConstraint, ...] = ()
    placed: tuple[PodsOnNode, ...] = ()
    avoided: tuple[str, ...] = ()
    composite: int = -1


class Composite(Struct, frozen=True, gc=False):
    """A set of gangs and further composites, of which at least `minimum` are placed.

    `parent`: index of its composite, smaller than its own, -1 if it has none. `minimum_members`: least number of
    members of all gangs below. `level` of `tree`: all members below share one domain of it; empty: they need not.
    `placed`: nodes of members below that were placed earlier.
    """

    minimum: int
    parent: int = -1
    minimum_members: int = 0
    level: str = ""
    tree: str = ""
    placed: tuple[str, ...] = ()


class SolveGroup(Struct, frozen=True, gc=False):
    """Gangs that are placed together or not at all; with `partial`, as many of their members as fit otherwise.

    Of gangs in `composites`, which list parents first, those are placed that their composites need, and more if they
    fit.
    """

    id: str
    gangs: tuple[SolveGang, ...]
    partial: bool = False
    composites: tuple[Composite, ...] = ()


def children_of(group: SolveGroup) -> list[int]:
    """Number of gangs and composites directly below each composite."""
    counts = [0] * len(group.composites)
    for parent in (*(gang.composite for gang in group.gangs), *(each.parent for each in group.composites)):
        if parent >= 0:
            counts[parent] += 1
    return counts


def required_gangs(group: SolveGroup) -> list[bool]:
    """For each gang, whether the group cannot be placed without it."""
    if not group.composites:
        return [True] * len(group.gangs)
    needs_all: list[bool] = []
    for each, children in zip(group.composites, children_of(group), strict=True):
        needs_all.append(each.minimum == children and (each.parent < 0 or needs_all[each.parent]))
    return [gang.composite < 0 or needs_all[gang.composite] for gang in group.gangs]


class Reservation(Struct, frozen=True, gc=False):
    """Pods of one class that hold capacity on one node."""

    node: str
    class_id: str
    pod_uids: tuple[str, ...]


class NominatedCapacity(Struct, frozen=True, gc=False):
    """Capacity of a node that is withheld from the groups of a request."""

    node: str
    amounts: Amounts


class PotentialVictim(Struct, frozen=True, gc=False):
    """A gang whose pods may be removed: up to `spare` one by one, of the others all or none.

    Pods are removed in their order; one by one only those of the first `spare_entries` entries, of all if it is 0.
    `level` is the preemption level: no pod of a level is removed if lower levels suffice.
    """

    id: str
    level: int
    spare: int
    pods: tuple[PodsOnNode, ...]
    spare_entries: int = 0


class SolveRequest(Struct, frozen=True, gc=False):
    """Groups to place, in the order in which they may choose, and the capacity that is taken.

    `min_revision`: highest resourceVersion by kind that the response must be based on. `potential_victims`: for a
    request with one group only.
    """

    min_revision: dict[str, int]
    reservations: tuple[Reservation, ...]
    groups: tuple[SolveGroup, ...]
    nominated: tuple[NominatedCapacity, ...] = ()
    potential_victims: tuple[PotentialVictim, ...] = ()


# -- responses


class SolveOutcome(IntEnum):
    """Outcomes for a group; numbers as in the contract."""

    PLACED = 1
    INFEASIBLE = 2
    NOT_FOUND = 3
    PARTIAL = 4


class VictimGang(Struct, frozen=True, gc=False):
    """Pods of a gang that must be removed before a group can start; `whole`: all pods of the gang."""

    id: str
    whole: bool
    pods: tuple[PodsOnNode, ...]


class Assignment(Struct, frozen=True, gc=False):
    """`count` members of a role (index) of a gang on one node."""

    gang: str
    role: int
    node: str
    count: int


class Explanation(Struct, frozen=True, gc=False):
    """Why a group does not fit."""

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
    only_constraints: bool = False
    """Enough members fit if no constraint is hard."""


class SolveResult(Struct, frozen=True, gc=False):
    """The result for one group."""

    id: str
    outcome: SolveOutcome
    assignments: tuple[Assignment, ...] = ()
    explanation: Explanation | None = None
    victims: tuple[VictimGang, ...] = ()
    out_of_time: bool = False
    """The time that placement gives to one group passed before a placement was found."""
    invalid: str = ""
    """The field of the answer that is invalid, and why: the result is rejected."""
