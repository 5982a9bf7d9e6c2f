"""Turns reasons into pod conditions and events, and problems of topology trees into events, at a bounded rate (I10).

A reason of another identity (`reasons.Theme`) is reported at once, as conditions and events. A reason of which only
numbers differ is not: whenever capacity is freed or taken, the numbers of every pending gang change, and reporting them
all would cost more than starting the next gang. Such changes are reported as conditions only, gang by gang, at a fixed
rate over all gangs, of which namespaces take turns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.core.cache.topology import TopologyTrees
from muster.coordinator.core.effects import EventType, KubeEvent, PodCondition, Report
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.report.reasons import NOTHING, Kind, Theme, is_news, kind, reason, theme, warnings
from muster.dialects.registry import event_reason
from muster.gangs.facts import ObjectReference, Problem, Severity
from muster.queues.fair_queue import FairQueue


class Budget:
    """A token bucket that may be overdrawn; it is then empty until the debt is refilled."""

    def __init__(self, per_second: float, max_saved: float) -> None:
        self._per_second = per_second
        self._saving_seconds = max_saved / per_second
        self._empty_at = -self._saving_seconds

    @property
    def ready_at(self) -> float:
        """Time from which tokens may be spent."""
        return self._empty_at

    def spend(self, amount: float, now: float) -> None:
        """Takes tokens, into debt if necessary."""
        self._save_up_to(now)
        self._empty_at += amount / self._per_second

    def use_up(self, amount: float, now: float) -> None:
        """Takes tokens as far as there are any, without debt, for work that cannot wait."""
        self._save_up_to(now)
        self._empty_at = max(self._empty_at, min(now, self._empty_at + amount / self._per_second))

    def _save_up_to(self, now: float) -> None:
        self._empty_at = max(self._empty_at, now - self._saving_seconds)


SETTLE_SECONDS = 0.5
"""How long a reason must hold before it is reported: gangs that start at once get no conditions."""
PODS_PER_SECOND = 200
"""Maximum rate of conditions of one gang."""
CHANGES_PER_SECOND = 50
"""Maximum rate of conditions of which only numbers differ, over all gangs: costs a tenth of a core in
binding and the API server.
"""
MAX_CHANGES_SAVED = 200
"""Burst after a quiet time, so that a change of a single gang is reported without delay."""
HEAD_EVERY = 4
"""Every fourth change reported is of the first gang in queue order, which is the one people look at."""
PODS_WITH_EVENTS = 64
"""Maximum number of pods of a gang, first by name, that get events; all get the condition."""


class _Message(NamedTuple):
    theme: Theme
    text: str


@dataclass(slots=True)
class _Reported:
    theme: Theme = NOTHING
    pods: dict[str, _Message] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    not_before: float = 0.0


def _namespace(gang: Gang) -> str:
    """The namespace in a gang's id: "dialect/namespace/name"."""
    return gang.id.split("/", 2)[1]


class Reports:
    """Turns reasons into conditions and events."""

    def __init__(self) -> None:
        self._reported: dict[Gang, _Reported] = {}
        self._due: dict[Gang, float] = {}
        """When to compare the reasons of touched gangs with the reported ones."""
        self._changed: FairQueue[Gang, None] = FairQueue()
        """Gangs whose numbers differ from the reported ones, the longest waiting of each namespace first; no more than
        gangs, and until they are reported, have nothing to report, or are removed."""
        self._budget = Budget(CHANGES_PER_SECOND, MAX_CHANGES_SAVED)
        self._turns = 0

    def look(self, gang: Gang, now: float) -> Report | None:
        """Schedules the report of a touched gang; returns warnings to report now."""
        reported = self._reported.setdefault(gang, _Reported())
        if kind(gang) is Kind.NONE and not gang.invalid:
            reported.theme = NOTHING
            self._due.pop(gang, None)
            self._changed.discard(_namespace(gang), gang)
        elif gang not in self._due:
            self._due[gang] = max(now + SETTLE_SECONDS, reported.not_before)
        return self._warn(gang, reported)

    def forget(self, gang: Gang) -> None:
        """Drops the state of a removed gang."""
        self._reported.pop(gang, None)
        self._due.pop(gang, None)
        self._changed.discard(_namespace(gang), gang)

    def repeat(self) -> None:
        """Report all reasons again: what was written may be lost."""
        for reported in self._reported.values():
            reported.theme, reported.pods, reported.warnings = NOTHING, {}, ()

    def next_time(self) -> float | None:
        """Returns when the next report is due."""
        first = min(self._due.values(), default=None)
        if not self._changed:
            return first
        return self._budget.ready_at if first is None else min(first, self._budget.ready_at)

    def due(self, now: float) -> list[Report]:
        """Returns the reports that are due."""
        reports = []
        for gang in [gang for gang, when in self._due.items() if when <= now]:
            del self._due[gang]
            reports.append(self._news(gang, now))
        while self._changed and self._budget.ready_at <= now:
            gang = self._turn()
            if (not_before := self._reported[gang].not_before) > now:
                self._due.setdefault(gang, not_before)
            else:
                reports.append(self._changes(gang, now))
        return [report for report in reports if report is not None]

    def _turn(self) -> Gang:
        self._turns += 1
        if self._turns % HEAD_EVERY == 0:
            first = min(self._changed, key=lambda gang: (gang.group.key, gang.id))
            self._changed.discard(_namespace(first), first)
            return first
        [entry] = self._changed.take(1)
        return entry.key

    def _news(self, gang: Gang, now: float) -> Report | None:
        reported, why = self._reported[gang], _Message(theme(gang), reason(gang))
        reported.pods = {uid: message for uid, message in reported.pods.items() if uid in gang.pods}
        news, changed = {}, False
        for uid, message in _by_pod(gang, why):
            before = reported.pods.get(uid)
            if before is None or is_news(before.theme, message.theme):
                news[uid] = message
            elif before.text != message.text:
                changed = True
        if changed:
            self._changed.put(_namespace(gang), gang, None)
        else:
            self._changed.discard(_namespace(gang), gang)
        reported.pods.update(news)
        events = self._events(gang, reported, why, news)
        if not news and not events:
            return None
        self._budget.use_up(len(news), now)
        return self._report(gang, reported, news, events, now)

    def _changes(self, gang: Gang, now: float) -> Report | None:
        reported = self._reported[gang]
        changes = {}
        for uid, message in _by_pod(gang, _Message(theme(gang), reason(gang))):
            before = reported.pods.get(uid)
            if before is not None and before.text != message.text and not is_news(before.theme, message.theme):
                changes[uid] = _Message(before.theme, message.text)
        if not changes:
            return None
        reported.pods.update(changes)
        self._budget.spend(len(changes), now)
        return self._report(gang, reported, changes, (), now)

    @staticmethod
    def _report(
        gang: Gang, reported: _Reported, pods: dict[str, _Message], events: tuple[KubeEvent, ...], now: float
    ) -> Report:
        reported.not_before = now + 1 + len(pods) / PODS_PER_SECOND
        conditions = ((gang.pods[uid], message.text) for uid, message in pods.items())
        return Report(
            gang.id, tuple(PodCondition(pod.uid, pod.namespace, pod.name, text) for pod, text in conditions), events
        )

    @staticmethod
    def _events(gang: Gang, reported: _Reported, why: _Message, news: dict[str, _Message]) -> tuple[KubeEvent, ...]:
        first = sorted(news, key=lambda uid: gang.pods[uid].name)[:PODS_WITH_EVENTS]
        events = [_failed(gang, pod_reference(gang.pods[uid]), news[uid].text) for uid in first]
        if is_news(reported.theme, why.theme):
            reported.theme = why.theme
            definition = gang.facts.definition if gang.facts is not None else None
            if definition is not None and why.text:
                events.append(_failed(gang, definition, why.text))
        return tuple(events)

    @staticmethod
    def _warn(gang: Gang, reported: _Reported) -> Report | None:
        notes = warnings(gang)
        # a corrected problem is reported again when it returns
        reported.warnings = tuple(note for note in reported.warnings if note in notes)
        new = [note for note in notes if note not in reported.warnings]
        regarding = gang.reference if new else None
        if regarding is None:
            return None
        reported.warnings += tuple(new)
        return Report(
            gang.id,
            events=tuple(KubeEvent(regarding, EventType.WARNING, "GangDeclaration", note) for note in new),
        )


def _by_pod(gang: Gang, why: _Message) -> Iterator[tuple[str, _Message]]:
    """Yields the message for each pod that has no seat or a failing bind; a problem of the pod itself comes first."""
    if why.text:
        seated = gang.seats if not gang.permit.granted or why.theme.kind is Kind.NOT_BOUND else ()
        for uid in (*gang.pending, *gang.hold.marked, *seated):
            if uid not in gang.invalid:
                yield uid, why
    for uid in gang.invalid:
        problem = gang.pods[uid].problem
        yield uid, _Message(Theme(Kind.BAD_POD, problem), problem)


def _failed(gang: Gang, regarding: ObjectReference, note: str) -> KubeEvent:
    return KubeEvent(regarding, EventType.WARNING, event_reason(gang.id), note)


TREE_SETTLE_SECONDS = 1.0
"""Nodes are often added or removed in numbers: only problems that remain for so long are reported."""
TREE_REPEAT_SECONDS = 30.0
"""Minimum interval of reports that differ in details, such as missing nodes; a rejected tree is reported at once."""


class TreeReports:
    """Problems of topology trees, reported as events on the objects that define them (I10)."""

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
            soon = now + TREE_SETTLE_SECONDS
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
        self._not_before[name] = now + TREE_REPEAT_SECONDS
        about = tree.definition
        news = sorted(problems - reported) if about is not None else ()
        if about is None or not news:
            return None
        return Report(
            "", events=tuple(KubeEvent(about, EventType.WARNING, "TopologyTree", message) for message in news)
        )


def _problems(problems: tuple[Problem, ...]) -> frozenset[str]:
    return frozenset(problem.message for problem in problems)
