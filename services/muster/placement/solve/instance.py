"""The data of a solve: parts of a group, solutions, answers, and the instance of a group on a topology tree."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import Struct

from muster.gangs.capacity import Int64
from muster.gangs.solve import Assignment, Explanation, SolveGang, SolveGroup, SolveOutcome, SolveResult, VictimGang
from muster.placement.solve.level_rules import Rule, inside_only
from muster.placement.solve.packing import Choice, Seats, choose
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.time_limit import LimitExceeded
from muster.placement.state.trees import Tree


@dataclass(frozen=True)
class Part:
    """Members of one class of one gang, in the order of the gang's roles."""

    gang: int
    class_id: str
    wanted: int
    roles: tuple[tuple[int, int], ...]
    """(index of the role, members it wants)."""


@dataclass
class Solution:
    """Reservations for the parts of a group, complete or not: `placed[p]` members of part p, at `seats`."""

    placed: list[int]
    seats: list[tuple[int, Seats]] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.placed)

    def of_gang(self, parts: Sequence[Part], gang: int) -> int:
        """Placed members of a gang."""
        return sum(count for part, count in zip(parts, self.placed, strict=True) if part.gang == gang)


def parts_of(group: SolveGroup) -> list[Part]:
    """Parts of the group in the order of its gangs and roles."""
    parts = []
    for gang_index, gang in enumerate(group.gangs):
        by_class: dict[str, list[tuple[int, int]]] = {}
        for role_index, role in enumerate(gang.roles):
            by_class.setdefault(role.class_id, []).append((role_index, role.wanted))
        for class_id, roles in by_class.items():
            parts.append(Part(gang_index, class_id, sum(wanted for _, wanted in roles), tuple(roles)))
    return parts


def is_homogeneous(parts: Sequence[Part]) -> bool:
    """All members are of one class."""
    return all(part.class_id == parts[0].class_id for part in parts)


def is_constrained(group: SolveGroup) -> bool:
    """Some gang has topology constraints."""
    return any(gang.constraints for gang in group.gangs)


def minimums_reached(group: SolveGroup, parts: Sequence[Part], solution: Solution) -> bool:
    """Every gang of the group has its minimum."""
    return all(solution.of_gang(parts, index) >= gang.minimum for index, gang in enumerate(group.gangs))


def reserve_part(
    state: CapacityState, part_index: int, part: Part, wanted: int, choice: Choice, solution: Solution
) -> int:
    """Reserve capacity for up to `wanted` more members of a part; returns how many were placed."""
    of_class = state.of(part.class_id)
    rows, counts = choose(state, of_class, wanted, choice)
    if not len(rows):
        return 0
    state.reserve(of_class, rows, counts)
    solution.seats.append((part_index, (rows, counts)))
    placed = int(counts.sum())
    solution.placed[part_index] += placed
    return placed


def reserve_again(state: CapacityState, parts: Sequence[Part], solution: Solution) -> None:
    """Repeat the reservations of a solution after a rollback."""
    for index, (rows, counts) in solution.seats:
        state.reserve(state.of(parts[index].class_id), rows, counts)


def assignments_of(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], solution: Solution
) -> tuple[Assignment, ...]:
    """The solution as assignments, by gang, role and node name. Earlier roles get their members first."""
    seats: list[list[Seats]] = [[] for _ in parts]
    for index, taken in solution.seats:
        seats[index].append(taken)
    assignments: list[Assignment] = []
    for part, taken_by_part in zip(parts, seats, strict=True):
        if taken_by_part:
            assignments.extend(_assignments_of_part(state, group.gangs[part.gang].id, part, taken_by_part))
    return tuple(assignments)


def _assignments_of_part(state: CapacityState, gang: str, part: Part, seats: list[Seats]) -> list[Assignment]:
    rows = np.concatenate([rows for rows, _ in seats]) if len(seats) > 1 else seats[0][0]
    counts = np.concatenate([counts for _, counts in seats]) if len(seats) > 1 else seats[0][1]
    by_rank: dict[int, int] = {}
    for rank, count in zip(state.nodes.rank[rows].tolist(), counts.tolist(), strict=True):
        by_rank[rank] = by_rank.get(rank, 0) + count
    order = state.nodes.order
    assignments = []
    roles = iter(part.roles)
    role, open_seats = next(roles)
    for rank in sorted(by_rank):
        count, node = by_rank[rank], state.nodes.name(int(order[rank]))
        while count:
            if not open_seats:
                role, open_seats = next(roles)
            here = min(count, open_seats)
            assignments.append(Assignment(gang, role, node, here))
            count -= here
            open_seats -= here
    return assignments


class Placed(Struct, frozen=True):
    """Assignments of the group, valid once `victims` are evicted."""

    assignments: tuple[Assignment, ...]
    victims: tuple[VictimGang, ...] = ()


class PartiallyPlaced(Struct, frozen=True):
    """Assignments of the members that fit, and an explanation for the others."""

    assignments: tuple[Assignment, ...]
    explanation: Explanation


class NotPlaced(Struct, frozen=True):
    """No placement was found; `proved`: none exists in this state; `out_of_time`: the search was cut off, because it
    takes too much time or memory.
    """

    proved: bool
    explanation: Explanation
    out_of_time: bool = False


Answer = Placed | PartiallyPlaced | NotPlaced


def cut_off(group: SolveGroup, limit: LimitExceeded) -> NotPlaced:
    """The answer for a group that exceeds a limit."""
    first = group.gangs[0]
    explanation = Explanation(str(limit), first.id, first.roles[0].class_id, 0, first.minimum)
    return NotPlaced(False, explanation, out_of_time=True)


def result_of(group: SolveGroup, answer: Answer) -> SolveResult:
    """The answer as the contract gives it."""
    match answer:
        case Placed(assignments, victims):
            return SolveResult(group.id, SolveOutcome.PLACED, assignments, victims=victims)
        case PartiallyPlaced(assignments, explanation):
            return SolveResult(group.id, SolveOutcome.PARTIAL, assignments, explanation)
        case _:
            outcome = SolveOutcome.INFEASIBLE if answer.proved else SolveOutcome.NOT_FOUND
            return SolveResult(group.id, outcome, explanation=answer.explanation, out_of_time=answer.out_of_time)


@dataclass(frozen=True)
class ConstrainedGang:
    """A gang with its level rules, top level first."""

    gang: SolveGang
    rules: tuple[Rule, ...]

    @property
    def is_constrained(self) -> bool:
        """Some rule was declared; gangs without any may use every node, also outside of the tree."""
        return any(rule.counts for rule in self.rules)

    @property
    def inside_only(self) -> bool:
        """Nodes outside of the tree are not allowed."""
        return inside_only(self.rules)


@dataclass(frozen=True)
class TreeInstance:
    """Instance of one group on one tree.

    `fits` is int64[parts, nodes]: members that fit on each of the tree's nodes, at most as many as are wanted. `placed`
    is int64[gangs, nodes]: members placed earlier. `size` is int64[nodes]: members that fit without that limit, to
    compare domains by size. `complete`: no usable node was excluded.
    """

    state: CapacityState
    tree: Tree
    gangs: Sequence[ConstrainedGang]
    parts: Sequence[Part]
    fits: Int64
    placed: Int64
    size: Int64
    complete: bool = True

    def max_members(self, gang: int) -> int:
        """Largest number of members of a gang, including those placed earlier."""
        wanted = sum(part.wanted for part in self.parts if part.gang == gang)
        return wanted + sum(pods.count for pods in self.gangs[gang].gang.placed)

    @property
    def usable_nodes(self) -> int:
        """Number of nodes on which any member fits."""
        return int(self.fits.any(axis=0).sum())

    def restricted_to(self, nodes: Bool) -> "TreeInstance":
        """The instance without free capacity on other nodes."""
        return replace(self, fits=np.where(nodes, self.fits, 0), complete=False)


def tree_instance(
    state: CapacityState,
    tree: Tree,
    gangs: Sequence[ConstrainedGang],
    parts: Sequence[Part],
    allowed: Sequence[Bool] = (),
) -> TreeInstance:
    """The instance of a group on all nodes of a tree that it may use; `allowed`: those that each gang may use at most,
    bool[rows] by gang.
    """
    all_fits: Int64 = np.array([state.of(part.class_id).fits[tree.rows] for part in parts])
    fits: Int64 = np.minimum(all_fits, np.array([part.wanted for part in parts])[:, None])
    for index, part in enumerate(parts):
        if gangs[part.gang].inside_only:
            fits[index, tree.inside :] = 0
        if allowed:
            fits[index, ~allowed[part.gang][tree.rows]] = 0
    placed = np.zeros((len(gangs), len(tree.rows)), np.int64)
    for gang, one in enumerate(gangs):
        for pods in one.gang.placed:
            position = tree.position_of(pods.node)
            if position is not None:
                placed[gang, position] += pods.count
    return TreeInstance(state, tree, gangs, parts, fits, placed, all_fits.sum(axis=0))
