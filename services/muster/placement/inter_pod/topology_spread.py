"""Topology spread constraints of a class, as kube-scheduler counts: by domain, and by how much domains may differ."""

from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass, SpreadConstraint
from muster.placement.inter_pod.pod_counts import PodCounts
from muster.placement.inter_pod.rules import UNLIMITED, Filtered, selected
from muster.placement.state.filters import NodeFilters
from muster.placement.state.nodes import Bool, Domains, NodeTable

SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

COST_PER_POD: Final = 100
"""Of a constraint that may be broken: for each pod that a domain has, as much as the strongest preferred term."""


class _Counted:
    """Pods that a constraint counts, by domain: of nodes that have all label keys and that its policies include."""

    def __init__(
        self,
        constraint: SpreadConstraint,
        pod_class: PodClass,
        pod_counts: PodCounts,
        nodes: NodeTable,
        judge: NodeFilters,
    ) -> None:
        self.constraint = constraint
        self.key = constraint.topology_key
        self.itself = constraint.selector in pod_class.selected_by
        self.tally = selected(pod_counts, constraint.selector, staying=True)
        self._all_keys = [each.topology_key for each in pod_class.spread if each.hard == constraint.hard]
        self._nodes = nodes
        self._judge = judge
        self._nodes_seen = -1
        self._included: Bool = np.zeros(0, np.bool_)
        self._eligible: Bool = np.zeros(0, np.bool_)
        self._tally_seen = -1
        self._counts: Int64 = np.zeros(0, np.int64)

    @property
    def domains(self) -> Domains:
        return self._nodes.domains(self.key)

    def counts(self) -> tuple[Int64, Bool]:
        """Pods by domain, and which domains count: int64 and bool[domains.size]."""
        nodes = self._nodes
        if self._nodes_seen != nodes.version or len(self._included) != nodes.rows:
            self._include()
            self._tally_seen = -1
        if self._tally_seen != self.tally.version:
            on = np.where(self._included, self.tally.on, 0)
            self._counts = np.bincount(self.domains.codes, on, self.domains.size).astype(np.int64)
            self._tally_seen = self.tally.version
        return self._counts, self._eligible

    def included(self) -> Bool:
        """Nodes whose pods count, bool[rows]."""
        self.counts()
        return self._included

    def _include(self) -> None:
        nodes, constraint = self._nodes, self.constraint
        self._included = self._judge.included(
            admitted=not constraint.ignores_node_affinity, untainted=constraint.honors_taints
        )
        for key in self._all_keys:
            self._included &= nodes.domains(key).codes > 0
        self._eligible = np.zeros(self.domains.size, np.bool_)
        self._eligible[self.domains.codes[self._included]] = True
        self._eligible[0] = False
        self._nodes_seen = nodes.version


class TopologySpread(_Counted):
    """A constraint that must hold."""

    def headroom(self) -> Int64:
        """How many members each domain may get, one after another: int64[domains.size]."""
        counts, eligible = self.counts()
        skew = self.constraint.max_skew
        least, second = self._two_least(counts, eligible)
        if not self.itself:
            return np.where(counts - least <= skew, UNLIMITED, 0)
        others = np.where(eligible & (counts == least), second, least)
        state: Int64 = np.where(others == UNLIMITED, UNLIMITED, np.maximum(skew + others - counts, 0))
        return state

    def floor(self, capacity: Int64) -> int:
        """How many pods the emptiest domain can have at last, if so many more have room in each."""
        counts, eligible = self.counts()
        if int(eligible.sum()) < self.constraint.min_domains:
            return 0
        return int((counts + capacity)[eligible].min(initial=UNLIMITED))

    def caps(self) -> Int64:
        domains = self.domains
        table = self.headroom()
        table[0] = 0
        return table[domains.codes]

    def lost(self) -> Filtered:
        codes = self.domains.codes
        return [(SPREAD_LABEL, codes == 0), (SPREAD, (self.caps() == 0) & (codes > 0))]

    def members_interact(self) -> bool:
        return self.itself

    def _two_least(self, counts: Int64, eligible: Bool) -> tuple[int, int]:
        """The least count of a domain, and that of the others if the one that has it grows."""
        if int(eligible.sum()) < self.constraint.min_domains:
            return 0, 0
        values = counts[eligible]
        at = int(values.argmin())
        least, values[at] = int(values[at]), UNLIMITED
        return least, int(values.min())


class PreferredSpread(_Counted):
    """A constraint that is kept as far as possible: nodes are liked less the more pods their domain has."""

    repels = True

    def cost(self) -> Int64:
        """int64[rows]; nodes without the label come last."""
        counts, _ = self.counts()
        table = COST_PER_POD * counts
        table[0] = COST_PER_POD * (int(counts[1:].max(initial=0)) + 1)
        cost: Int64 = table[self.domains.codes]
        return cost
