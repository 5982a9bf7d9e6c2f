"""Budgets of preemptors by namespace: plans that are under way, and plans in vain, for all its groups together.

A plan is in vain if pods were evicted for it and its group did not start, whoever is to blame: others took the
capacity, victims did not end, the preemptor was edited or deleted. The pause of a group after such a plan ends with the
group, so each preemptor of many, or one that is created again under another name, would evict others at once. Therefore
a namespace has room for MAX_IN_VAIN plans, which are under way or were in vain. One in vain is forgotten after
FORGET_SECONDS. What starts makes room for more plans at once, as a window that grows: until a plan is in vain, or none
is under way. Without one in vain it is as large as it can be. A new leader does not know what was in vain, and begins
with half of the room.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.queue.turns import namespace_of
from muster.coordinator.core.term_state import BudgetTermState, SpentBudget, monotonic_time, unix_time

MAX_IN_VAIN = 6
"""Plans of a namespace that are under way or were in vain: as many as one preemptor has in its first hour."""
IN_VAIN_BEFORE = 3
"""Plans that a new leader takes to have been in vain before it, of each namespace."""
FORGET_SECONDS = 600.0
"""One plan in vain is forgotten after this time, and then the next one."""
MAX_COUNTED = 2 * MAX_IN_VAIN
"""Plans in vain that count; more of them may have been under way at once."""
MAX_GAINED = 60
"""Plans for which the starts of others make room. Victims take 30 s to end, and about two plans a second begin."""
KEPT_SECONDS = 60.0
"""A group that loses its seats this soon did not get the capacity."""


@dataclass(slots=True)
class _InVain:
    """Plans in vain of a namespace at a time."""

    plans: float
    at: float


@dataclass(slots=True)
class _Places:
    """Members of a gang that had a place when it started, by uid, and how many members have one or have succeeded."""

    uids: frozenset[str]
    members: int


@dataclass(slots=True, frozen=True)
class _Start:
    """A start on capacity for which pods were evicted: its gangs may still lose their places."""

    namespace: str
    places: dict[Gang, _Places]
    until: float


class PreemptorBudgets:
    """Bounded by namespaces with plans in vain in the last two hours, and by starts of the last minute."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._began: float | None = None
        """Monotonic time at which the term began; None: not yet."""
        self._in_vain: dict[str, _InVain] = {}
        """An entry ends when all is forgotten."""
        self._gained: dict[str, int] = {}
        """Starts that make room for further plans. An entry ends when no plan of the namespace is under way."""
        self._starts: list[_Start] = []
        self.refused: dict[str, float] = {}
        """Namespaces for which a plan could not begin, and when one may: infinite, when one under way has ended. An
        entry ends then.
        """

    # -- outcomes

    def started(self, nomination: Nomination, now: float) -> None:
        """The group of the nomination got its seats."""
        if _preempts(nomination):
            namespace = nomination.namespace
            self._gained[namespace] = min(MAX_GAINED, self._gained.get(namespace, 0) + 1)
            places = {gang: _Places(frozenset(_seated(gang)), _members(gang)) for gang in nomination.group.gangs}
            self._starts.append(_Start(namespace, places, now + KEPT_SECONDS))

    def failed(self, nomination: Nomination, now: float) -> None:
        """Pods were evicted for the nomination, and its group did not start."""
        if _preempts(nomination):
            self._charge(nomination.namespace, now)

    def update(self, now: float) -> None:
        """Charge starts whose pods lost their places at once, and end what is over."""
        if self._began is None:
            self._began = now
        if not (self._starts or self._in_vain or self._gained):
            return
        for start in self._starts:
            if any(_lost(gang, places, self._cache) for gang, places in start.places.items()):
                self._charge(start.namespace, now)
            elif now < start.until:
                continue
            self._starts = [other for other in self._starts if other is not start]
        for namespace in [name for name, each in self._in_vain.items() if not _left(each, now)]:
            del self._in_vain[namespace]
        if self._gained:
            under_way = self._under_way()
            self._gained = {name: starts for name, starts in self._gained.items() if name in under_way}

    def _charge(self, namespace: str, now: float) -> None:
        plans = min(float(MAX_COUNTED), self._in_vain_at(namespace, now) + 1)
        self._in_vain[namespace] = _InVain(plans, now)
        self._gained.pop(namespace, None)

    # -- limits

    def ready_at(self, group: Group, now: float) -> float:
        """When the next plan for the group's namespace may begin: `now` if it may at once; infinite: when one that is
        under way has ended.
        """
        namespace = namespace_of(group.key)
        ready_at = self._ready_at(namespace, self._under_way()[namespace], now)
        if ready_at > now:
            self.refused[namespace] = ready_at
        return ready_at

    def take_ready(self, now: float) -> list[str]:
        """Namespaces for which a plan could not begin, and may now: each once."""
        if not self.refused:
            return []
        under_way = self._under_way()
        ready = [name for name in self.refused if self._ready_at(name, under_way[name], now) <= now]
        for namespace in ready:
            del self.refused[namespace]
        return ready

    def _ready_at(self, namespace: str, under_way: int, now: float) -> float:
        in_vain = self._in_vain_at(namespace, now)
        gained = self._gained.get(namespace, 0) if in_vain else MAX_GAINED
        free = MAX_IN_VAIN + gained - under_way - 1
        if in_vain <= free:
            return now
        return now + math.ceil((in_vain - free) * FORGET_SECONDS) if free >= 0 else math.inf

    def _under_way(self) -> Counter[str]:
        """Plans that evict pods by priority, by namespace."""
        return Counter(each.namespace for each in self._cache.nominations.values() if _preempts(each))

    def _in_vain_at(self, namespace: str, now: float) -> float:
        known = self._in_vain.get(namespace)
        if known is not None:
            return _left(known, now)
        return _left(_InVain(IN_VAIN_BEFORE, self._began), now) if self._began is not None else IN_VAIN_BEFORE

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> BudgetTermState:
        """Plans in vain, by namespace."""
        began = unix_time(self._began, now) if self._began is not None else None
        in_vain = [SpentBudget(name, each.plans, unix_time(each.at, now)) for name, each in self._in_vain.items()]
        return BudgetTermState(began, tuple(in_vain), dict(self._gained))

    def resume(self, state: BudgetTermState, now: Now) -> None:
        """Continue with these."""
        if state.began is not None:
            self._began = monotonic_time(state.began, now)
        self._in_vain = {each.namespace: _InVain(each.plans, monotonic_time(each.at, now)) for each in state.in_vain}
        self._gained = dict(state.gained)


def _preempts(nomination: Nomination) -> bool:
    """Pods are evicted for it by priority: capacity that was lent is taken back without a budget."""
    return not nomination.backfill and any(gang not in nomination.revoked_from for gang in nomination.victims)


def _left(in_vain: _InVain, now: float) -> float:
    return max(0.0, in_vain.plans - (now - in_vain.at) / FORGET_SECONDS)


def _seated(gang: Gang) -> Iterable[str]:
    return chain(gang.bound, gang.seats, gang.acknowledged, gang.eviction.pods)


def _members(gang: Gang) -> int:
    return gang.places + len(gang.succeeded)


def _lost(gang: Gang, start: _Places, cache: Cache) -> bool:
    """Members of the gang lost the places of its start: neither by success, nor by preemption, nor since they were
    deleted. Pods are looked at only if fewer members have a place than at the last call.
    """
    if cache.gangs.get(gang.id) is not gang or gang.eviction.preempted_by:
        return False
    before, start.members = start.members, _members(gang)
    if start.members >= before:
        return False
    without = start.uids.difference(_seated(gang), gang.succeeded)
    return any(uid in gang.pods and not gang.pods[uid].deleting for uid in without)
