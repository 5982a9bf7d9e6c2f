"""Starving groups: which group that has had no place for too long gets a backfill reservation next.

One reservation is held at a time, for the earliest starving group in the queue. It is made of capacity that is expected
to become free (`backfill/expected_completions`), and is a nomination with `backfill`: groups that end in time may start
beside it.
"""

import math
from itertools import takewhile

from muster.coordinator.core.backfill.expected_completions import could_ever_fit
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.gang.gang import Group
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.queue.queue import Queue

RETRY_SECONDS = 1.0
"""Pause after a request for a reservation."""


class StarvingGroups:
    """Groups without a place, by the time since which they have none."""

    def __init__(self, cache: Cache, queue: Queue, after_seconds: float) -> None:
        self._cache, self._queue, self._after_seconds = cache, queue, after_seconds
        self._since: dict[Group, float] = {}  # the earliest first
        self._passed_over: dict[Group, float] = {}  # a reservation is held for an earlier group, or for themselves
        self._paused: dict[Group, float] = {}
        """Until when groups get no reservation because theirs expired. An entry ends then, or with the group."""
        self._not_before = 0.0

    def add(self, group: Group, now: float) -> None:
        """A solve found no place for the group."""
        if group not in self._paused:
            self._since.setdefault(group, now)

    def discard(self, group: Group) -> None:
        """The group has a place."""
        self._since.pop(group, None)
        self._passed_over.pop(group, None)
        self._paused.pop(group, None)

    def pause(self, now: float) -> None:
        """A request for a reservation was answered."""
        self._not_before = max(self._not_before, now + RETRY_SECONDS)

    def expired(self, nomination: Nomination, pause_seconds: float, now: float) -> None:
        """The reservation ended before its group could start, which gets no other one for `pause_seconds`. Nobody does
        for as long as it was held, so that expired reservations withhold capacity for half of the time at most.
        """
        self.discard(nomination.group)
        self._paused[nomination.group] = now + pause_seconds
        if pause_seconds > 0:
            self._not_before = max(self._not_before, now + min(pause_seconds, now - nomination.begun_at))

    def restart(self, group: Group, now: float) -> None:
        """The answer could not be used: the group starves again later."""
        if self._since.pop(group, None) is not None:
            self._since[group] = now

    def give_up(self, group: Group) -> list[Group]:
        """No reservation would help the group, nor groups equal to it, until they are tried again. Returns them."""
        helpless = [other for other in self._since if other is group or equal(group, other)]
        for other in helpless:
            del self._since[other]
        return helpless

    @property
    def reservation(self) -> Nomination | None:
        """The backfill reservation that is held."""
        return next((each for each in self._cache.nominations.values() if each.backfill), None)

    def next_time(self) -> float | None:
        times = [max(min(self._paused.values()), self._not_before)] if self._paused else []
        if self._since:
            times.append(max(next(iter(self._since.values())) + self._after_seconds, self._not_before))
        if self._passed_over and self.reservation is None:
            times.append(self._not_before)
        return min(times, default=None)

    def has_next(self, now: float) -> bool:
        """`next` is likely to return a group."""
        starving = next(iter(self._since.values()), math.inf) + self._after_seconds <= now
        starving = starving or any(until <= now for until in self._paused.values())
        return now >= self._not_before and (starving or (bool(self._passed_over) and self.reservation is None))

    def next(self, now: float) -> Group | None:
        """The earliest group in the queue that has starved and would have a place in the empty cluster; None also while
        a reservation is held for an earlier group.
        """
        if now < self._not_before:
            return None
        for group in [group for group, until in self._paused.items() if until <= now]:
            del self._paused[group]
            self._since = {group: now - self._after_seconds, **self._since}
        held = self.reservation
        if held is None and self._passed_over:
            self._since, self._passed_over = {**self._passed_over, **self._since}, {}
        starving = []
        for group, _ in list(takewhile(lambda item: item[1] + self._after_seconds <= now, self._since.items())):
            if group not in self._queue or not group.gangs:
                del self._since[group]
            elif held is not None and held.group.key <= group.key:
                self._passed_over[group] = self._since.pop(group)
            elif group in self._cache.nominations:
                del self._since[group]
            else:
                starving.append(group)
        for group in sorted(starving, key=lambda group: group.key):
            if could_ever_fit(group, self._cache.ledger):
                return group
            del self._since[group]  # checked again when it was tried again
        return None


def equal(group: Group, other: Group) -> bool:
    """The groups are in one equivalence class, at the same priority."""
    key = group.queueing.equivalence_key
    same = key is not None and other.queueing.equivalence_key == key
    return same and bool(other.gangs) and other.priority == group.priority
