"""What users are told on their objects, and when: what has stood for a moment, and not the same thing twice."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.coordinator.core.events import EventType, KubeEvent, PodCondition, Report
from muster.coordinator.core.model import Gang, pod_reference
from muster.coordinator.core.reasons import reason, warnings
from muster.gangs.facts import ObjectReference, PodFacts

SETTLE_SECONDS = 0.5
"""A reason must stand this long: gangs that start at once are not bothered with conditions."""
PODS_PER_SECOND = 200
"""A waiting gang's conditions are rewritten at most at this rate: a reason that counts members changes with each."""
PODS_WITH_EVENTS = 64
"""In larger gangs only the first so many pods (by name) get events; all get the condition."""


@dataclass(slots=True)
class _Told:
    reason: str = ""
    pods: dict[str, str] = field(default_factory=dict)
    warnings: set[str] = field(default_factory=set)
    not_before: float = 0.0


class Reports:
    """Turns reasons into conditions and events."""

    def __init__(self) -> None:
        self._told: dict[Gang, _Told] = {}
        self._due: dict[Gang, float] = {}

    def look(self, gang: Gang, now: float) -> Report | None:
        """The gang was touched: is there something to tell, now or in a moment?"""
        told = self._told.setdefault(gang, _Told())
        if self._untold(gang, told):
            if gang not in self._due:
                self._due[gang] = max(now + SETTLE_SECONDS, told.not_before)
        else:
            self._due.pop(gang, None)
        return self._warn(gang, told)

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._told.pop(gang, None)
        self._due.pop(gang, None)

    def next_time(self) -> float | None:
        """When something is due."""
        return min(self._due.values(), default=None)

    def due(self, now: float) -> list[Report]:
        """What is to be told now."""
        gangs = [gang for gang, when in self._due.items() if when <= now]
        for gang in gangs:
            del self._due[gang]
        return [report for gang in gangs if (report := self._tell(gang, self._told[gang], now)) is not None]

    def _untold(self, gang: Gang, told: _Told) -> bool:
        now_true = reason(gang)
        if now_true != told.reason:
            return True
        return any(told.pods.get(uid) != text for uid, text in _by_pod(gang, now_true))

    def _tell(self, gang: Gang, told: _Told, now: float) -> Report | None:
        told.reason = reason(gang)
        pods = [(gang.pods[uid], text) for uid, text in _by_pod(gang, told.reason) if told.pods.get(uid) != text]
        told.pods = {uid: text for uid, text in told.pods.items() if uid in gang.pods}
        told.pods.update((pod.uid, text) for pod, text in pods)
        told.not_before = now + 1 + len(pods) / PODS_PER_SECOND
        events = self._reason_events(gang, told.reason, pods)
        if not pods and not events:
            return None
        conditions = tuple(PodCondition(pod.uid, pod.namespace, pod.name, text) for pod, text in pods)
        return Report(gang.id, conditions, events)

    @staticmethod
    def _reason_events(gang: Gang, text: str, pods: list[tuple[PodFacts, str]]) -> tuple[KubeEvent, ...]:
        told = sorted(pods, key=lambda item: item[0].name)[:PODS_WITH_EVENTS]
        events = [_failed(pod_reference(pod), why) for pod, why in told]
        definition = gang.facts.definition if gang.facts is not None else None
        if definition is not None and text:
            events.append(_failed(definition, text))
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


def _by_pod(gang: Gang, why: str) -> Iterator[tuple[str, str]]:
    """What the pods that have no seat are told, by uid: what is wrong with themselves comes first."""
    if why:
        for uid in (*gang.waiting, *gang.marked, *(gang.seats if not gang.permitted else ())):
            if uid not in gang.invalid:
                yield uid, why
    for uid in gang.invalid:
        yield uid, gang.pods[uid].problem


def _failed(regarding: ObjectReference, note: str) -> KubeEvent:
    return KubeEvent(regarding, EventType.WARNING, "FailedScheduling", note)
