"""Seats on their way to bound pods: sent, acknowledged, sent again, or lost and to be placed again (I4, I6)."""

from collections import Counter
from collections.abc import Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Bind, Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import BindCallFailed, BindOutcome, BindResult, BindResults, Seat
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, HeldSeat
from muster.retry.backoff import backoff_seconds

MAX_FAILURES = 3
"""After so many failed binds a pod is placed again elsewhere."""
INITIAL_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 10.0
CALL_RETRY_SECONDS = 0.5
"""When binding itself cannot be reached; nothing speaks against the node then."""


class Binds:
    """What becomes of permitted seats."""

    def __init__(self) -> None:
        self._retries: dict[str, tuple[Gang, HeldSeat]] = {}
        self._failing: dict[Gang, Counter[str]] = {}
        """Pods whose last bind failed, and how many in a row did, wherever they were to go."""

    @staticmethod
    def unsent(gang: Gang) -> list[Seat]:
        """Seats that were never handed to binding."""
        return [held.seat for held in gang.seats.values() if held.state is ActionState.DECIDED]

    @staticmethod
    def unbindable(cache: Cache, gang: Gang) -> bool:
        """A seat that is not sent yet is on a node that is gone, or that somebody else filled."""
        return bool(_on_full_nodes(cache, Binds.unsent(gang)))

    def permitted(self, cache: Cache, gang: Gang) -> list[Effect]:
        """The permit is durable: seats go out."""
        return self._send_or_lose(cache, gang, self.unsent(gang))

    def _send_or_lose(self, cache: Cache, gang: Gang, seats: Sequence[Seat]) -> list[Effect]:
        """Seats on nodes that are gone, or that somebody else filled, are placed again; the others go out."""
        full = _on_full_nodes(cache, seats)
        for uid in full:
            cache.lose_seat(gang, uid)
        return self.send(gang, [seat for seat in seats if seat.uid not in full])

    def send(self, gang: Gang, seats: Sequence[Seat]) -> list[Effect]:
        """Hand seats to binding."""
        if not seats:
            return []
        for seat in seats:
            gang.seats[seat.uid].send()
        pods = {seat.uid: gang.pods[seat.uid] for seat in seats}
        return [
            Bind(
                gang.id,
                tuple(seats),
                {uid: gang.permit.ranks[uid] for uid in pods if uid in gang.permit.ranks},
                {uid: pod.claims for uid, pod in pods.items() if pod.claims},
                gang.permit.attempts,
            )
        ]

    def results(self, cache: Cache, event: BindResults, now: float) -> list[Effect]:
        """Binding reports."""
        effects: list[Effect] = []
        for result in event.results:
            gang = cache.gang_of.get(result.uid)
            held = gang.seats.get(result.uid) if gang is not None else None
            if gang is None or held is None or not _awaited(held, result):
                continue
            cache.touch(gang)
            note = self._result(cache, gang, held, result, now)
            if note:
                pod = gang.pods.get(result.uid)
                if pod is not None:
                    event_ = KubeEvent(pod_reference(pod), EventType.WARNING, "FailedBinding", note)
                    effects.append(Report(gang.id, events=(event_,)))
        return effects

    def _result(self, cache: Cache, gang: Gang, held: HeldSeat, result: BindResult, now: float) -> str:
        """What one result means; returns what the user should be told."""
        match result.outcome:
            case BindOutcome.BOUND:
                gang.acknowledge(result.uid, held.seat.node)
            case BindOutcome.CONFLICT:
                planned = held.seat.node
                cache.bound_elsewhere(gang, result.uid, result.node)
                return f"the pod was bound to {result.node} by another scheduler; {planned} was decided"
            case BindOutcome.GONE:
                cache.forget_pod(result.uid)
            case BindOutcome.FAILED:
                held.fail()
                in_all = self._in_trouble(gang, result.uid, result.message)
                if held.failures < MAX_FAILURES:
                    pause = backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, in_all)
                    self._retry(gang, held, now + pause)
                    return f"the pod could not be bound to {held.seat.node} and is retried: {result.message}"
                node = held.seat.node
                gang.bind.avoid(node)
                cache.lose_seat(gang, result.uid)
                return (
                    f"the pod could not be bound to {node} {held.failures} times and is placed again: {result.message}"
                )
        return ""

    def call_failed(self, cache: Cache, event: BindCallFailed, now: float) -> None:
        """Binding could not be reached: the same seats go out again, it is safe to repeat."""
        for uid in event.uids:
            gang = cache.gang_of.get(uid)
            held = gang.seats.get(uid) if gang is not None else None
            if gang is not None and held is not None and held.state is ActionState.SENT:
                self._retry(gang, held, now + CALL_RETRY_SECONDS)
                self._in_trouble(gang, uid, event.message)
                cache.touch(gang)

    def _in_trouble(self, gang: Gang, uid: str, message: str) -> int:
        gang.bind.report(message)
        failures = self._failing.setdefault(gang, Counter())
        failures[uid] += 1
        return failures[uid]

    def _forget_troubles(self) -> None:
        """Those are over whose pods are bound or gone. One that is placed again because of it has it still."""
        for gang, failures in list(self._failing.items()):
            for uid in failures.keys() - gang.seats.keys() - gang.lost:
                del failures[uid]
            if not failures:
                del self._failing[gang]
                gang.bind.clear()

    def _retry(self, gang: Gang, held: HeldSeat, at: float) -> None:
        held.retry(at)
        self._retries[held.seat.uid] = (gang, held)

    def next_time(self) -> float | None:
        """When a seat is to be sent again."""
        return min((held.retry_at for _, held in self._retries.values()), default=None)

    def due(self, cache: Cache, now: float) -> list[Effect]:
        """Seats to be sent again now; those that were given up meanwhile are passed over."""
        self._forget_troubles()
        ready = {uid: entry for uid, entry in self._retries.items() if entry[1].retry_at <= now}
        by_gang: dict[Gang, list[Seat]] = {}
        for uid, (gang, held) in ready.items():
            del self._retries[uid]
            if gang.seats.get(uid) is held and held.state is ActionState.RETRY:
                by_gang.setdefault(gang, []).append(held.seat)
        return [effect for gang, seats in by_gang.items() for effect in self._send_or_lose(cache, gang, seats)]


def _awaited(held: HeldSeat, result: BindResult) -> bool:
    """The result is about this seat, and not heard before: not one of an earlier seat, nor a failure told twice."""
    return held.state is ActionState.SENT or (
        held.state is ActionState.RETRY and result.outcome is not BindOutcome.FAILED
    )


def _on_full_nodes(cache: Cache, seats: Sequence[Seat]) -> set[str]:
    """Uids of seats on nodes that are gone, or that have not enough of what the pod asks."""
    places = {(seat.node, seat.class_id) for seat in seats}
    full = {place for place in places if cache.ledger.overcommitted(*place)}
    return {seat.uid for seat in seats if (seat.node, seat.class_id) in full}
