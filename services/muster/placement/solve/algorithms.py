"""Dispatch table: which algorithm places a group, by the properties of the group.

docs/placement.md shows the same table. The first row applies whose predicate holds and whose algorithm gives an answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from muster.gangs.solve import SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.solver import (
    find_interacting,
    members_interact,
    place_by_preferences,
    place_interacting,
    place_interacting_partly,
    preferences_interact,
)
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.composites import find_composites, place_composites
from muster.placement.solve.constrained import has_solution, partial_solution, place_constrained
from muster.placement.solve.heterogeneous import place_heterogeneous, place_unconstrained_partly, seat_minimums
from muster.placement.solve.homogeneous import NoSeats, place_homogeneous, place_homogeneous_constrained, seats_for
from muster.placement.solve.instance import (
    NotPlaced,
    Part,
    Placed,
    Solution,
    is_constrained,
    is_homogeneous,
    reserve_again,
)
from muster.placement.state.capacity import CapacityState

STEPS_PER_GROUP: Final = 10_000
"""Budget of exact searches for one group, about 5 microseconds a step. Gangs of 10 on 4 nodes that heuristics do not
place take some hundred steps, gangs of 16 on 6 nodes up to 3,000.
"""


class GroupProperties(NamedTuple):
    """Properties of a group that decide which algorithm places it."""

    composites: bool
    one_gang: bool
    homogeneous: bool
    constrained: bool
    members_interact: bool
    preferences_interact: bool


def properties_of(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> GroupProperties:
    """The properties of a group, evaluated once for all rows of the table."""
    has_rules = any(state.of(part.class_id).inter_pod is not None for part in parts)
    return GroupProperties(
        bool(group.composites),
        len(group.gangs) == 1,
        is_homogeneous(parts),
        is_constrained(group),
        has_rules and members_interact(state, parts),
        has_rules and preferences_interact(state, parts),
    )


_Applies = Callable[[GroupProperties], bool]
_Place = Callable[[CapacityState, SolveGroup, Sequence[Part], Explainer, Budget], Placed | NotPlaced | None]


@dataclass(frozen=True)
class Algorithm:
    """One row: the groups that it places (`group` in words, `applies` as a predicate) and its algorithm (`name`,
    `place`).

    `result` says when the answer is exact: the best placement, or a proof that there is none. `complexity` is the
    worst case; `steps` bounds exact search, 0 if there is none.
    """

    group: str
    applies: _Applies
    name: str
    place: _Place
    result: str
    complexity: str
    steps: int


ALGORITHMS: Final = (
    Algorithm(
        group="composites: sets of gangs that share a domain, or of which some may be left out",
        applies=lambda group: group.composites,
        name="greedy by composite and domain, then all choices; for each, as without composites, with constraints",
        place=place_composites,
        result="exact if the steps suffice, else heuristic; gangs on different trees heuristic",
        complexity="domains × gangs × that of the row for constraints",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="inter-pod rules between members",
        applies=lambda group: group.members_interact,
        name="greedy by class and domain, then branch and bound",
        place=place_interacting,
        result="exact up to 16 members on 64 nodes, else heuristic",
        complexity="exponential in members",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="preferences between members, no constraints",
        applies=lambda group: group.preferences_interact and not group.constrained,
        name="greedy by preference; the rows below if not all members fit",
        place=lambda state, group, parts, explainer, budget: place_by_preferences(state, group, parts),
        result="heuristic",
        complexity="members × nodes",
        steps=0,
    ),
    Algorithm(
        group="one homogeneous gang, constraints",
        applies=lambda group: group.one_gang and group.homogeneous and group.constrained,
        name="division from the top of the tree, with bounds; dynamic programme if small",
        place=place_homogeneous_constrained,
        result="exact if nodes × members² ≤ 20,000 or a bound proves it, else heuristic",
        complexity="levels × nodes",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="homogeneous, no constraints",
        applies=lambda group: group.homogeneous and not group.constrained,
        name="counting and best fit",
        place=lambda state, group, parts, explainer, budget: place_homogeneous(state, group, parts, explainer),
        result="exact",
        complexity="nodes × log nodes",
        steps=0,
    ),
    Algorithm(
        group="heterogeneous or several gangs, constraints",
        applies=lambda group: group.constrained,
        name="bounds, class by class, dynamic programme over the tree",
        place=place_constrained,
        result="exact if the steps suffice, else heuristic; gangs on different trees heuristic",
        complexity="nodes × product of (members of each class)²",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="heterogeneous, no constraints",
        applies=lambda group: True,
        name="greedy in several orders, bounds, then branch and bound",
        place=place_heterogeneous,
        result="exact up to 64 members on 128 distinct nodes, else heuristic",
        complexity="exponential in members",
        steps=STEPS_PER_GROUP,
    ),
)


def place_by_table(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place a group with the first algorithm of the table that applies and gives an answer."""
    properties = properties_of(state, group, parts)
    for algorithm in ALGORITHMS:
        if algorithm.applies(properties):
            answer = algorithm.place(state, group, parts, explainer, budget)
            if answer is not None:
                return answer
    raise AssertionError("the last algorithm applies to every group and always answers")


def has_place(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """All minimums have a placement that is found within the budget. Nothing stays reserved."""
    if group.composites:
        return find_composites(state, group, parts, budget)
    if members_interact(state, parts):
        return find_interacting(state, group, parts, budget) is not None
    if not is_constrained(group):
        checkpoint = state.checkpoint()
        seated = seat_minimums(state, group, parts, budget) is not None
        state.rollback(checkpoint)
        return seated
    if len(group.gangs) == 1 and is_homogeneous(parts):
        seats = seats_for(state, group.gangs[0], parts[0], budget)
        if not isinstance(seats, NoSeats) or seats.proved:
            return not isinstance(seats, NoSeats)
    return has_solution(state, group, parts, budget)


def place_partial(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Place as much of the group as fits; None if that is nothing.

    Members toward minimums come before members above them, then earlier gangs before later ones, then earlier roles.
    The placement can be completed later under the hard constraints if capacity allows.
    """
    if members_interact(state, parts):
        return place_interacting_partly(state, group, parts)
    if not is_constrained(group):
        return place_unconstrained_partly(state, group, parts, budget)
    solution = partial_solution(state, group, parts, budget)
    if solution is not None:
        reserve_again(state, parts, solution)
    return solution
