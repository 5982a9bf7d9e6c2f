"""Dispatch table: which algorithm places a group, by the shape of the group.

docs/placement.md shows the same table. The first row applies whose predicate holds and whose algorithm gives an answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.gangs.solve import SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.solver import (
    members_interact,
    place_by_preferences,
    place_interacting,
    preferences_interact,
)
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.constrained import place_constrained
from muster.placement.solve.feasibility import is_constrained
from muster.placement.solve.heterogeneous import place_heterogeneous
from muster.placement.solve.homogeneous import place_homogeneous, place_homogeneous_constrained
from muster.placement.solve.instance import NotPlaced, Part, Placed, is_homogeneous
from muster.placement.state.capacity import CapacityState

STEPS_PER_GROUP: Final = 10_000
"""Budget of exact searches for one group, about 5 microseconds a step. Gangs of 10 on 4 nodes that heuristics do not
place take some hundred steps, gangs of 16 on 6 nodes up to 3,000.
"""

_Applies = Callable[[CapacityState, SolveGroup, Sequence[Part]], bool]
_Place = Callable[[CapacityState, SolveGroup, Sequence[Part], Explainer, Budget], Placed | NotPlaced | None]


@dataclass(frozen=True)
class Algorithm:
    """One row: the shape of the group (`group` in words, `applies` as a predicate) and its algorithm (`name`, `place`).

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
        group="inter-pod rules between members",
        applies=lambda state, group, parts: members_interact(state, parts),
        name="greedy by class and domain, then branch and bound",
        place=place_interacting,
        result="exact up to 16 members on 64 nodes, else heuristic",
        complexity="exponential in members",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="preferences between members, no constraints",
        applies=lambda state, group, parts: not is_constrained(group) and preferences_interact(state, parts),
        name="greedy by preference; the rows below if not all members fit",
        place=lambda state, group, parts, explainer, budget: place_by_preferences(state, group, parts),
        result="heuristic",
        complexity="members × nodes",
        steps=0,
    ),
    Algorithm(
        group="one homogeneous gang, constraints",
        applies=lambda state, group, parts: len(group.gangs) == 1 and is_constrained(group) and is_homogeneous(parts),
        name="division from the top of the tree, with bounds; dynamic programme if small",
        place=place_homogeneous_constrained,
        result="exact if nodes × members² ≤ 20,000 or a bound proves it, else heuristic",
        complexity="levels × nodes",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="homogeneous, no constraints",
        applies=lambda state, group, parts: is_homogeneous(parts) and not is_constrained(group),
        name="counting and best fit",
        place=lambda state, group, parts, explainer, budget: place_homogeneous(state, group, parts, explainer),
        result="exact",
        complexity="nodes × log nodes",
        steps=0,
    ),
    Algorithm(
        group="heterogeneous or several gangs, constraints",
        applies=lambda state, group, parts: is_constrained(group),
        name="bounds, class by class, dynamic programme over the tree",
        place=place_constrained,
        result="exact if the steps suffice, else heuristic; gangs on different trees heuristic",
        complexity="nodes × product of (members of each class)²",
        steps=STEPS_PER_GROUP,
    ),
    Algorithm(
        group="heterogeneous, no constraints",
        applies=lambda state, group, parts: True,
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
    for algorithm in ALGORITHMS:
        if algorithm.applies(state, group, parts):
            answer = algorithm.place(state, group, parts, explainer, budget)
            if answer is not None:
                return answer
    raise AssertionError("the last algorithm applies to every group and always answers")
