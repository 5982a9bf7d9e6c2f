"""What users are told on their objects, and when: what has stood for a moment, news at once, changed numbers in turn.

A reason of another kind is news (`reasons.Theme`): conditions and events, at once. One that differs in numbers is not:
whenever room comes or goes, the numbers of every gang that waits change, and to tell them all would take more than to
start the next gang. They are told as conditions only, in turn, so many in a second over all gangs together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from muster.coordinator.core.effects import EventType, KubeEvent, PodCondition, Report
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.report.reasons import NOTHING, Kind, Theme, is_news, kind, reason, theme, warnings
from muster.dialects.registry import event_reason
from muster.gangs.facts import ObjectReference


class Budget:
    """What is spent may be more than there is; then there is nothing for the time that it takes to make up for it."""

    def __init__(self, per_second: float, most_saved: float) -> None:
        self._per_second = per_second
        self._saving_seconds = most_saved / per_second
        self._empty_at = -self._saving_seconds

    @property
    def ready_at(self) -> float:
        """When something may be spent, or could be."""
        return self._empty_at

    def spend(self, amount: float, now: float) -> None:
        """Something was done."""
        self._save_up_to(now)
        self._empty_at += amount / self._per_second

    def use_up(self, amount: float, now: float) -> None:
        """Something was done that had to be: it takes what there is, and owes nothing."""
        self._save_up_to(now)
        self._empty_at = max(self._empty_at, min(now, self._empty_at + amount / self._per_second))

    def _save_up_to(self, now: float) -> None:
        self._empty_at = max(self._empty_at, now - self._saving_seconds)


SETTLE_SECONDS = 0.5
"""A reason must stand this long: gangs that start at once are not bothered with conditions."""
PODS_PER_SECOND = 200
"""One gang's conditions are written at most at this rate."""
CHANGES_PER_SECOND = 50
"""Conditions that differ in numbers, over all gangs: a tenth of a core for binding and the API server."""
MAX_CHANGES_SAVED = 200
"""So many at once after a quiet time: a change that concerns one gang is not late."""
FIRST_EVERY = 4
"""One turn in so many is of the first in queue order: the next to start is the one that people look at."""
PODS_WITH_EVENTS = 64
"""In larger gangs only the first so many pods (by name) get events; all get the condition."""


class _Said(NamedTuple):
    theme: Theme
    text: str


@dataclass(slots=True)
class _Told:
    theme: Theme = NOTHING
    pods: dict[str, _Said] = field(default_factory=dict)
    warnings: set[str] = field(default_factory=set)
    not_before: float = 0.0


class Reports:
    """Turns reasons into conditions and events."""

    def __init__(self) -> None:
        self._told: dict[Gang, _Told] = {}
        self._due: dict[Gang, float] = {}
        """When gangs that were touched are compared with what was told of them."""
        self._changed: dict[Gang, None] = {}
        """Gangs of which other numbers were told, who has waited longest first."""
        self._budget = Budget(CHANGES_PER_SECOND, MAX_CHANGES_SAVED)
        self._turns = 0

    def look(self, gang: Gang, now: float) -> Report | None:
        """The gang was touched: is there something to tell, now or in a moment?"""
        told = self._told.setdefault(gang, _Told())
        if kind(gang) is Kind.NONE and not gang.invalid:
            told.theme = NOTHING
            self._due.pop(gang, None)
            self._changed.pop(gang, None)
        elif gang not in self._due:
            self._due[gang] = max(now + SETTLE_SECONDS, told.not_before)
        return self._warn(gang, told)

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._told.pop(gang, None)
        self._due.pop(gang, None)
        self._changed.pop(gang, None)

    def next_time(self) -> float | None:
        """When something is due."""
        first = min(self._due.values(), default=None)
        if not self._changed:
            return first
        return self._budget.ready_at if first is None else min(first, self._budget.ready_at)

    def due(self, now: float) -> list[Report]:
        """What is to be told now."""
        reports = []
        for gang in [gang for gang, when in self._due.items() if when <= now]:
            del self._due[gang]
            reports.append(self._news(gang, now))
        while self._changed and self._budget.ready_at <= now:
            gang = self._turn()
            del self._changed[gang]
            if (not_before := self._told[gang].not_before) > now:
                self._due.setdefault(gang, not_before)
            else:
                reports.append(self._changes(gang, now))
        return [report for report in reports if report is not None]

    def _turn(self) -> Gang:
        self._turns += 1
        if self._turns % FIRST_EVERY == 0:
            return min(self._changed, key=lambda gang: (gang.group.key, gang.id))
        return next(iter(self._changed))

    def _news(self, gang: Gang, now: float) -> Report | None:
        told, why = self._told[gang], _Said(theme(gang), reason(gang))
        told.pods = {uid: said for uid, said in told.pods.items() if uid in gang.pods}
        news, changed = {}, False
        for uid, said in _by_pod(gang, why):
            before = told.pods.get(uid)
            if before is None or is_news(before.theme, said.theme):
                news[uid] = said
            elif before.text != said.text:
                changed = True
        if changed:
            self._changed.setdefault(gang)
        else:
            self._changed.pop(gang, None)
        told.pods.update(news)
        events = self._events(gang, told, why, news)
        if not news and not events:
            return None
        self._budget.use_up(len(news), now)
        return self._report(gang, told, news, events, now)

    def _changes(self, gang: Gang, now: float) -> Report | None:
        told = self._told[gang]
        changes = {}
        for uid, said in _by_pod(gang, _Said(theme(gang), reason(gang))):
            before = told.pods.get(uid)
            if before is not None and before.text != said.text and not is_news(before.theme, said.theme):
                changes[uid] = _Said(before.theme, said.text)
        if not changes:
            return None
        told.pods.update(changes)
        self._budget.spend(len(changes), now)
        return self._report(gang, told, changes, (), now)

    @staticmethod
    def _report(gang: Gang, told: _Told, pods: dict[str, _Said], events: tuple[KubeEvent, ...], now: float) -> Report:
        told.not_before = now + 1 + len(pods) / PODS_PER_SECOND
        told_to = ((gang.pods[uid], said.text) for uid, said in pods.items())
        return Report(
            gang.id, tuple(PodCondition(pod.uid, pod.namespace, pod.name, text) for pod, text in told_to), events
        )

    @staticmethod
    def _events(gang: Gang, told: _Told, why: _Said, news: dict[str, _Said]) -> tuple[KubeEvent, ...]:
        first = sorted(news, key=lambda uid: gang.pods[uid].name)[:PODS_WITH_EVENTS]
        events = [_failed(gang, pod_reference(gang.pods[uid]), news[uid].text) for uid in first]
        if is_news(told.theme, why.theme):
            told.theme = why.theme
            definition = gang.facts.definition if gang.facts is not None else None
            if definition is not None and why.text:
                events.append(_failed(gang, definition, why.text))
        return tuple(events)

    @staticmethod
    def _warn(gang: Gang, told: _Told) -> Report | None:
        notes = warnings(gang)
        told.warnings.intersection_update(notes)  # what was mended is told again when it comes back
        new = [note for note in notes if note not in told.warnings]
        regarding = gang.reference if new else None
        if regarding is None:
            return None
        told.warnings.update(new)
        return Report(
            gang.id,
            events=tuple(KubeEvent(regarding, EventType.WARNING, "GangDeclaration", note) for note in new),
        )


def _by_pod(gang: Gang, why: _Said) -> Iterator[tuple[str, _Said]]:
    """What the pods that have no seat, or whose bind is in trouble, are told: what is wrong with themselves first."""
    if why.text:
        seated = gang.seats if not gang.permitted or why.theme.kind is Kind.NOT_BOUND else ()
        for uid in (*gang.waiting, *gang.marked, *seated):
            if uid not in gang.invalid:
                yield uid, why
    for uid in gang.invalid:
        problem = gang.pods[uid].problem
        yield uid, _Said(Theme(Kind.BAD_POD, problem), problem)


def _failed(gang: Gang, regarding: ObjectReference, note: str) -> KubeEvent:
    return KubeEvent(regarding, EventType.WARNING, event_reason(gang.id), note)
