"""How pods that are on nodes limit where a class may go, and which nodes it likes less for them; all rules together."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.facts import PodClass
from muster.placement.inter_pod.pod_counts import PodCount, PodCounts
from muster.placement.inter_pod.rules import (
    UNLIMITED,
    AffinityRule,
    AntiAffinityRule,
    Filtered,
    HostPortsRule,
    PreferredAffinity,
    Rule,
    keep_away_rules,
    kept_away_rules,
)
from muster.placement.inter_pod.topology_spread import PreferredSpread, TopologySpread
from muster.placement.state.filters import WEIGHT_COST, NodeFilters
from muster.placement.state.nodes import NodeTable

_MAX_COST: Final = 2**27
"""Of all wishes together, so that a taint counts more."""


def inter_pod_rules_of(
    pod_class: PodClass, judge: NodeFilters, pod_counts: PodCounts, nodes: NodeTable
) -> "InterPodRules | None":
    """None: no pod on any node matters to the class, whatever pods come."""
    asks = (
        pod_class.selected_by
        or pod_class.host_ports
        or pod_class.required_pod_affinity
        or pod_class.required_pod_anti_affinity
        or pod_class.preferred_pod_affinity
        or pod_class.spread
    )
    return InterPodRules(pod_class, judge, pod_counts, nodes) if asks else None


class InterPodRules:
    """The rules of one class, in the order of kube-scheduler's filters, and its wishes."""

    def __init__(self, pod_class: PodClass, judge: NodeFilters, pod_counts: PodCounts, nodes: NodeTable) -> None:
        self._pod_class = pod_class
        self._judge = judge
        self._tallies = pod_counts
        self._nodes = nodes
        self._terms_seen = pod_counts.terms
        self.ports = [HostPortsRule(pod_class, pod_counts)] if pod_class.host_ports else []
        self.spread = [
            TopologySpread(each, pod_class, pod_counts, nodes, judge) for each in pod_class.spread if each.hard
        ]
        self.together = [AffinityRule(pod_class, pod_counts, nodes)] if pod_class.required_pod_affinity else []
        self._own: list[AntiAffinityRule] = keep_away_rules(pod_class, pod_counts, nodes)
        self._others: list[AntiAffinityRule] = kept_away_rules(pod_class, pod_counts, nodes)
        self.wishes: list[PreferredAffinity | PreferredSpread] = [
            PreferredAffinity(each, pod_class, pod_counts, nodes) for each in pod_class.preferred_pod_affinity
        ]
        self.wishes += [
            PreferredSpread(each, pod_class, pod_counts, nodes, judge) for each in pod_class.spread if not each.hard
        ]
        self._caps: Int64 = np.zeros(0, np.int64)
        self._caps_seen: tuple[int, ...] = ()

    @property
    def keep_away(self) -> list[AntiAffinityRule]:
        """Anti-affinity, of the class and of others against it."""
        if self._terms_seen != self._tallies.terms:
            self._others = kept_away_rules(self._pod_class, self._tallies, self._nodes)
            self._terms_seen = self._tallies.terms
            self._caps_seen = ()
        return self._own + self._others

    @property
    def rules(self) -> list[Rule]:
        """All that must hold."""
        return [*self.ports, *self.spread, *self.together, *self.keep_away]

    @property
    def pod_counts(self) -> list[PodCount]:
        """All that the rules and wishes look at."""
        return [each.tally for each in (*self.rules, *self.wishes)]

    @property
    def keys(self) -> set[str]:
        """Label keys whose domains the rules are about."""
        keys = {rule.key for rule in self.spread}
        keys.update(rule.key for rule in self.keep_away)
        return keys.union(key for rule in self.together for key in rule.keys)

    def members_interact(self) -> bool:
        """A member on one node changes what may go to others."""
        return any(rule.members_interact() for rule in self.rules)

    def preferences_interact(self) -> bool:
        """A member on one node changes what nodes are worth."""
        return any(wish.itself for wish in self.wishes)

    def dislikes_by_node(self) -> bool:
        """Members only make worse the very nodes on which they are."""
        return all(wish.repels and self._nodes.domains(wish.key).single for wish in self.wishes if wish.itself)

    def spread_wish(self) -> PreferredSpread | None:
        """The wish to spread, if that is the only one that members of the class count for."""
        ours = [wish for wish in self.wishes if wish.itself]
        return ours[0] if len(ours) == 1 and isinstance(ours[0], PreferredSpread) else None

    def caps(self) -> Int64:
        """How many members may go to each node, one after another, if nobody else goes anywhere: int64[rows]."""
        rules = self.rules
        seen = (self._nodes.version, *(rule.tally.version for rule in rules))
        if seen != self._caps_seen:
            caps: Int64 = np.full(self._nodes.rows, UNLIMITED)
            for rule in rules:
                np.minimum(caps, rule.caps(), out=caps)
            self._caps, self._caps_seen = caps, seen
        return self._caps

    def caps_without(self, left_out: Sequence[Rule]) -> Int64:
        """As `caps`, but some of the rules need not hold."""
        caps: Int64 = np.full(self._nodes.rows, UNLIMITED)
        for rule in self.rules:
            if rule not in left_out:
                np.minimum(caps, rule.caps(), out=caps)
        return caps

    def caps_at_best(self) -> Int64:
        """As `caps`, whoever else comes, as long as nobody goes: pods to be together with, or to be spread with."""
        return self.caps_without([*self.spread, *self.together])

    def filtered_before_resources(self) -> Filtered:
        """Nodes lost to what kube-scheduler looks at before it looks at room."""
        return [each for rule in self.ports for each in rule.lost()]

    def filtered_after_resources(self) -> Filtered:
        """Nodes lost to the rest."""
        labels_first = [each for rule in self.spread for each in rule.lost()]
        rules: list[Rule] = [*self.together, *self.keep_away]
        return labels_first + [each for rule in rules for each in rule.lost()]

    def penalty(self) -> Int64:
        """What the class dislikes of each node, that of the node itself included: int64[rows]."""
        if not self.wishes:
            return self._judge.penalty
        cost: Int64 = np.zeros(self._nodes.rows, np.int64)
        for wish in self.wishes:
            cost += wish.cost()
        disliked: Int64 = self._judge.penalty + WEIGHT_COST * np.clip(cost, -_MAX_COST, _MAX_COST)
        return disliked
