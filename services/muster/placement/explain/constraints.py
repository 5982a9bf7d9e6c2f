"""Infeasibility explanations for groups under constraints."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.facts import LevelPolicy
from muster.gangs.solve import Explanation, SolveGang, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.explain.relaxation import (
    best_domain,
    excludes_outside,
    informative_level,
    more_nodes_in_domain,
    occupied_domains,
    reachable,
    soften,
)
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import Part, Solution
from muster.placement.state.capacity import CapacityState
from muster.placement.state.trees import Tree

_STEPS_PER_CHANGE: Final = 2_000
"""Budget for testing one relaxed constraint."""
_UNSATISFIED: Final = "no placement was found that satisfies all hard constraints"


def explain_constraints(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    explainer: Explainer,
    best: Solution,
    has_place: Callable[[SolveGroup, Budget], bool],
) -> Explanation:
    """Explains the first gang that lacks members in the `best` solution, with the relaxation that would place the
    group.

    `has_place` decides whether a group with the same parts has a placement.
    """
    lacking = (index for index, gang in enumerate(group.gangs) if best.of_gang(parts, index) < gang.minimum)
    at = next(lacking, None)
    if at is None:
        return _explain_all(state, group, has_place)
    gang = group.gangs[at]
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not validated"
    explanation = explainer.lacking_part(group, parts, at, _lacking_part(parts, at, best), best)

    def fits(softer: SolveGang) -> bool:
        gangs = (softer if index == at else each for index, each in enumerate(group.gangs))
        return has_place(replace(group, gangs=tuple(gangs)), Budget(_STEPS_PER_CHANGE))

    ours = [part for part in parts if part.gang == at]
    domain, domain_fit = _best_domain(state, tree, gang, ours)
    explanation = replace(explanation, best_domain=domain, best_domain_fit=domain_fit)
    if softer := soften(gang, tree.level_names, fits):
        summary = _fit_under_constraints(state, tree, gang, [part.class_id for part in ours], explanation)
        return replace(explanation, summary=f"{summary}; {softer}", remedy=softer, filtered_nodes=(), short_by=())
    return explanation


def _explain_all(
    state: CapacityState, group: SolveGroup, has_place: Callable[[SolveGroup, Budget], bool]
) -> Explanation:
    """All members fit without constraints: the explanation for the first gang of which a relaxation would help."""
    explained = [
        with_softer(
            state, group, Explanation(_UNSATISFIED, gang.id, gang.roles[0].class_id, 0, gang.minimum), has_place
        )
        for gang in group.gangs
        if any(each.hard for each in gang.constraints)
    ]
    [first, *_] = group.gangs
    default = Explanation(_UNSATISFIED, first.id, first.roles[0].class_id, 0, first.minimum)
    return next((each for each in explained if each.remedy), explained[0] if explained else default)


def with_softer(
    state: CapacityState, group: SolveGroup, explanation: Explanation, has_place: Callable[[SolveGroup, Budget], bool]
) -> Explanation:
    """Adds the relaxation of the explained gang's constraints that would place the group, if there is one."""
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
    """Explains a single homogeneous gang. `fit` of its members fit under the hard constraints; `has_place` decides
    whether the gang has a placement with other constraints.
    """
    [gang] = group.gangs
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not validated"
    domain, domain_fit = explainer.best_domain(gang, class_id)
    explained = Explanation("", gang.id, class_id, min(fit, gang.minimum), gang.minimum)
    explained = replace(explained, best_domain=domain, best_domain_fit=min(domain_fit, gang.minimum))
    anywhere = int(state.of(class_id).fits.sum())
    if anywhere < gang.minimum:
        return _explain_capacity(state, group, tree, explainer, explained, anywhere)
    if softer := soften(gang, tree.level_names, has_place):
        summary = _fit_under_constraints(state, tree, gang, [class_id], explained)
        return replace(explained, summary=f"{summary}; {softer}", remedy=softer)
    full = explainer.at_capacity(group, 0, class_id, fit, is_all=False)
    return replace(full, best_domain=explained.best_domain, best_domain_fit=explained.best_domain_fit)


def _explain_capacity(
    state: CapacityState, group: SolveGroup, tree: Tree, explainer: Explainer, explained: Explanation, anywhere: int
) -> Explanation:
    """Fewer members fit than the minimum, whatever the constraints."""
    [gang] = group.gangs
    hard = [each for each in gang.constraints if each.hard]
    full = explainer.at_capacity(group, 0, explained.class_id, anywhere, is_all=not hard)
    full = replace(
        full, fit=explained.fit, best_domain=explained.best_domain, best_domain_fit=explained.best_domain_fit
    )
    nodes = tree.level_names[-1]
    of_class = state.of(explained.class_id)
    only_packs = hard and all(each.policy is LevelPolicy.PACK and each.level != nodes for each in hard)
    if only_packs and of_class.inter_pod is None:  # inter-pod rules may forbid members that close to each other
        one = explained.best_domain or f"one {tree.level_names[informative_level(tree, hard)]}"
        remedy = more_nodes_in_domain(one, state, of_class, gang.minimum - explained.best_domain_fit)
        full = replace(full, remedy=remedy or full.remedy)
    if explained.fit >= anywhere or gang.minimum == 1:
        return full
    summary = f"{explained.fit} of {gang.minimum} members fit under the hard constraints; without them {full.summary}"
    return replace(full, summary=summary)


def _fit_under_constraints(
    state: CapacityState, tree: Tree, gang: SolveGang, class_ids: Sequence[str], explained: Explanation
) -> str:
    """How many members fit, in which domain most, and how many nodes outside of the tree have free capacity."""
    summary = f"{explained.fit} of {gang.minimum} members fit under the hard constraints"
    occupied = occupied_domains(tree, gang)
    if len(occupied) > 1:
        summary += (
            f"; members are placed in {len(occupied)} domains already, among them {occupied[0]} and {occupied[1]}"
        )
    elif occupied:
        summary += f"; members are placed in {occupied[0]} already, where {explained.best_domain_fit} more would fit"
    elif explained.best_domain:
        summary += f"; {explained.best_domain_fit} of them fit in {explained.best_domain}"
    if excludes_outside(tree, gang):
        outside = tree.rows[tree.inside :]
        has_capacity = np.logical_or.reduce([state.of(class_id).fits[outside] > 0 for class_id in class_ids])
        nodes = int(np.count_nonzero(has_capacity))
        if nodes:
            counted = "1 node with free capacity is" if nodes == 1 else f"{nodes} nodes with free capacity are"
            summary += f"; {counted} not in the tree"
    return summary


def _lacking_part(parts: Sequence[Part], gang: int, best: Solution) -> int:
    ours = [index for index, part in enumerate(parts) if part.gang == gang]
    lacking = [index for index in ours if best.placed[index] < parts[index].wanted]
    return (lacking or ours)[0]


def _best_domain(state: CapacityState, tree: Tree, gang: SolveGang, parts: Sequence[Part]) -> tuple[str, int]:
    """The domain in which most members fit, each class alone and at most as many as wanted."""
    level = informative_level(tree, gang.constraints)
    if not len(tree.rows) or not 0 <= level < len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    seats = sum(
        np.minimum(np.add.reduceat(state.of(part.class_id).fits[tree.rows], starts), part.wanted) for part in parts
    )
    caps = np.zeros(len(tree.rows), np.int64)
    caps[starts] = np.where(reachable(tree, gang)[starts], np.minimum(seats, gang.minimum), 0)
    return best_domain(tree, level, caps)
