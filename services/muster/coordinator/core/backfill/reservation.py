"""Backfill reservations: capacity that is expected to become free, withheld for a group that starves.

A group that has had no place for too long starves, unless its members are surplus of a running gang. One reservation is
held at a time, for the earliest starving group in the queue: pods in the order in which they are expected to end
(`backfill/expected_completions`) are offered to placement, and what it chooses becomes a nomination with `backfill`.
Groups that end in time may start beside it, and surplus until it is needed (`elastic/loans`). It ends when its group
starts or its time is over; after a reservation in vain its group has to pause.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from muster.coordinator.core.backfill.expected_completions import (
    OVERRUN_SECONDS,
    ExpectedCompletions,
    could_ever_fit,
    note_overruns,
)
from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import ClaimEnded, Effect
from muster.coordinator.core.events import Now, Rules
from muster.coordinator.core.gang.gang import Group, QueueKey
from muster.coordinator.core.gang.verdicts import Verdict
from muster.coordinator.core.preemption.nomination import Nomination, capacity_reserved, reservation_expired
from muster.coordinator.core.preemption.plan import Plans
from muster.coordinator.core.priority_queue import PriorityQueue
from muster.coordinator.core.queue.queue import Queue
from muster.coordinator.core.slices import OBJECTS, Slices
from muster.coordinator.core.term_state import BackfillTermState, OverrunOwner, StarvingGroup, monotonic_time, unix_time
from muster.gangs.facts import PodFacts
from muster.retry.backoff import backoff_seconds

RETRY_SECONDS = 1.0
"""Pause after a request for a reservation."""
MAX_PAUSE_SECONDS = 86400.0
"""Longest pause of a group whose reservations expire."""
NO_COMPLETIONS_HELP = "waiting would not help: it would not fit even if all pods that Muster placed had ended"
MAX_SORTED: Final = 2000
"""Groups that are put in queue order in one step; the next step goes on."""
MAX_CLASSES: Final = 300
"""Pod classes that are compared with all nodes in one step, 0.1 ms each for 5,000 nodes; the next step goes on."""


class BackfillReservations:
    """The starving groups, the reservation that is requested for one of them, and the one that is held."""

    def __init__(self, cache: Cache, queue: Queue, plans: Plans, rules: Rules) -> None:
        self._cache, self._plans, self._rules = cache, plans, rules
        self.starving = StarvingGroups(cache, queue, rules.starvation_after_seconds)
        self._collecting: ExpectedCompletions | None = None
        """Pods that are expected to end, for the next request; it ends with the request, or with its group."""
        self._held: Nomination | None = None
        """The reservation that was held last, until its end is noticed."""

    def next(self, now: Now) -> Slices[ExpectedCompletions | None]:
        """The pods to be offered for the next starving group; None if there is no such group, its pods are not all
        collected yet, or there are none to offer.
        """
        collecting, self._collecting = self._collecting, None
        if not self.starving:
            return None
        if collecting is not None and not self.starving.may_reserve(collecting.group):
            collecting = None
        if collecting is None:
            starved = self.starving.next(now.monotonic_seconds)
            if starved is None:
                return None
            collecting = ExpectedCompletions(self._cache, starved, now, self._rules.reservation_timeout_seconds)
        if not collecting.advance():
            self._collecting = collecting
            return None
        if collecting.potential_victims:
            return collecting
        self.give_up(collecting)
        if not collecting.others_get_more:
            yield from self._give_up_others(collecting, now)
        return None

    def give_up(self, completions: ExpectedCompletions) -> None:
        """The group would not fit even when all of these pods had ended."""
        self._conclude(completions.group, self._verdict(completions))

    def _give_up_others(self, completions: ExpectedCompletions, now: Now) -> Slices[None]:
        """There are no pods to offer to the other starving groups, either; collecting them for each one would take
        time that is quadratic in their number.
        """
        verdict = self._verdict(completions)
        for number, group in enumerate(self.starving.take(now.monotonic_seconds), start=1):
            group.verdicts.conclude(Verdict.RESERVATION, verdict)
            self._cache.touch_group(group)
            if number % OBJECTS == 0:
                yield

    def _verdict(self, completions: ExpectedCompletions) -> str:
        if not completions.beyond_horizon:
            return NO_COMPLETIONS_HELP
        most = f"{self._rules.reservation_timeout_seconds:g} s"
        return f"no capacity is reserved for it while pods that would have to end declare to run for more than {most}"

    def _conclude(self, group: Group, verdict: str) -> None:
        for other in self.starving.give_up(group):
            other.verdicts.conclude(Verdict.RESERVATION, verdict)
            self._cache.touch_group(other)

    def reserve(self, nomination: Nomination, ends: Mapping[str, float], now: Now) -> list[Effect]:
        """Withhold the capacity until the pods in `ends` have ended, which are expected to at these monotonic times."""
        nomination.leaving, nomination.backfill, nomination.starts_at = set(ends), True, max(ends.values())
        nomination.lends = not self._rules.evictions_per_hour
        known = nomination.starts_at < math.inf
        most = nomination.starts_at - now.monotonic_seconds if known else self._rules.reservation_timeout_seconds
        nomination.expires_at = now.monotonic_seconds + most + (OVERRUN_SECONDS if known else 0.0)
        share, resource = nomination.share(self._cache.ledger)
        if share > self._rules.max_reserved_share:
            limit = f"{self._rules.max_reserved_share:.0%} of the cluster's {resource}, which may be reserved"
            self._conclude(nomination.group, f"no capacity is reserved for it: it needs more than {limit}")
            return []
        if (held := self.starving.reservation) is not None:
            self._plans.drop(held)
        self._charge_ended(now.monotonic_seconds)
        self._plans.nominate(nomination, now)
        self._held = nomination
        return capacity_reserved(nomination, now)

    def term_state(self, now: Now) -> BackfillTermState:
        """Groups without a place, and owners whose declared run time is not believed."""
        return self.starving.term_state(self._cache.run_times.term_state(now), now)

    def resume(self, state: BackfillTermState, now: Now) -> None:
        """Groups have been without a place for as long as they had been."""
        self._cache.run_times.resume(state.overran, now)
        self.starving.resume(state, now)
        self._held = self.starving.reservation

    def next_time(self) -> float | None:
        """When the reservation that is held expires."""
        held = self.starving.reservation
        return held.expires_at if held is not None else None

    def due(self, now: Now) -> list[Effect]:
        """End the reservation if its time is over: the pods that should have ended for it have not."""
        held, time = self.starving.reservation, now.monotonic_seconds
        self._charge_ended(time)
        self._cache.run_times.update(time)
        if held is None or held.expires_at > time:
            return []
        cache, state, timeout = self._cache, held.group.preemption, self._rules.reservation_timeout_seconds
        there = [uid for uid in held.remaining(cache.ledger) if uid in cache.gang_of]
        overran = note_overruns({cache.gang_of[uid]: None for uid in there}, cache.run_times, now)
        state.fail_reservation()
        chosen_anew = overran and state.reservations_in_vain == 1 and not self.starving.unpaid_seconds
        pause = 0.0 if chosen_anew else backoff_seconds(timeout, MAX_PAUSE_SECONDS, state.reservations_in_vain)
        self.starving.expired(held, pause, time)
        self._plans.drop(held)
        self._held = None
        verdict = _why_expired([cache.gang_of[uid].pods[uid] for uid in there], time - held.begun_at, pause)
        held.group.verdicts.conclude(Verdict.RESERVATION, verdict)
        ended = ClaimEnded("reservation", "overrun" if overran else "expired")
        return [*reservation_expired(held, verdict), ended]

    def _charge_ended(self, time: float) -> None:
        """Charge a reservation that ended before its time, and not because its group started: the group was edited or
        is gone, or an earlier one got it.
        """
        ended = self._held
        if ended is not None and ended is not self.starving.reservation:
            self._held = None
            if not ended.used:
                self.starving.charge(time - ended.begun_at, time)

    def forget(self, group: Group) -> None:
        """The group has a place, or is gone."""
        self.starving.discard(group)
        if self._collecting is not None and self._collecting.group is group:
            self._collecting = None


class StarvingGroups:
    """Groups without a place, by the time since which they have none, then in queue order by admitted priorities: a
    declared one would let a tenant keep the only reservation (I13).

    Groups stay until they have a place, are gone, or turn out not to be helped by a reservation.
    """

    def __init__(self, cache: Cache, queue: Queue, after_seconds: float) -> None:
        self._cache, self._queue, self._after_seconds = cache, queue, after_seconds
        self._since: dict[Group, float] = {}  # not starving yet, the earliest first
        self._starving: PriorityQueue[Group, QueueKey] = PriorityQueue()
        self._paused: dict[Group, float] = {}
        """Until when groups get no reservation because theirs expired. An entry ends then, or with the group."""
        self._not_before = 0.0
        self.unpaid_seconds = 0.0
        """How long an expired reservation was held after which nobody paused."""

    def __bool__(self) -> bool:
        """There are groups without a place."""
        return bool(self._since or self._starving or self._paused)

    def add(self, group: Group, now: float) -> None:
        """A solve found no place for the group. One that waited for its minimum resources first starves since then."""
        if group in self._starving or group in self._paused:
            return
        if now < (until := group.preemption.no_reservation_before):
            self._since.pop(group, None)
            self._paused[group] = until
            return
        short_since = [gang.timing.short_since for gang in group.gangs if gang.timing.short_since is not None]
        if min(short_since, default=now) + self._after_seconds <= now:
            self._since.pop(group, None)
            self._put_in_order(group)
        else:
            self._since.setdefault(group, now)

    def term_state(self, overran: tuple[OverrunOwner, ...], now: Now) -> BackfillTermState:
        """The groups, and the pauses."""
        groups = [StarvingGroup(group.id, rank) for group, rank in self._starving.items()]
        groups += [StarvingGroup(group.id, since=unix_time(since, now)) for group, since in self._since.items()]
        paused = self._paused.items()
        groups += [StarvingGroup(group.id, paused_until=unix_time(until, now)) for group, until in paused]
        not_before = unix_time(self._not_before, now)
        return BackfillTermState(tuple(groups), not_before, self.unpaid_seconds, overran)

    def resume(self, state: BackfillTermState, now: Now) -> None:
        """Continue with these groups, as far as they exist, and the pauses."""
        for each in state.groups:
            if (group := self._cache.groups.get(each.group)) is None:
                continue
            self.discard(group)
            if each.paused_until is not None:
                self._paused[group] = monotonic_time(each.paused_until, now)
            elif each.since is not None:
                self._since[group] = monotonic_time(each.since, now)
            elif each.rank is not None and group.gangs:
                self._starving.put(group, each.rank)
        self._not_before = monotonic_time(state.not_before, now)
        self.unpaid_seconds = state.unpaid_seconds

    def discard(self, group: Group) -> None:
        """The group has a place, or is gone."""
        self._since.pop(group, None)
        self._starving.discard(group)
        self._paused.pop(group, None)

    def pause(self, now: float) -> None:
        """A request for a reservation was answered."""
        self._not_before = max(self._not_before, now + RETRY_SECONDS)

    def expired(self, nomination: Nomination, pause_seconds: float, now: float) -> None:
        """The reservation ended before its group could start, which gets no other one for `pause_seconds`."""
        group, held_seconds = nomination.group, now - nomination.begun_at
        self.discard(group)
        group.preemption.postpone_reservation(now + pause_seconds)
        self._paused[group] = now + pause_seconds
        if pause_seconds > 0:
            self.charge(held_seconds, now)
        else:
            self.unpaid_seconds += held_seconds

    def charge(self, held_seconds: float, now: float) -> None:
        """Capacity was withheld in vain for this time. Nobody gets a reservation for as long, and for as long as one
        before that was followed by no pause: so reservations in vain withhold capacity for half of the time at most,
        whoever ends them (I13).
        """
        self._not_before = max(self._not_before, now) + self.unpaid_seconds + held_seconds
        self.unpaid_seconds = 0.0

    def restart(self, group: Group, now: float) -> None:
        """The answer could not be used: the group starves again later."""
        if group in self._since or group in self._starving:
            self.discard(group)
            self._since[group] = now

    def give_up(self, group: Group) -> list[Group]:
        """No reservation would help the group, nor groups equal to it, until they are tried again. Returns them."""
        known: tuple[Iterable[Group], ...] = self._since, self._starving
        given_up = [other for groups in known for other in groups if other is group or equal(group, other)]
        for other in given_up:
            self.discard(other)
        return given_up

    @property
    def reservation(self) -> Nomination | None:
        """The backfill reservation that is held."""
        nominations = self._cache.nominations
        return next((each for each in nominations.values() if each.backfill), None) if nominations else None

    def next_time(self) -> float | None:
        times = [max(min(self._paused.values()), self._not_before)] if self._paused else []
        if self._since:
            times.append(max(next(iter(self._since.values())) + self._after_seconds, self._not_before))
        if self._candidate() is not None:
            times.append(self._not_before)
        return min(times, default=None)

    def has_next(self, now: float) -> bool:
        """`next` is likely to return a group, or has to be called to go on."""
        due = next(iter(self._since.values()), math.inf) + self._after_seconds <= now
        due = due or any(until <= now for until in self._paused.values())
        return now >= self._not_before and (due or self._candidate() is not None)

    def next(self, now: float) -> Group | None:
        """The earliest group in the queue that has starved and would have a place in the empty cluster; None also while
        a reservation is held for an earlier group, and when there is more to compare than one step may.
        """
        if now < self._not_before or not self._sort(now):
            return None
        before = self._cache.ledger.sums
        while (first := self._candidate()) is not None and self._cache.ledger.sums - before < MAX_CLASSES:
            group, known_key = first
            key = group.admitted_key if group in self._queue and group.gangs else None
            if key is None or group in self._cache.nominations or not _may_starve(group):
                self._starving.discard(group)
            elif key != known_key:
                self._starving.put(group, key)
            elif could_ever_fit(group, self._cache.ledger, self._cache.gangs):
                return group
            else:
                self._starving.discard(group)  # checked again when it was tried again
        return None

    def take(self, now: float) -> Iterator[Group]:
        """The groups that `next` returns one after the other, which starve no more; as many as one step may compare."""
        before = self._cache.ledger.sums
        while self._cache.ledger.sums - before < MAX_CLASSES and (group := self.next(now)) is not None:
            self._starving.discard(group)
            yield group

    def may_reserve(self, group: Group) -> bool:
        """The group still starves, and no reservation is held for itself or an earlier group."""
        held = self.reservation
        starves = group in self._starving and group in self._queue and bool(group.gangs) and _may_starve(group)
        return (
            starves
            and group not in self._cache.nominations
            and (held is None or group.admitted_key < held.group.admitted_key)
        )

    def _sort(self, now: float) -> bool:
        """Put groups that have starved by now in queue order. False: there are more."""
        for group in [group for group, until in self._paused.items() if until <= now] if self._paused else ():
            del self._paused[group]
            self._put_in_order(group)
        for _ in range(MAX_SORTED):
            first = next(iter(self._since), None)
            if first is None or self._since[first] + self._after_seconds > now:
                return True
            del self._since[first]
            self._put_in_order(first)
        return next(iter(self._since.values()), math.inf) + self._after_seconds > now

    def _put_in_order(self, group: Group) -> None:
        if group in self._queue and group.gangs:
            self._starving.put(group, group.admitted_key)

    def _candidate(self) -> tuple[Group, QueueKey] | None:
        """The first starving group; None if none is ahead of the one for which a reservation is held."""
        first, held = self._starving.first(), self.reservation
        if first is None or held is None or not held.group.gangs:
            return first
        return first if first[1] < held.group.admitted_key else None


def _may_starve(group: Group) -> bool:
    """Gangs that lack their minimum may; the surplus of others is for capacity that nobody needs."""
    return not group.surplus


def equal(group: Group, other: Group) -> bool:
    """The groups are in one equivalence class, at the same priority."""
    key = group.queueing.equivalence_key
    same = key is not None and other.queueing.equivalence_key == key
    return same and bool(other.gangs) and other.priority == group.priority


def _why_expired(pods: Sequence[PodFacts], seconds: float, pause: float) -> str:
    """Why a reservation ended, and when there may be another one."""
    again = f"for {pause:.0f} s" if pause else "until other nodes are chosen"
    if not pods:
        return f"the capacity was reserved for {seconds:.0f} s in vain; none is reserved {again}"
    first = min(pods, key=lambda pod: (pod.namespace, pod.name))
    more = f" and {len(pods) - 1} more have" if len(pods) > 1 else " has"
    where = f" on node {first.node}" if first.node else ""  # it holds a reservation
    which = f"pod {first.namespace}/{first.name}{where}{more}"
    return f"{which} not ended in the {seconds:.0f} s for which capacity was reserved; none is reserved {again}"
