"""What pods that are on nodes mean for a class, as kube-scheduler sees it: host ports, affinity and anti-affinity."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import HostPort, PodClass, PodTerm, PreferredPodTerm
from muster.placement.inter_pod.pod_counts import PodCount, PodCounts
from muster.placement.state.nodes import Bool, Domains, NodeTable

PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
POD_AFFINITY: Final = "node(s) didn't match pod affinity rules"
POD_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

UNLIMITED: Final = 2**62
"""Of members that may go to a node for all that a rule cares."""

_ANY_IP: Final = "0.0.0.0"  # noqa: S104 - of a port that a pod asks for, nothing is bound to it here

Filtered = list[tuple[str, Bool]]
"""Reasons and on which rows they hold, in the order in which kube-scheduler finds them."""


class Rule(Protocol):
    """One rule for one class. `key` is the label key whose domains it is about.

    `itself`: members of the class count for it, so that what may go where changes as they are placed.
    """

    key: str
    tally: PodCount
    itself: bool

    def caps(self) -> Int64:
        """How many members may go to each node, one after another, if nobody else goes anywhere: int64[rows]."""

    def lost(self) -> Filtered:
        """Nodes to which no member may go now."""

    def members_interact(self) -> bool:
        """A member on one node changes what may go to others."""


class HostPortsRule:
    """Nobody on the node has a port that the class wants."""

    key = ""
    itself = True

    def __init__(self, pod_class: PodClass, pod_counts: PodCounts) -> None:
        wanted = pod_class.host_ports
        self.tally = pod_counts.tally(("ports", wanted), lambda other: _conflict(other.host_ports, wanted))

    def caps(self) -> Int64:
        return np.where(self.tally.on > 0, 0, 1)

    def lost(self) -> Filtered:
        return [(PORTS, self.tally.on > 0)]

    def members_interact(self) -> bool:
        return False


class AntiAffinityRule:
    """No pod of the tally in the same domain; nodes without the label are in none. `own`: the class asks for it."""

    def __init__(self, nodes: NodeTable, key: str, tally: PodCount, itself: bool, reason: str) -> None:
        self.key = key
        self.tally = tally
        self.itself = itself
        self.own = reason == POD_ANTI_AFFINITY
        self._nodes = nodes
        self._reason = reason

    @property
    def domains(self) -> Domains:
        return self._nodes.domains(self.key)

    def caps(self) -> Int64:
        domains = self.domains
        table = np.where(self.tally.by_domain(domains) > 0, 0, 1 if self.itself else UNLIMITED)
        table[0] = UNLIMITED
        return table[domains.codes]

    def lost(self) -> Filtered:
        domains = self.domains
        taken = self.tally.by_domain(domains) > 0
        taken[0] = False
        return [(self._reason, taken[domains.codes])]

    def members_interact(self) -> bool:
        return self.itself and not self.domains.single


class AffinityRule:
    """For every term there is a pod in the domain that all terms select; if there is none anywhere, and the class is
    selected itself, any node will do that has the labels.
    """

    key = ""

    def __init__(self, pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> None:
        terms = pod_class.required_pod_affinity
        selectors = frozenset(term.selector for term in terms)
        self.keys = tuple(sorted({term.topology_key for term in terms}))
        self.itself = selectors.issubset(pod_class.selected_by)
        self.tally = pod_counts.tally(("all", selectors), lambda other: selectors.issubset(other.selected_by))
        self._nodes = nodes

    def settled(self) -> bool:
        """Somebody is there to be together with."""
        return any(self.tally.by_domain(self._nodes.domains(key))[1:].any() for key in self.keys)

    def caps(self) -> Int64:
        return np.where(self._open(), UNLIMITED, 0)

    def lost(self) -> Filtered:
        return [(POD_AFFINITY, ~self._open())]

    def members_interact(self) -> bool:
        return self.itself and not self.settled()

    def _open(self) -> Bool:
        free_choice = not self.settled()
        rows: Bool = np.full(self._nodes.rows, self.itself or not free_choice)
        for key in self.keys:
            domains = self._nodes.domains(key)
            table = np.full(domains.size, True) if free_choice else self.tally.by_domain(domains) > 0
            table[0] = False
            rows &= table[domains.codes]
        return rows


class PreferredAffinity:
    """A wish for the company of pods, or against it: so much is the node liked less for each pod in its domain."""

    def __init__(self, wish: PreferredPodTerm, pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> None:
        self.key = wish.term.topology_key
        self.itself = wish.term.selector in pod_class.selected_by
        self.tally = selected(pod_counts, wish.term.selector)
        self.repels = wish.weight < 0
        self._weight = wish.weight
        self._nodes = nodes

    def cost(self) -> Int64:
        """int64[rows]."""
        domains = self._nodes.domains(self.key)
        table = -self._weight * self.tally.by_domain(domains)
        table[0] = 0
        cost: Int64 = table[domains.codes]
        return cost


def keep_away_rules(pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> list[AntiAffinityRule]:
    """The class's own required anti-affinity."""
    return [
        AntiAffinityRule(
            nodes,
            term.topology_key,
            selected(pod_counts, term.selector),
            term.selector in pod_class.selected_by,
            POD_ANTI_AFFINITY,
        )
        for term in pod_class.required_pod_anti_affinity
    ]


def kept_away_rules(pod_class: PodClass, pod_counts: PodCounts, nodes: NodeTable) -> list[AntiAffinityRule]:
    """Required anti-affinity of others that selects the class, by label key."""
    keys = sorted({key for selector in pod_class.selected_by for key in pod_counts.keeping_away.get(selector, ())})
    return [_kept_away(pod_class, key, pod_counts, nodes) for key in keys]


def _kept_away(pod_class: PodClass, key: str, pod_counts: PodCounts, nodes: NodeTable) -> AntiAffinityRule:
    terms = frozenset(PodTerm(selector, key) for selector in pod_class.selected_by)

    def includes(other: PodClass) -> bool:
        return not terms.isdisjoint(other.required_pod_anti_affinity)

    tally = pod_counts.tally(("keeping away", terms), includes)
    return AntiAffinityRule(nodes, key, tally, includes(pod_class), EXISTING_ANTI_AFFINITY)


def selected(pod_counts: PodCounts, selector: str, staying: bool = False) -> PodCount:
    """Pods that a selector selects."""
    return pod_counts.tally(("selected", selector, staying), lambda other: selector in other.selected_by, staying)


def _conflict(held: Sequence[HostPort], wanted: Sequence[HostPort]) -> bool:
    return any(
        a.port == b.port and a.protocol == b.protocol and (a.ip == b.ip or _ANY_IP in (a.ip, b.ip))
        for a in held
        for b in wanted
    )
