"""Who may have to make room for a group, in which order; and which pods the solver's answer means."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from muster.coordinator.core.decisions import Victims
from muster.coordinator.core.knowledge import Knowledge
from muster.coordinator.core.model import Gang, Group
from muster.coordinator.core.questions import may_preempt
from muster.gangs.facts import PodFacts
from muster.gangs.placing import PodsOnNode, Removable, Removed


class Candidates:
    """Gangs that may have to make room for one group.

    First those that wait with reservations and stand behind it in the queue, the last of them first: giving way costs
    them nothing but the wait. Then running gangs of lower priority, the lowest and youngest first. What a disruption
    budget protects, and what is on its way out already, is none.
    """

    def __init__(self, knowledge: Knowledge, group: Group, holding: Iterable[Group]) -> None:
        self._knowledge = knowledge
        self._pods: dict[str, dict[tuple[str, str], list[str]]] = {}  # gang -> (node, class) -> uids, youngest first
        self.removable: list[Removable] = []
        levels = self._waiting(group, holding)
        if may_preempt(group):
            self._running(group, levels)

    def victims(self, removed: Sequence[Removed]) -> Victims | None:
        """The pods that are meant; None if the answer names what was not offered."""
        reserved: dict[Gang, list[str]] = {}
        bound: dict[Gang, list[str]] = {}
        whole = set()
        for each in removed:
            gang, places = self._knowledge.gangs.get(each.id), self._pods.get(each.id)
            if gang is None or places is None:
                return None
            uids: list[str] = []
            for taken in each.pods:
                there = places.get((taken.node, taken.class_id), [])
                if not 0 < taken.count <= len(there):
                    return None
                uids += there[: taken.count]
            if not gang.permitted and gang.seats:
                reserved[gang] = uids
                continue
            bound[gang] = uids
            if len(uids) > _spare(gang):
                if set(uids) != gang.bound:
                    return None  # it would neither run nor start anew
                whole.add(gang)
        return Victims(reserved, bound, frozenset(whole))

    def _waiting(self, group: Group, holding: Iterable[Group]) -> int:
        """Returns how many levels they are."""
        key, level = group.key, 0
        behind = [other for other in holding if other.holds and not other.busy and other.key > key]
        for other in sorted(behind, key=lambda other: other.key, reverse=True):
            if not group.holds and _priority(other) >= _priority(group):
                continue  # only among gangs that wait is a wait for each other a deadlock
            for gang in other.gangs:
                seats = [(held.seat.uid, held.seat.node, held.seat.class_id) for held in gang.seats.values()]
                if seats:
                    self._offer(gang, level, len(seats), seats)
            level += 1
        return level

    def _running(self, group: Group, first_level: int) -> None:
        priority = _priority(group)
        allowed = Counter(self._knowledge.budgets)
        lower: defaultdict[int, list[Gang]] = defaultdict(list)
        for gang in self._knowledge.gangs.values():
            if gang.bound and not (gang.leaving or gang.seats or gang.acked) and gang.priority < priority:
                lower[gang.priority].append(gang)
        for level, each in enumerate(sorted(lower), start=first_level):
            for gang in sorted(lower[each], key=_youngest_first):
                self._offer_running(gang, level, allowed)

    def _offer_running(self, gang: Gang, level: int, allowed: Counter[str]) -> None:
        pods = sorted((gang.pods[uid] for uid in gang.bound), key=_youngest_pod_first)
        covered = Counter(budget for pod in pods for budget in pod.budgets)
        spare = _spare(gang)
        if any(count > allowed[budget] for budget, count in covered.items()):
            pods = [pod for pod in pods if not pod.budgets]
            spare = min(spare, len(pods))
            pods = pods[:spare]  # it cannot go whole
        else:
            allowed.subtract(covered)
        if pods:
            self._offer(gang, level, spare, [(pod.uid, pod.node, pod.class_id) for pod in pods])

    def _offer(self, gang: Gang, level: int, spare: int, pods: Sequence[tuple[str, str, str]]) -> None:
        places: dict[tuple[str, str], list[str]] = {}
        for uid, node, class_id in pods:
            places.setdefault((node, class_id), []).append(uid)
        self._pods[gang.id] = places
        counted = tuple(PodsOnNode(node, class_id, len(uids)) for (node, class_id), uids in places.items())
        self.removable.append(Removable(gang.id, level, spare, counted))


def lowest_running_priority(gangs: Mapping[str, Gang]) -> int | None:
    """The lowest priority of a gang that has bound members; None if none has."""
    return min((gang.priority for gang in gangs.values() if gang.bound), default=None)


def _priority(group: Group) -> int:
    return max(gang.priority for gang in group.gangs)


def _spare(gang: Gang) -> int:
    return max(0, len(gang.bound) - (gang.facts.minimum if gang.facts is not None else 1))


def _youngest_first(gang: Gang) -> tuple[int, str]:
    return (-(gang.facts.created_seconds if gang.facts is not None else 0), gang.id)


def _youngest_pod_first(pod: PodFacts) -> tuple[int, str]:
    return (-pod.created_seconds, pod.name)
