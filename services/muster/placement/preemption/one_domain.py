"""Selects victims for gangs that need one topology domain: domain by domain, with all other nodes excluded."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
from msgspec import structs

from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelPolicy
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.preemption.dry_run import EXCLUDED, DryRun, VictimTable
from muster.placement.solve.instance import Part, is_constrained
from muster.placement.solve.level_rules import packed_levels, rules_of
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree

MAX_ENTRIES: Final = 4_000
"""Entries of the victim table times domains that are examined: the smaller the table, the more domains."""
_SMALL_TABLE: Final = 64
"""Entries up to which the search over all nodes is good enough."""
_MIN_DOMAINS: Final = 2
_MAX_DOMAINS: Final = 16
_NEVER: Final = np.iinfo(np.int64).max

SelectVictims = Callable[[DryRun], Int64 | None]
"""The victims, int64[entries], None if none were found."""


@dataclass(frozen=True)
class PackedGang:
    """A gang whose members must all be in one domain: `domain_of` is int64[rows], -1 for rows outside every domain.

    `gang` has the remaining constraints.
    """

    gang: SolveGang
    domain_of: Int64


def packed_gang(state: CapacityState, group: SolveGroup) -> PackedGang | None:
    """The single gang of a group if hard pack constraints, from the top of its tree down, confine it to one domain."""
    if len(group.gangs) != 1 or group.composites:
        return None
    [gang] = group.gangs
    tree = state.trees.get(gang.tree)
    assert tree is not None, f"tree {gang.tree!r} was not checked"
    packed = packed_levels(rules_of(gang.constraints, tree.level_names))
    if not packed:
        return None
    names = {tree.level_names[level] for level in packed}
    rest = tuple(each for each in gang.constraints if each.level not in names or each.policy is not LevelPolicy.PACK)
    inside_only = packed[0] < len(tree.levels)
    return PackedGang(structs.replace(gang, constraints=rest), _domains(state, tree, gang, packed[-1], inside_only))


def victims_in_one_domain(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    table: VictimTable,
    packed: PackedGang,
    select_victims: SelectVictims,
) -> Int64 | None:
    """The least harmful victims found in the most promising domains."""
    inside = structs.replace(group, gangs=(packed.gang,))
    found = []
    for domain in _promising_domains(state, inside, parts, table, packed.domain_of):
        with _only_nodes(state, packed.domain_of == domain):
            found.append(select_victims(DryRun(state, inside, parts, table)))
    return _least_harmful(table, found)


def victims_near(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    table: VictimTable,
    nodes: Iterable[str],
    select_victims: SelectVictims,
) -> Int64 | None:
    """The least harmful victims found on all nodes and, for a constrained group and a large table, in the domains of
    `nodes` alone: the nodes on which the group would be placed if all potential victims were evicted.
    """
    found = [select_victims(DryRun(state, group, parts, table))]
    if is_constrained(group) and len(table) > _SMALL_TABLE:
        with _only_nodes(state, _domains_of_nodes(state, group, nodes)):
            found.append(select_victims(DryRun(state, group, parts, table)))
    return _least_harmful(table, found)


def _domains_of_nodes(state: CapacityState, group: SolveGroup, nodes: Iterable[str]) -> Bool:
    """Rows in the domains of the nodes, at the lowest constrained level above the nodes of each gang's tree."""
    rows = np.array(sorted({row for name in nodes if (row := state.nodes.row(name)) is not None}), np.int64)
    included: Bool = np.zeros(state.nodes.rows, np.bool_)
    included[rows] = True
    for gang in group.gangs:
        tree = state.trees.get(gang.tree)
        if tree is not None and tree.levels:
            named = {each.level for each in gang.constraints}
            levels = [level for level in tree.levels if level.name in named] or tree.levels[-1:]
            of = levels[-1].of
            included[tree.rows[np.isin(of, of[tree.position[rows]])]] = True
    return included


def _domains(state: CapacityState, tree: Tree, gang: SolveGang, level: int, inside_only: bool) -> Int64:
    """The domain of each row; if members are placed already, only their domain."""
    of = tree.levels[level].of if level < len(tree.levels) else np.arange(len(tree.rows))
    of = of.copy()
    if inside_only:
        of[tree.inside :] = -1
    for place in {tree.position_of(pods.node) for pods in gang.placed} - {None}:
        of[of != of[place]] = -1
    domain_of: Int64 = np.full(state.nodes.rows, -1, np.int64)
    domain_of[tree.rows] = of
    return domain_of


def _promising_domains(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], table: VictimTable, domain_of: Int64
) -> list[int]:
    """Domains with enough seats for each class by itself: lowest preemption level first, then fewest missing seats."""
    dry_run = DryRun(state, group, parts, table)
    level_of = table.level
    domains = int(domain_of.max(initial=-1)) + 1
    inside = domain_of >= 0
    domain_of_node = domain_of[table.rows]
    lowest_level = np.full(domains, _NEVER)
    missing = np.zeros(domains, np.int64)
    for level in (None, *np.unique(level_of).tolist()):
        victims = np.where(level_of <= level, table.count, 0) if level is not None else table.count * 0
        free = dry_run.free + table.freed_by(victims)
        enough: Bool = np.ones(domains, np.bool_)
        for need in dry_run.needs:
            fits = np.where(inside, need.now, 0)
            fits[table.rows] = np.where(domain_of_node >= 0, need.fits(free), 0)
            seats = np.bincount(domain_of[inside], fits[inside], domains).astype(np.int64)
            enough &= seats >= need.needed
            if level is None:
                missing += np.maximum(need.needed - seats, 0)
        lowest_level[enough & (lowest_level == _NEVER)] = -1 if level is None else level
    possible = np.flatnonzero(lowest_level < _NEVER)
    order = possible[np.lexsort((missing[possible], lowest_level[possible]))]
    most = min(_MAX_DOMAINS, max(_MIN_DOMAINS, MAX_ENTRIES // max(1, len(table))))
    chosen: list[int] = order[:most].tolist()
    return chosen


def _least_harmful(table: VictimTable, found: Iterable[Int64 | None]) -> Int64 | None:
    selections = [victims for victims in found if victims is not None]
    return min(selections, key=lambda victims: _harm(table, victims), default=None)


def _harm(table: VictimTable, victims: Int64) -> tuple[int, int, list[int], int]:
    """The highest preemption level, the number of gangs that lose more than they can spare, these gangs, all pods."""
    lost = table.pods_by_gang(victims)
    losing = np.flatnonzero(lost).tolist()
    level = max((table.gangs[gang].level for gang in losing), default=-1)
    whole = [gang for gang in losing if lost[gang] > table.gangs[gang].spare]
    return level, len(whole), whole, int(victims.sum())


@contextmanager
def _only_nodes(state: CapacityState, rows: Bool) -> Iterator[None]:
    """Exclude all other nodes, whatever is evicted."""
    others = np.flatnonzero(~rows)
    checkpoint = state.checkpoint()
    state.change_free(others, np.full((len(state.free), len(others)), -EXCLUDED))
    try:
        yield
    finally:
        state.rollback(checkpoint)
