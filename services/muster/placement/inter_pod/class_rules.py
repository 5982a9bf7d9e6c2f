"""All inter-pod rules of one pod class combined: caps per node, preferences, filter reasons, helpful relaxations."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass
from muster.placement.inter_pod.pod_counts import PodCount, PodCounts
from muster.placement.inter_pod.rules import (
    UNLIMITED,
    AntiAffinityRule,
    Filtered,
    HostPortsRule,
    PreferredAffinity,
    PreferredSpread,
    Rule,
    TopologySpread,
    declared_anti_affinity,
    existing_anti_affinity,
    required_affinity,
)
from muster.placement.state.filters import WEIGHT_COST, NodeFilters
from muster.placement.state.nodes import NodeTable

_MOST_NODES: Final = 3
"""Nodes of other pods that a relaxation names."""
_MAX_PREFERENCE_COST: Final = 2**27
"""Bound on the cost of all preferences together, so that a tainted node always costs more."""


def inter_pod_rules_of(
    pod_class: PodClass, filters: NodeFilters, pod_counts: PodCounts, nodes: NodeTable
) -> "InterPodRules | None":
    """The rules of a class; None if no other pod can ever affect where its pods go: it has no rules, and no selector
    selects its members.
    """
    has_rules = (
        pod_class.label_set
        or pod_class.host_ports
        or pod_class.required_pod_affinity
        or pod_class.shared_claims
        or pod_class.required_pod_anti_affinity
        or pod_class.preferred_pod_affinity
        or pod_class.spread
    )
    return InterPodRules(pod_class, filters, pod_counts, nodes) if has_rules else None


class InterPodRules:
    """Required rules of one class, in the order of kube-scheduler's filters, and its preferences."""

    def __init__(self, pod_class: PodClass, filters: NodeFilters, pod_counts: PodCounts, nodes: NodeTable) -> None:
        self._pod_class = pod_class
        self._filters = filters
        self._pod_counts = pod_counts
        self._nodes = nodes
        self._terms_seen = self._terms_version()
        self.host_ports = [HostPortsRule(pod_class, pod_counts)] if pod_class.host_ports else []
        self.spread = [
            TopologySpread(each, pod_class, pod_counts, nodes, filters) for each in pod_class.spread if each.hard
        ]
        self.affinity = required_affinity(pod_class, pod_counts, nodes)
        self._declared = declared_anti_affinity(pod_class, pod_counts, nodes)
        self._existing = existing_anti_affinity(pod_class, pod_counts, nodes)
        self.preferences: list[PreferredAffinity | PreferredSpread] = [
            PreferredAffinity(each, pod_class, pod_counts, nodes) for each in pod_class.preferred_pod_affinity
        ]
        self.preferences += [
            PreferredSpread(each, pod_class, pod_counts, nodes, filters) for each in pod_class.spread if not each.hard
        ]
        self._caps: Int64 = np.zeros(0, np.int64)
        self._caps_seen: tuple[int, ...] = ()

    @property
    def anti_affinity(self) -> list[AntiAffinityRule]:
        """The class's own terms, and terms of other pods that select the class."""
        if self._terms_seen != (seen := self._terms_version()):
            existing = existing_anti_affinity(self._pod_class, self._pod_counts, self._nodes)
            if [rule.key for rule in existing] != [rule.key for rule in self._existing]:
                self._existing = existing
                self._caps_seen = ()
            self._terms_seen = seen
        return self._declared + self._existing

    def _terms_version(self) -> tuple[int, int, int]:
        counts = self._pod_counts
        return counts.terms.version, counts.selection.selectors_version, self._nodes.label_keys_version

    @property
    def apply(self) -> bool:
        """A rule or preference exists; else members are selected by selectors that keep no pods away."""
        return bool(
            self.host_ports or self.spread or self.affinity or self._declared or self.preferences or self.anti_affinity
        )

    @property
    def size(self) -> int:
        """Number of rules and preferences."""
        own = (self.host_ports, self.spread, self.affinity, self._declared, self.preferences)
        return len(self._existing) + sum(len(rules) for rules in own)

    @property
    def required(self) -> list[Rule]:
        """All rules that must hold."""
        return [*self.host_ports, *self.spread, *self.affinity, *self.anti_affinity]

    @property
    def matching(self) -> list[PodCount]:
        """The counts that the rules and preferences read."""
        return [each.matching for each in (*self.required, *self.preferences)]

    @property
    def topology_keys(self) -> set[str]:
        """Topology labels of the required rules."""
        keys = {rule.key for rule in self.spread}
        keys.update(rule.key for rule in self.anti_affinity)
        return keys.union(key for rule in self.affinity for key in rule.keys)

    def members_interact(self) -> bool:
        """Placing a member on one node changes what other nodes accept."""
        return any(rule.members_interact() for rule in self.required)

    def preferences_interact(self) -> bool:
        """Placing a member changes what nodes cost for the next one."""
        return any(each.counts_own_class for each in self.preferences)

    def members_repel_on_their_node_only(self) -> bool:
        """Placing a member makes its own node cost more, and no other node."""
        return all(
            each.repels and self._nodes.domains(each.key).single for each in self.preferences if each.counts_own_class
        )

    def sole_preferred_spread(self) -> PreferredSpread | None:
        """The ScheduleAnyway constraint, if it is the only preference that counts members of the class."""
        counting = [each for each in self.preferences if each.counts_own_class]
        return counting[0] if len(counting) == 1 and isinstance(counting[0], PreferredSpread) else None

    def one_per_node(self) -> bool:
        """No node accepts two members, however large it is."""
        return bool(self.host_ports) or any(rule.counts_own_class for rule in self.anti_affinity)

    def caps(self) -> Int64:
        """Members that each node accepts one after another if no other node receives any: int64[rows]."""
        rules = self.required
        seen = (self._nodes.version, *(rule.matching.version for rule in rules))
        if seen != self._caps_seen:
            caps: Int64 = np.full(self._nodes.rows, UNLIMITED)
            for rule in rules:
                np.minimum(caps, rule.caps(), out=caps)
            self._caps, self._caps_seen = caps, seen
        return self._caps

    def caps_without(self, ignored: Sequence[Rule]) -> Int64:
        """As `caps`, with some of the rules ignored."""
        caps: Int64 = np.full(self._nodes.rows, UNLIMITED)
        for rule in self.required:
            if rule not in ignored:
                np.minimum(caps, rule.caps(), out=caps)
        return caps

    def caps_upper_bound(self) -> Int64:
        """Upper bound of `caps` whatever pods are added, as long as none is removed: affinity and spreading ignored."""
        return self.caps_without([*self.spread, *self.affinity])

    def filtered_before_resources(self) -> Filtered:
        """Nodes excluded by the filters that kube-scheduler runs before it checks resources."""
        return [each for rule in self.host_ports for each in rule.filtered()]

    def filtered_after_resources(self) -> Filtered:
        """Nodes excluded by the filters that kube-scheduler runs after it checks resources."""
        rules: list[Rule] = [*self.spread, *self.affinity, *self.anti_affinity]
        return [each for rule in rules for each in rule.filtered()]

    def penalty(self) -> Int64:
        """Cost of each node for the class, node preferences included: int64[rows]."""
        if not self.preferences:
            return self._filters.penalty
        cost: Int64 = np.zeros(self._nodes.rows, np.int64)
        for each in self.preferences:
            cost += each.cost()
        bounded = np.clip(cost, -_MAX_PREFERENCE_COST, _MAX_PREFERENCE_COST)
        total: Int64 = self._filters.penalty + WEIGHT_COST * bounded
        return total

    def relaxation(self, fits_without_rules: Int64, missing: int) -> str:
        """The single kind of rule without which `missing` more members fit, as an "if ..." clause; "" if none suffices.

        `fits_without_rules` is int64[rows]: members that fit on each node as far as inter-pod rules do not matter.
        """
        if np.minimum(fits_without_rules, self.caps()).sum() >= missing:
            return ""
        anti_affinity = self.anti_affinity
        others = [rule for rule in anti_affinity if not rule.declared_by_class and not rule.counts_own_class]
        kinds: list[tuple[Sequence[Rule], str]] = [
            (self.spread, "its topology spread constraints were ScheduleAnyway"),
            (
                [
                    *(rule for rule in anti_affinity if rule.declared_by_class),
                    *(rule for rule in anti_affinity if rule.counts_own_class),
                ],
                "its pod anti-affinity were preferred, not required",
            ),
            (self.affinity, _without_affinity(self._pod_class)),
            (self.host_ports, "its pods asked for no host ports"),
            (others, f"the required pod anti-affinity of {self._repelling(others)} did not keep it away"),
        ]
        for rules, change in kinds:
            if rules and self._fits_without(rules, fits_without_rules, missing):
                return f"if {change}"
        return ""

    def _repelling(self, rules: Sequence[AntiAffinityRule]) -> str:
        """The other pods whose anti-affinity these rules are, by the nodes that they are on."""
        per_node = sum((rule.matching.per_node for rule in rules), np.zeros(self._nodes.rows, np.int64))
        rows = np.flatnonzero(per_node)
        rows = rows[[self._nodes.facts[row] is not None for row in rows.tolist()]]  # pods outlive their nodes
        names = sorted(self._nodes.name(row) for row in rows[np.argsort(self._nodes.rank[rows])][:_MOST_NODES].tolist())
        more = f" and {len(rows) - len(names)} more" if len(rows) > len(names) else ""
        places = f", on {', '.join(names)}{more}" if names else ""
        keys = ", ".join(sorted({rule.key for rule in rules}))
        return f"other pods (by {keys}{places})"

    def _fits_without(self, ignored: Sequence[Rule], fits_without_rules: Int64, missing: int) -> bool:
        """Members fit by the other rules; False if these would change as members are placed."""
        if any(rule.members_interact() for rule in self.required if rule not in ignored):
            return False
        return int(np.minimum(fits_without_rules, self.caps_without(ignored)).sum()) >= missing


def _without_affinity(pod_class: PodClass) -> str:
    claims, own = bool(pod_class.shared_claims), bool(pod_class.required_pod_affinity)
    changes = ("its pod affinity were preferred, not required", "its pods did not share a ResourceClaim")
    return " and ".join(change for change, applies in zip(changes, (own, claims), strict=True) if applies)
