"""Binds of permitted seats: sent, acknowledged, retried, or given up so that the pod is placed again (I4, I6); and
acknowledged binds that the API server has lost by a restore from a backup.

After a snapshot that is older than what was seen before, a pod of which binding reported that it is bound, or that was
observed bound and is shown without a node again, keeps its place until CONFIRMATION_SECONDS have passed: a replica of
cluster-state may only be behind. If it is still shown without a node then, its bind is lost, and it is placed again.
Binding reports the node of a pod that is bound after all. Otherwise acknowledged binds are believed, however long they
are not observed: what is shown may be late, and the capacity is used.

Gangs that start together (`permits/starts`) and have claims are bound by one call. Its failures are concluded when all
pods have a result: then all are retried, or the gangs that cannot start whole lose all their seats.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final, NamedTuple

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.deadlines import Deadlines
from muster.coordinator.core.effects import Bind, Effect, EventType, ExtendedClaimWrite, KubeEvent, Report
from muster.coordinator.core.events import BindCallFailed, BindOutcome, BindResult, BindResults, Now, Seat
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, HeldSeat
from muster.coordinator.core.permits.starts import Start, able_without, claims_first, start_of, starts_of
from muster.coordinator.core.slices import GANGS, OBJECTS, Slices
from muster.coordinator.core.term_state import GangWithBindTrouble, monotonic_time, unix_time
from muster.retry.backoff import backoff_seconds

MAX_FAILURES = 3
"""Failed binds of a seat after which its pod is placed again."""
INITIAL_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 10.0
CALL_RETRY_SECONDS = 0.5
"""Pause when the binding service cannot be reached, which is not the node's fault."""
TIMES_WITHOUT_PAUSE: Final = 4
"""How often in a row a pod is given up and placed again at once: other nodes, or other volumes, may do."""
INITIAL_PAUSE_SECONDS: Final = 60.0
"""Pause of a gang of which a pod is given up more often than that; it doubles with every further time."""
MAX_PAUSE_SECONDS: Final = 3600.0
CONFIRMATION_SECONDS: Final = 30.0
"""Time from a snapshot that went back, or an acknowledgement soon after, until the pod must be observed bound."""
_FAILURES: Final = (BindOutcome.FAILED, BindOutcome.WITHHELD)


class Confirmations:
    """When acknowledged binds must be observed, by pod, the earliest first.

    Bounded by the binds that were known at the last such snapshot: an entry ends when it is acknowledged or observed,
    or after CONFIRMATION_SECONDS, once all before it have ended.
    """

    def __init__(self) -> None:
        self._deadlines: dict[str, tuple[Gang, float]] = {}
        self._under_way: dict[str, Gang] = {}
        """Pods whose binds were under way at the last such snapshot: carried out before the restore or after it."""

    def acknowledge(self, gang: Gang, uid: str, now: float) -> None:
        """The bind is acknowledged; if it was under way during a restore, it must be observed in time."""
        if self._under_way.pop(uid, None) is not None:
            self._expect(gang, uid, now)

    def begin_again(self, cache: Cache, now: float) -> Slices[None]:
        """After a snapshot. If it went back, acknowledged binds must be observed in time, and those whose places are
        taken or gone are lost at once. In slices.
        """
        if not cache.went_back:
            return
        self._under_way.clear()
        for number, gang in enumerate(list(cache.gangs.values()), start=1):
            sent = (uid for uid, held in gang.seats.items() if held.state is not ActionState.DECIDED)
            self._under_way.update(dict.fromkeys(sent, gang))
            if gang.acknowledged:
                yield from self._doubt(cache, gang, now)
            if number % OBJECTS == 0:
                yield

    def _expect(self, gang: Gang, uid: str, now: float) -> None:
        self._deadlines.pop(uid, None)
        self._deadlines[uid] = (gang, now + CONFIRMATION_SECONDS)

    def _doubt(self, cache: Cache, gang: Gang, now: float) -> Slices[None]:
        """If no member of the gang is bound for certain, it keeps all places or none: it starts again whole (I1)."""
        taken = []
        for number, (uid, seat) in enumerate(gang.acknowledged.items(), start=1):
            if cache.ledger.overcommitted(seat.node, seat.class_id):
                taken.append(uid)
            if number % OBJECTS == 0:
                yield
        if taken and not (gang.bound or gang.seats):
            taken = list(gang.acknowledged)
        for uid in gang.acknowledged:
            self._expect(gang, uid, now)
        yield from _lose(cache, gang, taken)

    def next_time(self) -> float | None:
        """When the next bind must have been observed."""
        self._forget_observed()
        return next((time for _, time in self._deadlines.values()), None)

    def any_due(self, cache: Cache) -> bool:
        """`due` may have something to do."""
        return bool(self._deadlines or self._under_way or cache.doubtful)

    def due(self, cache: Cache, now: float) -> Slices[None]:
        """Give up the binds whose time is over, in slices. Only while the cluster is observed."""
        for number, gang in enumerate(cache.take_doubtful(), start=1):
            yield from self._doubt(cache, gang, now)
            if number % OBJECTS == 0:
                yield
        self._forget_observed()
        over = [(uid, gang) for uid, (gang, time) in takewhile(lambda item: item[1][1] <= now, self._deadlines.items())]
        for number, (uid, gang) in enumerate(over, start=1):
            del self._deadlines[uid]
            yield from _lose(cache, gang, [uid])
            if number % OBJECTS == 0:
                yield

    def _forget_observed(self) -> None:
        while self._under_way:
            uid, gang = next(iter(self._under_way.items()))
            if uid in gang.seats:
                break
            del self._under_way[uid]
        while self._deadlines:
            uid, (gang, _) = next(iter(self._deadlines.items()))
            if uid in gang.acknowledged:
                break
            del self._deadlines[uid]


class _Answer(NamedTuple):
    """A result of a bind, and the seat."""

    gang: Gang
    held: HeldSeat
    result: BindResult


class Binds:
    """Binds to be retried, and pods whose binds fail: at most one entry per seat, which ends at the time of its retry,
    and one per pod that is neither bound nor gone.

    A gang whose pods are given up again and again pauses before they are placed again. Otherwise it would hold its
    places for ever, and never run: a user can claim volumes that nobody can provision (I13).
    """

    def __init__(self, confirmations: Confirmations, ledger: Ledger, gangs: Mapping[str, Gang]) -> None:
        """`gangs`: all gangs by id."""
        self._confirmations, self._ledger, self._gangs = confirmations, ledger, gangs
        self._retries: dict[str, tuple[Gang, HeldSeat]] = {}
        self._earliest = math.inf
        """No bind is retried before this."""
        self._failures: dict[Gang, dict[str, _Answer]] = {}
        """Failures that are concluded when all pods of their start have a result, by gang and uid: at most one per
        seat. They end then, or with the gang.
        """
        self._failing: dict[Gang, Counter[str]] = {}
        """Failed binds in a row by pod, on whichever nodes."""
        self._pauses: Deadlines[Gang] = Deadlines()
        """When gangs are tried again whose pods were given up repeatedly; an entry ends with the trouble, too."""

    @staticmethod
    def unbindable(cache: Cache, gang: Gang) -> bool:
        """A seat whose bind was not sent is on a node that is gone, or that other pods filled."""
        return bool(_unbindable(cache, gang, gang.unsent_seats))

    def permitted(self, cache: Cache, gangs: Sequence[Gang]) -> list[Effect]:
        """The permit of these gangs is durable: send binds. If claims come first while earlier binds of the start are
        under way or to be retried, all wait for the joint retry.
        """
        effects: list[Effect] = []
        permitted = frozenset(gangs)
        for start in starts_of(gangs, self._gangs):
            durable = [gang for gang in start if gang in permitted]
            if claims_first(start) and not _all_unsent(start, durable):
                for gang in durable:
                    for seat in gang.unsent_seats:
                        self._retry(gang, gang.seats[seat.uid], 0.0)
            else:
                effects += self._send_or_lose(cache, start, {gang: gang.unsent_seats for gang in durable})
        return effects

    def resume(self, cache: Cache) -> Slices[list[Effect]]:
        """A new leader took up the recorded seats: send their binds. Gangs of which no member runs, and so many members
        are gone that they cannot start whole, start again (I1). In slices.
        """
        effects: list[Effect] = []
        for number, start in enumerate(starts_of(list(self._gangs.values()), self._gangs), start=1):
            seats = {gang: gang.unbound_seats for gang in start if gang.seats}
            if claims_first(start):
                effects += self._send_or_lose(cache, start, seats)
            else:
                able = able_without(start, (), self._gangs)
                for gang in start:
                    for uid in list(gang.seats) if gang not in able else ():
                        cache.lose_seat(gang, uid)
                effects += self._send({gang: of_gang for gang, of_gang in seats.items() if gang in able})
            if number % OBJECTS == 0:
                yield
        return effects

    def _send_or_lose(self, cache: Cache, start: Start, seats: Mapping[Gang, Sequence[Seat]]) -> list[Effect]:
        """Send binds, but for seats on nodes that are gone or that other pods filled, and for those without a volume:
        their pods are placed again. If claims come first, gangs that cannot start whole start again.
        """
        full = {uid for gang, of_gang in seats.items() for uid in _unbindable(cache, gang, of_gang)}
        able = able_without(start, full, self._gangs) if claims_first(start) else frozenset(start)
        for gang in start:
            for uid in [uid for uid in gang.seats if uid in full or gang not in able]:
                cache.lose_seat(gang, uid)
        return self._send(
            {gang: [seat for seat in of_gang if seat.uid in gang.seats] for gang, of_gang in seats.items()}
        )

    def _send(self, seats: Mapping[Gang, Sequence[Seat]]) -> list[Effect]:
        """Send binds of gangs that start together: in one call if some have claims, else in one for each gang."""
        seats = {gang: of_gang for gang, of_gang in seats.items() if of_gang}
        if claims_first(tuple(seats)):
            return [self._bind(seats, claims_first=True)]
        return [self._bind({gang: of_gang}, claims_first=False) for gang, of_gang in seats.items()]

    def _bind(self, by_gang: Mapping[Gang, Sequence[Seat]], *, claims_first: bool) -> Bind:
        seats = [seat for of_gang in by_gang.values() for seat in of_gang]
        for gang, of_gang in by_gang.items():
            for seat in of_gang:
                gang.seats[seat.uid].send()
        pods = {seat.uid: gang.pods[seat.uid] for gang, of_gang in by_gang.items() for seat in of_gang}
        first, *others = by_gang
        return Bind(
            first.id,
            tuple(seats),
            {
                seat.uid: gang.permit.ranks[seat.uid]
                for gang, of_gang in by_gang.items()
                for seat in of_gang
                if seat.uid in gang.permit.ranks
            },
            {uid: pod.claims for uid, pod in pods.items() if pod.claims},
            {gang.id: gang.permit.attempts for gang in by_gang},
            claims_first,
            {seat.uid: gang.id for gang in others for seat in by_gang[gang]},
            {
                seat.uid: self._ledger.devices.writes(seat, pod)
                for seat in seats
                if (pod := pods[seat.uid]).device_claims
            },
            {
                seat.uid: write
                for seat in seats
                if seat.devices and (write := _extended_write(self._ledger, seat)) is not None
            },
        )

    def results(self, cache: Cache, event: BindResults, now: float) -> Slices[list[Effect]]:
        """The binding service reports binds; `due` concludes failures of gangs that start together. In slices."""
        effects: list[Effect] = []
        together: dict[Gang, bool] = {}
        for number, result in enumerate(event.results, start=1):
            if number % OBJECTS == 0:
                yield
            gang = cache.gang_of.get(result.uid)
            held = gang.seats.get(result.uid) if gang is not None else None
            if gang is None or held is None or not _awaited(held, result):
                continue
            cache.touch(gang)
            failure = _Answer(gang, held, result)
            if result.outcome not in _FAILURES:
                effects += self._settled(cache, failure, now)
                continue
            gang.bind.report(result.message)
            if gang not in together:
                together[gang] = claims_first(start_of(gang, self._gangs))
            if together[gang]:
                held.retry(math.inf)
                self._failures.setdefault(gang, {})[result.uid] = failure
            else:
                effects += self._failed(cache, failure, now)
        return effects

    def _settled(self, cache: Cache, answer: _Answer, now: float) -> list[Effect]:
        """A pod is bound, or gone."""
        gang, held, result = answer
        match result.outcome:
            case BindOutcome.BOUND:
                gang.acknowledge(result.uid, held.seat.node)
                self._confirmations.acknowledge(gang, result.uid, now)
            case BindOutcome.CONFLICT:
                planned = held.seat.node
                cache.bound_elsewhere(gang, result.uid, result.node)
                self._confirmations.acknowledge(gang, result.uid, now)
                note = f"was bound to {result.node} by another scheduler; {planned} was decided"
                return _reported(gang, result.uid, note)
            case _:
                cache.forget_pod(result.uid)
        return []

    def _failed(self, cache: Cache, failure: _Answer, now: float) -> list[Effect]:
        """The bind is retried, or its pod placed again."""
        if failure.result.outcome is BindOutcome.WITHHELD:
            return self._wait_for_others(failure, now)
        failure.held.fail()
        if failure.held.failures < MAX_FAILURES:
            return self._try_again(failure, now)
        return self._place_again(cache, failure, now)

    def _try_again(self, failure: _Answer, now: float) -> list[Effect]:
        gang, held, result = failure
        pause = backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, self._count_failure(gang, result.uid))
        self._retry(gang, held, now + pause)
        return _reported(gang, result.uid, f"could not be bound to {held.seat.node} and is retried: {result.message}")

    def _wait_for_others(self, failure: _Answer, now: float) -> list[Effect]:
        """The bind was withheld because of members with which the gang need not start: the pod keeps its seat."""
        gang, held, result = failure
        self._count_failure(gang, result.uid)
        self._retry(gang, held, now + INITIAL_RETRY_SECONDS)
        return _reported(gang, result.uid, f"could not be bound to {held.seat.node} and is retried: {result.message}")

    def _place_again(self, cache: Cache, failure: _Answer, now: float) -> list[Effect]:
        gang, held, result = failure
        self._count_failure(gang, result.uid)
        if result.outcome is BindOutcome.FAILED:
            gang.bind.avoid(held.seat.node)
        pause = self._give_up(gang, result.uid, now)
        cache.lose_seat(gang, result.uid)
        again = f"is placed again after {pause:g} s" if pause else "is placed again"
        note = f"could not be bound to {held.seat.node} {held.failures} times and {again}: {result.message}"
        return _reported(gang, result.uid, note)

    def _conclude(self, cache: Cache, now: float) -> Slices[list[Effect]]:
        """Conclude the calls of which all pods have a result. In slices."""
        effects: list[Effect] = []
        for gang in [gang for gang in self._failures if self._gangs.get(gang.id) is not gang]:
            del self._failures[gang]
        for number, start in enumerate(starts_of(list(self._failures), self._gangs), start=1):
            together = claims_first(start)
            if together and not _all_answered(start):
                continue
            failures = [
                each
                for gang in start
                for each in self._failures.pop(gang, {}).values()
                if gang.seats.get(each.result.uid) is each.held and each.held.state is ActionState.RETRY
            ]
            if together:
                effects += self._conclude_start(cache, start, failures, now)
            else:  # some were bound meanwhile: the others are finished one by one
                for failure in failures:
                    effects += self._failed(cache, failure, now)
            if number % GANGS == 0:
                yield
        return effects

    def _conclude_start(self, cache: Cache, start: Start, failures: Sequence[_Answer], now: float) -> list[Effect]:
        """Gangs that can start without the members that failed wait for these, which are placed again after
        MAX_FAILURES; all members of the other gangs are then.
        """
        effects: list[Effect] = []
        failing = {each.result.uid for each in failures if each.result.outcome is BindOutcome.FAILED}
        able = able_without(start, failing, self._gangs)
        others: list[_Answer] = []
        for failure in failures:
            if failure.gang in able and failure.result.uid not in failing:
                effects += self._wait_for_others(failure, now)
            else:
                others.append(failure)
        for failure in others:
            failure.held.fail()
        exhausted = [each for each in others if each.held.failures >= MAX_FAILURES]
        unable = [gang for gang in start if gang not in able]
        undone = unable if any(each.gang not in able for each in exhausted) else []
        for failure in others:
            if failure.gang in undone or failure.held.failures >= MAX_FAILURES:
                effects += self._place_again(cache, failure, now)
            else:
                effects += self._try_again(failure, now)
        for gang in undone:  # seats without a result: their call failed, or they came later
            for uid in list(gang.seats):
                cache.lose_seat(gang, uid)
        return effects

    def _give_up(self, gang: Gang, uid: str, now: float) -> float:
        """The pod is to be placed again. Returns the pause before that."""
        if (times := gang.bind.give_up(uid) - TIMES_WITHOUT_PAUSE) <= 0:
            return 0.0
        pause = backoff_seconds(INITIAL_PAUSE_SECONDS, MAX_PAUSE_SECONDS, times)
        gang.bind.pause()
        self._pauses.put(gang, now + pause)
        return pause

    def call_failed(self, cache: Cache, event: BindCallFailed, now: float) -> None:
        """The call failed: binds are idempotent, and retried."""
        for uid in event.uids:
            gang = cache.gang_of.get(uid)
            held = gang.seats.get(uid) if gang is not None else None
            if gang is not None and held is not None and held.state is ActionState.SENT:
                self._retry(gang, held, now + CALL_RETRY_SECONDS)
                gang.bind.report(event.message)
                self._count_failure(gang, uid)
                cache.touch(gang)

    def _count_failure(self, gang: Gang, uid: str) -> int:
        failures = self._failing.setdefault(gang, Counter())
        failures[uid] += 1
        return failures[uid]

    def term_state(self, now: Now) -> tuple[GangWithBindTrouble, ...]:
        """Gangs of which binds have failed."""
        pauses = dict(self._pauses.items())
        return tuple(
            GangWithBindTrouble(
                gang.id,
                tuple(gang.bind.avoided_nodes),
                tuple(gang.bind.given_up.items()),
                unix_time(pauses[gang], now) if gang in pauses else None,
            )
            for gang in dict.fromkeys((*self._failing, *pauses))
        )

    def resume_trouble(self, cache: Cache, states: Iterable[GangWithBindTrouble], now: Now) -> None:
        """Gangs avoid the nodes that they avoided, and pause for the rest of their pauses."""
        for each in states:
            if (gang := cache.gangs.get(each.gang)) is None:
                continue
            paused = each.paused_until is not None
            gang.bind.restore(each.avoided_nodes, each.given_up, paused=paused)
            self._failing[gang] = Counter({uid: times for uid, times in each.given_up if uid in gang.pods})
            if each.paused_until is not None:
                self._pauses.put(gang, monotonic_time(each.paused_until, now))
            cache.touch(gang)

    def _end_pauses(self, cache: Cache, now: float) -> None:
        over = list(self._pauses.take_due(now))
        for gang in over:
            self._end_pause(cache, gang)

    def _end_pause(self, cache: Cache, gang: Gang) -> None:
        self._pauses.discard(gang)
        gang.bind.resume()
        if cache.gangs.get(gang.id) is gang:
            cache.touch(gang, edited=True)

    def _clear_trouble(self, cache: Cache) -> None:
        """Clear the trouble of pods that are bound or gone. Pods that are placed again because of it keep it."""
        for gang, failures in list(self._failing.items()):
            for uid in failures.keys() - gang.seats.keys() - gang.pending.keys():
                del failures[uid]
                gang.bind.forget(uid)
            if not failures:
                del self._failing[gang]
                gang.bind.clear()
                if gang.bind.paused:
                    self._end_pause(cache, gang)

    def _retry(self, gang: Gang, held: HeldSeat, at: float) -> None:
        held.retry(at)
        self._earliest = min(at, self._earliest)
        self._retries[held.seat.uid] = (gang, held)

    def next_time(self) -> float | None:
        """When a bind is to be retried, or a gang is to be placed again."""
        resumed = self._pauses.next_time()
        time = min((*self._times().values(), math.inf if resumed is None else resumed), default=math.inf)
        return time if time < math.inf else None

    def _times(self) -> dict[str, float]:
        """When each pod is retried. Members of gangs that start together and wait for claims are retried together, once
        the last of them has a result.
        """
        together: dict[Gang, float] = {}
        for start in starts_of([gang for gang, _ in self._retries.values()], self._gangs):
            if claims_first(start):
                together.update(dict.fromkeys(start, _last_retry(start)))
        return {uid: together.get(gang, held.retry_at) for uid, (gang, held) in self._retries.items()}

    def any_due(self, now: float) -> bool:
        """`due` may have something to do."""
        return bool(self._failing or self._failures) or self._earliest <= now

    def hasten(self, cache: Cache, now: float) -> None:
        """Nodes or their pods have changed: what cannot be bound there any more is placed again at once. The pause
        after a failed bind is for the node; until its end the seat would count for its gang, which might preempt for
        the sake of the rest.
        """
        disturbed = cache.ledger.disturbed
        for uid, (gang, held) in self._retries.items() if disturbed else ():
            if held.retry_at <= now or held.seat.node not in disturbed or gang.seats.get(uid) is not held:
                continue
            if held.state is ActionState.RETRY and _unbindable(cache, gang, [held.seat]):
                held.retry(now)
                self._earliest = now

    def due(self, cache: Cache, now: float) -> Slices[list[Effect]]:
        """Retry binds that are due, but for seats that were given up meanwhile. In slices."""
        self._clear_trouble(cache)
        self._end_pauses(cache, now)
        effects = yield from self._conclude(cache, now)
        if now < self._earliest:
            return effects
        ready = {uid: self._retries[uid] for uid, time in self._times().items() if time <= now}
        by_gang: dict[Gang, list[Seat]] = {}
        for uid in ready:
            del self._retries[uid]
        self._earliest = min((held.retry_at for _, held in self._retries.values()), default=math.inf)
        for uid, (gang, held) in ready.items():
            if gang.seats.get(uid) is held and held.state is ActionState.RETRY:
                by_gang.setdefault(gang, []).append(held.seat)
        for number, start in enumerate(starts_of(by_gang, self._gangs), start=1):
            effects += self._send_or_lose(cache, start, {gang: by_gang[gang] for gang in start if gang in by_gang})
            if number % GANGS == 0:
                yield
        return effects


def avoid_node(gang: Gang, node: str) -> None:
    """The gang's members could not be bound to this node."""
    gang.bind.avoid(node)


def _all_unsent(start: Start, durable: Collection[Gang]) -> bool:
    """No bind of the start was sent, and the permits of all its seats are durable."""
    return all(gang in durable and held.state is ActionState.DECIDED for gang in start for held in gang.seats.values())


def _all_answered(start: Start) -> bool:
    """No bind of the start is under way."""
    return all(held.state is ActionState.RETRY for gang in start for held in gang.seats.values())


def _last_retry(start: Start) -> float:
    """When the last of its members is to be retried; inf while one has no result."""
    return max(
        held.retry_at if held.state is ActionState.RETRY else math.inf for gang in start for held in gang.seats.values()
    )


def _reported(gang: Gang, uid: str, what: str) -> list[Effect]:
    """An event on the pod."""
    pod = gang.pods.get(uid)
    if pod is None:
        return []
    return [
        Report(gang.id, events=(KubeEvent(pod_reference(pod), EventType.WARNING, "FailedBinding", f"the pod {what}"),))
    ]


def _awaited(held: HeldSeat, result: BindResult) -> bool:
    """The result is of this seat's bind, not of an earlier seat's, nor a failure that was reported before."""
    return held.state is ActionState.SENT or (held.state is ActionState.RETRY and result.outcome not in _FAILURES)


def _unbindable(cache: Cache, gang: Gang, seats: Sequence[Seat]) -> set[str]:
    """Uids of seats on nodes that are gone, or that lack a resource that the pod requests; and of seats without a
    volume or devices, because the claim needed none at the permit or is gone, because another claim got the devices, or
    because the node offered the extended resource by a device plugin.
    """
    places = {(seat.node, seat.class_id) for seat in seats}
    full = {place for place in places if cache.ledger.overcommitted(*place)}
    unbindable = {seat.uid for seat in seats if (seat.node, seat.class_id) in full}
    volumes = cache.ledger.volumes
    if volumes.claims:
        unbindable.update(seat.uid for seat in seats if volumes.lacks_choice(seat, gang.pods[seat.uid].claims))
    devices = cache.ledger.devices
    for seat in seats:
        claims = gang.pods[seat.uid].device_claims
        if (claims and devices.lacks_choice(seat, claims)) or lacks_extended(cache.ledger, seat):
            unbindable.add(seat.uid)
    return unbindable | devices.taken(seats)


def lacks_extended(ledger: Ledger, seat: Seat) -> bool:
    """The seat's devices for extended resources are not those that its pod needs on the node now."""
    node, pod_class = ledger.nodes.get(seat.node), ledger.classes.get(seat.class_id)
    if node is None or pod_class is None or not (seat.devices or pod_class.extended):
        return False
    return ledger.devices.lacks_extended(seat, node, pod_class)


def _extended_write(ledger: Ledger, seat: Seat) -> ExtendedClaimWrite | None:
    node, pod_class = ledger.nodes.get(seat.node), ledger.classes.get(seat.class_id)
    return ledger.devices.extended_write(seat, node, pod_class) if node is not None and pod_class is not None else None


def _lose(cache: Cache, gang: Gang, uids: list[str]) -> Slices[None]:
    for number, uid in enumerate(uids, start=1):
        if uid in gang.acknowledged:
            cache.lose_bind(gang, uid)
        if number % OBJECTS == 0:
            yield
