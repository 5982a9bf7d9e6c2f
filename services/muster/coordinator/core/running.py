"""Gangs that run, by priority: who might make room for somebody is known without looking at all gangs."""

from collections import Counter
from collections.abc import Iterator

from muster.coordinator.core.gang import Gang
from muster.coordinator.core.offers import OfferedPods, offered
from muster.gangs.facts import PodFacts


class Running:
    """Gangs with bound members. What they could offer is kept until they are touched."""

    def __init__(self) -> None:
        self._priority: dict[Gang, int] = {}
        self._gangs: dict[int, dict[Gang, None]] = {}
        self._sorted: dict[int, list[Gang]] = {}
        self._offers: dict[Gang, OfferedPods] = {}
        self._covered: dict[Gang, Counter[str]] = {}
        self._settled: set[Gang] = set()

    def look(self, gang: Gang) -> bool:
        """The gang was touched. True: it may be asked to give way, and could not when it was looked at before."""
        self._offers.pop(gang, None)
        self._covered.pop(gang, None)
        priority = gang.priority if gang.bound else None
        before = self._priority.get(gang)
        if priority != before:
            self.forget(gang)
            if priority is not None:
                self._priority[gang] = priority
                self._gangs.setdefault(priority, {})[gang] = None
                self._sorted.pop(priority, None)
        settled = bool(gang.bound) and not gang.on_the_move
        if settled is (gang in self._settled):
            return False
        (self._settled.add if settled else self._settled.discard)(gang)
        return settled

    def forget(self, gang: Gang) -> None:
        """The gang is gone, or runs no more."""
        self._offers.pop(gang, None)
        self._covered.pop(gang, None)
        self._settled.discard(gang)
        priority = self._priority.pop(gang, None)
        if priority is not None:
            del self._gangs[priority][gang]
            if not self._gangs[priority]:
                del self._gangs[priority]
            self._sorted.pop(priority, None)

    @property
    def lowest(self) -> int | None:
        """The lowest priority of a gang that runs; None if none does."""
        return min(self._gangs, default=None)

    def below(self, priority: int) -> Iterator[tuple[int, list[Gang]]]:
        """Gangs of lower priorities, the lowest first, of each priority the youngest first."""
        for each in sorted(level for level in self._gangs if level < priority):
            if each not in self._sorted:
                self._sorted[each] = sorted(self._gangs[each], key=_youngest_first)
            yield each, self._sorted[each]

    def offer(self, gang: Gang) -> OfferedPods:
        """Its bound pods, the youngest first."""
        offer = self._offers.get(gang)
        if offer is None:
            pods = sorted((gang.pods[uid] for uid in gang.bound), key=_youngest_pod_first)
            offer = self._offers[gang] = offered((pod.uid, pod.node, pod.class_id) for pod in pods)
        return offer

    def covered(self, gang: Gang) -> Counter[str]:
        """How many of its bound pods each disruption budget covers."""
        covered = self._covered.get(gang)
        if covered is None:
            covered = self._covered[gang] = Counter(budget for uid in gang.bound for budget in gang.pods[uid].budgets)
        return covered


def _youngest_first(gang: Gang) -> tuple[int, str]:
    return (-(gang.facts.created_seconds if gang.facts is not None else 0), gang.id)


def _youngest_pod_first(pod: PodFacts) -> tuple[int, str]:
    return (-pod.created_seconds, pod.name)
