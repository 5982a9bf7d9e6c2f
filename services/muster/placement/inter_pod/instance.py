"""A few nodes and all that few members mind there, in plain numbers: an exact search puts members on and off.

The rules are those of pod_rules and spreading; where arrays of all nodes would be slow, because there are few.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.rules import AffinityRule, AntiAffinityRule, HostPortsRule
from muster.placement.inter_pod.topology_spread import TopologySpread
from muster.placement.solve.instance import Part
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.nodes import Bool, Domains


class Instance:
    """The nodes at `rows`, called by their index there, and the parts of a group, by theirs."""

    def __init__(self, state: CapacityState, parts: Sequence[Part], rows: Int64) -> None:
        self.nodes = range(len(rows))
        class_capacities = [state.of(part.class_id) for part in parts]
        asks = np.array([each.vector(len(state.free)) for each in class_capacities])
        asked = np.flatnonzero(asks.any(axis=0))
        self._asks: list[list[int]] = asks[:, asked].tolist()
        self._free: list[list[int]] = state.free[asked[:, None], rows].T.tolist()
        indexes = [state.capacity.classes[part.class_id] for part in parts]
        group = set(indexes)
        by_class: dict[int, list[_Rule]] = {}
        for index, each in zip(indexes, class_capacities, strict=True):
            if index not in by_class:
                by_class[index] = [] if each.inter_pod is None else _moving(state, each.inter_pod, rows, group)
        self._usable: list[list[bool]] = [_usable(each, rows, group).tolist() for each in class_capacities]
        self._checks = [by_class[index] for index in indexes]
        self._counted_by = [
            [rule for rules in by_class.values() for rule in rules if index in rule.classes] for index in indexes
        ]

    def may_go(self, part: int, node: int) -> bool:
        """One more member of the part may come to the node now."""
        return (
            self._usable[part][node]
            and all(want <= have for want, have in zip(self._asks[part], self._free[node], strict=True))
            and all(rule.admits(node) for rule in self._checks[part])
        )

    def put(self, part: int, node: int, count: int) -> None:
        """Put a member on a node, or take it off: `count` is 1 or -1."""
        free = self._free[node]
        for resource, want in enumerate(self._asks[part]):
            free[resource] -= count * want
        for rule in self._counted_by[part]:
            rule.count(node, count)

    def seats(self, part: int, enough: int, by_rules: bool) -> int:
        """How many more members of the part have room, each node by itself; `enough` if they are more."""
        seats = 0
        for node in self.nodes:
            if self._usable[part][node] and not (by_rules and not self.may_go(part, node)):
                seats += self._seats_on(part, node, enough, by_rules)
                if seats >= enough:
                    return enough
        return seats

    def _seats_on(self, part: int, node: int, enough: int, by_rules: bool) -> int:
        if by_rules and any(rule.one_each for rule in self._checks[part]):
            return 1
        asks, free = self._asks[part], self._free[node]
        return max(0, min((have // want for want, have in zip(asks, free, strict=True) if want), default=enough))


class _Rule(Protocol):
    """`classes` are the indexes of classes whose pods count; `one_each`: no node takes two members."""

    classes: set[int]
    one_each: bool

    def admits(self, node: int) -> bool: ...

    def count(self, node: int, count: int) -> None: ...


def _usable(of_class: ClassCapacity, rows: Int64, group: set[int]) -> Bool:
    """Nodes that members may use as far as that does not change when some of the group are placed."""
    usable: Bool = of_class.alone[rows] > 0
    if of_class.inter_pod is not None:
        usable &= of_class.inter_pod.caps_without(_rules_about(of_class.inter_pod, group))[rows] > 0
    return usable


def _rules_about(
    limits: InterPodRules, group: set[int]
) -> list[HostPortsRule | TopologySpread | AffinityRule | AntiAffinityRule]:
    """Rules that count pods of the group's classes."""
    rules: list[HostPortsRule | TopologySpread | AffinityRule | AntiAffinityRule] = [
        *limits.ports,
        *limits.spread,
        *limits.together,
        *limits.keep_away,
    ]
    return [rule for rule in rules if not rule.tally.classes.isdisjoint(group)]


def _moving(state: CapacityState, limits: InterPodRules, rows: Int64, group: set[int]) -> list[_Rule]:
    small: list[_Rule] = []
    for rule in _rules_about(limits, group):
        if isinstance(rule, HostPortsRule):
            small.append(_Held(rule, rows))
        elif isinstance(rule, AntiAffinityRule):
            small.append(_Apart(rule, rows))
        elif isinstance(rule, AffinityRule):
            small.append(_Near(rule, state, rows))
        else:
            small.append(_Evenly(rule, rows))
    return small


class _Places:
    """Which of the domains that have any of the nodes each node is in, -1 without the label, and counts of those."""

    def __init__(self, domains: Domains, counts: Int64, rows: Int64) -> None:
        codes = domains.codes[rows]
        self.codes, index = np.unique(codes, return_inverse=True)
        self.of: list[int] = np.where(codes > 0, index, -1).tolist()
        self.counts: list[int] = counts[self.codes].tolist()


class _Held:
    one_each = True

    def __init__(self, rule: HostPortsRule, rows: Int64) -> None:
        self.classes = rule.tally.classes
        self._held: list[int] = rule.tally.on[rows].tolist()

    def admits(self, node: int) -> bool:
        return not self._held[node]

    def count(self, node: int, count: int) -> None:
        self._held[node] += count


class _Apart:
    def __init__(self, rule: AntiAffinityRule, rows: Int64) -> None:
        self.classes = rule.tally.classes
        self._places = _Places(rule.domains, rule.tally.by_domain(rule.domains), rows)
        self.one_each = rule.itself and -1 not in self._places.of

    def admits(self, node: int) -> bool:
        place = self._places.of[node]
        return place < 0 or not self._places.counts[place]

    def count(self, node: int, count: int) -> None:
        place = self._places.of[node]
        if place >= 0:
            self._places.counts[place] += count


class _Near:
    one_each = False

    def __init__(self, rule: AffinityRule, state: CapacityState, rows: Int64) -> None:
        self.classes = rule.tally.classes
        self._itself = rule.itself
        domains = [state.nodes.domains(key) for key in rule.keys]
        sums = [rule.tally.by_domain(each) for each in domains]
        self._places = [_Places(each, counts, rows) for each, counts in zip(domains, sums, strict=True)]
        self._anywhere = sum(int(counts[1:].sum()) for counts in sums)

    def admits(self, node: int) -> bool:
        if not self._anywhere and not self._itself:
            return False
        return all(
            places.of[node] >= 0 and (not self._anywhere or places.counts[places.of[node]] > 0)
            for places in self._places
        )

    def count(self, node: int, count: int) -> None:
        for places in self._places:
            if places.of[node] >= 0:
                places.counts[places.of[node]] += count
                self._anywhere += count


class _Evenly:
    one_each = False

    def __init__(self, rule: TopologySpread, rows: Int64) -> None:
        counts, eligible = rule.counts()
        self.classes = rule.tally.classes
        self._places = _Places(rule.domains, counts, rows)
        self._included: list[bool] = rule.included()[rows].tolist()
        self._eligible: list[int] = np.flatnonzero(eligible[self._places.codes]).tolist()
        elsewhere = eligible.copy()
        elsewhere[self._places.codes] = False
        self._least_elsewhere = int(counts[elsewhere].min(initial=np.iinfo(np.int64).max))
        self._always_empty = int(eligible.sum()) < rule.constraint.min_domains
        self._most = rule.constraint.max_skew - int(rule.itself)

    def admits(self, node: int) -> bool:
        place, counts = self._places.of[node], self._places.counts
        if place < 0:
            return False
        least = 0
        if not self._always_empty:
            least = min([self._least_elsewhere, *[counts[each] for each in self._eligible]])
        return counts[place] - least <= self._most

    def count(self, node: int, count: int) -> None:
        if self._included[node]:
            self._places.counts[self._places.of[node]] += count
