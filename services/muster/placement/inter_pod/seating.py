"""Seats members of interacting groups: many at once by water-filling where the rules allow it, else one by one."""

from itertools import islice

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.domains import AllowedRows, affinity_domains
from muster.placement.inter_pod.topology_spread import COST_PER_POD, PreferredSpread
from muster.placement.inter_pod.water_filling import (
    RestrictedFit,
    WaterFilling,
    interacting_rules,
    seats_by_domain,
    water_fill,
)
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.packing import Seats, choose, fewest_nodes
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import WEIGHT_COST


def seat(state: CapacityState, index: int, part: Part, wanted: int, allowed: AllowedRows, solution: Solution) -> int:
    """Take capacity for up to `wanted` more members of a part; returns how many were seated."""
    seated = 0
    for domain in _domains(state, part, allowed):
        while seated < wanted:
            of_class = state.of(part.class_id)
            rows, counts = _next_seats(state, of_class, wanted - seated, domain)
            if not len(rows):
                break
            state.reserve(of_class, rows, counts)
            solution.seats.append((index, (rows, counts)))
            seated += int(counts.sum())
    solution.placed[index] += seated
    return seated


def merged(solution: Solution) -> Solution:
    """The same solution with each node listed once per part."""
    seats: dict[int, list[Seats]] = {}
    for index, taken in solution.seats:
        seats.setdefault(index, []).append(taken)
    return Solution(solution.placed, [(index, _merged(taken)) for index, taken in seats.items()])


def _merged(seats: list[Seats]) -> Seats:
    rows, index = np.unique(np.concatenate([rows for rows, _ in seats]), return_inverse=True)
    counts = np.bincount(index, np.concatenate([counts for _, counts in seats]))
    return rows, counts.astype(np.int64)


def _domains(state: CapacityState, part: Part, allowed: AllowedRows) -> list[AllowedRows]:
    """Where to seat members: the best domain if their affinity needs one, else all allowed nodes."""
    domains = affinity_domains(state, [part], allowed)
    if domains is None:
        return [allowed]
    return [*islice(domains, 1)]


def _next_seats(state: CapacityState, of_class: ClassCapacity, wanted: int, allowed: AllowedRows) -> Seats:
    """Nodes for some of the members, none if no member fits.

    All members can be seated at once unless their rules concern several labels whose domains have several nodes:
    domains of one spread constraint never block one another, nor do single-node domains.
    """
    fits = of_class.fits if allowed is None else np.where(allowed, of_class.fits, 0)
    rules = of_class.inter_pod
    if rules is None:
        return choose(state, RestrictedFit(fits, of_class.penalty), wanted, fewest_nodes)
    interacting = interacting_rules(rules)
    multi_node_keys = {rule.key for rule in interacting if not rule.domains.single}
    if rules.preferences_interact():
        if not interacting and rules.members_repel_on_their_node_only():
            return _one_per_cheapest_node(state, of_class, fits, wanted)
        spread = rules.sole_preferred_spread()
        if not interacting and spread is not None:
            return _spread_by_preference(state, of_class, fits, wanted, spread)
        return _one_member(state, of_class, fits)
    if len(multi_node_keys) > 1:
        return _one_member(state, of_class, fits)
    if interacting:
        key = min(multi_node_keys, default=interacting[0].key)
        filling = WaterFilling(of_class, key, [rule for rule in interacting if rule.key == key], allowed)
        return filling.seats(state, min(wanted, filling.max_members))
    return choose(state, RestrictedFit(fits, of_class.penalty), wanted, fewest_nodes)


def _one_per_cheapest_node(state: CapacityState, of_class: ClassCapacity, fits: Int64, wanted: int) -> Seats:
    """One member on each node of the lowest cost: a member raises the cost of its own node only."""
    rows = np.flatnonzero(fits)
    cheapest = np.zeros_like(fits)
    cheapest[_least(rows, of_class.penalty[rows])] = 1
    return choose(state, RestrictedFit(cheapest, of_class.penalty), wanted, fewest_nodes)


def _spread_by_preference(
    state: CapacityState, of_class: ClassCapacity, fits: Int64, wanted: int, spread: PreferredSpread
) -> Seats:
    """Members over the domains of a ScheduleAnyway constraint, lowest cost first, until the cheapest nodes of a domain
    are full.
    """
    domains, cost = spread.domains, of_class.penalty
    rows = np.flatnonzero(fits)
    if not len(rows):
        return rows, rows
    codes = domains.codes[rows]
    least = np.full(domains.size, np.iinfo(np.int64).max)
    np.minimum.at(least, codes, cost[rows])
    cheapest = rows[cost[rows] == least[codes]]
    capacity = np.bincount(domains.codes[cheapest], fits[cheapest], domains.size).astype(np.int64)
    used = np.flatnonzero(capacity)
    used = used[np.lexsort((domains.by_name[used], least[used]))]
    members = least[used] // (COST_PER_POD * WEIGHT_COST)
    members -= members.min()
    until = int((members + capacity[used]).min())
    wanted = min(wanted, int(np.clip(until - members, 0, capacity[used]).sum()))
    shares = np.zeros(domains.size, np.int64)
    shares[used] = water_fill(members, capacity[used], wanted, np.arange(len(used)))
    best = np.zeros_like(fits)
    best[cheapest] = fits[cheapest]
    return seats_by_domain(state, domains, best, cost, shares)


def _one_member(state: CapacityState, of_class: ClassCapacity, fits: Int64) -> Seats:
    """A node for one member: lowest cost, then the domain that spreading fills first, then the tightest node."""
    rows = np.flatnonzero(fits > 0)
    if not len(rows):
        return rows, rows
    rows = _least(rows, of_class.penalty[rows])
    for rule in of_class.inter_pod.spread if of_class.inter_pod is not None else ():
        counts, _ = rule.counts()
        rows = _least(rows, counts[rule.domains.codes[rows]])
    best = np.zeros_like(fits)
    best[rows] = fits[rows]
    key = state.keys(RestrictedFit(best, of_class.penalty)).min(keepdims=True)
    return state.rows_of(key), np.array([1])


def _least(rows: Int64, values: Int64) -> Int64:
    least: Int64 = rows[values == values.min(initial=np.iinfo(np.int64).max)]
    return least
