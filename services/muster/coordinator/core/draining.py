"""How soon room comes by itself: what runs, by when it is expected to end."""

import math
from collections.abc import Sequence

from muster.coordinator.core.events import Now
from muster.coordinator.core.knowledge import Knowledge
from muster.coordinator.core.ledger import Ledger
from muster.coordinator.core.model import Group
from muster.gangs.facts import PodFacts
from muster.gangs.placing import PodsOnNode, Removable, Removed

MOST_LEVELS = 64
"""Ends that are told apart; what ends at about the same time counts as one."""


class Draining:
    """Pods of others that Muster placed, in the order in which they are expected to end; who never says comes last."""

    def __init__(self, knowledge: Knowledge, group: Group, now: Now) -> None:
        self._ends: dict[str, float] = {}
        self._places: dict[str, dict[tuple[str, str], list[str]]] = {}
        self.removable: list[Removable] = []
        capacity = knowledge.ledger.capacity
        there = [
            (pod, node)
            for gang in knowledge.gangs.values()
            if gang.group is not group
            for uid, pod in gang.pods.items()
            if (node := capacity.seated_on(uid)) is not None
        ]
        self._ends = {pod.uid: expected_end(pod, now) for pod, _ in there}
        there.sort(key=lambda entry: (self._ends[entry[0].uid], entry[0].uid))
        levels = _levels([self._ends[pod.uid] for pod, _ in there])
        for level in sorted(set(levels)):
            places: dict[tuple[str, str], list[str]] = {}
            for (pod, node), its_level in zip(there, levels, strict=True):
                if its_level == level:
                    places.setdefault((node, capacity.class_of(pod.uid)), []).append(pod.uid)
            counted = tuple(PodsOnNode(node, class_id, len(uids)) for (node, class_id), uids in places.items())
            name = f"end/{level}"
            self._places[name] = places
            self.removable.append(Removable(name, level, sum(entry.count for entry in counted), counted))

    def chosen(self, removed: Sequence[Removed]) -> dict[str, float] | None:
        """Uids of the pods that are meant and when they are expected to end, on the monotonic clock; None if the answer
        names what was not offered.
        """
        going: dict[str, float] = {}
        for each in removed:
            places = self._places.get(each.id)
            if places is None:
                return None
            for taken in each.pods:
                there = places.get((taken.node, taken.class_id), [])
                if not 0 < taken.count <= len(there):
                    return None
                going.update((uid, self._ends[uid]) for uid in there[: taken.count])
        return going


def expected_end(pod: PodFacts, now: Now) -> float:
    """When the pod is expected to have ended, on the monotonic clock; infinite where it does not say."""
    if pod.deleting:
        return now.monotonic_seconds
    if pod.expected_seconds <= 0:
        return math.inf
    ran = max(0.0, now.unix_seconds - pod.started_seconds) if pod.started_seconds else 0.0
    return now.monotonic_seconds + max(0.0, pod.expected_seconds - ran)


def could_ever_fit(group: Group, ledger: Ledger) -> bool:
    """False: the nodes could not take the group's members even if they were empty, by counting each class alone."""
    for gang in group.to_seat:
        counts: dict[str, int] = {}
        for pod in gang.waiting.values():
            counts[pod.class_id] = counts.get(pod.class_id, 0) + 1
        if sum(min(count, ledger.most(class_id)) for class_id, count in counts.items()) < gang.minimum:
            return False
    return True


def _levels(ends: Sequence[float]) -> list[int]:
    """For ends in rising order: equal ends on one level, at most so many levels in all."""
    distinct = sorted({end for end in ends if end < math.inf})
    step = max(1, math.ceil(len(distinct) / (MOST_LEVELS - 1)))
    rank = {end: index // step for index, end in enumerate(distinct)}
    last = len(distinct) // step + 1 if distinct else 0
    return [rank[end] if end < math.inf else last for end in ends]
