"""Infeasibility explanations by topology: the best domain, and the hard constraint to relax."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import Explanation, SolveGang, SolveGroup
from muster.placement.explain.explainer import IT_WOULD_FIT, Explainer, more_nodes_in_domain
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.level_rules import inside_only, packed_levels, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree
from muster.topology.constraints import as_text

_RELAXATION_ORDER: Final = (
    LevelPolicy.RANGE,
    LevelPolicy.FACTOR,
    LevelPolicy.PARTITION,
    LevelPolicy.SPREAD,
    LevelPolicy.PACK,
)
"""Order in which hard constraints of one level are proposed for relaxation."""
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
        return has_place(replace(group, gangs=tuple(gangs)), Budget(_STEPS_PER_CHANGE, state.limit))

    ours = [part for part in parts if part.gang == at]
    domain, domain_fit = _best_domain(state, tree, gang, ours)
    explanation = replace(explanation, best_domain=domain, best_domain_fit=domain_fit)
    if softer := _soften(gang, tree.level_names, fits):
        summary = _fit_under_constraints(state, tree, gang, [part.class_id for part in ours], explanation)
        return replace(
            explanation,
            summary=f"{summary}; {softer}",
            remedy=softer,
            filtered_nodes=(),
            short_by=(),
            only_constraints=True,
        )
    return explanation


def _explain_all(
    state: CapacityState, group: SolveGroup, has_place: Callable[[SolveGroup, Budget], bool]
) -> Explanation:
    """All members fit without constraints: the explanation for the first gang of which a relaxation would help."""
    explained = [
        with_softer(state, group, _unsatisfied(gang), has_place)
        for gang in group.gangs
        if any(each.hard for each in gang.constraints)
    ]
    default = _unsatisfied(group.gangs[0])
    return next((each for each in explained if each.remedy), explained[0] if explained else default)


def _unsatisfied(gang: SolveGang) -> Explanation:
    return Explanation(_UNSATISFIED, gang.id, gang.roles[0].class_id, 0, gang.minimum, only_constraints=True)


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
        return has_place(replace(group, gangs=gangs), Budget(_STEPS_PER_CHANGE, state.limit))

    softer = _soften(group.gangs[at], tree.level_names, fits)
    if not softer:
        return explanation
    return replace(explanation, summary=f"{explanation.summary}; {softer}", remedy=softer, only_constraints=True)


def explain_counted(
    state: CapacityState, group: SolveGroup, gang_index: int, class_id: str, explainer: Explainer, fit: int
) -> Explanation:
    """Explains a gang of a homogeneous group without constraints, of which `fit` members fit in the current state."""
    domain, domain_fit = _best_domain_of_class(state, group.gangs[gang_index], class_id)
    is_all = gang_index == len(group.gangs) - 1
    explanation = explainer.at_capacity(group, gang_index, class_id, fit, is_all=is_all)
    return replace(explanation, best_domain=domain, best_domain_fit=min(domain_fit, fit))


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
    domain, domain_fit = _best_domain_of_class(state, gang, class_id)
    explained = Explanation("", gang.id, class_id, min(fit, gang.minimum), gang.minimum)
    explained = replace(explained, best_domain=domain, best_domain_fit=min(domain_fit, gang.minimum))
    anywhere = int(state.of(class_id).fits.sum())
    if anywhere < gang.minimum:
        return _explain_capacity(state, group, tree, explainer, explained, anywhere)
    if softer := _soften(gang, tree.level_names, has_place):
        summary = _fit_under_constraints(state, tree, gang, [class_id], explained)
        return replace(explained, summary=f"{summary}; {softer}", remedy=softer, only_constraints=True)
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
        one = explained.best_domain or f"one {tree.level_names[_informative_level(tree, hard)]}"
        remedy = more_nodes_in_domain(one, state, of_class, gang.minimum - explained.best_domain_fit)
        full = replace(full, remedy=remedy or full.remedy)
    if explained.fit >= anywhere or gang.minimum == 1:
        return full
    summary = f"{explained.fit} of {gang.minimum} members fit under the hard constraints; without them {full.summary}"
    return replace(full, summary=summary)


def _fit_under_constraints(
    state: CapacityState, tree: Tree, gang: SolveGang, class_ids: Sequence[str], explained: Explanation
) -> str:
    """Numbers of members that fit, the domain where most do, and the number of free nodes outside of the tree."""
    summary = f"{explained.fit} of {gang.minimum} members fit under the hard constraints"
    occupied = _occupied_domains(tree, gang)
    if len(occupied) > 1:
        summary += (
            f"; members are placed in {len(occupied)} domains already, among them {occupied[0]} and {occupied[1]}"
        )
    elif occupied:
        summary += f"; members are placed in {occupied[0]} already, where {explained.best_domain_fit} more would fit"
    elif explained.best_domain:
        summary += f"; {explained.best_domain_fit} of them fit in {explained.best_domain}"
    if _excludes_outside(tree, gang):
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
    level = _informative_level(tree, gang.constraints)
    if not len(tree.rows) or not 0 <= level < len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    seats = sum(
        np.minimum(np.add.reduceat(state.of(part.class_id).fits[tree.rows], starts), part.wanted) for part in parts
    )
    caps = np.zeros(len(tree.rows), np.int64)
    caps[starts] = np.where(_reachable(tree, gang)[starts], np.minimum(seats, gang.minimum), 0)
    return _best_of_level(tree, level, caps)


def _best_domain_of_class(state: CapacityState, gang: SolveGang, class_id: str) -> tuple[str, int]:
    """The domain in which most members of the class fit, and how many."""
    tree = state.trees.get(gang.tree)
    if tree is None or not tree.levels:
        return "", 0
    caps = np.minimum(state.of(class_id).fits[tree.rows], sum(role.wanted for role in gang.roles))
    caps = np.where(_reachable(tree, gang), caps, 0)
    return _best_of_level(tree, _informative_level(tree, gang.constraints), caps)


def _best_of_level(tree: Tree, level: int, caps: Int64) -> tuple[str, int]:
    """The domain of a level in which most members fit, as a path, and how many; ("", 0) if there is none.

    `caps` is int64[nodes of the tree]: members that fit on each.
    """
    if not len(caps) or level >= len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    fit = np.add.reduceat(caps, starts)
    best = int(fit.argmax())
    return (tree.path(level, best), int(fit[best])) if fit[best] else ("", 0)


def _informative_level(tree: Tree, constraints: Sequence[LevelConstraint]) -> int:
    """The level whose best domain says most: that of the lowest hard pack above the nodes, else the lowest."""
    names = tree.level_names[:-1]
    packed = [
        names.index(each.level)
        for each in constraints
        if each.hard and each.policy is LevelPolicy.PACK and each.level in names
    ]
    return max(packed, default=len(names) - 1)


def _excludes_outside(tree: Tree, gang: SolveGang) -> bool:
    """Constraints exclude nodes outside of the tree."""
    return inside_only(rules_of(gang.constraints, tree.level_names))


def _reachable(tree: Tree, gang: SolveGang) -> Bool:
    """Nodes that the gang may use, bool[nodes of the tree]: without nodes outside if constraints exclude them, and only
    the domain of placed members if all must share one.
    """
    found: Bool = np.ones(len(tree.rows), np.bool_)
    if _excludes_outside(tree, gang):
        found[tree.inside :] = False
    positions = _placed_positions(tree, gang)
    for level in _packed_levels(tree, gang) if positions else ():
        of = tree.levels[level].of
        found &= np.isin(of, of[positions])
    return found


def _occupied_domains(tree: Tree, gang: SolveGang) -> list[str]:
    """Paths of the domains that the gang must stay in because of placed members; several if those are in several by
    now, none if any domain is allowed.
    """
    levels, positions = _packed_levels(tree, gang), _placed_positions(tree, gang)
    if not levels or not positions:
        return []
    domains = np.unique(tree.levels[levels[-1]].of[positions]).tolist()
    return [tree.path(levels[-1], domain) for domain in domains]


def _packed_levels(tree: Tree, gang: SolveGang) -> list[int]:
    """Levels above the nodes at which all members must share a domain."""
    packed = packed_levels(rules_of(gang.constraints, tree.level_names))
    return [level for level in packed if level < len(tree.levels)]


def _placed_positions(tree: Tree, gang: SolveGang) -> list[int]:
    """Indexes in the tree's `rows` of nodes with placed members."""
    return [position for pods in gang.placed if (position := tree.position_of(pods.node)) is not None]


def _soften(gang: SolveGang, level_names: Sequence[str], fits: Callable[[SolveGang], bool]) -> str:
    """The hard constraint that would have to be soft, of the lowest level possible, or else all of them; "" if that
    does not help.
    """
    hard = [each for each in gang.constraints if each.hard]
    for each in sorted(hard, key=lambda each: (-level_names.index(each.level), _RELAXATION_ORDER.index(each.policy))):
        softer = tuple(replace(other, hard=False) if other == each else other for other in gang.constraints)
        if fits(replace(gang, constraints=softer)):
            return f'{IT_WOULD_FIT} if the constraint "{as_text(each)}" were soft'
    none_hard = tuple(replace(each, hard=False) for each in gang.constraints)
    if len(hard) > 1 and fits(replace(gang, constraints=none_hard)):
        return f"{IT_WOULD_FIT} if none of its constraints were hard"
    return ""
