"""Growth of gangs that have their minimum: none for a while after preemption shrank them, and in batches.

The members that a gang has above its minimum are surplus; other groups are tried first (`Group.surplus`). Its owner
recreates surplus pods that were evicted, and without a pause they would soon be evicted again. So a gang that was
shrunk does not grow for `growth_hold_off_seconds`, doubling with every time in a row up to
`max_growth_hold_off_seconds`; a time as long without being shrunk ends the row. Elastic training restarts with every
change of its members, so pending surplus is placed all together; what could not be for `growth_batch_seconds` is placed
as far as it fits.

Each subgroup of a gang has its own hold-off and its own batches, as have the members in none: one that was shrunk keeps
no other from growing. The batches are of pods that a subgroup has above its size; those that it lacks are placed as
they are before the gang has its minimum.

A hold-off is recorded in etcd with the plan that evicts the pods, and ends at the same time under the next leader; a
batch begins anew.
"""

import math
from collections.abc import Collection, Iterable

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.deadlines import Deadlines
from muster.coordinator.core.events import Now, Record, Rules
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.state import PartGrowth
from muster.coordinator.core.gang.subgroups import parts_of, subgroup_id, surplus_parts
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.coordinator.core.term_state import GrowingGang, monotonic_time_or_never, unix_time_if_finite
from muster.retry.backoff import backoff_seconds


class Growths:
    """When a part of which gang may grow. An entry ends then, or when the gang has nothing that waits for a time; of a
    gang that is gone, when `forget` is called.
    """

    def __init__(self, cache: Cache, rules: Rules) -> None:
        self._cache = cache
        self._initial = rules.growth_hold_off_seconds
        self._longest = max(rules.growth_hold_off_seconds, rules.max_growth_hold_off_seconds)
        self._batch_seconds = rules.growth_batch_seconds
        self._times: Deadlines[Gang] = Deadlines()
        """When the first hold-off or batch of a gang ends."""

    # -- hold-offs

    def shrunk(self, gang: Gang, uids: Collection[str], now: Now) -> None:
        """Preemption takes these surplus pods of the gang, as soon as that is durable."""
        for id_ in sorted(parts_of(gang, uids, self._cache.ledger.selection)):
            part = gang.growth.part(id_)
            shrinks = part.shrinks + 1 if part.shrinks and not self._is_over(part, now) else 1
            seconds = backoff_seconds(self._initial, self._longest, shrinks)
            part.shrink(shrinks, seconds, now.monotonic_seconds, now.unix_seconds)
        self._await(gang)

    def spared(self, gang: Gang, uids: Collection[str]) -> None:
        """The pods are not evicted after all."""
        for id_ in parts_of(gang, uids, self._cache.ledger.selection):
            if (part := gang.growth.parts.get(id_)) is not None:
                part.undo_shrink()
        self._await(gang)

    def recall(self, gang: Gang, record: Record, now: Now) -> None:
        """Continue the hold-offs that an earlier leader recorded, as far as they would not begin later than now."""
        gang.growth.meet(record.met_minimum)
        shrunk = [(gang.id, record.shrinks, record.grows_after_unix_millis)] if record.shrinks else []
        for each in record.shrunk_subgroups:
            shrunk += [(subgroup_id(gang, each.name), each.shrinks, each.grows_after_unix_millis)]
        for id_, shrinks, unix_millis in shrunk:
            seconds = backoff_seconds(self._initial, self._longest, shrinks)
            left = min(seconds, unix_millis / 1000 - now.unix_seconds)
            gang.growth.part(id_).hold_off(shrinks, now.monotonic_seconds + left, unix_millis, seconds)
        self._await(gang)

    # -- what only the leader's memory holds

    def term_state(self, now: Now) -> Slices[tuple[GrowingGang, ...]]:
        """Batches that wait, and gangs to which nothing is lent. In slices."""
        found = []
        for number, gang in enumerate(list(self._cache.gangs.values()), start=1):
            batches = tuple(
                (id_, unix_time_if_finite(part.batch_until, now), part.in_part)
                for id_, part in gang.growth.parts.items()
                if part.in_part or math.isfinite(part.batch_until)
            )
            if batches or gang.growth.kept_loan:
                found.append(GrowingGang(gang.id, batches, gang.growth.kept_loan))
            if number % OBJECTS == 0:
                yield
        return tuple(found)

    def resume(self, states: Iterable[GrowingGang], now: Now) -> None:
        """Batches end when they were to."""
        for each in states:
            if (gang := self._cache.gangs.get(each.gang)) is None:
                continue
            for id_, until, in_part in each.batches:
                if (part := gang.growth.parts.get(id_)) is not None:
                    part.resume_batch(monotonic_time_or_never(until, now), in_part=in_part)
            if each.kept_loan:
                gang.growth.keep_loan()
            self._await(gang)
            self._cache.touch(gang, edited=True)

    # -- batches

    def update(self, gang: Gang, now: Now) -> None:
        """Begin or end the batches of a touched gang, and note which minimum it has."""
        if (met := gang.met_minimum) != gang.growth.met_minimum:
            gang.growth.meet(met)
        selection, grows = self._cache.ledger.selection, gang.permit.fulfilled and gang.pending and gang.has_minimum
        if not (grows or gang.growth.parts):
            return
        waiting = surplus_parts(gang, selection) if grows else []
        seated = parts_of(gang, gang.seats, selection) if waiting and gang.seats else ()
        for id_ in waiting:
            part = gang.growth.part(id_)
            if (part.in_part and id_ in seated) or (not part.in_part and math.isinf(part.batch_until)):
                part.begin_batch(now.monotonic_seconds + self._batch_seconds)  # of the rest, after a part of it
        for id_, part in list(gang.growth.parts.items()):
            if id_ in waiting:
                continue
            part.end_batch()
            if not part.held_off and self._is_over(part, now):
                gang.growth.forget(id_)
        self._await(gang)

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._times.discard(gang)

    # -- time

    def next_time(self) -> float | None:
        """When a gang may grow that could not before."""
        return self._times.next_time()

    def any_due(self, now: float) -> bool:
        """`due` may have something to do."""
        return self._times.any_due(now)

    def due(self, now: float) -> Slices[None]:
        """End hold-offs and batches of which the time is over. In slices."""
        for number, gang in enumerate(self._times.take_due(now), start=1):
            for part in gang.growth.parts.values():
                if part.held_off and part.not_before <= now:
                    part.may_grow()
                if part.batch_until <= now:
                    part.place_in_part()
            if self._cache.gangs.get(gang.id) is gang:  # else it is gone, by an event of this step
                self._await(gang)
                self._cache.touch(gang, edited=True)
            if number % GANGS == 0:
                yield

    def _is_over(self, part: PartGrowth, now: Now) -> bool:
        """The part was not shrunk, or so long ago that the next time does not continue the row."""
        return not part.shrinks or now.monotonic_seconds > part.not_before + self._longest

    def _await(self, gang: Gang) -> None:
        time = min((part.next_time for part in gang.growth.parts.values()), default=math.inf)
        if math.isinf(time):
            self._times.discard(gang)
        else:
            self._times.put(gang, time)
