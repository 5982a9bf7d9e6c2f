"""What is in the way of a group under constraints, and the smallest change that would help."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.facts import LevelPolicy
from muster.gangs.solve import Explanation, SolveGang, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.explain.relaxation import (
    best_domain,
    homes,
    keeps_to_tree,
    make_room_in,
    reach,
    soften,
    telling_level,
)
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import Part, Solution
from muster.placement.state.capacity import CapacityState
from muster.placement.state.trees import Tree

_STEPS_PER_CHANGE: Final = 2_000
"""For telling whether one softer constraint would do."""
_NOT_AS_ASKED: Final = "no place was found in which all hard constraints hold"


def explain_constraints(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    explainer: Explainer,
    best: Solution,
    has_place: Callable[[SolveGroup, Budget], bool],
) -> Explanation:
    """Of the first gang that lacks members in the `best` attempt, and which of its constraints to give up if that does.

    `has_place` tells whether another group of the same parts would have a place.
    """
    lacking = (index for index, gang in enumerate(group.gangs) if best.of_gang(parts, index) < gang.minimum)
    at = next(lacking, None)
    if at is None:
        return _against_all(state, group, has_place)
    gang = group.gangs[at]
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    explanation = explainer.stuck(group, parts, at, _part_in_the_way(parts, at, best), best)

    def fits(softer: SolveGang) -> bool:
        gangs = (softer if index == at else each for index, each in enumerate(group.gangs))
        return has_place(replace(group, gangs=tuple(gangs)), Budget(_STEPS_PER_CHANGE))

    ours = [part for part in parts if part.gang == at]
    domain, domain_fit = _best_domain(state, tree, gang, ours)
    explanation = replace(explanation, best_domain=domain, best_domain_fit=domain_fit)
    if softer := soften(gang, tree.level_names, fits):
        summary = _as_constraints_ask(state, tree, gang, [part.class_id for part in ours], explanation)
        return replace(explanation, summary=f"{summary}; {softer}", remedy=softer, filtered_nodes=(), short_by=())
    return explanation


def _against_all(
    state: CapacityState, group: SolveGroup, has_place: Callable[[SolveGroup, Budget], bool]
) -> Explanation:
    """All members have room, but not as the hard constraints of all gangs ask: of the first that could ask for less."""
    told = [
        with_softer(
            state, group, Explanation(_NOT_AS_ASKED, gang.id, gang.roles[0].class_id, 0, gang.minimum), has_place
        )
        for gang in group.gangs
        if any(each.hard for each in gang.constraints)
    ]
    [first, *_] = group.gangs
    nobody = Explanation(_NOT_AS_ASKED, first.id, first.roles[0].class_id, 0, first.minimum)
    return next((each for each in told if each.remedy), told[0] if told else nobody)


def with_softer(
    state: CapacityState, group: SolveGroup, explanation: Explanation, has_place: Callable[[SolveGroup, Budget], bool]
) -> Explanation:
    """The explanation, with which constraint of the gang that it is about to give up if the group has a place then."""
    at = next(index for index, gang in enumerate(group.gangs) if gang.id == explanation.gang)
    tree = state.trees.get(group.gangs[at].tree)
    if tree is None or not any(each.hard for each in group.gangs[at].constraints):
        return explanation

    def fits(softer: SolveGang) -> bool:
        gangs = (*group.gangs[:at], softer, *group.gangs[at + 1 :])
        return has_place(replace(group, gangs=gangs), Budget(_STEPS_PER_CHANGE))

    softer = soften(group.gangs[at], tree.level_names, fits)
    return replace(explanation, summary=f"{explanation.summary}; {softer}", remedy=softer) if softer else explanation


def explain_homogeneous(
    state: CapacityState,
    group: SolveGroup,
    class_id: str,
    explainer: Explainer,
    fit: int,
    has_place: Callable[[SolveGang], bool],
) -> Explanation:
    """Of the group's one gang, whose members are all of the class. `fit` of them have room as the hard constraints want
    it; `has_place` tells whether the gang would have a place if it asked for something else.
    """
    [gang] = group.gangs
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    domain, domain_fit = explainer.best_domain(gang, class_id)
    told = Explanation("", gang.id, class_id, min(fit, gang.minimum), gang.minimum)
    told = replace(told, best_domain=domain, best_domain_fit=min(domain_fit, gang.minimum))
    anywhere = int(state.of(class_id).fits.sum())
    if anywhere < gang.minimum:
        return _too_little_room(state, group, tree, explainer, told, anywhere)
    if softer := soften(gang, tree.level_names, has_place):
        summary = _as_constraints_ask(state, tree, gang, [class_id], told)
        return replace(told, summary=f"{summary}; {softer}", remedy=softer)
    full = explainer.full(group, 0, class_id, fit, is_all=False)
    return replace(full, best_domain=told.best_domain, best_domain_fit=told.best_domain_fit)


def _too_little_room(
    state: CapacityState, group: SolveGroup, tree: Tree, explainer: Explainer, told: Explanation, anywhere: int
) -> Explanation:
    """There is room for fewer members than must start, whatever the constraints."""
    [gang] = group.gangs
    hard = [each for each in gang.constraints if each.hard]
    full = explainer.full(group, 0, told.class_id, anywhere, is_all=not hard)
    full = replace(full, fit=told.fit, best_domain=told.best_domain, best_domain_fit=told.best_domain_fit)
    nodes = tree.level_names[-1]
    of_class = state.of(told.class_id)
    only_packs = hard and all(each.policy is LevelPolicy.PACK and each.level != nodes for each in hard)
    if only_packs and of_class.inter_pod is None:  # others must perhaps not be so near to one another
        one = told.best_domain or f"one {tree.level_names[telling_level(tree, hard)]}"
        remedy = make_room_in(one, state, of_class, gang.minimum - told.best_domain_fit)
        full = replace(full, remedy=remedy or full.remedy)
    if told.fit >= anywhere or gang.minimum == 1:
        return full
    summary = f"{told.fit} of {gang.minimum} members fit as the hard constraints ask; without them {full.summary}"
    return replace(full, summary=summary)


def _as_constraints_ask(
    state: CapacityState, tree: Tree, gang: SolveGang, class_ids: Sequence[str], told: Explanation
) -> str:
    """How many members fit, where most, and whether it is for want of a place in the tree."""
    summary = f"{told.fit} of {gang.minimum} members fit as the hard constraints ask"
    there = homes(tree, gang)
    if len(there) > 1:
        summary += f"; there are members in {len(there)} domains already, {there[0]} and {there[1]} among them"
    elif there:
        summary += f"; there are members in {there[0]}, which has room for {told.best_domain_fit} more"
    elif told.best_domain:
        summary += f"; {told.best_domain} has room for {told.best_domain_fit} of them"
    if keeps_to_tree(tree, gang):
        outside = tree.rows[tree.inside :]
        with_room = np.logical_or.reduce([state.of(class_id).fits[outside] > 0 for class_id in class_ids])
        nodes = int(np.count_nonzero(with_room))
        if nodes:
            nodes_are = "nodes with free capacity are" if nodes > 1 else "node with free capacity is"
            summary += f"; {nodes} {nodes_are} not in the tree"
    return summary


def _part_in_the_way(parts: Sequence[Part], gang: int, best: Solution) -> int:
    ours = [index for index, part in enumerate(parts) if part.gang == gang]
    lacking = [index for index in ours if best.placed[index] < parts[index].wanted]
    return (lacking or ours)[0]


def _best_domain(state: CapacityState, tree: Tree, gang: SolveGang, parts: Sequence[Part]) -> tuple[str, int]:
    """Where most members fit by each class alone, no more of one than there are."""
    level = telling_level(tree, gang.constraints)
    if not len(tree.rows) or not 0 <= level < len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    seats = sum(
        np.minimum(np.add.reduceat(state.of(part.class_id).fits[tree.rows], starts), part.wanted) for part in parts
    )
    caps = np.zeros(len(tree.rows), np.int64)
    caps[starts] = np.where(reach(tree, gang)[starts], np.minimum(seats, gang.minimum), 0)
    return best_domain(tree, level, caps)
