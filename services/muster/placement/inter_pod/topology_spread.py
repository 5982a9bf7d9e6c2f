"""Topology spread constraints of a pod class, counted as kube-scheduler does: pods per domain and maximum skew."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass, SpreadConstraint
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.inter_pod.rules import UNLIMITED, Filtered, selects
from muster.placement.state.filters import NodeFilters
from muster.placement.state.nodes import Bool, Domains, NodeTable

SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

COST_PER_POD: Final = 100
"""Cost of a ScheduleAnyway constraint per pod in the domain; equal to the weight of the strongest preferred term."""


class _SpreadConstraint:
    """Pods that a constraint counts, per domain: pods on nodes with all topology labels that its policies include."""

    def __init__(
        self,
        constraint: SpreadConstraint,
        pod_class: PodClass,
        pod_counts: PodCounts,
        nodes: NodeTable,
        filters: NodeFilters,
    ) -> None:
        self.constraint = constraint
        self.key = constraint.topology_key
        self.counts_own_class = selects(pod_counts, constraint.selector, pod_class)
        self.matching = pod_counts.selected([constraint.selector], without_deleting=True)
        self._all_keys = [each.topology_key for each in pod_class.spread if each.hard == constraint.hard]
        self._nodes = nodes
        self._filters = filters
        self._nodes_seen = -1
        self._included: Bool = np.zeros(0, np.bool_)
        self._eligible: Bool = np.zeros(0, np.bool_)
        self._matching_seen = -1
        self._counts: Int64 = np.zeros(0, np.int64)

    @property
    def domains(self) -> Domains:
        return self._nodes.domains(self.key)

    def counts(self) -> tuple[Int64, Bool]:
        """Pods per domain and whether the domain is eligible: int64 and bool[domains.size]."""
        nodes = self._nodes
        if self._nodes_seen != nodes.version or len(self._included) != nodes.rows:
            self._include()
            self._matching_seen = -1
        if self._matching_seen != self.matching.version:
            per_node = np.where(self._included, self.matching.per_node, 0)
            self._counts = np.bincount(self.domains.codes, per_node, self.domains.size).astype(np.int64)
            self._matching_seen = self.matching.version
        return self._counts, self._eligible

    def included(self) -> Bool:
        """Nodes whose pods are counted, bool[rows]."""
        self.counts()
        return self._included

    def _include(self) -> None:
        nodes, constraint = self._nodes, self.constraint
        self._included = self._filters.included(
            admitted=not constraint.ignores_node_affinity, untainted=constraint.honors_taints
        )
        for key in self._all_keys:
            self._included &= nodes.domains(key).codes > 0
        self._eligible = np.zeros(self.domains.size, np.bool_)
        self._eligible[self.domains.codes[self._included]] = True
        self._eligible[0] = False
        self._nodes_seen = nodes.version


class TopologySpread(_SpreadConstraint):
    """A DoNotSchedule constraint."""

    def headroom(self) -> Int64:
        """Members that each domain accepts one after another: int64[domains.size]."""
        counts, eligible = self.counts()
        skew = self.constraint.max_skew
        least, second = self._two_least(counts, eligible)
        if not self.counts_own_class:
            return np.where(counts - least <= skew, UNLIMITED, 0)
        others = np.where(eligible & (counts == least), second, least)
        headroom: Int64 = np.where(others == UNLIMITED, UNLIMITED, np.maximum(skew + others - counts, 0))
        return headroom

    def final_minimum(self, capacity: Int64) -> int:
        """Largest possible global minimum of pods per domain, if each domain takes up to `capacity` more."""
        counts, eligible = self.counts()
        if int(eligible.sum()) < self.constraint.min_domains:
            return 0
        return int((counts + capacity)[eligible].min(initial=UNLIMITED))

    def caps(self) -> Int64:
        domains = self.domains
        table = self.headroom()
        table[0] = 0
        return table[domains.codes]

    def filtered(self) -> Filtered:
        codes = self.domains.codes
        return [(SPREAD_LABEL, codes == 0), (SPREAD, (self.caps() == 0) & (codes > 0))]

    def members_interact(self) -> bool:
        return self.counts_own_class

    def _two_least(self, counts: Int64, eligible: Bool) -> tuple[int, int]:
        """The lowest count of a domain, and the lowest count of all other domains."""
        if int(eligible.sum()) < self.constraint.min_domains:
            return 0, 0
        values = counts[eligible]
        at = int(values.argmin())
        least, values[at] = int(values[at]), UNLIMITED
        return least, int(values.min())


class PreferredSpread(_SpreadConstraint):
    """A ScheduleAnyway constraint: nodes cost more, the more pods their domain has."""

    repels = True

    def cost(self) -> Int64:
        """int64[rows]; nodes without the label cost most."""
        counts, _ = self.counts()
        table = COST_PER_POD * counts
        table[0] = COST_PER_POD * (int(counts[1:].max(initial=0)) + 1)
        cost: Int64 = table[self.domains.codes]
        return cost
