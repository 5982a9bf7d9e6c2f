"""Seats members that mind one another: by levels of domains where that can be, else one by one."""

from itertools import islice

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.domains import Region, common_domains
from muster.placement.inter_pod.topology_spread import COST_PER_POD, PreferredSpread
from muster.placement.inter_pod.water_filling import WaterFilling, Within, level, moving_rules
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.packing import Seats, choose, fewest_nodes
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import WEIGHT_COST


def seat(state: CapacityState, index: int, part: Part, wanted: int, region: Region, solution: Solution) -> int:
    """Take room for up to `wanted` more members of a part; returns how many got it."""
    seated = 0
    for domain in _domains(state, part, region):
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


def joined(solution: Solution) -> Solution:
    """The same, with each node named once for each part."""
    seats: dict[int, list[Seats]] = {}
    for index, taken in solution.seats:
        seats.setdefault(index, []).append(taken)
    return Solution(solution.placed, [(index, _joined(taken)) for index, taken in seats.items()])


def _joined(seats: list[Seats]) -> Seats:
    rows, index = np.unique(np.concatenate([rows for rows, _ in seats]), return_inverse=True)
    counts = np.bincount(index, np.concatenate([counts for _, counts in seats]))
    return rows, counts.astype(np.int64)


def _domains(state: CapacityState, part: Part, region: Region) -> list[Region]:
    """Where members that want to be together can be; as good as any where the next ones are."""
    regions = common_domains(state, [part], region)
    if regions is None:
        return [region]
    return [*islice(regions, 1)]


def _next_seats(state: CapacityState, of_class: ClassCapacity, wanted: int, region: Region) -> Seats:
    """Nodes for some members that may come in any order, none if there is no room for any.

    Domains of spreading never hinder one another, nor do nodes that are domains by themselves; so that all can be
    seated at once unless they mind one another by more than one label with larger domains.
    """
    fits = of_class.fits if region is None else np.where(region, of_class.fits, 0)
    limits = of_class.inter_pod
    if limits is None:
        return choose(state, Within(fits, of_class.penalty), wanted, fewest_nodes)
    moving = moving_rules(limits)
    wide = {rule.key for rule in moving if not rule.domains.single}
    if limits.preferences_interact():
        if not moving and limits.dislikes_by_node():
            return _one_each(state, of_class, fits, wanted)
        wish = limits.spread_wish()
        if not moving and wish is not None:
            return _evenly(state, of_class, fits, wanted, wish)
        return _one(state, of_class, fits)
    if len(wide) > 1:
        return _one(state, of_class, fits)
    if moving:
        key = min(wide, default=moving[0].key)
        levelling = WaterFilling(of_class, key, [rule for rule in moving if rule.key == key], region)
        return levelling.seats(state, min(wanted, levelling.most))
    return choose(state, Within(fits, of_class.penalty), wanted, fewest_nodes)


def _one_each(state: CapacityState, of_class: ClassCapacity, fits: Int64, wanted: int) -> Seats:
    """One member on each of the nodes that are liked most: it makes that node worse, and no other."""
    rows = np.flatnonzero(fits)
    liked_most = np.zeros_like(fits)
    liked_most[_least(rows, of_class.penalty[rows])] = 1
    return choose(state, Within(liked_most, of_class.penalty), wanted, fewest_nodes)


def _evenly(state: CapacityState, of_class: ClassCapacity, fits: Int64, wanted: int, wish: PreferredSpread) -> Seats:
    """Members over the domains of a wish to spread, the least disliked first, until one has no more room on the nodes
    that it likes most.
    """
    domains, penalty = wish.domains, of_class.penalty
    rows = np.flatnonzero(fits)
    if not len(rows):
        return rows, rows
    codes = domains.codes[rows]
    least = np.full(domains.size, np.iinfo(np.int64).max)
    np.minimum.at(least, codes, penalty[rows])
    liked = rows[penalty[rows] == least[codes]]
    capacity = np.bincount(domains.codes[liked], fits[liked], domains.size).astype(np.int64)
    used = np.flatnonzero(capacity)
    used = used[np.lexsort((domains.by_name[used], least[used]))]
    members = least[used] // (COST_PER_POD * WEIGHT_COST)
    members -= members.min()
    until = int((members + capacity[used]).min())
    wanted = min(wanted, int(np.clip(until - members, 0, capacity[used]).sum()))
    shares = np.zeros(domains.size, np.int64)
    shares[used] = level(members, capacity[used], wanted, np.arange(len(used)))
    best = np.zeros_like(fits)
    best[liked] = fits[liked]
    taken = [
        choose(state, Within(np.where(domains.codes == domain, best, 0), penalty), int(shares[domain]), fewest_nodes)
        for domain in used.tolist()
        if shares[domain]
    ]
    return np.concatenate([rows for rows, _ in taken]), np.concatenate([counts for _, counts in taken])


def _one(state: CapacityState, of_class: ClassCapacity, fits: Int64) -> Seats:
    """A node for one member: where it is liked most, then where spreading wants it first, then the tightest."""
    rows = np.flatnonzero(fits > 0)
    if not len(rows):
        return rows, rows
    rows = _least(rows, of_class.penalty[rows])
    for rule in of_class.inter_pod.spread if of_class.inter_pod is not None else ():
        counts, _ = rule.counts()
        rows = _least(rows, counts[rule.domains.codes[rows]])
    best = np.zeros_like(fits)
    best[rows] = fits[rows]
    key = state.keys(Within(best, of_class.penalty)).min(keepdims=True)
    return state.rows_of(key), np.array([1])


def _least(rows: Int64, values: Int64) -> Int64:
    least: Int64 = rows[values == values.min(initial=np.iinfo(np.int64).max)]
    return least
