"""How soon room comes by itself: what runs, by when it is expected to end."""

import math
from collections.abc import Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.preemption.potential_victims import OfferedPods, claimed, offered
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PotentialVictim, VictimGang

MAX_LEVELS = 64
"""Ends that are told apart; what ends at about the same time counts as one."""


class ExpectedCompletions:
    """Pods of others that Muster placed, in the order in which they are expected to end."""

    def __init__(self, cache: Cache, group: Group, now: Now) -> None:
        self._ends: dict[str, float] = {}
        self._offers: dict[str, OfferedPods] = {}
        self.potential_victims: list[PotentialVictim] = []
        capacity = cache.ledger.capacity
        others = claimed(cache, group, now.monotonic_seconds)
        there = [
            (pod, node)
            for gang in cache.gangs.values()
            if gang.group is not group
            for uid, pod in gang.pods.items()
            if uid not in others and (node := capacity.seated_on(uid)) is not None
        ]
        self._ends = {pod.uid: expected_end(pod, now) for pod, _ in there}
        guesses = [_guessed_end(pod, self._ends[pod.uid], now) for pod, _ in there]
        pods_of: dict[int, list[tuple[str, str, str]]] = {}
        for level, (pod, node) in zip(_levels(guesses), there, strict=True):
            pods_of.setdefault(level, []).append((pod.uid, node, capacity.class_of(pod.uid)))
        for level in sorted(pods_of):
            pods = self._offers[f"end/{level}"] = offered(pods_of[level])
            self.potential_victims.append(PotentialVictim(f"end/{level}", level, len(pods_of[level]), pods.counted))

    def chosen(self, removed: Sequence[VictimGang]) -> dict[str, float] | None:
        """Uids of the pods that are meant and when they are expected to end, on the monotonic clock; None if the answer
        names what was not offered.
        """
        going: dict[str, float] = {}
        for each in removed:
            pods = self._offers.get(each.id)
            uids = pods.taken(each) if pods is not None else None
            if uids is None:
                return None
            going.update((uid, self._ends[uid]) for uid in uids)
        return going


def expected_end(pod: PodFacts, now: Now) -> float:
    """When the pod is expected to have ended, on the monotonic clock; infinite where it does not say."""
    if pod.deleting:
        return now.monotonic_seconds
    if pod.expected_seconds <= 0:
        return math.inf
    ran = max(0.0, now.unix_seconds - pod.started_seconds) if pod.started_seconds else 0.0
    return now.monotonic_seconds + max(0.0, pod.expected_seconds - ran)


def _guessed_end(pod: PodFacts, end: float, now: Now) -> float:
    """For pods that do not say: what has run for long will run for long, so as long again as it has run."""
    if end < math.inf:
        return end
    return now.monotonic_seconds + max(0.0, now.unix_seconds - (pod.started_seconds or pod.created_seconds))


def could_ever_fit(group: Group, ledger: Ledger) -> bool:
    """False: the nodes could not take the group's members even if they were empty, by counting each class alone."""
    for gang in group.gangs_to_place:
        counts: dict[str, int] = {}
        for pod in gang.pending.values():
            counts[pod.class_id] = counts.get(pod.class_id, 0) + 1
        if sum(min(count, ledger.max_pods(class_id)) for class_id, count in counts.items()) < gang.minimum:
            return False
    return True


def _levels(ends: Sequence[float]) -> list[int]:
    """Their rank, equal ends on one level, at most so many levels in all."""
    distinct = sorted(set(ends))
    step = max(1, math.ceil(len(distinct) / MAX_LEVELS))
    rank = {end: index // step for index, end in enumerate(distinct)}
    return [rank[end] for end in ends]
