"""Equal members that mind one another by the domains of one label: how many can be placed, and how many in each domain.

Of such members any number up to the most can be placed one by one, so that nothing has to be searched.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.rules import AntiAffinityRule
from muster.placement.inter_pod.topology_spread import TopologySpread
from muster.placement.solve.packing import Seats, choose, fewest_nodes
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.nodes import Bool, Domains


@dataclass(frozen=True)
class Within:
    """Some of the room for a class: as ClassRoom, with fewer nodes or seats."""

    fits: Int64
    penalty: Int64

    @property
    def penalties(self) -> list[int]:
        levels: list[int] = np.unique(self.penalty[self.fits > 0]).tolist()
        return levels


Moving = AntiAffinityRule | TopologySpread
"""Rules under which a member on one node changes what may go to others."""


def moving_rules(limits: InterPodRules | None) -> list[Moving]:
    """Those of a class; without the wish to be together, which is settled by the choice of a domain."""
    if limits is None:
        return []
    rules: list[Moving] = [*limits.spread, *limits.keep_away]
    return [rule for rule in rules if rule.members_interact()]


def most_members(of_class: ClassCapacity, allowed: Bool | None) -> int:
    """No more members than this can be placed on the nodes allowed; exact if they mind one another by one label."""
    moving = moving_rules(of_class.inter_pod)
    if not moving:
        return int(_fits(of_class, [], allowed).sum())
    return min(WaterFilling(of_class, key, moving, allowed).most for key in {rule.key for rule in moving})


class WaterFilling:
    """Room for members of a class by the domains of one label, the rules on other labels left out of account.

    `most` members have room.
    """

    def __init__(self, of_class: ClassCapacity, key: str, moving: Sequence[Moving], allowed: Bool | None) -> None:
        assert of_class.inter_pod is not None, "without limits no rule is moving"
        rules = [rule for rule in moving if rule.key == key]
        self._of_class = of_class
        self._spread = next((rule for rule in rules if isinstance(rule, TopologySpread)), None)
        self._apart = [rule for rule in rules if isinstance(rule, AntiAffinityRule)]
        self._domains: Domains = rules[0].domains
        fits = _fits(of_class, moving, allowed)
        for rule in self._apart:
            fits = np.minimum(fits, rule.caps())
        if self._spread is not None:
            fits = np.where(self._domains.codes > 0, fits, 0)
        self._fits = fits
        self._capacity = self._measure()
        self.most = int(self._capacity.sum())

    def seats(self, state: CapacityState, wanted: int) -> Seats:
        """Nodes for `wanted` members, no more than `most`."""
        codes, fits = self._domains.codes, self._fits
        if not wanted:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._apart or self._domains.single:
            fits = self._best_of_each(state)
        if self._spread is None:
            return choose(state, Within(fits, self._of_class.penalty), wanted, fewest_nodes)
        counts, _ = self._spread.counts()
        shares = level(counts, self._capacity, wanted, self._order(state))
        if self._domains.single:
            shares_by_row = np.minimum(fits, shares[codes])
            rows = np.flatnonzero(shares_by_row)
            return rows, shares_by_row[rows]
        taken = [
            choose(state, Within(np.where(codes == domain, fits, 0), self._of_class.penalty), share, fewest_nodes)
            for domain, share in enumerate(shares.tolist())
            if share
        ]
        return np.concatenate([rows for rows, _ in taken]), np.concatenate([counts for _, counts in taken])

    def _measure(self) -> Int64:
        """How many members each domain can have at last; the first stands for nodes without the label."""
        capacity = np.bincount(self._domains.codes, self._fits, self._domains.size).astype(np.int64)
        if self._apart:
            capacity[1:] = np.minimum(capacity[1:], 1)
        if self._spread is not None:
            counts, _ = self._spread.counts()
            highest = self._spread.floor(capacity) + self._spread.constraint.max_skew
            capacity = np.minimum(capacity, np.maximum(highest - counts, 0))
        return capacity

    def _ranked(self, state: CapacityState) -> Int64:
        """Rows that have room, the best first: liked most, then tightest, then by name."""
        rows = np.flatnonzero(self._fits > 0)
        keys = state.keys(Within(self._fits, self._of_class.penalty))
        ranked: Int64 = rows[np.lexsort((keys, self._of_class.penalty[rows]))]
        return ranked

    def _best_of_each(self, state: CapacityState) -> Int64:
        """The room of the best node of each domain, and of all without the label."""
        ranked = self._ranked(state)
        codes = self._domains.codes[ranked]
        _, first = np.unique(codes, return_index=True)
        best = np.zeros_like(self._fits)
        chosen = np.concatenate((ranked[first], ranked[codes == 0]))
        best[chosen] = self._fits[chosen]
        return best

    def _order(self, state: CapacityState) -> Int64:
        """Domains in the order in which they get one more than others: by their best nodes, then by name."""
        domains = self._domains
        if domains.single:
            order = domains.codes[self._ranked(state)]
            return order[order > 0]
        penalty = np.full(domains.size, np.iinfo(np.int64).max)
        usable = self._fits > 0
        np.minimum.at(penalty, domains.codes[usable], self._of_class.penalty[usable])
        order = np.lexsort((domains.by_name, penalty))
        return order[self._capacity[order] > 0]


def level(counts: Int64, capacity: Int64, wanted: int, order: Int64) -> Int64:
    """Shares of `wanted` that raise the lowest counts first, none above its capacity: int64 as `counts`.

    Where not all can have one more, the first in `order` have it.
    """
    low, high = 0, int((counts + capacity).max(initial=0))
    while low < high:  # the highest level to which there are enough to raise all
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


def _fits(of_class: ClassCapacity, left_out: Sequence[Moving], allowed: Bool | None) -> Int64:
    fits = of_class.alone if of_class.inter_pod is None else of_class.fits
    if of_class.inter_pod is not None and left_out:
        fits = np.minimum(of_class.alone, of_class.inter_pod.caps_without(left_out))
    return fits if allowed is None else np.where(allowed, fits, 0)
