"""Seats members of interacting groups: many at once by water-filling where the rules allow it, else one by one.

Members whose rules concern one topology label can be placed one by one in any number up to a maximum, so they are
counted and seated without a search: spreading is a water-filling problem over the domains of the label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.domains import AllowedRows, affinity_domains
from muster.placement.inter_pod.rules import COST_PER_POD, AntiAffinityRule, PreferredSpread, TopologySpread
from muster.placement.solve.instance import Part, Solution
from muster.placement.solve.packing import Seats, choose, fewest_nodes
from muster.placement.state.capacity import CapacityState
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.filters import WEIGHT_COST
from muster.placement.state.nodes import Domains


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
    """A solution with each node listed once per part."""
    seats: dict[int, list[Seats]] = {}
    for index, taken in solution.seats:
        seats.setdefault(index, []).append(taken)
    return Solution(solution.placed, [(index, _merged(taken)) for index, taken in seats.items()])


def _merged(seats: list[Seats]) -> Seats:
    rows, index = np.unique(np.concatenate([rows for rows, _ in seats]), return_inverse=True)
    counts = np.bincount(index, np.concatenate([counts for _, counts in seats]))
    return rows, counts.astype(np.int64)


def _domains(state: CapacityState, part: Part, allowed: AllowedRows) -> list[AllowedRows]:
    """Domains in which members are seated: the best one if their affinity needs one, else all allowed nodes."""
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


@dataclass(frozen=True)
class RestrictedFit:
    """Seats of a class for packing (see Seatable), on fewer nodes or in smaller numbers than the class has."""

    fits: Int64
    penalty: Int64

    @property
    def penalties(self) -> list[int]:
        levels: list[int] = np.unique(self.penalty[self.fits > 0]).tolist()
        return levels


InteractingRule = AntiAffinityRule | TopologySpread
"""A rule under which placing a member on one node changes what other nodes accept."""


def interacting_rules(rules: InterPodRules | None) -> list[InteractingRule]:
    """Interacting rules of a class, without affinity: the choice of a domain settles it."""
    if rules is None:
        return []
    candidates: list[InteractingRule] = [*rules.spread, *rules.anti_affinity]
    return [rule for rule in candidates if rule.members_interact()]


def max_members(of_class: ClassCapacity, allowed: AllowedRows) -> int:
    """Upper bound on the members that fit on the allowed nodes; exact if the rules concern one topology label."""
    interacting = interacting_rules(of_class.inter_pod)
    if not interacting:
        return int(_fits(of_class, [], allowed).sum())
    keys = {rule.key for rule in interacting}
    return min(WaterFilling(of_class, key, interacting, allowed).max_members for key in keys)


class WaterFilling:
    """Seats for members of a class by the domains of one topology label; rules on other labels are ignored.

    `max_members` is how many fit.
    """

    def __init__(
        self, of_class: ClassCapacity, key: str, interacting: Sequence[InteractingRule], allowed: AllowedRows
    ) -> None:
        assert of_class.inter_pod is not None, "a class without inter-pod rules has no interacting rule"
        rules = [rule for rule in interacting if rule.key == key]
        self._of_class = of_class
        self._spread = next((rule for rule in rules if isinstance(rule, TopologySpread)), None)
        self._anti_affinity = [rule for rule in rules if isinstance(rule, AntiAffinityRule)]
        self._domains: Domains = rules[0].domains
        fits = _fits(of_class, interacting, allowed)
        for rule in self._anti_affinity:
            fits = np.minimum(fits, rule.caps())
        if self._spread is not None:
            fits = np.where(self._domains.codes > 0, fits, 0)
        self._fits = fits
        self._capacity = self._domain_capacity()
        self.max_members = int(self._capacity.sum())

    def seats(self, state: CapacityState, wanted: int) -> Seats:
        """Nodes for `wanted` members, at most `max_members`."""
        codes, fits = self._domains.codes, self._fits
        if not wanted:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._anti_affinity or self._domains.single:
            fits = self._best_node_of_each_domain(state)
        if self._spread is None:
            return choose(state, RestrictedFit(fits, self._of_class.penalty), wanted, fewest_nodes)
        counts, _ = self._spread.counts()
        shares = water_fill(counts, self._capacity, wanted, self._domain_order(state))
        if self._domains.single:
            shares_by_row = np.minimum(fits, shares[codes])
            rows = np.flatnonzero(shares_by_row)
            return rows, shares_by_row[rows]
        return seats_by_domain(state, self._domains, fits, self._of_class.penalty, shares)

    def _domain_capacity(self) -> Int64:
        """Members that each domain can hold in the end; the first value stands for nodes without the label."""
        capacity = np.bincount(self._domains.codes, self._fits, self._domains.size).astype(np.int64)
        if self._anti_affinity:
            capacity[1:] = np.minimum(capacity[1:], 1)
        if self._spread is not None:
            counts, _ = self._spread.counts()
            highest = self._spread.final_minimum(capacity) + self._spread.constraint.max_skew
            capacity = np.minimum(capacity, np.maximum(highest - counts, 0))
        return capacity

    def _ranked_rows(self, state: CapacityState) -> Int64:
        """Rows with a seat: lowest cost first, then tightest, then by name."""
        rows = np.flatnonzero(self._fits > 0)
        keys = state.keys(RestrictedFit(self._fits, self._of_class.penalty))
        ranked: Int64 = rows[np.lexsort((keys, self._of_class.penalty[rows]))]
        return ranked

    def _best_node_of_each_domain(self, state: CapacityState) -> Int64:
        """Seats on the best node of each domain, and on all nodes without the label."""
        ranked = self._ranked_rows(state)
        codes = self._domains.codes[ranked]
        _, first = np.unique(codes, return_index=True)
        best = np.zeros_like(self._fits)
        chosen = np.concatenate((ranked[first], ranked[codes == 0]))
        best[chosen] = self._fits[chosen]
        return best

    def _domain_order(self, state: CapacityState) -> Int64:
        """Domains in the order in which they receive a remainder: by their best nodes, then by name."""
        domains = self._domains
        if domains.single:
            order = domains.codes[self._ranked_rows(state)]
            return order[order > 0]
        cost = np.full(domains.size, np.iinfo(np.int64).max)
        usable = self._fits > 0
        np.minimum.at(cost, domains.codes[usable], self._of_class.penalty[usable])
        order = np.lexsort((domains.by_name, cost))
        return order[self._capacity[order] > 0]


def water_fill(counts: Int64, capacity: Int64, wanted: int, order: Int64) -> Int64:
    """Shares of `wanted` that raise the lowest counts first, none above its capacity: int64, shaped as `counts`.

    Domains that come first in `order` receive the remainder.
    """
    low, high = 0, int((counts + capacity).max(initial=0))
    while low < high:  # the highest level to which all can be raised
        middle = (low + high + 1) // 2
        if int(np.clip(middle - counts, 0, capacity).sum()) <= wanted:
            low = middle
        else:
            high = middle - 1
    shares: Int64 = np.clip(low - counts, 0, capacity)
    left = wanted - int(shares.sum())
    if left:
        next_up = np.clip(low + 1 - counts, 0, capacity) > shares
        shares[order[next_up[order]][:left]] += 1
    return shares


def seats_by_domain(state: CapacityState, domains: Domains, fits: Int64, cost: Int64, shares: Int64) -> Seats:
    """Nodes for a share of members in each domain: `shares` is int64[domains.size], `fits` and `cost` int64[rows]."""
    taken = [
        choose(state, RestrictedFit(np.where(domains.codes == domain, fits, 0), cost), share, fewest_nodes)
        for domain, share in enumerate(shares.tolist())
        if share
    ]
    return np.concatenate([rows for rows, _ in taken]), np.concatenate([counts for _, counts in taken])


def _fits(of_class: ClassCapacity, ignored: Sequence[InteractingRule], allowed: AllowedRows) -> Int64:
    fits = of_class.alone if of_class.inter_pod is None else of_class.fits
    if of_class.inter_pod is not None and ignored:
        fits = np.minimum(of_class.alone, of_class.inter_pod.caps_without(ignored))
    return fits if allowed is None else np.where(allowed, fits, 0)
