"""Who may have to make room for a group, in which order; and which pods the solver's answer means."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from muster.coordinator.core.decisions import Victims
from muster.coordinator.core.gang import Gang
from muster.coordinator.core.group import Group
from muster.coordinator.core.knowledge import Knowledge
from muster.coordinator.core.offers import OfferedPods, offered
from muster.coordinator.core.questions import may_preempt
from muster.coordinator.core.running import Running
from muster.gangs.solve import PotentialVictim, VictimGang


class Candidates:
    """Gangs that may have to make room for one group.

    First those that wait with reservations and stand behind it in the queue, the last of them first: giving way costs
    them nothing but the wait. Then running gangs of lower priority, the lowest and youngest first. What a disruption
    budget protects, what is on its way out already, and what others count on, is none.
    """

    def __init__(
        self, knowledge: Knowledge, running: Running, group: Group, holding: Iterable[Group], now: float, cautious: bool
    ) -> None:
        """`cautious`: a budget is used up by all that are offered, not only by those that are taken in the end."""
        self._knowledge, self._running = knowledge, running
        self._claimed = claimed(knowledge, group, now)
        self._offers: dict[str, OfferedPods] = {}
        self._were_waiting: set[str] = set()
        self.potential_victims: list[PotentialVictim] = []
        self.beyond_budget = False
        """The answer takes more than a disruption budget allows."""
        levels = self._offer_waiting(group, holding)
        if may_preempt(group):
            self._offer_running(group, levels, cautious)

    # -- the offer

    def _offer_waiting(self, group: Group, holding: Iterable[Group]) -> int:
        """Returns how many levels they are."""
        key, level = group.key, 0
        behind = [other for other in holding if other.holds and not other.busy and other.key > key]
        for other in sorted(behind, key=lambda other: other.key, reverse=True):
            if not group.holds and other.priority >= group.priority:
                continue  # only among gangs that wait is a wait for each other a deadlock
            for gang in other.gangs:
                if gang.seats and self._claimed.isdisjoint(gang.seats):
                    seats = (held.seat for held in gang.seats.values())
                    self._were_waiting.add(gang.id)
                    pods = offered((seat.uid, seat.node, seat.class_id) for seat in seats)
                    self._offer(gang, level, len(gang.seats), pods)
            level += 1
        return level

    def _offer_running(self, group: Group, first_level: int, cautious: bool) -> None:
        allowed = self._allowed()
        for level, (_, gangs) in enumerate(self._running.below(group.priority), start=first_level):
            for gang in gangs:
                if gang.on_the_move or (self._claimed and not self._claimed.isdisjoint(gang.bound)):
                    continue
                covered = self._running.covered(gang)
                if covered and any(count > allowed[budget] for budget, count in covered.items()):
                    self._offer_unprotected(gang, level)
                    continue
                if cautious:
                    allowed.subtract(covered)
                self._offer(gang, level, _spare(gang), self._running.offer(gang))

    def _offer_unprotected(self, gang: Gang, level: int) -> None:
        """Of a gang that cannot go whole, members that it can spare and no budget covers."""
        uids = [uid for there in self._running.offer(gang).places.values() for uid in there]
        pods = [gang.pods[uid] for uid in uids if not gang.pods[uid].budgets][: _spare(gang)]
        if pods:
            self._offer(gang, level, len(pods), offered((pod.uid, pod.node, pod.class_id) for pod in pods))

    def _offer(self, gang: Gang, level: int, spare: int, pods: OfferedPods) -> None:
        self._offers[gang.id] = pods
        self.potential_victims.append(PotentialVictim(gang.id, level, spare, pods.counted))

    def _allowed(self) -> Counter[str]:
        """Evictions that budgets allow beyond those that are decided and not seen yet."""
        allowed = Counter(self._knowledge.budgets)
        for kept in self._knowledge.kept.values():
            for uid in kept.going if not kept.drains else ():
                gang = self._knowledge.gang_of.get(uid)
                if gang is not None and uid in gang.leaving:
                    allowed.subtract(gang.pods[uid].budgets)
        return allowed

    # -- the answer

    def victims(self, removed: Sequence[VictimGang]) -> Victims | None:
        """The pods that are meant; None if it cannot be so, or not any more."""
        reserved: dict[Gang, list[str]] = {}
        bound: dict[Gang, list[str]] = {}
        whole = set()
        for each in removed:
            gang, pods = self._knowledge.gangs.get(each.id), self._offers.get(each.id)
            uids = pods.taken(each) if pods is not None else None
            if gang is None or uids is None:
                return None
            if each.id in self._were_waiting:
                if gang.permitted or gang.group.persisting is not None:
                    return None
                reserved[gang] = uids
                continue
            bound[gang] = uids
            if len(uids) > _spare(gang):
                whole.add(gang)
            if not gang.bound.issuperset(uids) or (gang in whole and len(uids) < len(gang.bound)):
                return None
        self.beyond_budget = self._beyond_budget(bound)
        return None if self.beyond_budget else Victims(reserved, bound, frozenset(whole))

    def _beyond_budget(self, bound: Mapping[Gang, Sequence[str]]) -> bool:
        taken = Counter(budget for gang, uids in bound.items() for uid in uids for budget in gang.pods[uid].budgets)
        allowed = self._allowed() if taken else taken
        return any(count > allowed[budget] for budget, count in taken.items())


def claimed(knowledge: Knowledge, group: Group, now: float) -> set[str]:
    """Uids of pods that are to go for others: what they leave is not for this group."""
    return set().union(*(kept.going for kept in knowledge.kept.values() if not kept.open_to(group, now)))


def _spare(gang: Gang) -> int:
    if gang.facts is not None and gang.facts.evicted_whole:
        return 0
    return max(0, len(gang.bound) - gang.needed)
