"""Turns of namespaces: no namespace with active groups is passed over by more than a few solve requests in a row, but
for surplus, which has no turns and is behind all groups that lack their minimum.
"""

from collections import Counter

from builders.core.scenario import Scenario
from muster.coordinator.core.effects import Solve
from muster.coordinator.core.queue.turns import namespace_of


class Turns:
    """Solve requests in a row without a group of a namespace that has active ones."""

    def __init__(self) -> None:
        self._passed_over: Counter[str] = Counter()

    def forget(self) -> None:
        """Begins anew with a new leader."""
        self._passed_over.clear()

    def check(self, scenario: Scenario, solve: Solve) -> None:
        """Checks a solve request. Per namespace there is one that it begins, and one between two of these; a group
        that conflicts with solves under way waits for as many more as there are replicas.
        """
        if solve.potential_victims:
            return
        leader = scenario.leader
        groups = (leader.cache.groups.get(group.id) for group in solve.groups)
        taken = {namespace_of(group.key) for group in groups if group is not None and group.gangs}
        active = [group for standing, group in leader.queue.standings() if standing == "active" and not group.surplus]
        surplus = [group.id for group in solve.groups if leader.cache.groups[group.id].surplus]
        if scenario.replicas == 1 and surplus:
            others = [group for group in active if group not in leader.cache.nominations]  # with capacity of their own
            passed = [group.id for group in others if group.queueing.surplus is group.surplus]
            assert not passed, f"surplus: {surplus} is tried before {passed}, which lack their minimum"
        waiting = {namespace_of(group.key) for group in active} - taken
        self._passed_over = Counter({namespace: self._passed_over[namespace] + 1 for namespace in waiting})
        most = 2 * (len(taken | waiting) + scenario.replicas)
        for namespace, count in self._passed_over.items():
            assert count <= most, f"turns: {count} solve requests in a row have no group of namespace {namespace}"
