"""Expected completions: running pods in the order in which they are expected to end (for backfill reservations)."""

import math
from collections.abc import Iterable, Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.preemption.potential_victims import OfferedPods, claimed, offered
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PotentialVictim, VictimGang

OVERRUN_SECONDS = 60.0
"""Time that pods may take to end after their declared run time, as for their grace period."""
MAX_LEVELS = 64
"""Distinct end times; pods that end at about the same time share one."""


class ExpectedCompletions:
    """Pods of other groups that Muster placed, in the order in which they are expected to end."""

    def __init__(self, cache: Cache, group: Group, now: Now, horizon_seconds: float) -> None:
        """`horizon_seconds`: pods that are known to run for longer are left out, since nothing is reserved so long."""
        self._ends: dict[str, float] = {}
        self._offers: dict[str, OfferedPods] = {}
        self.potential_victims: list[PotentialVictim] = []
        capacity = cache.ledger.capacity
        others = claimed(cache, group, now.monotonic_seconds)
        there = [
            (pod, node, expected_end(gang, pod, now))
            for gang in cache.gangs.values()
            if gang.group is not group
            for uid, pod in gang.pods.items()
            if uid not in others and (node := capacity.seated_on(uid)) is not None
        ]
        horizon, everything = now.monotonic_seconds + horizon_seconds, len(there)
        there = [each for each in there if each[2] <= horizon or math.isinf(each[2])]
        self.beyond_horizon = len(there) < everything
        """Pods were left out."""
        self._ends = {pod.uid: end for pod, _, end in there}
        guesses = [_guessed_end(pod, end, now) for pod, _, end in there]
        pods_of: dict[int, list[tuple[str, str, str]]] = {}
        for level, (pod, node, _) in zip(_levels(guesses), there, strict=True):
            kind = cache.ledger.kind(capacity.class_of(pod.uid), pod.label_set)
            pods_of.setdefault(level, []).append((pod.uid, node, kind))
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


def expected_end(gang: Gang, pod: PodFacts, now: Now) -> float:
    """Monotonic time by which the pod is expected to have ended; infinite if that is not known: it declares no run
    time, or its gang's is not believed.
    """
    if pod.deleting:
        return now.monotonic_seconds
    if pod.expected_seconds <= 0 or gang.run_time.overran or _overrun(pod, now) > OVERRUN_SECONDS:
        return math.inf
    ran = max(0.0, now.unix_seconds - pod.started_seconds) if pod.started_seconds else 0.0
    return now.monotonic_seconds + max(0.0, pod.expected_seconds - ran)


def note_overruns(gangs: Iterable[Gang], now: Now) -> bool:
    """Do not believe gangs again of which a pod runs for longer than it declared. True: there are some."""
    liars = [
        gang
        for gang in gangs
        if any(pod.seated and not pod.deleting and _overrun(pod, now) > 0 for pod in gang.pods.values())
    ]
    for gang in liars:
        gang.run_time.overrun()
    return bool(liars)


def _overrun(pod: PodFacts, now: Now) -> float:
    """Seconds for which the pod has run longer than it declares; 0 or less: it has not."""
    if pod.expected_seconds <= 0 or not pod.started_seconds:
        return 0.0
    return now.unix_seconds - pod.started_seconds - pod.expected_seconds


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
