"""Inter-pod rules of a pod class, evaluated as kube-scheduler does: host ports, affinity, anti-affinity, spread."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass, PodTerm, PreferredPodTerm, SpreadConstraint
from muster.placement.inter_pod.pod_counts import PodCount, PodCounts
from muster.placement.state.filters import NodeFilters
from muster.placement.state.nodes import Bool, Domains, NodeTable

PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY: Final = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
SHARED_CLAIM: Final = "node(s) cannot use the ResourceClaim that pods share"
SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = "node(s) didn't match pod topology spread constraints (missing required label)"

UNLIMITED: Final = 2**62
"""Cap of a node on which a rule does not limit the number of members."""

COST_PER_POD: Final = 100
"""Cost of a ScheduleAnyway constraint per pod in the domain; equal to the weight of the strongest preferred term."""

Filtered = list[tuple[str, Bool]]
"""Filter reasons with the rows that each one excludes, in the order of kube-scheduler's filters."""


class Rule(Protocol):
    """A required rule of one class. `key` is the topology label whose domains it concerns, "" for none.

    `matching` counts the pods that the rule selects. `counts_own_class`: members of the class are among them, so
    placing members changes which nodes accept more.
    """

    key: str
    matching: PodCount
    counts_own_class: bool

    def caps(self) -> Int64:
        """Members that each node accepts one after another if no other node receives any: int64[rows]."""

    def filtered(self) -> Filtered:
        """Nodes that accept no member now."""

    def members_interact(self) -> bool:
        """Placing a member on one node changes what other nodes accept."""


class HostPortsRule:
    """No pod on the node holds a host port that the class requests."""

    key = ""
    counts_own_class = True

    def __init__(self, pod_class: PodClass, pod_counts: PodCounts) -> None:
        self.matching = pod_counts.holding_ports(pod_class.host_ports)

    def caps(self) -> Int64:
        return np.where(self.matching.per_node > 0, 0, 1)

    def filtered(self) -> Filtered:
        return [(PORTS, self.matching.per_node > 0)]

    def members_interact(self) -> bool:
        return False


class AntiAffinityRule:
    """No matching pod in the same domain; nodes without the topology label belong to no domain.

    `declared_by_class`: the term belongs to the class itself, not to other pods that the class must stay away from.
    """

    def __init__(
        self, nodes: NodeTable, key: str, matching: PodCount, counts_own_class: bool, declared_by_class: bool
    ) -> None:
        self.key = key
        self.matching = matching
        self.counts_own_class = counts_own_class
        self.declared_by_class = declared_by_class
        self._nodes = nodes

    @property
    def domains(self) -> Domains:
        return self._nodes.domains(self.key)

    def caps(self) -> Int64:
        domains = self.domains
        table = np.where(self.matching.per_domain(domains) > 0, 0, 1 if self.counts_own_class else UNLIMITED)
        table[0] = UNLIMITED
        return table[domains.codes]

    def filtered(self) -> Filtered:
        domains = self.domains
        occupied = self.matching.per_domain(domains) > 0
        occupied[0] = False
        reason = POD_ANTI_AFFINITY if self.declared_by_class else EXISTING_ANTI_AFFINITY
        return [(reason, occupied[domains.codes])]

    def members_interact(self) -> bool:
        return self.counts_own_class and not self.domains.single


class AffinityRule:
    """For every term, a pod that matches all terms is in the node's domain.

    If no such pod exists anywhere and the class matches its own terms, any node that has the labels is accepted.
    """

    key = ""

    def __init__(
        self,
        pod_class: PodClass,
        terms: Sequence[PodTerm],
        pod_counts: PodCounts,
        nodes: NodeTable,
        reason: str = POD_AFFINITY,
    ) -> None:
        selectors = {term.selector for term in terms}
        self.keys = tuple(sorted({term.topology_key for term in terms}))
        self.counts_own_class = all(selects(pod_counts, each, pod_class) for each in selectors)
        self.matching = pod_counts.selected(selectors)
        self._nodes, self._reason = nodes, reason

    def has_match(self) -> bool:
        """A matching pod is in some domain."""
        return any(self.matching.per_domain(self._nodes.domains(key))[1:].any() for key in self.keys)

    def caps(self) -> Int64:
        return np.where(self._accepting(), UNLIMITED, 0)

    def filtered(self) -> Filtered:
        return [(self._reason, ~self._accepting())]

    def members_interact(self) -> bool:
        return self.counts_own_class and not self.has_match()

    def _accepting(self) -> Bool:
        first_pod = not self.has_match()
        rows: Bool = np.full(self._nodes.rows, self.counts_own_class or not first_pod)
        for key in self.keys:
            domains = self._nodes.domains(key)
            table = np.full(domains.size, True) if first_pod else self.matching.per_domain(domains) > 0
            table[0] = False
            rows &= table[domains.codes]
        return rows


class PreferredAffinity:
    """A preferred affinity or anti-affinity term: a cost or a bonus per matching pod in the node's domain."""

    def __init__(
        self, preferred: PreferredPodTerm, pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable
    ) -> None:
        self.key = preferred.term.topology_key
        self.counts_own_class = selects(pod_counts, preferred.term.selector, pod_class)
        self.matching = pod_counts.selected([preferred.term.selector])
        self.repels = preferred.weight < 0
        self._weight = preferred.weight
        self._nodes = nodes

    def cost(self) -> Int64:
        """int64[rows]."""
        domains = self._nodes.domains(self.key)
        table = -self._weight * self.matching.per_domain(domains)
        table[0] = 0
        cost: Int64 = table[domains.codes]
        return cost


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


def required_affinity(pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> list[AffinityRule]:
    """The required affinity terms of the class as one rule, and one for each ResourceClaim that pods share."""
    terms = pod_class.required_pod_affinity
    own = [AffinityRule(pod_class, terms, pod_counts, nodes)] if terms else []
    return own + [AffinityRule(pod_class, [each], pod_counts, nodes, SHARED_CLAIM) for each in pod_class.shared_claims]


def declared_anti_affinity(pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> list[AntiAffinityRule]:
    """The required anti-affinity terms of the class."""
    return [
        AntiAffinityRule(
            nodes,
            term.topology_key,
            pod_counts.selected([term.selector]),
            counts_own_class=selects(pod_counts, term.selector, pod_class),
            declared_by_class=True,
        )
        for term in pod_class.required_pod_anti_affinity
    ]


def existing_anti_affinity(pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> list[AntiAffinityRule]:
    """Required anti-affinity terms of other pods that select the class: one rule per topology key."""
    keys = pod_counts.terms.keys(pod_class.label_set) if pod_class.label_set and pod_counts.terms else ()
    return [_existing_anti_affinity(pod_class, key, pod_counts, nodes) for key in keys]


def _existing_anti_affinity(pod_class: PodClass, key: str, pod_counts: PodCounts, nodes: NodeTable) -> AntiAffinityRule:
    declared = [term for term in pod_class.required_pod_anti_affinity if term.topology_key == key]
    return AntiAffinityRule(
        nodes,
        key,
        pod_counts.repelling(pod_class.label_set, key),
        counts_own_class=any(selects(pod_counts, term.selector, pod_class) for term in declared),
        declared_by_class=False,
    )


def selects(pod_counts: PodCounts, selector: str, pod_class: PodClass) -> bool:
    """A selector selects the members that the class stands for."""
    return pod_counts.selection.selects(selector, pod_class.label_set)
