"""What would let a gang start that has no place: the domain in which it comes nearest, and the smallest change."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final

import numpy as np
from msgspec.structs import replace

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGang
from muster.placement.solve.level_rules import Shape, rules_of
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import ABSENT, USABLE
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree
from muster.topology.constraints import in_words

_AS_GOOD: Final = (LevelPolicy.RANGE, LevelPolicy.FACTOR, LevelPolicy.PARTITION, LevelPolicy.SPREAD, LevelPolicy.PACK)
"""Of hard constraints of one level, what is proposed first to be made soft."""
_IT_WOULD_FIT: Final = "it would fit"
_NONE_IS_LARGE_ENOUGH: Final = "no node that they may use is large enough for one of them, even if it were empty"


def best_domain(tree: Tree, level: int, caps: Int64) -> tuple[str, int]:
    """The domain of a level in which most members fit, as a path, and how many; ("", 0) where there is nothing to say.

    `caps` is int64[nodes of the tree]: members that fit on each.
    """
    if not len(caps) or level >= len(tree.levels):
        return "", 0
    starts = tree.levels[level].starts[:-1]
    fit = np.add.reduceat(caps, starts)
    best = int(fit.argmax())
    return (tree.path(level, best), int(fit[best])) if fit[best] else ("", 0)


def telling_level(tree: Tree, constraints: Sequence[LevelConstraint]) -> int:
    """The level whose best domain says most: that of the lowest hard pack above the nodes, else the lowest of all."""
    names = tree.level_names[:-1]
    packed = [
        names.index(each.level)
        for each in constraints
        if each.hard and each.policy is LevelPolicy.PACK and each.level in names
    ]
    return max(packed, default=len(names) - 1)


def keeps_to_tree(tree: Tree, gang: SolveGang) -> bool:
    """Its constraints keep the gang off nodes that are not in the tree."""
    return any(rule.is_hard for rule in rules_of(gang.constraints, tree.level_names) if rule.level < len(tree.levels))


def reach(tree: Tree, gang: SolveGang) -> Bool:
    """bool[nodes of the tree]: where the gang may be. Those outside only if nothing keeps it to the tree, and if all
    must be in one domain where members are already, only that.
    """
    found: Bool = np.ones(len(tree.rows), np.bool_)
    if keeps_to_tree(tree, gang):
        found[tree.inside :] = False
    places = _places(tree, gang)
    for level in _of_one_domain(tree, gang) if places else ():
        of = tree.levels[level].of
        found &= np.isin(of, of[places])
    return found


def homes(tree: Tree, gang: SolveGang) -> list[str]:
    """The domain that the gang must stay in because members are there, as a path; several if they are in several by
    now, and none if it may be in any.
    """
    levels, places = _of_one_domain(tree, gang), _places(tree, gang)
    if not levels or not places:
        return []
    domains = np.unique(tree.levels[levels[-1]].of[places]).tolist()
    return [tree.path(levels[-1], domain) for domain in domains]


def _of_one_domain(tree: Tree, gang: SolveGang) -> list[int]:
    """Levels above the nodes at which all members must be in one domain."""
    rules = rules_of(gang.constraints, tree.level_names)
    packed = takewhile(lambda rule: rule.shape is Shape.PACK and rule.shape_is_hard, rules)
    return [rule.level for rule in packed if rule.level < len(tree.levels)]


def _places(tree: Tree, gang: SolveGang) -> list[int]:
    """Of nodes with members, where they are in the tree's `rows`."""
    return [place for pods in gang.placed if (place := tree.place_of(pods.node)) is not None]


def soften(gang: SolveGang, level_names: Sequence[str], fits: Callable[[SolveGang], bool]) -> str:
    """Which one hard constraint to make soft, of the lowest level possible, or else all of them; "" if that does not
    help.
    """
    hard = [each for each in gang.constraints if each.hard]
    for each in sorted(hard, key=lambda each: (-level_names.index(each.level), _AS_GOOD.index(each.policy))):
        softer = tuple(replace(other, hard=False) if other == each else other for other in gang.constraints)
        if fits(replace(gang, constraints=softer)):
            return f'{_IT_WOULD_FIT} if the constraint "{in_words(each)}" were soft'
    none_hard = tuple(replace(each, hard=False) for each in gang.constraints)
    if len(hard) > 1 and fits(replace(gang, constraints=none_hard)):
        return f"{_IT_WOULD_FIT} if none of its constraints were hard"
    return ""


def make_room(state: CapacityState, of_class: ClassCapacity, missing: int, *, is_all: bool) -> str:
    """Where `missing` more members could go: on nodes that they may not use now, or on how many more nodes; or what of
    other pods they should not mind. `is_all`: nothing else keeps the group from starting.
    """
    change = _change(state, of_class, missing)
    if not change or change == _NONE_IS_LARGE_ENOUGH:
        return change
    return f"{_IT_WOULD_FIT if is_all else f'{missing} more of its members would have room'} {change}"


def make_room_in(domain: str, state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    """How many more nodes have room for `missing` more members, all of which must be in the domain."""
    nodes = _more_nodes(state, of_class, missing)
    return nodes if not nodes or nodes == _NONE_IS_LARGE_ENOUGH else f"{_IT_WOULD_FIT} {nodes}, in {domain}"


def _change(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    rules = of_class.inter_pod
    if rules is not None and (of_class.interacting or not rules.one_per_node()):
        relaxed = rules.relaxation(of_class.alone, missing)
        if relaxed or of_class.interacting:
            return relaxed
    return _on_lost_nodes(state, of_class, missing) or _more_nodes(state, of_class, missing)


def _more_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    usable = np.flatnonzero(of_class.filters.reason == USABLE)
    if not len(usable):
        return ""
    offers = state.capacity.allocatable[usable][:, of_class.columns]
    each = (offers // of_class.amounts).min(axis=1, initial=_most_on_one(of_class, missing))
    most = int(each.max())
    if not most:
        return _NONE_IS_LARGE_ENOUGH
    is_homogeneous = usable[each == most]
    name = state.nodes.name(int(is_homogeneous[state.nodes.rank[is_homogeneous].argmin()]))
    nodes = -(-missing // most)
    return f'with {nodes} more node{"s" if nodes > 1 else ""} like "{name}", empty'


def _on_lost_nodes(state: CapacityState, of_class: ClassCapacity, missing: int) -> str:
    judge = of_class.filters
    found: list[tuple[int, str]] = []
    for code in np.unique(judge.reason).tolist():
        if code in (USABLE, ABSENT):
            continue
        rows = np.flatnonzero(judge.reason == code)
        free = np.maximum(state.free[of_class.columns[:, None], rows], 0)
        fits = (free // of_class.amounts[:, None]).min(axis=0, initial=_most_on_one(of_class, missing))
        if int(fits.sum()) >= missing:
            found.append((int((fits > 0).sum()), judge.reasons[code]))
    if not found:
        return ""
    nodes, reason = min(found)
    these = "node" if nodes == 1 else f"{nodes} nodes"
    return f'if its pods could use the {these} lost to "{reason}"'


def _most_on_one(of_class: ClassCapacity, missing: int) -> int:
    """Of so many members, how many one node takes at most, however large it is."""
    one_per_node = of_class.inter_pod is not None and of_class.inter_pod.one_per_node()
    return min(missing, 1) if one_per_node else missing
