"""Plans to make room: decided, durable, carried out, dropped when nobody wants them any more (I9)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.cluster_events import ClusterEvent, EventKind
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.events import Now, Record, RecordState
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.core.hold.hold_and_wait import HoldAndWait
from muster.coordinator.core.permits.decisions import Plan, PlanPart
from muster.coordinator.core.permits.permits import Permits
from muster.coordinator.core.preemption.eviction import Evictions
from muster.coordinator.core.preemption.nomination import Nomination, demand
from muster.coordinator.core.preemption.plan_events import evicted, preempts, reservation_released
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.solve.request import may_preempt

REFUSED_PLAN_SECONDS = 60.0
"""A plan that cannot be written is not made again before."""
MAX_RECORDS = 64
MAX_PODS = 5000
"""In one transaction; etcd takes 128 writes and 1.5 MiB by default."""


class Plans:
    """From the decision that somebody makes room until the room is used."""

    def __init__(
        self, cache: Cache, queue: Queue, permits: Permits, evictions: Evictions, waiting: HoldAndWait
    ) -> None:
        self._cache, self._queue, self._permits = cache, queue, permits
        self._evictions, self._waiting = evictions, waiting
        self._yielding: dict[Group, None] = {}

    # -- beginning

    def keep(self, kept: Nomination) -> None:
        """Keep room for a group."""
        kept.divided_by = self._cache.topology_of(kept.group)
        self._queue.leave_class(kept.group)  # the room is not there for those that want the same
        self._cache.kept[kept.group] = kept
        self._cache.touch_group(kept.group)

    def begin(self, plan: Plan, now: Now) -> list[Effect]:
        """Victims are to go. Nobody is evicted before that is durable; giving up reservations harms nobody."""
        if plan.kept is not None:
            self.keep(plan.kept)
        if not plan.victims.bound:
            return self._take_reservations(plan)
        return self._decide(plan, now)

    def _decide(self, plan: Plan, now: Now) -> list[Effect]:
        """Victims are recorded first, the group that they go for last: what a crash leaves without it is void."""
        victims, kept = plan.victims, plan.kept
        gangs = list(victims.bound)
        for gang, uids in victims.bound.items():
            whole = gang in victims.whole
            gang.begin_eviction(uids, kept.owner if kept is not None else "", whole=whole)
            if whole:
                gang.eviction.note_preempted()
            self._cache.touch(gang)
        if kept is not None:
            kept.victims = list(victims.bound)
            owner = self._cache.gangs[kept.owner]
            owner.nominated = kept.recorded
            gangs.append(owner)
        records = [self._permits.record(gang, _state(gang), now.unix_seconds) for gang in gangs]
        *parts, last = _in_parts(records)
        return [*(self._permits.decide(PlanPart(plan), part) for part in parts), self._permits.decide(plan, last)]

    # -- carrying out

    def durable(self, plan: Plan) -> list[Effect]:
        """The decision is durable: evict, unless the room is not wanted any more (I9)."""
        kept, cache = plan.kept, self._cache
        wanted = kept is None or (cache.kept.get(kept.group) is kept and self._needed(kept))
        if not (wanted and self._holds(plan)):
            self.refused(plan)
            return []
        if kept is not None:
            kept.evictions_begun = True
        effects = [*self._take_reservations(plan), *preempts(plan)]
        for gang, uids in plan.victims.bound.items():
            if cache.gangs.get(gang.id) is gang:
                if gang.eviction.whole:
                    unpermit(cache, gang)
                cache.touch(gang, edited=True)
                effects += self._evictions.send(gang, uids)
                effects.append(evicted(gang, uids))
        return effects

    def _spare(self, gang: Gang) -> None:
        """Members of the gang that are not known to be on their way out stay."""
        if self._cache.gangs.get(gang.id) is not gang or not gang.eviction.pods:
            return
        uids = self._evictions.stoppable(gang)
        self._cache.touch(gang, edited=True)
        if uids:
            self._queue.wake(ClusterEvent(EventKind.EVICTION_CANCELLED))
        nobody_left = gang.permit.record is not None and len(uids) == len(gang.eviction.pods) == len(
            gang.permit.record.evicting
        )
        if not gang.eviction.whole:
            gang.cancel_eviction(uids)
        elif nobody_left or not gang.eviction.begun:
            gang.cancel_eviction(list(gang.eviction.pods))
            self._permits.adopt(gang)
        else:
            gang.eviction.drop_preemptor()  # half of it is worth nothing: the rest follows

    @staticmethod
    def forget_preemptor(gang: Gang) -> None:
        """The gang, which was evicted whole, can start again."""
        gang.eviction.forget_preempted()

    def reconsider(self, uids: Iterable[str]) -> None:
        """Evictions of these pods have failed: those that nobody waits for any more are not tried again."""
        owners = {kept.owner for kept in self._cache.kept.values()}
        for gang in {self._cache.gang_of[uid] for uid in uids if uid in self._cache.gang_of}:
            if gang.eviction.preemptor and gang.eviction.preemptor not in owners:
                self._spare(gang)

    def _holds(self, plan: Plan) -> bool:
        """The victims still matter less, and can spare or give up what they were to."""
        seated_on = self._cache.ledger.capacity.seated_on
        victims = plan.victims
        if plan.kept is not None and victims.bound:
            group = plan.kept.group
            if not may_preempt(group) or any(gang.priority >= group.priority for gang in victims.bound):
                return False
        for gang in victims.bound.keys() - victims.whole:
            if len(gang.bound) < gang.required:
                return False  # it cannot spare them any more
        return not any(
            (gang.permit.granted or gang.group.persist_id is not None)
            and any(seated_on(uid) is not None for uid in uids)
            for gang, uids in plan.victims.reserved.items()
        )

    def _take_reservations(self, plan: Plan) -> list[Effect]:
        kept = plan.kept
        effects: list[Effect] = []
        for gang, uids in plan.victims.reserved.items():
            group = gang.group
            if gang.permit.granted or group.persist_id is not None or not any(uid in gang.seats for uid in uids):
                continue
            effects += reservation_released(gang, kept)
            self._waiting.give_up(group)  # what is left of its reservations is of no use to it
            if kept is not None:
                kept.going.difference_update(uids)
                group.preemption.yield_to(kept.group)
                self._yielding[group] = None
        return effects

    def not_persisted(self, plan: Plan, message: str, now: Now) -> None:
        """The decision can never be made durable as it is."""
        self.refused(plan)
        if plan.kept is not None and (group := plan.kept.group) in self._queue:
            group.preemption.postpone(now.monotonic_seconds + REFUSED_PLAN_SECONDS)
            self._queue.back_off(group, now.monotonic_seconds, message)

    def refused(self, plan: Plan) -> None:
        """The decision is not carried out."""
        if plan.kept is not None and self._cache.kept.get(plan.kept.group) is plan.kept:
            self.drop(plan.kept)
        for gang in plan.victims.bound:
            self._spare(gang)

    # -- a new term

    def recall(self, resumed: Sequence[tuple[Gang, Record]]) -> list[Effect]:
        """What an earlier leader decided goes on where it was; what was for somebody who is gone does not begin."""
        cache = self._cache
        going: defaultdict[str, set[str]] = defaultdict(set)
        for _, record in resumed:
            going[record.evicted_for].update(name.uid for name in record.evicting)
        for gang, record in resumed:
            if record.kept_room:
                for id_ in (gang.id, *(gang.facts.group if gang.facts is not None else ())):
                    if (partner := cache.gangs.get(id_)) is not None:
                        cache.regroup(partner)
                room = Counter({(each.node, each.class_id): each.count for each in record.kept_room})
                known = all(class_id in cache.ledger.classes for _, class_id in room)
                if known and gang.group.gangs_to_place:
                    gang.nominated = record.kept_room
                    going_for_it = going[gang.id] | self._on_their_way_out(room)
                    self.keep(Nomination(gang.group, gang.id, room, going_for_it, evictions_begun=True))
        effects: list[Effect] = []
        for gang, record in resumed:
            if record.evicting:
                effects += self._resume(gang, record)
        return effects

    def _on_their_way_out(self, room: Counter[tuple[str, str]]) -> set[str]:
        """Pods that hold room on these nodes until they have ended: those that were evicted are among them."""
        nodes = {node for node, _ in room}
        gangs = self._cache.gangs.values()
        return {uid for gang in gangs for uid, pod in gang.pods.items() if pod.deleting and pod.node in nodes}

    def _resume(self, gang: Gang, record: Record) -> list[Effect]:
        there = [name.uid for name in record.evicting if name.uid in gang.bound]
        whole = record.state is RecordState.UNPERMITTED
        preemptor = self._cache.gangs.get(record.evicted_for)
        wanted = not record.evicted_for or (preemptor is not None and bool(preemptor.nominated))
        if not wanted and not whole:
            return []
        if not wanted and there and not any(gang.pods[uid].deleting for uid in _known(gang, record)):
            self._permits.adopt(gang)  # as far as one can see nobody was evicted
            return []
        preemptor_id = record.evicted_for if there and wanted else ""
        gang.begin_eviction(there, preemptor_id, whole=whole and bool(there))
        self._cache.touch(gang, edited=True)
        if wanted and preemptor is not None and (kept := self._cache.kept.get(preemptor.group)) is not None:
            kept.victims.append(gang)
        return self._evictions.send(gang, there)

    # -- until it is used

    def drop_untenable(self, disturbed: Collection[str]) -> None:
        """Room on nodes that are gone, closed, or taken by strangers is kept no more."""
        for kept in list(self._cache.kept.values()):
            if any(node in disturbed for node, _ in kept.room) and not kept.stands(self._cache.ledger):
                self.drop(kept)

    def look(self) -> bool:
        """Drop what nobody wants any more; try those whose room is free. True: somebody is to be looked at by that."""
        changed = False
        for kept in list(self._cache.kept.values()):
            if not self._wanted(kept):
                self.drop(kept)
                changed = True
            elif not (kept.drains or kept.ready or kept.group.busy) and kept.all_gone(self._cache.ledger):
                kept.ready = True
                if kept.group in self._queue:
                    self._queue.activate(kept.group)
        for group in list(self._yielding):
            preemptor = group.preemption.yields_to
            if preemptor is None or not self._still_comes(preemptor) or not group.accumulates:
                group.preemption.yield_to(None)
                del self._yielding[group]
                for gang in group.gangs:
                    self._cache.touch(gang, edited=True)
                changed = True
        return changed

    def _wanted(self, kept: Nomination) -> bool:
        group = kept.group
        return self._needed(kept) and (group.busy or group.wants_seats) and not self._is_stuck(kept)

    def _is_stuck(self, kept: Nomination) -> bool:
        """Somebody who was to go cannot be evicted, or does not go any more."""
        if not kept.evictions_begun or kept.ready:
            return False
        return any(self._evictions.stuck(gang) for gang in kept.victims) or any(
            not self._goes(uid, kept.owner) for uid in kept.still_there(self._cache.ledger)
        )

    def _goes(self, uid: str, owner: str) -> bool:
        gang = self._cache.gang_of.get(uid)
        return (
            gang is None or gang.pods[uid].deleting or (uid in gang.eviction.pods and gang.eviction.preemptor == owner)
        )

    def _still_comes(self, group: Group) -> bool:
        """The group for which another gave way is still on its way to its place."""
        return bool(group.gangs) and (group.busy or group.holds or group in self._cache.kept)

    def _needed(self, kept: Nomination) -> bool:
        """The group still has members for all of the room, and the room is enough for it to start."""
        group = kept.group
        if kept.overtaken or kept.used or self._cache.groups.get(group.id) is not group or not group.gangs_to_place:
            return False
        if kept.divided_by != self._cache.topology_of(group):
            return False
        wanted, come = demand(group), kept.come
        wanted.update(seat.class_id for seat in come)
        enough = sum(gang.minimum for gang in group.gangs_to_place) <= kept.room.total() - len(come)
        return enough and all(wanted[class_id] >= count for class_id, count in kept.members.items())

    def drop(self, kept: Nomination) -> None:
        """The room is used, or not wanted any more."""
        del self._cache.kept[kept.group]
        self._queue.wake(ClusterEvent(EventKind.NOMINATION_ENDED))
        if (owner := self._cache.gangs.get(kept.owner)) is not None:
            owner.nominated = ()
            self._cache.touch(owner)
        self._cache.touch_group(kept.group)
        for gang in kept.victims:
            if gang.eviction.pods and gang.eviction.preemptor == kept.owner:
                self._spare(gang)


def _known(gang: Gang, record: Record) -> list[str]:
    return [name.uid for name in record.evicting if name.uid in gang.pods]


def _in_parts(records: Sequence[Record]) -> list[tuple[Record, ...]]:
    """Transactions that etcd takes: few enough records, of few enough pods."""
    parts: list[tuple[Record, ...]] = []
    part: list[Record] = []
    for record in records:
        if part and (len(part) == MAX_RECORDS or sum(len(each.evicting) for each in (*part, record)) > MAX_PODS):
            parts.append(tuple(part))
            part = []
        part.append(record)
    return [*parts, tuple(part)]


def unpermit(cache: Cache, gang: Gang) -> None:
    """The gang is taken back to the queue, to start anew as a whole."""
    gang.restart()
    cache.touch(gang, edited=True)
    cache.touch_partners(gang.id)


def _state(gang: Gang) -> RecordState:
    if gang.eviction.whole or not gang.permit.granted:
        return RecordState.UNPERMITTED
    return gang.permit.record.state if gang.permit.record is not None else RecordState.SATISFIED
