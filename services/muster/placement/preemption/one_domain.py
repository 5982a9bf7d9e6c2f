"""Who goes for a gang that must stay in one domain: each domain is looked at as if there were no room elsewhere."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import structs

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelPolicy
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.preemption.dry_run import NOTHING_FREE, DryRun
from muster.placement.preemption.victim_table import VictimTable
from muster.placement.solve.feasibility import is_constrained
from muster.placement.solve.instance import Part
from muster.placement.solve.level_rules import Shape, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree

MAX_ENTRIES: Final = 4_000
"""Entries of candidates times domains that are looked at: more domains where less may go."""
_WIDE: Final = 64
"""Entries of candidates up to which what is found everywhere needs no second look."""
_FEWEST_DOMAINS: Final = 2
_MAX_DOMAINS: Final = 16

WhoGoes = Callable[[DryRun], Int64 | None]
"""How many pods of each entry go."""


@dataclass(frozen=True)
class Confined:
    """The gang's members must all be in one of the domains: `domain_of` is int64[rows], -1 for rows that are in none.

    `gang`: what else it asks for.
    """

    gang: SolveGang
    domain_of: Int64


def confinement(state: CapacityState, group: SolveGroup) -> Confined | None:
    """What confines a group of one gang to one domain: hard packs from the top of its tree down to a level."""
    if len(group.gangs) != 1:
        return None
    [gang] = group.gangs
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    packed = []
    for rule in rules_of(gang.constraints, tree.level_names):
        if rule.shape is not Shape.PACK or not rule.shape_is_hard:
            break
        packed.append(rule.level)
    if not packed:
        return None
    names = {tree.level_names[level] for level in packed}
    rest = tuple(each for each in gang.constraints if each.level not in names or each.policy is not LevelPolicy.PACK)
    inside_only = packed[0] < len(tree.levels)
    return Confined(structs.replace(gang, constraints=rest), _domains(state, tree, gang, packed[-1], inside_only))


def who_goes_of_one_domain(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    candidates: VictimTable,
    confined: Confined,
    who_goes: WhoGoes,
) -> Int64 | None:
    """How many pods of each entry go: the best of what is found for each of the most promising domains."""
    inside = structs.replace(group, gangs=(confined.gang,))
    found = []
    for domain in _promising(state, inside, parts, candidates, confined.domain_of):
        with _nothing_free_but_in(state, confined.domain_of == domain):
            found.append(who_goes(DryRun(state, inside, parts, candidates)))
    return _least_harm(candidates, found)


def who_goes_near(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    candidates: VictimTable,
    nodes: Iterable[str],
    who_goes: WhoGoes,
) -> Int64 | None:
    """How many pods of each entry go: looked for everywhere, and, where that is a wide field, also in the domains of
    some nodes alone, on which the group would have its place if all were gone.
    """
    found = [who_goes(DryRun(state, group, parts, candidates))]
    if is_constrained(group) and len(candidates) > _WIDE:
        with _nothing_free_but_in(state, _around(state, group, nodes)):
            found.append(who_goes(DryRun(state, group, parts, candidates)))
    return _least_harm(candidates, found)


def _around(state: CapacityState, group: SolveGroup, nodes: Iterable[str]) -> Bool:
    """Rows of the domains that nodes are in, of the lowest constrained level above the nodes of each gang's tree."""
    rows = np.array(sorted({row for name in nodes if (row := state.nodes.row(name)) is not None}), np.int64)
    around: Bool = np.zeros(state.nodes.rows, np.bool_)
    around[rows] = True
    for gang in group.gangs:
        tree = state.trees.get(gang.tree)
        if tree is not None and tree.levels:
            named = {each.level for each in gang.constraints}
            levels = [level for level in tree.levels if level.name in named] or tree.levels[-1:]
            of = levels[-1].of
            around[tree.rows[np.isin(of, of[tree.place[rows]])]] = True
    return around


def _least_harm(candidates: VictimTable, found: Iterable[Int64 | None]) -> Int64 | None:
    ways = [removed for removed in found if removed is not None]
    return min(ways, key=lambda removed: _harm(candidates, removed), default=None)


def _domains(state: CapacityState, tree: Tree, gang: SolveGang, level: int, inside_only: bool) -> Int64:
    """The domain of each row; if members are placed already, only theirs."""
    of = tree.levels[level].of if level < len(tree.levels) else np.arange(len(tree.rows))
    of = of.copy()
    if inside_only:
        of[tree.inside :] = -1
    for place in {tree.place_of(pods.node) for pods in gang.placed} - {None}:
        of[of != of[place]] = -1
    domain_of: Int64 = np.full(state.nodes.rows, -1, np.int64)
    domain_of[tree.rows] = of
    return domain_of


def _promising(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], candidates: VictimTable, domain_of: Int64
) -> list[int]:
    """Domains that would have seats enough by each class alone: those for which the lowest levels suffice come first,
    then those that lack least.
    """
    trial = DryRun(state, group, parts, candidates)
    level_of = np.array([gang.level for gang in candidates.gangs], np.int64)[candidates.gang]
    domains = int(domain_of.max(initial=-1)) + 1
    inside = domain_of >= 0
    here = domain_of[candidates.rows]
    lowest = np.full(domains, np.iinfo(np.int64).max)
    lacking = np.zeros(domains, np.int64)
    for level in (None, *np.unique(level_of).tolist()):
        removed = np.where(level_of <= level, candidates.count, 0) if level is not None else candidates.count * 0
        freed = trial.free + candidates.freed(removed)
        enough: Bool = np.ones(domains, np.bool_)
        for need in trial.needs:
            fits = np.where(inside, need.now, 0)
            fits[candidates.rows] = np.where(here >= 0, need.fits(freed), 0)
            seats = np.bincount(domain_of[inside], fits[inside], domains).astype(np.int64)
            enough &= seats >= need.needed
            if level is None:
                lacking += np.maximum(need.needed - seats, 0)
        lowest[enough & (lowest == np.iinfo(np.int64).max)] = -1 if level is None else level
    possible = np.flatnonzero(lowest < np.iinfo(np.int64).max)
    order = possible[np.lexsort((lacking[possible], lowest[possible]))]
    most = min(_MAX_DOMAINS, max(_FEWEST_DOMAINS, MAX_ENTRIES // max(1, len(candidates))))
    chosen: list[int] = order[:most].tolist()
    return chosen


def _harm(candidates: VictimTable, removed: Int64) -> tuple[int, int, list[int], int]:
    """The highest level, how many gangs lose more than they can spare, which, and pods in all."""
    lost = np.bincount(candidates.gang, removed, len(candidates.gangs)).astype(np.int64)
    gone = np.flatnonzero(lost)
    level = max((candidates.gangs[gang].level for gang in gone.tolist()), default=-1)
    whole = [gang for gang in gone.tolist() if lost[gang] > candidates.gangs[gang].spare]
    return level, len(whole), whole, int(removed.sum())


@contextmanager
def _nothing_free_but_in(state: CapacityState, rows: Bool) -> Iterator[None]:
    """As if all other nodes were full, and remained so whoever goes."""
    others = np.flatnonzero(~rows)
    checkpoint = state.checkpoint()
    state.change_free(others, np.full((len(state.free), len(others)), -NOTHING_FREE))
    try:
        yield
    finally:
        state.rollback(checkpoint)
