"""The smallest change that would start a gang: a relaxed constraint, filtered nodes to admit, or more nodes."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGang
from muster.placement.solve.level_rules import inside_only, packed_levels, rules_of
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import ABSENT, USABLE
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
_IT_WOULD_FIT: Final = "it would fit"
_NODES_TOO_SMALL: Final = "no usable node is large enough for one member, even when empty"


def best_domain(tree: Tree, level: int, caps: Int64) -> tuple[str, int]:
    """The domain of a level in which most members fit, as a path, and how many; ("", 0) if there is none.

    `caps` is int64[nodes of the tree]: members that fit on each.
    """
    if not len(caps) or level >= len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    fit = np.add.reduceat(caps, starts)
    best = int(fit.argmax())
    return (tree.path(level, best), int(fit[best])) if fit[best] else ("", 0)


def informative_level(tree: Tree, constraints: Sequence[LevelConstraint]) -> int:
    """The level whose best domain says most: that of the lowest hard pack above the nodes, else the lowest."""
    names = tree.level_names[:-1]
    packed = [
        names.index(each.level)
        for each in constraints
        if each.hard and each.policy is LevelPolicy.PACK and each.level in names
    ]
    return max(packed, default=len(names) - 1)


def excludes_outside(tree: Tree, gang: SolveGang) -> bool:
    """Constraints exclude nodes outside of the tree."""
    return inside_only(rules_of(gang.constraints, tree.level_names))


def reachable(tree: Tree, gang: SolveGang) -> Bool:
    """Nodes that the gang may use, bool[nodes of the tree]: without nodes outside if constraints exclude them, and only
    the domain of placed members if all must share one.
    """
    found: Bool = np.ones(len(tree.rows), np.bool_)
    if excludes_outside(tree, gang):
        found[tree.inside :] = False
    positions = _placed_positions(tree, gang)
    for level in _packed_levels(tree, gang) if positions else ():
        of = tree.levels[level].of
        found &= np.isin(of, of[positions])
    return found


def occupied_domains(tree: Tree, gang: SolveGang) -> list[str]:
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


def soften(gang: SolveGang, level_names: Sequence[str], fits: Callable[[SolveGang], bool]) -> str:
    """The hard constraint that would have to be soft, of the lowest level possible, or else all of them; "" if that
    does not help.
    """
    hard = [each for each in gang.constraints if each.hard]
    for each in sorted(hard, key=lambda each: (-level_names.index(each.level), _RELAXATION_ORDER.index(each.policy))):
        softer = tuple(replace(other, hard=False) if other == each else other for other in gang.constraints)
        if fits(replace(gang, constraints=softer)):
            return f'{_IT_WOULD_FIT} if the constraint "{as_text(each)}" were soft'
    none_hard = tuple(replace(each, hard=False) for each in gang.constraints)
    if len(hard) > 1 and fits(replace(gang, constraints=none_hard)):
        return f"{_IT_WOULD_FIT} if none of its constraints were hard"
    return ""


def smallest_change(state: CapacityState, of_class: ClassCapacity, missing: int, *, is_all: bool) -> str:
    """The change that makes room for `missing` more members: filtered nodes, more nodes, or relaxed inter-pod rules.
    `is_all`: nothing else keeps the group from starting.
    """
    change = _change(state, of_class, missing)
    if not change or change == _NODES_TOO_SMALL:
        return change
    return f"{_IT_WOULD_FIT if is_all else f'{missing} more of its members would fit'} {change}"


def more_nodes_in_domain(domain: str, state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    """How many more nodes would hold `missing` more members, all in the domain."""
    nodes = _more_nodes(state, of_class, missing)
    return nodes if not nodes or nodes == _NODES_TOO_SMALL else f"{_IT_WOULD_FIT} {nodes}, in {domain}"


def _change(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    rules = of_class.inter_pod
    if rules is not None and (of_class.interacting or not rules.one_per_node()):
        relaxed = rules.relaxation(of_class.alone, missing)
        if relaxed or of_class.interacting:
            return relaxed
    return _on_filtered_nodes(state, of_class, missing) or _more_nodes(state, of_class, missing)


def _more_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    usable = np.flatnonzero(of_class.filters.reason == USABLE)
    if not len(usable):
        return ""
    offers = state.capacity.allocatable[usable][:, of_class.columns]
    each = (offers // of_class.amounts).min(axis=1, initial=_max_per_node(of_class, missing))
    most = int(each.max())
    if not most:
        return _NODES_TOO_SMALL
    same_size = usable[each == most]
    name = state.nodes.name(int(same_size[state.nodes.rank[same_size].argmin()]))
    nodes = -(-missing // most)
    return f'with {nodes} more node{"s" if nodes > 1 else ""} like "{name}", empty'


def _on_filtered_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    filters = of_class.filters
    found: list[tuple[int, str]] = []
    for code in np.unique(filters.reason).tolist():
        if code in (USABLE, ABSENT):
            continue
        rows = np.flatnonzero(filters.reason == code)
        free = np.maximum(state.free[of_class.columns[:, None], rows], 0)
        fits = (free // of_class.amounts[:, None]).min(axis=0, initial=_max_per_node(of_class, missing))
        if int(fits.sum()) >= missing:
            found.append((int((fits > 0).sum()), filters.reasons[code]))
    if not found:
        return ""
    nodes, reason = min(found)
    these = "node" if nodes == 1 else f"{nodes} nodes"
    return f'if its pods could use the {these} lost to "{reason}"'


def _max_per_node(of_class: ClassCapacity, missing: int) -> int:
    """How many of the missing members one node takes at most, however large it is."""
    one_per_node = of_class.inter_pod is not None and of_class.inter_pod.one_per_node()
    return min(missing, 1) if one_per_node else missing
