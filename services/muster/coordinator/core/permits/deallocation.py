"""Deallocates ResourceClaims with a stale allocation: one whose pods have neither a node nor a seat (I5, I6).

binding writes allocations for permits, and removes them again if a pod cannot be bound. If it does not come to that,
because binding, the coordinator or an answer is lost, the allocation remains when the pod is to be placed again. It
would hold the devices, and restrict the pod to their node. Such a pod is not placed before its claims are observed
without allocation (`queue/pre_enqueue`), so that its next permit has devices for all of them.

A claim that pods share has a stale allocation if all pods that it is reserved for are such pods
(`cache/stale_claims`). Claims are deallocated only in the version that was observed, and while none of these pods is
bound: a later permit for them, or a bind, needs no protection from an order that is late.
"""

from collections.abc import Iterable
from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.device_choices import still_allocated
from muster.coordinator.core.cache.stale_claims import pods_of, stale_claims
from muster.coordinator.core.effects import Deallocate, Effect, EventType, KubeEvent, Report, StaleClaim
from muster.coordinator.core.events import DeallocateCallFailed, DeallocateOutcome, DeallocateResults
from muster.coordinator.core.gang.gang import Gang, pod_reference
from muster.coordinator.core.gang.state import ActionState, PodAction
from muster.devices.facts import Claim
from muster.retry.backoff import backoff_seconds

INITIAL_RETRY_SECONDS: Final = 1.0
MAX_RETRY_SECONDS: Final = 30.0
OBSERVATION_SECONDS: Final = 10.0
"""Time after which a claim that binding has dealt with, and that is still observed as it was, is ordered again."""


class _Order(PodAction, kw_only=True, eq=False, gc=False):
    """The deallocation of a claim, as it was observed."""

    claim: Claim


class Deallocations:
    """Ordered deallocations by gang and uid of the claim: an entry ends when the allocation is not stale any more, as
    when its claim, its pod or its gang is gone (I11). A claim that pods of several gangs share is ordered for one.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache, self._devices = cache, cache.ledger.devices
        self._orders: dict[Gang, dict[str, _Order]] = {}
        self._ordered_for: dict[str, Gang] = {}
        """Gangs by uid of the claim; the same entries."""

    def update(self, gang: Gang) -> list[Effect]:
        """Order the deallocation of a touched gang's stale claims."""
        if not self._devices.has_allocations and gang not in self._orders:
            return []
        before, orders = self._end(gang), dict[str, _Order]()
        for claim in self._stale(gang):
            if claim.uid not in self._ordered_for:
                order = before.get(claim.uid)
                same = order is not None and order.claim.version == claim.version
                orders[claim.uid] = order if order is not None and same else _Order(claim=claim)
                orders[claim.uid].claim = claim
                self._ordered_for[claim.uid] = gang
        if orders:
            self._orders[gang] = orders
        self._touch_others(gang, (each for uid, each in before.items() if uid not in orders))
        return self._send(gang, [order for order in orders.values() if order.state is ActionState.DECIDED])

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._touch_others(gang, self._end(gang).values())

    def _end(self, gang: Gang) -> dict[str, _Order]:
        """Ends the orders of the gang. Returns them."""
        orders = self._orders.pop(gang, {})
        for uid in orders:
            del self._ordered_for[uid]
        return orders

    def _touch_others(self, gang: Gang, ended: Iterable[_Order]) -> None:
        """Have the other gangs reconciled that share a claim, of which the gang ordered the deallocation until now."""
        for order in ended:
            for uid in pods_of(order.claim, self._cache.gang_of, self._devices):
                if (other := self._cache.gang_of[uid]) is not gang:
                    self._cache.touch(other, edited=True)

    def _stale(self, gang: Gang) -> list[Claim]:
        return stale_claims(gang, self._cache.gang_of, self._devices)

    def _send(self, gang: Gang, orders: Iterable[_Order]) -> list[Effect]:
        stale = []
        for order in orders:
            order.send()
            stale.append(self._stale_claim(order.claim))
        return [Deallocate(gang.id, tuple(stale))] if stale else []

    def _stale_claim(self, claim: Claim) -> StaleClaim:
        gang_of = self._cache.gang_of
        pods = tuple(gang_of[uid].pod_name(uid) for uid in pods_of(claim, gang_of, self._devices))
        groups = tuple(uid for uid in claim.allocated_to if uid not in gang_of)
        return StaleClaim(claim.name, claim.uid, claim.version, pods, groups)

    def results(self, event: DeallocateResults, now: float) -> list[Effect]:
        """The binding service reports deallocations. A claim is deallocated when that is observed."""
        effects: list[Effect] = []
        gang = self._cache.gangs.get(event.gang)
        for result in event.results if gang is not None else ():
            order = self._sent(gang, result.uid)
            if gang is None or order is None:
                continue
            if result.outcome is not DeallocateOutcome.FAILED:
                order.retry(now + OBSERVATION_SECONDS)
                continue
            order.fail()
            order.retry(now + backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, order.failures))
            for claim in self._stale(gang):
                if claim.uid == result.uid:
                    first = next(uid for uid in pods_of(claim, self._cache.gang_of, self._devices) if uid in gang.pods)
                    about = pod_reference(gang.pods[first])
                    note = f"{still_allocated(claim)}; it could not be deallocated, which is retried: {result.message}"
                    effects.append(
                        Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "FailedDeallocation", note),))
                    )
        return effects

    def call_failed(self, event: DeallocateCallFailed, now: float) -> None:
        """The call failed: deallocations are idempotent, and retried."""
        gang = self._cache.gangs.get(event.gang)
        for uid in event.uids:
            if (order := self._sent(gang, uid)) is not None:
                order.fail()
                order.retry(now + backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, order.failures))

    def _sent(self, gang: Gang | None, uid: str) -> _Order | None:
        """The order, if its result is awaited."""
        order = self._orders.get(gang, {}).get(uid) if gang is not None else None
        return order if order is not None and order.state is ActionState.SENT else None

    def next_time(self) -> float | None:
        """When a deallocation is ordered again."""
        return min((each.retry_at for each in self._retries()), default=None)

    def any_due(self, now: float) -> bool:
        """`due` has something to do."""
        return bool(self._orders) and any(each.retry_at <= now for each in self._retries())

    def _retries(self) -> list[_Order]:
        orders = (order for orders in self._orders.values() for order in orders.values())
        return [order for order in orders if order.state is ActionState.RETRY]

    def due(self, now: float) -> list[Effect]:
        """Order deallocations again whose time it is."""
        effects: list[Effect] = []
        for gang, orders in list(self._orders.items()):
            late = {
                uid: each for uid, each in orders.items() if each.state is ActionState.RETRY and each.retry_at <= now
            }
            if not late or self._cache.gangs.get(gang.id) is not gang:  # it is gone, and will be forgotten
                continue
            stale = {claim.uid for claim in self._stale(gang)}
            effects += self._send(gang, [order for uid, order in late.items() if uid in stale])
            for uid in late:
                if uid not in stale:  # a pod of another gang that shares the claim has a place
                    self._cache.touch(gang, edited=True)
        return effects
