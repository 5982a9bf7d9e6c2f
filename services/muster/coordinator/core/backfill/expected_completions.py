"""Expected completions: running pods in the order in which they are expected to end (for backfill reservations)."""

import math
from collections.abc import Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.preemption.potential_victims import OfferedPods, claimed, offered
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PotentialVictim, VictimGang

MAX_LEVELS = 64
"""Distinct end times; pods that end at about the same time share one."""


class ExpectedCompletions:
    """Pods of other groups that Muster placed, in the order in which they are expected to end."""

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
        """Uids of the chosen pods and when they are expected to end, on the monotonic clock; None if the answer chooses
        pods that were not offered.
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
    """Monotonic time by which the pod is expected to have ended; infinite if it does not declare its run time."""
    if pod.deleting:
        return now.monotonic_seconds
    if pod.expected_seconds <= 0:
        return math.inf
    ran = max(0.0, now.unix_seconds - pod.started_seconds) if pod.started_seconds else 0.0
    return now.monotonic_seconds + max(0.0, pod.expected_seconds - ran)


def _guessed_end(pod: PodFacts, end: float, now: Now) -> float:
    """Pods that declare no run time are expected to run as long again as they have run."""
    if end < math.inf:
        return end
    return now.monotonic_seconds + max(0.0, now.unix_seconds - (pod.started_seconds or pod.created_seconds))


def could_ever_fit(group: Group, ledger: Ledger) -> bool:
    """False if the group would not fit even on empty nodes, counting each pod class alone."""
    for gang in group.gangs_to_place:
        counts: dict[str, int] = {}
        for pod in gang.pending.values():
            counts[pod.class_id] = counts.get(pod.class_id, 0) + 1
        if sum(min(count, ledger.max_pods(class_id)) for class_id, count in counts.items()) < gang.minimum:
            return False
    return True


def _levels(ends: Sequence[float]) -> list[int]:
    """The rank of each end time; equal ends have one level, and there are at most MAX_LEVELS."""
    distinct = sorted(set(ends))
    step = max(1, math.ceil(len(distinct) / MAX_LEVELS))
    rank = {end: index // step for index, end in enumerate(distinct)}
    return [rank[end] for end in ends]
