"""Expected completions: running pods in the order in which they are expected to end (for backfill reservations)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from muster.coordinator.core.backfill.run_times import RunTimes
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.composite_trees import composites_of, lacks_children
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.preemption.offers import OfferedPods, add_offered
from muster.coordinator.core.preemption.potential_victims import claimed
from muster.gangs.capacity import Int64
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PotentialVictim, VictimGang

OVERRUN_SECONDS = 60.0
"""Time that pods may take to end after their declared run time, as for their grace period."""
MAX_LEVELS = 64
"""Distinct end times; pods that end at about the same time share one."""
MAX_CLASSES: Final = 300
"""Pod classes of a gang that are compared with all nodes; pods of the others are taken to fit."""
PODS_AT_ONCE: Final = 2000
"""Pods that are looked at in one step; the next step goes on."""

FloatArray = NDArray[np.float64]


class ExpectedCompletions:
    """Pods of other groups that Muster placed, in the order in which they are expected to end.

    They are collected in slices, one per call of `advance`. What changes meanwhile shows when the answer is checked.
    """

    def __init__(self, cache: Cache, group: Group, now: Now, horizon_seconds: float) -> None:
        """`horizon_seconds`: pods that are known to run for longer are left out, since nothing is reserved so long."""
        self.group = group
        self.beyond_horizon = False
        """Pods were left out."""
        self.others_get_more = False
        """Pods of the group itself were left out, which may be offered to others. Pods that leave for other groups may
        not: a group with a nomination does not starve, and those before a reservation may use its capacity.
        """
        self._ends: dict[str, float] = {}
        self._offers: dict[str, OfferedPods] = {}
        self.potential_victims: list[PotentialVictim] = []
        self._slices = self._collect(cache, now, now.monotonic_seconds + horizon_seconds)

    def advance(self) -> bool:
        """Do a part of the work, PODS_AT_ONCE or somewhat more. True: all is done."""
        return next(self._slices, None) is None

    def _collect(self, cache: Cache, now: Now, horizon: float) -> Iterator[Literal["more"]]:
        capacity, group = cache.ledger.capacity, self.group
        others = claimed(cache, group, now.monotonic_seconds)
        believes = not group.preemption.reservations_in_vain  # others may lie as well as those who did
        there: list[tuple[str, str, str]] = []
        guesses: list[float] = []
        seen = 0
        for gang in list(cache.gangs.values()):
            for uid, pod in gang.pods.items():
                if (node := capacity.seated_on(uid)) is None:
                    continue
                if gang.group is group or uid in others:
                    self.others_get_more |= gang.group is group
                    continue
                end = expected_end(gang, pod, now)
                if horizon < end < math.inf:
                    self.beyond_horizon = True
                else:
                    end = end if believes else math.inf
                    self._ends[uid] = end
                    there.append((uid, node, cache.ledger.kind(capacity.class_of(uid), pod.label_set)))
                    guesses.append(_guessed_end(pod, end, now))
            seen += 1 + len(gang.pods)
            if seen >= PODS_AT_ONCE:
                seen = 0
                yield "more"
        levels = _levels(np.array(guesses))
        order = np.argsort(levels, kind="stable")
        if len(there) > PODS_AT_ONCE:
            yield "more"
        for level in range(int(levels.max(initial=-1)) + 1):
            first, end_ = np.searchsorted(levels, (level, level + 1), sorter=order).tolist()
            places: dict[tuple[str, str], list[str]] = {}
            for start in range(first, end_, PODS_AT_ONCE):
                add_offered(places, [there[at] for at in order[start : min(end_, start + PODS_AT_ONCE)].tolist()])
                seen += min(end_ - start, PODS_AT_ONCE)
                if seen >= PODS_AT_ONCE:
                    seen = 0
                    yield "more"
            pods = self._offers[f"end/{level}"] = OfferedPods.of(places)
            self.potential_victims.append(PotentialVictim(f"end/{level}", level, end_ - first, pods.counted))

    def chosen(self, removed: Sequence[VictimGang]) -> dict[str, float] | None:
        """Uids of the chosen pods and when they are expected to end, on the monotonic clock; None if the answer chooses
        pods that were not offered.
        """
        ends: dict[str, float] = {}
        for each in removed:
            pods = self._offers.get(each.id)
            uids = pods.taken(each) if pods is not None else None
            if uids is None:
                return None
            ends.update((uid, self._ends[uid]) for uid in uids)
        return ends


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


def note_overruns(gangs: Iterable[Gang], run_times: RunTimes, now: Now) -> bool:
    """Do not believe owners again of which a pod runs for longer than it declared. True: there are some."""
    overrunning = [
        gang
        for gang in gangs
        if any(pod.seated and not pod.deleting and _overrun(pod, now) > 0 for pod in gang.pods.values())
    ]
    for gang in overrunning:
        run_times.overrun(gang.id, now.monotonic_seconds)
    return bool(overrunning)


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


def could_ever_fit(group: Group, ledger: Ledger, known: Mapping[str, Gang]) -> bool:
    """False if the group would not fit even on empty nodes, counting each pod class alone. `known` are all gangs by
    id.
    """
    fitting = [gang for gang in group.gangs_to_place if _could_fit(gang, ledger)]
    if len(fitting) == len(group.gangs_to_place):
        return True
    return bool(fitting) and bool(composites_of(fitting[0])) and lacks_children(fitting, known) is None


def _could_fit(gang: Gang, ledger: Ledger) -> bool:
    fitting, counts = 0, Counter(pod.class_id for pod in gang.pending.values())
    for index, (class_id, count) in enumerate(counts.items()):
        fitting += min(count, ledger.max_pods(class_id)) if index < MAX_CLASSES else count
        if fitting >= gang.must_place:
            return True
    return False


def _levels(ends: FloatArray) -> Int64:
    """The rank of each end time; equal ends have one level, and there are at most MAX_LEVELS."""
    distinct, rank = np.unique(ends, return_inverse=True)
    step = max(1, math.ceil(len(distinct) / MAX_LEVELS))
    levels: Int64 = rank.reshape(-1) // step
    return levels
