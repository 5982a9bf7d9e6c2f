"""Growth of gangs that have their minimum: none for a while after preemption shrank them, and in batches.

The members that a gang has above its minimum are surplus; other groups are tried first (`Group.surplus`). Its owner
recreates surplus pods that were evicted, and without a pause they would soon be evicted again. So a gang that was
shrunk does not grow for `growth_hold_off_seconds`, doubling with every time in a row up to
`max_growth_hold_off_seconds`; a time as long without being shrunk ends the row. Elastic training restarts with every
change of its members, so pending surplus is placed all together; what could not be for `growth_batch_seconds` is placed
as far as it fits.

A hold-off is recorded in etcd with the plan that evicts the pods, and ends at the same time under the next leader; a
batch begins anew.
"""

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.deadlines import Deadlines
from muster.coordinator.core.events import Now, Record, Rules
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.slices import GANGS, Slices
from muster.retry.backoff import backoff_seconds


class Growths:
    """Gangs that wait until they may grow, and until when. An entry ends then, or when the gang has no pending surplus;
    of a gang that is gone, when `forget` is called.
    """

    def __init__(self, cache: Cache, rules: Rules) -> None:
        self._cache = cache
        self._initial = rules.growth_hold_off_seconds
        self._longest = max(rules.growth_hold_off_seconds, rules.max_growth_hold_off_seconds)
        self._batch_seconds = rules.growth_batch_seconds
        self._held_off: Deadlines[Gang] = Deadlines()
        self._batches: Deadlines[Gang] = Deadlines()
        """When pending surplus is placed as far as it fits."""

    # -- hold-offs

    def shrunk(self, gang: Gang, now: Now) -> None:
        """Preemption takes surplus pods of the gang, as soon as that is durable."""
        state = gang.growth
        in_a_row = now.monotonic_seconds <= state.not_before + self._longest
        shrinks = state.shrinks + 1 if state.shrinks and in_a_row else 1
        seconds = backoff_seconds(self._initial, self._longest, shrinks)
        state.shrink(shrinks, seconds, now.monotonic_seconds, now.unix_seconds)
        self._held_off.put(gang, state.not_before)

    def spared(self, gang: Gang) -> None:
        """The pods are not evicted after all."""
        gang.growth.undo_shrink()
        self._held_off.put(gang, gang.growth.not_before)

    def recall(self, gang: Gang, record: Record, now: Now) -> None:
        """Continue the hold-off that an earlier leader recorded, as far as it would not have begun later than now."""
        gang.growth.meet(record.met_minimum)
        if not record.shrinks:
            return
        seconds = backoff_seconds(self._initial, self._longest, record.shrinks)
        left = min(seconds, record.grows_after_unix_millis / 1000 - now.unix_seconds)
        until = now.monotonic_seconds + left
        gang.growth.hold_off(record.shrinks, until, record.grows_after_unix_millis, seconds)
        self._held_off.put(gang, until)

    # -- batches

    def update(self, gang: Gang, now: Now) -> None:
        """Begin or end the batch of a touched gang, and note which minimum it has."""
        if (met := gang.met_minimum) != gang.growth.met_minimum:
            gang.growth.meet(met)
        if not gang.permit.fulfilled or not (gang.pending and gang.has_minimum):
            if gang in self._batches or gang.growth.in_part:
                self._batches.discard(gang)
                gang.growth.place_together()
        elif gang.growth.in_part and gang.seats:
            gang.growth.place_together()  # the rest is the next batch
            self._batches.put(gang, now.monotonic_seconds + self._batch_seconds)
        elif not gang.growth.in_part and gang not in self._batches:
            self._batches.put(gang, now.monotonic_seconds + self._batch_seconds)

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._held_off.discard(gang)
        self._batches.discard(gang)

    # -- time

    def next_time(self) -> float | None:
        """When a gang may grow that could not before."""
        times = [self._held_off.next_time(), self._batches.next_time()]
        return min((time for time in times if time is not None), default=None)

    def any_due(self, now: float) -> bool:
        """`due` may have something to do."""
        return self._held_off.any_due(now) or self._batches.any_due(now)

    def due(self, now: float) -> Slices[None]:
        """End hold-offs and batches of which the time is over. In slices."""
        for number, gang in enumerate(self._held_off.take_due(now), start=1):
            gang.growth.may_grow()
            self._touch(gang)
            if number % GANGS == 0:
                yield
        for number, gang in enumerate(self._batches.take_due(now), start=1):
            gang.growth.place_in_part()
            self._touch(gang)
            if number % GANGS == 0:
                yield

    def _touch(self, gang: Gang) -> None:
        if self._cache.gangs.get(gang.id) is gang:  # else it is gone, by an event of this step
            self._cache.touch(gang, edited=True)
