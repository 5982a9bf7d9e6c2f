"""Hold and wait (NonStrict): gangs that hold reservations while they wait for the rest, and what ends the wait.

docs/scheduling.md#strict-and-nonstrict has the rules. A group starts when every gang has its minimum. It releases all
its reservations when it may not start as declared any more, when one of its gangs has waited longer than its
waiting-time, or when a plan gives its capacity to a group ahead of it in the queue. All waiting gangs together hold at
most a share of the cluster (`within_share`).

A timeout is written to etcd before its pods are marked; if it can never be written, they are marked nevertheless:

1. A step of the machine calls `due` when a waiting-time is over (`any_due`); `next_time` is when the next one is. The
   waiting-time is cut to the longest in `Cache`, the share in `Solves`. `_decide_timeout` releases the reservations of
   the group, reports the event, and writes the decision with the pods to mark to etcd (`TimeOut`).
2. When that is durable, the machine calls `mark_timed_out`, and the binding service writes the timeout annotation (the
   mark) on the pods (`muster/binding/annotations.py`). Until a mark is observed, its pod is in `Hold.marking`; after
   that, in `Hold.marked`. Pods of neither are scheduled.
3. `retry_edited` removes the marks when the declaration was edited (`Hold.unmarking`). A new leader marks the rest of
   the recorded pods (`recall`). What a new snapshot does not show is repeated (`mark_again`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import ClaimEnded, Effect, EventType, KubeEvent, MarkTimedOut, Report
from muster.coordinator.core.events import Now, Record, RecordState
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.gang.subgroups import gang_id_of
from muster.coordinator.core.permits.permits import Permits, TimeOut
from muster.coordinator.core.queue.pre_enqueue import why_not_hold
from muster.coordinator.core.slices import OBJECTS, Slices
from muster.coordinator.core.term_state import HoldingGang, monotonic_time, unix_time
from muster.gangs.facts import GangFacts, split_kind
from muster.gangs.solve import Assignment, SolveGroup


class HoldAndWait:
    """Groups that have reservations without a permit, until they have none, are permitted or gone."""

    def __init__(self, cache: Cache, permits: Permits) -> None:
        self._cache, self._permits = cache, permits
        self.groups: dict[Group, None] = {}
        self._recalled: dict[Gang, None] = {}
        """Gangs that held reservations under an earlier leader, and none yet; each until its wait or the gang ends."""
        self._earliest: float | None = None
        """No gang times out before this; None: none does."""

    # -- holding

    def drop_untenable(self, disturbed: Collection[str]) -> Slices[None]:
        """Release reservations on nodes that are gone, full or cordoned: their pods are placed again. In slices."""
        ledger, looked_at = self._cache.ledger, 0
        for group in [group for group in self.groups if group.persist_id is None]:
            for gang in group.gangs:
                for held in reversed([held for held in gang.seats.values() if held.seat.node in disturbed]):
                    if ledger.untenable(held.seat):
                        self._release(gang, [held.seat.uid])
                    looked_at += 1
                    if looked_at % OBJECTS == 0:
                        yield

    def update(self, group: Group, now: Now) -> None:
        """Start or end the wait of a touched group."""
        if group.persist_id is not None:
            return
        if group.holds and not self._may_hold(group):
            self.release(group)
        if group.holds:
            self.groups[group] = None
            for gang in group.gangs:
                if gang.seats and gang.hold.since is None:
                    gang.hold.begin(now.monotonic_seconds, int(now.unix_seconds * 1000))
        else:
            self.groups.pop(group, None)
        for gang in group.gangs if self._recalled else ():
            if gang in self._recalled and not self._still_waits(gang):
                del self._recalled[gang]
        self._watch(group)

    def recall(self, gang: Gang, record: Record, now: Now) -> list[Effect]:
        """Restore the wait of a gang that an earlier leader recorded."""
        if record.waiting_since_unix_millis:
            # By the wall clock, which may have been set back meanwhile: no wait is negative.
            waited = max(0.0, now.unix_seconds - record.waiting_since_unix_millis / 1000)
            gang.hold.begin(now.monotonic_seconds - waited, record.waiting_since_unix_millis)
            self._recalled[gang] = None
            self._watch(gang.group)
        gang.time_out(record.timed_out_declaration, uids=(name.uid for name in record.timing_out))
        return [_mark(gang, gang.hold.marking, True)] if gang.hold.marking else []

    def _may_hold(self, group: Group) -> bool:
        cache = self._cache
        return (
            group.non_strict and cache.in_place(group) and why_not_hold(group.gangs, cache.gangs, cache.trees) is None
        )

    def forget(self, group: Group) -> None:
        """Forget a group that is gone."""
        self.groups.pop(group, None)

    def forget_gang(self, gang: Gang) -> None:
        """Forget a gang that is gone."""
        self._recalled.pop(gang, None)

    def release(self, group: Group) -> None:
        """Release all reservations of the group."""
        for gang in group.gangs:
            if not gang.permit.granted:
                self._release(gang, list(gang.seats))

    def _release(self, gang: Gang, uids: list[str]) -> None:
        for uid in uids:
            gang.return_seat(uid)
        self._cache.release(gang, uids)
        self._cache.touch(gang, edited=True)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[tuple[HoldingGang, ...]]:
        """The reservations of gangs that wait. In slices."""
        found = []
        for gang in [gang for group in self.groups for gang in group.gangs if gang.seats and not gang.permit.granted]:
            since = unix_time(gang.hold.since, now) if gang.hold.since is not None else None
            found.append(HoldingGang(gang.id, since, tuple(held.seat for held in gang.seats.values())))
            yield
        return tuple(found)

    def resume(self, states: Iterable[HoldingGang], now: Now) -> Slices[None]:
        """Reserve what was reserved, as far as it is free and the members still wait. In slices."""
        cache = self._cache
        for each in states:
            gang = cache.gangs.get(each.gang)
            if gang is None or gang.permit.granted or not self._may_hold(gang.group):
                continue
            for seat in each.seats:
                there = seat.uid in gang.pending and seat.class_id in cache.ledger.classes
                if there and cache.ledger.refusal({(seat.node, seat.class_id): 1}) is None:
                    cache.ledger.reserve([seat])
                    gang.take_seat(seat)
            if gang.seats and each.since is not None:
                since = monotonic_time(each.since, now)
                gang.hold.begin(since, int(each.since * 1000))
            cache.touch(gang, edited=True)
            yield

    # -- timeouts

    def next_time(self) -> float | None:
        """When the next gang may time out."""
        return self._earliest

    def _watch(self, group: Group) -> None:
        """Have `due` look at the gangs of this group in time; a group whose record is being written is touched when
        that has ended.
        """
        if group.persist_id is not None:
            return
        for gang in group.gangs:
            if gang.hold.since is not None and (gang.seats or gang in self._recalled):
                deadline = _deadline(gang)
                self._earliest = deadline if self._earliest is None else min(deadline, self._earliest)

    def any_due(self, now: float) -> bool:
        """A group may have waited too long."""
        return self._earliest is not None and self._earliest <= now

    def due(self, now: Now) -> Slices[list[Effect]]:
        """Time out groups of which a gang has waited too long: release their reservations, and record that their pods
        are to be marked. In slices.
        """
        effects: list[Effect] = []
        self._earliest = None
        groups = dict.fromkeys([*self.groups, *(gang.group for gang in self._recalled)])
        for number, group in enumerate(groups, start=1):
            late = self.late(group, now)
            if late and group.persist_id is None:
                effects += self._decide_timeout(group, late[0], now)
            else:
                self._watch(group)
            if number % OBJECTS == 0:
                yield
        return effects

    def late(self, group: Group, now: Now) -> list[Gang]:
        """The gangs of the group that have waited too long; it times out in this step, or when its write has ended."""
        time = now.monotonic_seconds
        late = [gang for gang in group.gangs if gang.hold.since is not None and _deadline(gang) <= time]
        return late if group.holds or not self._recalled.keys().isdisjoint(late) else []

    def _still_waits(self, gang: Gang) -> bool:
        """The gang held reservations under an earlier leader, holds none yet, and still has to wait."""
        there = self._cache.gangs.get(gang.id) is gang and not gang.permit.granted
        return there and gang.hold.since is not None and not gang.seats and gang.group.non_strict

    def _decide_timeout(self, group: Group, late: Gang, now: Now) -> list[Effect]:
        gangs = [gang for gang in group.gangs if gang.facts is not None]
        reports = [
            Report(gang.id, events=(event,))
            for gang in gangs
            if (event := _timeout_event(gang, late, group)) is not None
        ]
        self.release(group)
        self.groups.pop(group, None)
        for gang in gangs:
            assert gang.facts is not None
            gang.hold.end()
            gang.time_out(declaration(gang.facts))
        records = tuple(self._permits.record(gang, RecordState.UNPERMITTED, now.unix_seconds) for gang in gangs)
        return [*reports, ClaimEnded("hold", "timed_out"), self._permits.decide(TimeOut(gangs), records)]

    def mark_timed_out(self, decision: TimeOut) -> list[Effect]:
        """Mark the pods of a timeout that is durable."""
        known = self._cache.gangs  # a gang that was declared anew is another gang
        gangs = [gang for gang in decision.gangs if gang.hold.marking and known.get(gang.id) is gang]
        return [_mark(gang, gang.hold.marking, True) for gang in gangs]

    # -- after a timeout

    def mark_again(self) -> Slices[list[Effect]]:
        """After a snapshot: pods are marked, or their marks removed, again if it does not show that. What was written
        may be lost by a restore, or somebody removed a mark before it was observed. In slices.
        """
        effects: list[Effect] = []
        for number, gang in enumerate(self._cache.gangs.values(), start=1):
            if gang.hold.marking and gang.group.persist_id is None:
                effects.append(_mark(gang, gang.hold.marking, True))
            if gang.hold.unmarking:
                effects.append(_mark(gang, gang.hold.unmarking, False))
            if number % OBJECTS == 0:
                yield
        return effects

    def retry_edited(self, gang: Gang) -> list[Effect]:
        """Remove the marks of a timed-out gang whose declaration was edited."""
        if not gang.hold.timed_out_declaration or gang.facts is None:
            return []
        if not gang.hold.marking and not gang.hold.marked:
            gang.hold.forget_timeout()
        if gang.hold.timed_out_declaration in ("", declaration(gang.facts)):
            return []
        late = gang.cancel_timeout()
        if late:
            self._cache.touch(gang, edited=True)
        marks = (late | gang.hold.marked).keys() - gang.hold.unmarking.keys()
        gang.hold.unmark(marks)
        return [_mark(gang, marks, False)] if marks else []


def has_minimum_with(group: Group, assignments: Sequence[Assignment]) -> bool:
    """With seats as assigned the group need not wait. The assignments are of a request that may be out of date."""
    if not group.non_strict:
        return True
    assigned = Counter[str]()
    for assignment in assignments:
        assigned[gang_id_of(assignment.gang)] += assignment.count
    return not group.edited and all(gang.missing <= min(assigned[gang.id], len(gang.pending)) for gang in group.gangs)


def within_share(
    cache: Cache, request: SolveGroup, assignments: Sequence[Assignment], share: float
) -> tuple[Assignment, ...]:
    """The part of a partial answer that may be reserved: with it, all gangs that wait hold at most this share of each
    resource of the cluster.
    """
    if share >= 1:
        return tuple(assignments)
    capacity = cache.ledger.capacity
    _, held = capacity.used_by(_reserved_without_permit(cache))
    limit = share * capacity.allocatable.sum(axis=0, dtype=np.float64) - held.sum(axis=0, dtype=np.float64)
    roles = {(gang.id, index): role for gang in request.gangs for index, role in enumerate(gang.roles)}
    kept = []
    for assignment in assignments:
        role = roles.get((assignment.gang, assignment.role))
        class_id = split_kind(role.class_id)[0] if role is not None else ""
        if class_id not in capacity.classes:
            return tuple(assignments)  # the answer is rejected as a whole
        amounts = capacity.vectors[capacity.classes[class_id]]
        needed = amounts > 0
        most = int((limit[needed] // amounts[needed]).min()) if needed.any() else assignment.count
        if (count := min(assignment.count, most)) > 0:
            limit = limit - count * amounts
            kept.append(replace(assignment, count=count))
    return tuple(kept)


def _reserved_without_permit(cache: Cache) -> Iterator[str]:
    """Pods that hold a reservation without a permit."""
    for uid in cache.ledger.reserved:
        gang = cache.gang_of.get(uid)
        if gang is not None and uid in gang.seats and not gang.permit.granted and gang.group.non_strict:
            yield uid


def declaration(facts: GangFacts) -> str:
    """The parts of the declaration that a user may edit to have a timed-out gang tried again."""
    parts = [f"{key}={getattr(facts, key)}" for key in ("minimum", "total", "mode", "group", "waiting_time_seconds")]
    return ";".join([*parts, facts.definition.uid if facts.definition is not None else ""])


def _deadline(gang: Gang) -> float:
    assert gang.hold.since is not None
    return gang.hold.since + (gang.facts.waiting_time_seconds if gang.facts is not None else 0.0)


def _mark(gang: Gang, uids: Iterable[str], timed_out: bool) -> MarkTimedOut:
    return MarkTimedOut(gang.id, tuple(gang.pod_name(uid) for uid in sorted(uids)), timed_out)


def _timeout_event(gang: Gang, late: Gang, group: Group) -> KubeEvent | None:
    """The event of a timeout; the reservations are still held."""
    if gang.reference is None or gang.facts is None or late.facts is None:
        return None
    lacking = max(0, gang.missing)
    missing = f"{lacking} were missing" if lacking else f"members of gang {late.label} were missing"
    reason = f" ({group.solve.explanation.summary})" if group.solve.explanation is not None else ""
    placed = f"{gang.required - lacking} of {gang.required} members of gang {gang.label} had a reservation"
    note = (
        f"gang {late.label} timed out after {late.facts.waiting_time_seconds:g} s: {placed}, {missing}{reason}; all "
        "reservations of its gang group are released; edit the gang or replace its pods to schedule it again"
    )
    return KubeEvent(gang.reference, EventType.WARNING, "GangTimedOut", note)
