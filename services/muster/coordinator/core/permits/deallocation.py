"""Deallocates ResourceClaims with a stale allocation: one whose pod has neither a node nor a seat (I5, I6).

binding writes allocations for permits, and removes them again if a pod cannot be bound. If it does not come to that,
because binding, the coordinator or an answer is lost, the allocation remains when the pod is to be placed again. It
would hold the devices, and restrict the pod to their node. Such a pod is not placed before its claims are observed
without allocation (`queue/pre_enqueue`), so that its next permit has devices for all of them.

Only claims of which the pod is the owner are deallocated, and only in the version that was observed: a later permit
for the pod, or its bind, needs no protection from an order that is late.
"""

from typing import Final

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.device_choices import DeviceChoices, still_allocated
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
    """The deallocation of one claim. `version`: as it was observed."""

    version: str


class Deallocations:
    """Ordered deallocations by gang and uid of the claim: an entry ends when the allocation is not stale any more, as
    when its claim, its pod or its gang is gone (I11).
    """

    def __init__(self, devices: DeviceChoices) -> None:
        self._devices = devices
        self._orders: dict[Gang, dict[str, _Order]] = {}

    def update(self, gang: Gang) -> list[Effect]:
        """Order the deallocation of a touched gang's stale claims."""
        if not self._devices.has_own_allocations and gang not in self._orders:
            return []
        stale = stale_claims(gang, self._devices)
        if not stale:
            self._orders.pop(gang, None)
            return []
        before, orders = self._orders.get(gang, {}), dict[str, _Order]()
        for claim in stale:
            order = before.get(claim.uid)
            same = order is not None and order.version == claim.version
            orders[claim.uid] = order if order is not None and same else _Order(version=claim.version)
        self._orders[gang] = orders
        return self._send(gang, [claim for claim in stale if orders[claim.uid].state is ActionState.DECIDED])

    def forget(self, gang: Gang) -> None:
        """The gang is gone."""
        self._orders.pop(gang, None)

    def _send(self, gang: Gang, claims: list[Claim]) -> list[Effect]:
        if not claims:
            return []
        for claim in claims:
            self._orders[gang][claim.uid].send()
        stale = (StaleClaim(each.name, each.uid, each.version, gang.pod_name(each.owner)) for each in claims)
        return [Deallocate(gang.id, tuple(stale))]

    def results(self, cache: Cache, event: DeallocateResults, now: float) -> list[Effect]:
        """The binding service reports deallocations. A claim is deallocated when that is observed."""
        effects: list[Effect] = []
        gang = cache.gangs.get(event.gang)
        for result in event.results if gang is not None else ():
            order = self._sent(gang, result.uid)
            if gang is None or order is None:
                continue
            if result.outcome is not DeallocateOutcome.FAILED:
                order.retry(now + OBSERVATION_SECONDS)
                continue
            order.fail()
            order.retry(now + backoff_seconds(INITIAL_RETRY_SECONDS, MAX_RETRY_SECONDS, order.failures))
            for claim in stale_claims(gang, self._devices):
                if claim.uid == result.uid:
                    about = pod_reference(gang.pods[claim.owner])
                    note = f"{still_allocated(claim)}; it could not be deallocated, which is retried: {result.message}"
                    effects.append(
                        Report(gang.id, events=(KubeEvent(about, EventType.WARNING, "FailedDeallocation", note),))
                    )
        return effects

    def call_failed(self, cache: Cache, event: DeallocateCallFailed, now: float) -> None:
        """The call failed: deallocations are idempotent, and retried."""
        gang = cache.gangs.get(event.gang)
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
            late = [uid for uid, each in orders.items() if each.state is ActionState.RETRY and each.retry_at <= now]
            if late:
                again = [claim for claim in stale_claims(gang, self._devices) if claim.uid in late]
                for uid in set(late) - {claim.uid for claim in again}:
                    del orders[uid]
                effects += self._send(gang, again)
        return effects


def stale_claims(gang: Gang, devices: DeviceChoices) -> list[Claim]:
    """Claims that are allocated to pods of the gang that have neither a node nor a seat."""
    placed = gang.seats.keys() | gang.acknowledged.keys() | gang.bound.keys()
    claims = devices.allocated_to(gang.pods.keys() - placed)
    return [claim for claim in claims if gang.has_no_place(claim.owner)]
