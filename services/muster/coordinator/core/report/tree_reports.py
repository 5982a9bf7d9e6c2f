"""Reports problems of topology trees as events on the objects that define them (I10)."""

from muster.coordinator.core.cache.topology import TopologyTrees
from muster.coordinator.core.effects import EventType, KubeEvent, Report
from muster.gangs.facts import Problem, Severity

SETTLE_SECONDS = 1.0
"""Nodes are often added or removed in numbers: only problems that remain for so long are reported."""
REPEAT_SECONDS = 30.0
"""Minimum interval of reports that differ in details, such as missing nodes; a rejected tree is reported at once."""


class TreeReports:
    """Problems of trees and which of them were reported."""

    def __init__(self, trees: TopologyTrees) -> None:
        self._trees = trees
        self._seen = 0
        self._reported: dict[str, frozenset[str]] = {}
        self._not_before: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def next_time(self) -> float | None:
        """Returns when the next report is due."""
        return min(self._due.values(), default=None)

    def due(self, now: float) -> list[Report]:
        """Returns the reports that are due."""
        if self._seen != self._trees.version:
            self._seen = self._trees.version
            self._look(now)
        ready = [name for name, at in self._due.items() if at <= now]
        return [report for name in ready if (report := self._tell(name, now)) is not None]

    def _look(self, now: float) -> None:
        there = {tree.name: _problems(tree.problems) for tree in self._trees.all()}
        for name in self._reported.keys() - there.keys():
            del self._reported[name]
        for name, problems in there.items():
            reported = self._reported.get(name, frozenset())
            if problems == reported:
                self._due.pop(name, None)
                continue
            soon = now + SETTLE_SECONDS
            tree = self._trees.get(name)
            refused = tree is not None and any(
                each.severity is Severity.BLOCKING and each.message not in reported for each in tree.problems
            )
            at = soon if refused else max(soon, self._not_before.get(name, 0.0))
            self._due[name] = min(at, self._due.get(name, at))

    def _tell(self, name: str, now: float) -> Report | None:
        del self._due[name]
        tree = self._trees.get(name)
        if tree is None:
            return None
        problems, reported = _problems(tree.problems), self._reported.get(name, frozenset())
        self._reported[name] = problems
        self._not_before[name] = now + REPEAT_SECONDS
        about = tree.definition
        news = sorted(problems - reported) if about is not None else ()
        if about is None or not news:
            return None
        return Report(
            "", events=tuple(KubeEvent(about, EventType.WARNING, "TopologyTree", message) for message in news)
        )


def _problems(problems: tuple[Problem, ...]) -> frozenset[str]:
    return frozenset(problem.message for problem in problems)
