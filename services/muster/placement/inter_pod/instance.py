"""A group and few nodes in plain Python numbers, for a search that places and removes single members.

It applies the rules of `rules` and `topology_spread`; for few nodes plain numbers are faster than arrays of all nodes.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.pod_counts import PodCount
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.inter_pod.rules import AffinityRule, AntiAffinityRule, HostPortsRule, TopologySpread
from muster.placement.solve.instance import Part
from muster.placement.state.capacity import CapacityState
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.nodes import Bool, Domains


class Instance:
    """The nodes at `rows` and the parts of a group; both are addressed by index."""

    def __init__(self, state: CapacityState, parts: Sequence[Part], rows: Int64) -> None:
        self.nodes = range(len(rows))
        classes = [state.of(part.class_id) for part in parts]
        requests = np.array([each.vector(len(state.free)) for each in classes])
        requested = np.flatnonzero(requests.any(axis=0))
        self._requests: list[list[int]] = requests[:, requested].tolist()
        self._free: list[list[int]] = state.free[requested[:, None], rows].T.tolist()
        kinds = [each.kind for each in classes]
        group = set(kinds)
        by_kind: dict[Kind, list[_Rule]] = {}
        for kind, each in zip(kinds, classes, strict=True):
            if kind not in by_kind:
                by_kind[kind] = [] if each.inter_pod is None else _rules(state, each.inter_pod, rows, group)
        self._usable: list[list[bool]] = [_usable(each, rows, group).tolist() for each in classes]
        self._checks = [by_kind[kind] for kind in kinds]
        self._counted_by = [
            [rule for rules in by_kind.values() for rule in rules if rule.counted.counts(kind)] for kind in kinds
        ]

    def accepts(self, part: int, node: int) -> bool:
        """The node accepts one more member of the part now."""
        return (
            self._usable[part][node]
            and all(want <= have for want, have in zip(self._requests[part], self._free[node], strict=True))
            and all(rule.admits(node) for rule in self._checks[part])
        )

    def put(self, part: int, node: int, count: int) -> None:
        """Place a member on a node (`count` 1) or remove one (`count` -1)."""
        free = self._free[node]
        for resource, want in enumerate(self._requests[part]):
            free[resource] -= count * want
        for rule in self._counted_by[part]:
            rule.add(node, count)

    def seats(self, part: int, enough: int, by_rules: bool) -> int:
        """Upper bound on the further members of the part that fit, each node by itself; at most `enough`."""
        seats = 0
        for node in self.nodes:
            if self._usable[part][node] and not (by_rules and not self.accepts(part, node)):
                seats += self._seats_on(part, node, enough, by_rules)
                if seats >= enough:
                    return enough
        return seats

    def _seats_on(self, part: int, node: int, enough: int, by_rules: bool) -> int:
        if by_rules and any(rule.one_per_node for rule in self._checks[part]):
            return 1
        requests, free = self._requests[part], self._free[node]
        return max(0, min((have // want for want, have in zip(requests, free, strict=True) if want), default=enough))


class _Rule(Protocol):
    """`counted` are the pods that count; `one_per_node`: no node accepts two members."""

    counted: PodCount
    one_per_node: bool

    def admits(self, node: int) -> bool: ...

    def add(self, node: int, count: int) -> None: ...


_Source = HostPortsRule | TopologySpread | AffinityRule | AntiAffinityRule


def _usable(of_class: ClassCapacity, rows: Int64, group: set[Kind]) -> Bool:
    """Nodes that accept the class by everything that placing members of the group does not change."""
    usable: Bool = of_class.alone[rows] > 0
    if of_class.inter_pod is not None:
        usable &= of_class.inter_pod.caps_without(_rules_counting(of_class.inter_pod, group))[rows] > 0
    return usable


def _rules_counting(rules: InterPodRules, group: set[Kind]) -> list[_Source]:
    """Rules that count pods of the group's classes."""
    required: list[_Source] = [*rules.host_ports, *rules.spread, *rules.affinity, *rules.anti_affinity]
    return [rule for rule in required if rule.matching.counts_any(group)]


def _rules(state: CapacityState, rules: InterPodRules, rows: Int64, group: set[Kind]) -> list[_Rule]:
    return [_rule(state, rule, rows) for rule in _rules_counting(rules, group)]


def _rule(state: CapacityState, rule: _Source, rows: Int64) -> _Rule:
    match rule:
        case HostPortsRule():
            return _HostPorts(rule, rows)
        case AntiAffinityRule():
            return _AntiAffinity(rule, rows)
        case AffinityRule():
            return _Affinity(rule, state, rows)
        case TopologySpread():
            return _Spread(rule, rows)


class _DomainCounts:
    """The domain of each node, as an index into `counts`, -1 without the label. Domains without a node are left out."""

    def __init__(self, domains: Domains, counts: Int64, rows: Int64) -> None:
        codes = domains.codes[rows]
        self.codes, index = np.unique(codes, return_inverse=True)
        self.of: list[int] = np.where(codes > 0, index, -1).tolist()
        self.counts: list[int] = counts[self.codes].tolist()


class _HostPorts:
    one_per_node = True

    def __init__(self, rule: HostPortsRule, rows: Int64) -> None:
        self.counted = rule.matching
        self._holders: list[int] = rule.matching.per_node[rows].tolist()

    def admits(self, node: int) -> bool:
        return not self._holders[node]

    def add(self, node: int, count: int) -> None:
        self._holders[node] += count


class _AntiAffinity:
    def __init__(self, rule: AntiAffinityRule, rows: Int64) -> None:
        self.counted = rule.matching
        self._domains = _DomainCounts(rule.domains, rule.matching.per_domain(rule.domains), rows)
        self.one_per_node = rule.counts_own_class and -1 not in self._domains.of

    def admits(self, node: int) -> bool:
        domain = self._domains.of[node]
        return domain < 0 or not self._domains.counts[domain]

    def add(self, node: int, count: int) -> None:
        domain = self._domains.of[node]
        if domain >= 0:
            self._domains.counts[domain] += count


class _Affinity:
    one_per_node = False

    def __init__(self, rule: AffinityRule, state: CapacityState, rows: Int64) -> None:
        self.counted = rule.matching
        self._counts_own_class = rule.counts_own_class
        domains = [state.nodes.domains(key) for key in rule.keys]
        sums = [rule.matching.per_domain(each) for each in domains]
        self._by_key = [_DomainCounts(each, counts, rows) for each, counts in zip(domains, sums, strict=True)]
        self._matches = sum(int(counts[1:].sum()) for counts in sums)

    def admits(self, node: int) -> bool:
        if not self._matches and not self._counts_own_class:
            return False
        return all(
            domains.of[node] >= 0 and (not self._matches or domains.counts[domains.of[node]] > 0)
            for domains in self._by_key
        )

    def add(self, node: int, count: int) -> None:
        for domains in self._by_key:
            if domains.of[node] >= 0:
                domains.counts[domains.of[node]] += count
                self._matches += count


class _Spread:
    one_per_node = False

    def __init__(self, rule: TopologySpread, rows: Int64) -> None:
        counts, eligible = rule.counts()
        self.counted = rule.matching
        self._domains = _DomainCounts(rule.domains, counts, rows)
        self._included: list[bool] = rule.included()[rows].tolist()
        self._eligible: list[int] = np.flatnonzero(eligible[self._domains.codes]).tolist()
        elsewhere = eligible.copy()
        elsewhere[self._domains.codes] = False
        self._least_elsewhere = int(counts[elsewhere].min(initial=np.iinfo(np.int64).max))
        self._too_few_domains = int(eligible.sum()) < rule.constraint.min_domains
        self._max_excess = rule.constraint.max_skew - int(rule.counts_own_class)

    def admits(self, node: int) -> bool:
        domain, counts = self._domains.of[node], self._domains.counts
        if domain < 0:
            return False
        least = 0
        if not self._too_few_domains:
            least = min([self._least_elsewhere, *[counts[each] for each in self._eligible]])
        return counts[domain] - least <= self._max_excess

    def add(self, node: int, count: int) -> None:
        if self._included[node]:
            self._domains.counts[self._domains.of[node]] += count
