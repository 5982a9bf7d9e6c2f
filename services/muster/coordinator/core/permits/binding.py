"""Binds of permitted seats: sent, acknowledged, retried, or given up so that the pod is placed again (I4, I6)."""

import math
from collections import Counter
from collections.abc import Sequence

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.effects import Bind, Effect, EventType, KubeEvent, Report
from muster.coordinator.core.events import BindCallFailed, BindOutcome, BindResult, BindResults, Seat
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, HeldSeat
from muster.coordinator.core.permits.confirmations import Confirmations
from muster.retry.backoff import backoff_seconds

MAX_FAILURES = 3
"""Failed binds of a seat after which its pod is placed again."""
INITIAL_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 10.0
CALL_RETRY_SECONDS = 0.5
"""Pause when the binding service cannot be reached, which is not the node's fault."""


class Binds:
    """Binds to be retried, and pods whose binds fail."""

    def __init__(self, confirmations: Confirmations) -> None:
        self._confirmations = confirmations
        self._retries: dict[str, tuple[Gang, HeldSeat]] = {}
        self._failing: dict[Gang, Counter[str]] = {}
        """Failed binds in a row by pod, on whichever nodes."""

    @staticmethod
    def unsent(gang: Gang) -> list[Seat]:
        """Seats whose bind was not sent."""
        return [held.seat for held in gang.seats.values() if held.state is ActionState.DECIDED]

    @staticmethod
    def unbindable(cache: Cache, gang: Gang) -> bool:
        """A seat whose bind was not sent is on a node that is gone, or that other pods filled."""
        return bool(_unbindable(cache, gang, Binds.unsent(gang)))

    def permitted(self, cache: Cache, gang: Gang) -> list[Effect]:
        """The permit is durable: send binds. If volumes come first while earlier binds of the gang are under way or
        to be retried, all wait for the joint retry.
        """
        unsent = self.unsent(gang)
        if volumes_first(gang) and len(unsent) < len(gang.seats):
            for seat in unsent:
                self._retry(gang, gang.seats[seat.uid], 0.0)
            return []
        return self._send_or_lose(cache, gang, unsent)

    def _send_or_lose(self, cache: Cache, gang: Gang, seats: Sequence[Seat]) -> list[Effect]:
        """Send binds, but for seats on nodes that are gone or that other pods filled, and for those without a volume:
        their pods are placed again.
        """
        full = _unbindable(cache, gang, seats)
        if full and volumes_first(gang):
            full = {seat.uid for seat in seats}  # it starts again whole
        for uid in full:
            cache.lose_seat(gang, uid)
        return self.send(gang, [seat for seat in seats if seat.uid not in full])

    def send(self, gang: Gang, seats: Sequence[Seat]) -> list[Effect]:
        """Send binds."""
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
                volumes_first(gang),
            )
        ]

    def results(self, cache: Cache, event: BindResults, now: float) -> list[Effect]:
        """The binding service reports binds."""
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
        """Apply one result; returns a message for an event."""
        match result.outcome:
            case BindOutcome.BOUND:
                gang.acknowledge(result.uid, held.seat.node)
                self._confirmations.acknowledge(gang, result.uid, now)
            case BindOutcome.CONFLICT:
                planned = held.seat.node
                cache.bound_elsewhere(gang, result.uid, result.node)
                self._confirmations.acknowledge(gang, result.uid, now)
                return f"the pod was bound to {result.node} by another scheduler; {planned} was decided"
            case BindOutcome.GONE:
                cache.forget_pod(result.uid)
            case BindOutcome.FAILED | BindOutcome.WITHHELD:
                held.fail()
                in_all = self._count_failure(gang, result.uid, result.message)
                if held.failures < MAX_FAILURES:
                    pause = backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, in_all)
                    self._retry(gang, held, now + pause)
                    return f"the pod could not be bound to {held.seat.node} and is retried: {result.message}"
                node = held.seat.node
                if result.outcome is BindOutcome.FAILED:
                    gang.bind.avoid(node)
                cache.lose_seat(gang, result.uid)
                return (
                    f"the pod could not be bound to {node} {held.failures} times and is placed again: {result.message}"
                )
        return ""

    def call_failed(self, cache: Cache, event: BindCallFailed, now: float) -> None:
        """The call failed: binds are idempotent, and retried."""
        for uid in event.uids:
            gang = cache.gang_of.get(uid)
            held = gang.seats.get(uid) if gang is not None else None
            if gang is not None and held is not None and held.state is ActionState.SENT:
                self._retry(gang, held, now + CALL_RETRY_SECONDS)
                self._count_failure(gang, uid, event.message)
                cache.touch(gang)

    def _count_failure(self, gang: Gang, uid: str, message: str) -> int:
        gang.bind.report(message)
        failures = self._failing.setdefault(gang, Counter())
        failures[uid] += 1
        return failures[uid]

    def _clear_trouble(self) -> None:
        """Clear the trouble of pods that are bound or gone. Pods that are placed again because of it keep it."""
        for gang, failures in list(self._failing.items()):
            for uid in failures.keys() - gang.seats.keys() - gang.pending.keys():
                del failures[uid]
            if not failures:
                del self._failing[gang]
                gang.bind.clear()

    def _retry(self, gang: Gang, held: HeldSeat, at: float) -> None:
        held.retry(at)
        self._retries[held.seat.uid] = (gang, held)

    def next_time(self) -> float | None:
        """When a bind is to be retried."""
        time = min(self._times().values(), default=math.inf)
        return time if time < math.inf else None

    def _times(self) -> dict[str, float]:
        """When each pod is retried. Members of a gang that waits for volumes are retried together, once the last of
        them has a result.
        """
        gangs = {gang for gang, _ in self._retries.values()}
        together = {gang: _last_retry(gang) for gang in gangs if volumes_first(gang)}
        return {uid: together.get(gang, held.retry_at) for uid, (gang, held) in self._retries.items()}

    def due(self, cache: Cache, now: float) -> list[Effect]:
        """Retry binds that are due, but for seats that were given up meanwhile."""
        self._clear_trouble()
        ready = {uid: self._retries[uid] for uid, time in self._times().items() if time <= now}
        by_gang: dict[Gang, list[Seat]] = {}
        for uid, (gang, held) in ready.items():
            del self._retries[uid]
            if gang.seats.get(uid) is held and held.state is ActionState.RETRY:
                by_gang.setdefault(gang, []).append(held.seat)
        return [effect for gang, seats in by_gang.items() for effect in self._send_or_lose(cache, gang, seats)]


def avoid_node(gang: Gang, node: str) -> None:
    """The gang's members could not be bound to this node."""
    gang.bind.avoid(node)


def volumes_first(gang: Gang) -> bool:
    """No member of the gang runs yet, and some have claims: none is bound before the volumes of all exist, since one
    that cannot be made would leave the gang partial.
    """
    if gang.bound or gang.acknowledged:
        return False
    return any(gang.pods[uid].claims for uid in gang.seats)


def _last_retry(gang: Gang) -> float:
    """When the last of its members is to be retried; inf while one has no result."""
    return max(held.retry_at if held.state is ActionState.RETRY else math.inf for held in gang.seats.values())


def _awaited(held: HeldSeat, result: BindResult) -> bool:
    """The result is of this seat's bind, not of an earlier seat's, nor a failure that was reported before."""
    return held.state is ActionState.SENT or (
        held.state is ActionState.RETRY and result.outcome is not BindOutcome.FAILED
    )


def _unbindable(cache: Cache, gang: Gang, seats: Sequence[Seat]) -> set[str]:
    """Uids of seats on nodes that are gone, or that lack a resource that the pod requests; and of seats without a
    volume, because the claim needed none at the permit.
    """
    places = {(seat.node, seat.class_id) for seat in seats}
    full = {place for place in places if cache.ledger.overcommitted(*place)}
    unbindable = {seat.uid for seat in seats if (seat.node, seat.class_id) in full}
    volumes = cache.ledger.volumes
    if volumes.claims:
        unbindable.update(seat.uid for seat in seats if volumes.lacks_choice(seat, gang.pods[seat.uid].claims))
    return unbindable
