"""Preemption plans: decided, durable, carried out, and dropped when their group does not need them any more (I9)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import ClaimEnded, Effect
from muster.coordinator.core.elastic.growth import Growths
from muster.coordinator.core.elastic.loans import note_defaults, recall_loans
from muster.coordinator.core.events import ClusterEvent, EventKind, Now, Record, RecordState, Rules
from muster.coordinator.core.gang.composite_trees import least_members
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.gang.subgroups import is_bound_by_others
from muster.coordinator.core.gang.verdicts import Verdict
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.permits.permits import Permits
from muster.coordinator.core.preemption.budgets import KEPT_SECONDS, PreemptorBudgets
from muster.coordinator.core.preemption.eviction import Evictions, evicted
from muster.coordinator.core.preemption.nomination import (
    Nomination,
    Plan,
    PlanPart,
    capacity_taken,
    may_preempt,
    preempts,
    remembered,
    reservation_released,
    resumed,
    victims_remain,
)
from muster.coordinator.core.preemption.surplus import keeps_minimums
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.queue.turns import namespace_of
from muster.coordinator.core.slices import GANGS, Slices
from muster.coordinator.core.solve.request import demand
from muster.coordinator.core.term_state import NominatedGroup, monotonic_time, monotonic_time_or_never
from muster.retry.backoff import backoff_seconds

REFUSED_PLAN_SECONDS = 60.0
"""Pause after a plan that could not be written."""
INITIAL_PAUSE_SECONDS = 60.0
"""Pause of a group after a plan whose capacity it did not get; it doubles with every such plan in a row."""
MAX_PAUSE_SECONDS = 3600.0
MAX_RECORDS = 64
MAX_PODS = 5000
"""Limits of one transaction; etcd's defaults are 128 writes and 1.5 MiB."""


class Plans:
    """Plans and nominations, from the decision until the nominated capacity is used."""

    def __init__(
        self,
        cache: Cache,
        queue: Queue,
        permits: Permits,
        evictions: Evictions,
        holds: HoldAndWait,
        growths: Growths,
        rules: Rules,
    ) -> None:
        self._cache, self._queue, self._permits = cache, queue, permits
        self._evictions, self._holds, self._growths = evictions, holds, growths
        self._timeout = rules.eviction_timeout_seconds
        self.budgets = PreemptorBudgets(cache)
        self._ended: list[Nomination] = []
        """Nominations with evictions that ended since the last update."""
        self._yielding: dict[Group, None] = {}
        """Groups that hold nothing for the sake of a preemptor; an entry ends when that may not start, or the group
        does not wait any more."""

    # -- beginning

    def nominate(self, nomination: Nomination, now: Now) -> None:
        """Withhold the capacity from other groups."""
        nomination.begun_at = now.monotonic_seconds
        if not nomination.backfill:
            nomination.expires_at = now.monotonic_seconds + self._timeout
        nomination.topology = self._cache.topology_of(nomination.group)
        nomination.namespace = namespace_of(nomination.group.key)
        self._queue.leave_class(nomination.group)  # its equals cannot use the capacity
        self._cache.nominations[nomination.group] = nomination
        nomination.group.verdicts.conclude(Verdict.RESERVATION if nomination.backfill else Verdict.PREEMPTION, "")
        self._cache.touch_group(nomination.group)

    def begin(self, plan: Plan, now: Now) -> list[Effect]:
        """Begin a plan. Pods are evicted when it is durable; releasing reservations need not wait for that."""
        if plan.nomination is not None:
            self.nominate(plan.nomination, now)
        if not plan.victims.bound:
            return self._release_reservations(plan)
        return self._decide(plan, now)

    def _decide(self, plan: Plan, now: Now) -> list[Effect]:
        """Record victims first and the preemptor last: after a crash, victims without a recorded preemptor are void,
        but for gangs that are evicted by their repair policy.
        """
        victims, nomination = plan.victims, plan.nomination
        gangs = [*victims.preempted, *(gang for gang in victims.bound if gang in victims.yielding)]
        for gang, uids in victims.bound.items():
            whole, revoked = gang in victims.whole, gang in victims.borrowers
            owner_id = nomination.owner if nomination is not None and gang not in victims.yielding else ""
            gang.begin_eviction(uids, owner_id, whole=whole, revoked=revoked)
            if whole:
                gang.eviction.note_preempted()
            elif nomination is not None:
                self._growths.shrunk(gang, uids, now)
            self._cache.touch(gang)
        if nomination is not None:
            nomination.victims, nomination.revoked_from = list(victims.preempted), set(victims.borrowers)
            owner = self._cache.gangs[nomination.owner]
            owner.nominated = nomination.recorded
            gangs.append(owner)
        records = [self._permits.record(gang, _state(gang), now.unix_seconds) for gang in gangs]
        *parts, last = _in_parts(records)
        return [*(self._permits.decide(PlanPart(plan), part) for part in parts), self._permits.decide(plan, last)]

    # -- carrying out

    def durable(self, plan: Plan, now: Now) -> list[Effect]:
        """The plan is durable: evict, unless the capacity is not needed any more (I9)."""
        nomination, cache = plan.nomination, self._cache
        needed = nomination is None or (
            cache.nominations.get(nomination.group) is nomination
            and self._needed(nomination)
            and not self._holds.late(nomination.group, now)
        )
        if not (needed and self.valid(plan)):
            self.cancel(plan)
            return []
        if nomination is not None:
            nomination.evictions_begun = True
            nomination.expires_at = now.monotonic_seconds + self._timeout
        effects = [*self._release_reservations(plan), *preempts(plan)]
        for gang, uids in plan.victims.bound.items():
            if cache.gangs.get(gang.id) is gang:
                if gang.eviction.whole:
                    cache.restart(gang)
                cache.touch(gang, edited=True)
                effects += self._evictions.send(gang, uids)
                yields_to = nomination.group if nomination is not None and gang in plan.victims.yielding else None
                effects.append(evicted(gang, uids, yields_to))
        return effects

    def _cancel_evictions(self, gang: Gang) -> None:
        """Cancel evictions of the gang that the binding service has not begun. Half a gang is of no use: if one of its
        pods leaves, all do.
        """
        if self._cache.gangs.get(gang.id) is not gang or not gang.eviction.pods:
            return
        uids = self._evictions.stoppable(gang)
        self._cache.touch(gang, edited=True)
        if uids:
            self._queue.wake(ClusterEvent(EventKind.EVICTION_CANCELLED))
        record = gang.permit.record
        nobody_left = (
            record is not None
            and len(uids) == len(gang.eviction.pods) == len(record.evicting)
            and not any(gang.pods[uid].deleting for uid in uids)
        )
        if not gang.eviction.whole:
            if gang.growth.parts and len(uids) == len(gang.eviction.pods) and not gang.eviction.begun:
                self._growths.spared(gang, uids)
            gang.cancel_eviction(uids)
        elif nobody_left or not gang.eviction.begun:
            gang.cancel_eviction(list(gang.eviction.pods))
            self._runs_on(gang)

    def _runs_on(self, gang: Gang) -> None:
        """No pod of the gang, which was to be evicted whole, is: it has started if it had, or if its minimum runs."""
        if is_bound_by_others(gang, self._cache.ledger.selection):
            self._permits.adopt(gang)

    @staticmethod
    def forget_preemptor(gang: Gang) -> None:
        """The gang, which was evicted whole, can start again."""
        gang.eviction.forget_preempted()

    def reconsider(self, uids: Iterable[str]) -> None:
        """Evictions of these pods have failed: do not retry those whose nomination has ended, or was replaced by one
        with other victims; nor, after MAX_FAILURES, those by the repair policy of a gang, which is repaired again.
        """
        wanted = {
            (nomination.owner, gang) for nomination in self._cache.nominations.values() for gang in nomination.victims
        }
        for gang in {self._cache.gang_of[uid] for uid in uids if uid in self._cache.gang_of}:
            if gang.eviction.preemptor and (gang.eviction.preemptor, gang) not in wanted:
                self._cancel_evictions(gang)
            elif gang.eviction.whole and not gang.eviction.preemptor and self._evictions.stuck(gang):
                self._cancel_evictions(gang)
                if not gang.eviction.pods and gang.pending and not gang.permit.granted:
                    self._permits.resume_repair(gang)

    def valid(self, plan: Plan) -> bool:
        """The plan is still valid: victims have lower priority, and can spare the pods; or they lack their minimum."""
        seated_on = self._cache.ledger.capacity.seated_on
        victims = plan.victims
        if any(not gang.broken for gang in victims.yielding):
            return False
        preempted = victims.preempted.keys() - victims.borrowers
        if plan.nomination is not None and preempted:
            group = plan.nomination.group
            if not may_preempt(group) or any(gang.protection >= group.preempting_priority for gang in preempted):
                return False
        selection = self._cache.ledger.selection
        for gang, uids in victims.bound.items():
            if gang not in victims.whole and not keeps_minimums(gang, set(uids), selection):
                return False  # the gang would fall below a minimum, or may not be shrunk any more
        return not any(
            (gang.permit.granted or gang.group.persist_id is not None)
            and any(seated_on(uid) is not None for uid in uids)
            for gang, uids in plan.victims.reserved.items()
        )

    def _release_reservations(self, plan: Plan) -> list[Effect]:
        nomination = plan.nomination
        effects: list[Effect] = []
        for gang, uids in plan.victims.reserved.items():
            group = gang.group
            if gang.permit.granted or group.persist_id is not None or not any(uid in gang.seats for uid in uids):
                continue
            effects += reservation_released(gang, nomination)
            self._holds.release(group)  # the rest of its reservations is of no use
            if nomination is not None:
                nomination.leaving.difference_update(uids)
                self.yield_to(group, nomination.group)
        return effects

    def not_persisted(self, plan: Plan, message: str, now: Now) -> None:
        """The plan can never be made durable."""
        self.cancel(plan)
        if plan.nomination is not None and (group := plan.nomination.group) in self._queue:
            group.preemption.postpone(now.monotonic_seconds + REFUSED_PLAN_SECONDS)
            self._queue.back_off(group, now.monotonic_seconds, message)

    def cancel(self, plan: Plan) -> None:
        """The plan is not carried out."""
        if plan.nomination is not None and self._cache.nominations.get(plan.nomination.group) is plan.nomination:
            self.drop(plan.nomination)
        for gang in plan.victims.bound:
            self._cancel_evictions(gang)

    # -- a new term

    def recall(self, resumed: Sequence[tuple[Gang, Record]], now: Now) -> Slices[list[Effect]]:
        """Resume the plans of an earlier leader; evictions for a preemptor that is gone, or has no right to them any
        more, do not begin. Their time to leave begins again. In slices of GANGS plans.
        """
        cache = self._cache
        leaving: defaultdict[str, set[str]] = defaultdict(set)
        for _, record in resumed:
            leaving[record.evicted_for].update(name.uid for name in record.evicting)
        leaving_by_node = self._leaving(leaving[""]) if any(record.nominated for _, record in resumed) else {}
        yield
        nominating = [(gang, record) for gang, record in resumed if record.nominated]
        for number, (gang, record) in enumerate(nominating, start=1):
            if number % GANGS == 0:
                yield
            for id_ in (gang.id, *(gang.facts.group if gang.facts is not None else ())):
                if (partner := cache.gangs.get(id_)) is not None:
                    cache.regroup(partner)
            capacity = Counter({(each.node, each.class_id): each.count for each in record.nominated})
            known = all(class_id in cache.ledger.classes for _, class_id in capacity)
            if known and gang.group.gangs_to_place and not self._holds.late(gang.group, now):
                gang.nominated = record.nominated
                leaving_for_it = leaving[gang.id].union(*(leaving_by_node.get(node, ()) for node, _ in capacity))
                nomination = Nomination(gang.group, gang.id, capacity, leaving_for_it, evictions_begun=True)
                self.nominate(nomination, now)
        effects: list[Effect] = []
        evicting = [(gang, record) for gang, record in resumed if record.evicting]
        for number, (gang, record) in enumerate(evicting, start=1):
            if number % GANGS == 0:
                yield
            effects += self._resume(gang, record)
        return effects

    def _leaving(self, evicted_by_policy: Collection[str]) -> dict[str, set[str]]:
        """Pods that are being deleted, evicted ones among them, or are to be by their gang's repair policy, by node."""
        found: dict[str, set[str]] = {}
        for gang in self._cache.gangs.values():
            for uid, pod in gang.pods.items():
                if (pod.deleting or uid in evicted_by_policy) and pod.node:
                    found.setdefault(pod.node, set()).add(uid)
        return found

    def _resume(self, gang: Gang, record: Record) -> list[Effect]:
        there = [name.uid for name in record.evicting if name.uid in gang.bound]
        whole = record.state is RecordState.UNPERMITTED and record.preempted_by == record.evicted_for
        preemptor = self._cache.gangs.get(record.evicted_for)
        needed = not record.evicted_for or (
            preemptor is not None
            and bool(preemptor.nominated)
            and (
                record.revoked
                or (gang.protection < preemptor.group.preempting_priority and may_preempt(preemptor.group))
            )
        )
        if not needed and not whole:
            return []
        if not needed and there and not any(gang.pods[uid].deleting for uid in _known(gang, record)):
            self._runs_on(gang)  # no eviction has begun
            return []
        preemptor_id = record.evicted_for if there else ""
        gang.begin_eviction(there, preemptor_id, whole=whole and bool(there), revoked=record.revoked)
        self._cache.touch(gang, edited=True)
        if (
            needed
            and preemptor is not None
            and (nomination := self._cache.nominations.get(preemptor.group)) is not None
        ):
            nomination.victims.append(gang)
            if record.revoked:
                nomination.revoked_from.add(gang)
        return self._evictions.send(gang, there)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[tuple[NominatedGroup, ...]]:
        """All nominations. In slices."""
        found = []
        for each in list(self._cache.nominations.values()):
            found.append(remembered(each, now))
            yield
        return tuple(found)

    def resume(self, states: Sequence[NominatedGroup], now: Now) -> Slices[None]:
        """Withhold what was withheld; a nomination that a record has, too, is the recorded one. In slices."""
        cache = self._cache
        for state in states:
            group = cache.groups.get(state.group)
            there = group is not None and group.gangs_to_place
            if group is None or not there or any(kind not in cache.ledger.classes for _, kind, _ in state.capacity):
                continue
            recorded = cache.nominations.pop(group, None)
            self.nominate(nomination := resumed(state, group, cache.gangs, now), now)
            nomination.begun_at = monotonic_time(state.begun_at, now)
            nomination.expires_at = monotonic_time_or_never(state.expires_at, now)
            if recorded is not None:
                nomination.victims = recorded.victims
            if (owner := cache.gangs.get(state.owner)) is not None and not state.backfill:
                owner.nominated = nomination.recorded
            yield

    def yield_to(self, group: Group, preemptor: Group) -> None:
        """The group holds nothing for the sake of the preemptor."""
        group.preemption.yield_to(preemptor)
        self._yielding[group] = None

    # -- until it is used

    def drop_untenable(self, disturbed: Collection[str]) -> None:
        """Drop nominations on nodes that are gone, cordoned, or filled by other pods."""
        for nomination in list(self._cache.nominations.values()):
            if any(node in disturbed for node, _ in nomination.capacity) and not nomination.feasible(
                self._cache.ledger
            ):
                self.drop(nomination)

    def next_time(self) -> float | None:
        """When the next nomination expires."""
        return min((each.expires_at for each in self._cache.nominations.values() if not each.backfill), default=None)

    def outcomes(self, now: Now) -> list[Effect]:
        """Report plans in vain; their groups pause before the next one."""
        effects: list[Effect] = []
        if not self._ended:
            return effects
        ended, self._ended = self._ended, []
        for nomination in ended:
            group, cache = nomination.group, self._cache
            if nomination.served:
                self.budgets.started(nomination, now.monotonic_seconds)
                continue
            there = nomination.remaining(cache.ledger)
            if not self._evicted_some(nomination, there):
                continue
            self.budgets.failed(nomination, now.monotonic_seconds)
            if cache.groups.get(group.id) is not group or not group.gangs_to_place:
                continue
            if nomination.expired and (known := [uid for uid in there if uid in cache.gang_of]):
                pods = [cache.gang_of[uid].pods[uid] for uid in known]
                group.preemption.fail()
                if (in_vain := group.preemption.plans_in_vain) > 1:  # the first time others are evicted at once
                    remain = f"pods that were evicted for it {in_vain} times do not end"
                    self._pause(group, in_vain - 1, remain, now)
                effects += [
                    *victims_remain(nomination, pods, self._timeout),
                    ClaimEnded("nomination", "victims_remain"),
                ]
                continue
            group.preemption.fail()
            self._pause(group, group.preemption.plans_in_vain, self._taken(nomination), now)
            effects += capacity_taken(group, group.verdicts[Verdict.PREEMPTION])
            effects.append(ClaimEnded("nomination", "capacity_taken"))
        return effects

    def _evicted_some(self, nomination: Nomination, there: Sequence[str]) -> bool:
        """Pods were evicted for the nomination that has ended, of which these still hold capacity: some have left, are
        being deleted, or are evicted at this moment.
        """
        known = self._cache.gang_of
        gangs = [(uid, known[uid]) for uid in there if uid in known]
        return (
            not nomination.leaving
            or len(there) < len(nomination.leaving)
            or any(gang.pods[uid].deleting or uid in gang.eviction.pods for uid, gang in gangs)
        )

    def _pause(self, group: Group, times: int, why: str, now: Now) -> float:
        """Nothing is evicted for the group for a while. Returns the seconds."""
        pause = backoff_seconds(INITIAL_PAUSE_SECONDS, MAX_PAUSE_SECONDS, times)
        group.preemption.postpone(now.monotonic_seconds + pause)
        group.verdicts.conclude(Verdict.PREEMPTION, f"{why}; nothing is evicted for it for {pause:g} s")
        self._cache.touch_group(group)
        return pause

    def settle_gain(self, group: Group, now: Now) -> tuple[float, list[Effect]]:
        """The group got seats for which pods were evicted, and wants more pods to be evicted. If it lost those seats at
        once, since others took them before its pods ran, it has to pause: returns for how long, and events.
        """
        state = group.preemption
        recent = state.gained_at is not None and now.monotonic_seconds < state.gained_at + KEPT_SECONDS
        lost = any(gang.places < state.gained.get(gang.id, 0) for gang in group.gangs)
        state.settle_gain(kept=not (recent and lost))
        if not (recent and lost):
            return 0.0, []
        pause = self._pause(group, state.plans_in_vain, "the places for which pods were evicted were lost at once", now)
        return pause, [
            *capacity_taken(group, group.verdicts[Verdict.PREEMPTION]),
            ClaimEnded("nomination", "capacity_taken"),
        ]

    def _taken(self, nomination: Nomination) -> str:
        """Why the group did not get the capacity that was freed for it."""
        evicted_ = f"{len(nomination.leaving)} pods were evicted for it"
        if nomination.takers:
            return f"{evicted_}, and their capacity was taken by {', '.join(nomination.takers)}"
        refusal = self._cache.ledger.refusal(nomination.capacity)
        return f"{evicted_} in vain: {refusal.message}" if refusal is not None else f"{evicted_} in vain"

    def update(self, now: Now) -> bool:
        """Drop nominations that have expired or are not needed any more; activate groups whose capacity is free. True:
        gangs were touched.
        """
        changed = False
        self.budgets.update(now.monotonic_seconds)
        if not (self._cache.nominations or self._yielding):
            return changed
        for nomination in list(self._cache.nominations.values()):
            expired = not nomination.backfill and nomination.expires_at <= now.monotonic_seconds
            if expired or not self._wanted(nomination):
                nomination.expired = expired
                if expired and nomination.revoked_from:
                    note_defaults(nomination, self._cache)
                for gang in nomination.victims:
                    if self._evictions.stuck(gang):
                        self._evictions.refused(gang, nomination.begun_at, now.monotonic_seconds)
                self.drop(nomination)
                changed = True
            elif nomination.lent and nomination.backfill:
                recall_loans(nomination, self._cache, self._queue)
            elif not (nomination.backfill or nomination.ready or nomination.group.busy) and nomination.all_left(
                self._cache.ledger
            ):
                nomination.ready = True
                nomination.expires_at = now.monotonic_seconds + self._timeout
                if nomination.group in self._queue:
                    self._queue.activate(nomination.group)
        for group in list(self._yielding):
            preemptor = group.preemption.yields_to
            if preemptor is None or not self._may_start(preemptor) or not group.non_strict:
                group.preemption.yield_to(None)
                del self._yielding[group]
                for gang in group.gangs:
                    self._cache.touch(gang, edited=True)
                changed = True
        return changed

    def _wanted(self, nomination: Nomination) -> bool:
        group = nomination.group
        return self._needed(nomination) and (group.busy or group.wants_seats) and not self._is_stuck(nomination)

    def _is_stuck(self, nomination: Nomination) -> bool:
        """A victim cannot be evicted, or does not leave any more."""
        if not nomination.evictions_begun or nomination.ready:
            return False
        return any(self._evictions.stuck(gang) for gang in nomination.victims) or any(
            not self._leaves(uid, nomination.owner) for uid in nomination.remaining(self._cache.ledger)
        )

    def _leaves(self, uid: str, owner: str) -> bool:
        gang = self._cache.gang_of.get(uid)
        if gang is None or gang.pods[uid].deleting:
            return True
        return uid in gang.eviction.pods and gang.eviction.preemptor in (owner, "")  # for it, or by its repair policy

    def _may_start(self, group: Group) -> bool:
        """The group for which another released its reservations may still start."""
        return bool(group.gangs) and (group.busy or group.holds or group in self._cache.nominations)

    def _needed(self, nomination: Nomination) -> bool:
        """The group still has members for all of the capacity, and the capacity suffices for it to start."""
        group = nomination.group
        preempted = [gang for gang in nomination.victims if gang not in nomination.revoked_from]
        if (
            nomination.overtaken
            or nomination.used
            or self._cache.groups.get(group.id) is not group
            or not group.gangs_to_place
            or (preempted and not nomination.ready and not may_preempt(group))
            or any(
                gang.eviction.preemptor == nomination.owner and gang.protection >= group.preempting_priority
                for gang in preempted
            )
        ):
            return False
        if nomination.topology != self._cache.topology_of(group):
            return False
        members, arrived = demand(group), nomination.arrived
        members.update(seat.class_id for seat in arrived)
        least = least_members(group.gangs_to_place, self._cache.gangs)
        enough = least <= nomination.capacity.total() - len(arrived)
        return enough and all(members[class_id] >= count for class_id, count in nomination.members.items())

    def drop(self, nomination: Nomination) -> None:
        """The capacity is used, or not needed any more."""
        del self._cache.nominations[nomination.group]
        if nomination.evictions_begun:
            self._ended.append(nomination)
        self._queue.wake(ClusterEvent(EventKind.NOMINATION_ENDED))
        if (owner := self._cache.gangs.get(nomination.owner)) is not None:
            owner.nominated = ()
            self._cache.touch(owner)
        self._cache.touch_group(nomination.group)
        for gang in nomination.victims:
            if gang.eviction.pods and gang.eviction.preemptor == nomination.owner:
                self._cancel_evictions(gang)


def _known(gang: Gang, record: Record) -> list[str]:
    return [name.uid for name in record.evicting if name.uid in gang.pods]


def _in_parts(records: Sequence[Record]) -> list[tuple[Record, ...]]:
    """Split into transactions within etcd's limits."""
    parts: list[tuple[Record, ...]] = []
    part: list[Record] = []
    for record in records:
        if part and (len(part) == MAX_RECORDS or sum(len(each.evicting) for each in (*part, record)) > MAX_PODS):
            parts.append(tuple(part))
            part = []
        part.append(record)
    return [*parts, tuple(part)]


def _state(gang: Gang) -> RecordState:
    if gang.eviction.whole or not gang.permit.granted:
        return RecordState.UNPERMITTED
    return gang.permit.record.state if gang.permit.record is not None else RecordState.SATISFIED
