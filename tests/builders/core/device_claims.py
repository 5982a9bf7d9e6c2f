"""ResourceClaims of scenarios, written as binding does, with the invariants of allocations."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from builders.devices.streamed import claim_object
from muster.coordinator.core.effects import Bind, Deallocate, DeviceWrite, StaleClaim
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    DeallocateOutcome,
    DeallocateResult,
    RecordState,
    Seat,
)
from muster.devices.allocation import usable_on
from muster.devices.extended_resources import EXTENDED_CLAIM
from muster.devices.facts import Allocation, Claim, DeviceId, Slice
from muster.gangs.facts import DeviceObject, DeviceObjectKind, PodFacts

if TYPE_CHECKING:
    from builders.core.scenario import Scenario

_RELEASED = (BindOutcome.FAILED, BindOutcome.WITHHELD, BindOutcome.CONFLICT, BindOutcome.GONE)


class DeviceClaimWrites:
    """The claims of a scenario's cluster. Each write gives a claim a version that it never had."""

    def __init__(self, scenario: "Scenario") -> None:
        self._scenario = scenario
        self._version = 0
        self.lost = False
        """binding dies before it removes what it wrote for pods that are not bound."""
        self.unobserved = False
        """Allocations of binding are not observed: only the test writes claims."""
        self.failures = 0
        """Deallocations that fail next."""
        self.contested: set[DeviceId] = set()
        """Devices that others took, that a former leader allocated late, or that were left to pods which are not bound:
        they may be allocated to two claims before that is observed, and no pod is bound then.
        """

        self.with_extended: set[str] = set()
        """Uids of pods that were bound with devices for extended resources."""
        self.restored = False
        """The API server was restored from a backup, which permits that were given since do not know."""

    # -- objects

    def all(self) -> list[Claim]:
        objects = self._scenario.cluster.device_objects
        return [_claim(each) for (kind, _), each in objects.items() if kind is DeviceObjectKind.CLAIM]

    def get(self, namespace: str, name: str) -> Claim | None:
        each = self._scenario.cluster.device_objects.get((DeviceObjectKind.CLAIM, f"{namespace}/{name}"))
        return _claim(each) if each is not None else None

    def first_of(self, pod: PodFacts) -> Claim | None:
        """The first claim that the pod names; if it names none, that for its extended resources, existing or not."""
        if pod.device_claims:
            return self.get(pod.namespace, pod.device_claims[0])
        return self.get(pod.namespace, extended_name(pod)) or self._extended_claim(pod)

    def _extended_claim(self, pod: PodFacts | Seat) -> Claim:
        """A new claim for the extended resources of a pod."""
        self._version += 1
        return Claim(pod.namespace, extended_name(pod), f"extended-{self._version}", owner=pod.uid, extended=True)

    def nodes_with_lost_devices(self) -> set[str]:
        """Nodes that do not offer the devices of some claim or permit any more; pods may request them again, as others
        leave.
        """
        slices = slices_of(self._scenario.cluster.device_objects.values())
        offered = {DeviceId(each.driver, each.pool, one.name) for each in slices for one in each.devices}
        allocated = (one.id for claim in self.all() if claim.allocation for one in claim.allocation.results)
        seats = (seat for record in self._scenario.etcd.values() for seat in record.seats)
        chosen = (one.id for seat in seats for _, allocation in seat.devices for one in allocation.results)
        return {id_.pool for id_ in (*allocated, *chosen) if id_ not in offered}

    def written(self, claim: Claim) -> DeviceObject:
        """The claim in its next version."""
        self._version += 1
        return claim_object(replace(claim, version=str(self._version)))

    def put(self, *claims: Claim) -> None:
        self._scenario.change(device_objects=[self.written(claim) for claim in claims])

    def remove(self, *claims: Claim) -> None:
        self._scenario.change(device_objects=[DeviceObject(DeviceObjectKind.CLAIM, claim.id) for claim in claims])

    def without_allocation(self, claim: Claim) -> DeviceObject:
        """The claim after its deallocation; one that is being deleted is gone then."""
        if claim.deleting:
            return DeviceObject(DeviceObjectKind.CLAIM, claim.id)
        return self.written(replace(claim, allocation=None, reserved_for=()))

    def of_ended(self, removed: Iterable[str], pods: Iterable[PodFacts]) -> list[DeviceObject]:
        """The claims of pods that are removed or have ended, as controllers leave them."""
        gone, ended = set(removed), {pod.uid for pod in pods if pod.phase.ended}
        found = [DeviceObject(DeviceObjectKind.CLAIM, each.id) for each in self.all() if each.owner in gone]
        over = [each for each in self.all() if each.owner not in gone and each.allocation is not None]
        unused = (each for each in over if each.owner in ended)
        shared = (self._without_users(each, {*gone, *ended}) for each in over if not each.owner)
        return [*found, *map(self.without_allocation, unused), *(each for each in shared if each is not None)]

    def _without_users(self, claim: Claim, gone: Collection[str]) -> DeviceObject | None:
        """The claim that pods share without reservations for these pods, as its controller leaves it; a PodGroup uses
        it as long as it has pods. None: nothing changes.
        """
        pods = self._scenario.cluster.pods.values()
        groups = {pod.group_uid for pod in pods if pod.uid not in gone and not pod.phase.ended}
        known = {pod.group_uid for pod in pods if pod.group_uid}
        remaining = tuple(uid for uid in claim.reserved_for if uid not in gone and uid not in known - groups)
        if remaining == claim.reserved_for:
            return None
        return self.written(replace(claim, reserved_for=remaining)) if remaining else self.without_allocation(claim)

    # -- writes of a Bind call

    def write(self, effect: Bind, *, late: bool = False) -> list[str]:
        """Allocates and reserves the claims of the seats. Returns the uids of pods of which one is not ready, or has a
        device that another claim has, too. `late`: the call is of a former leader.
        """
        if self.unobserved:
            return []
        ready = [seat for seat in effect.seats if self._write_all(effect, seat, late=late)]
        return [seat.uid for seat in effect.seats if seat not in ready or self._shares_devices(effect, seat)]

    def _shares_devices(self, effect: Bind, seat: Seat) -> bool:
        """A claim that was written for the seat has a device of another claim."""
        names = {f"{seat.namespace}/{write.name}" for write in effect.devices.get(seat.uid, ())}
        if seat.uid in effect.extended:
            names.add(f"{seat.namespace}/{extended_name(seat)}")
        own, others = set[DeviceId](), set[DeviceId]()
        for claim in self.all() if names else ():
            ids = {each.id for each in claim.allocation.results} if claim.allocation is not None else set()
            (own if claim.id in names else others).update(ids)
        return not own.isdisjoint(others)

    def _write_all(self, effect: Bind, seat: Seat, *, late: bool) -> bool:
        pod = self._scenario.cluster.pods.get(seat.uid)
        if pod is None or pod.node:
            return True
        ready = [self._write(effect, seat, each, late=late) for each in effect.devices.get(seat.uid, ())]
        if seat.uid in effect.extended:
            ready.append(self._write_extended(seat, late=late))
        return all(ready)

    def _write_extended(self, seat: Seat, *, late: bool) -> bool:
        """Creates the claim for the extended resources of a seat, or allocates it otherwise than before."""
        claim = self.get(seat.namespace, extended_name(seat)) or self._extended_claim(seat)
        wanted = dict(seat.devices)[EXTENDED_CLAIM]
        if claim.allocation != wanted:
            self._check(claim, seat, wanted, late=late)
            self.put(replace(claim, allocation=wanted, reserved_for=(seat.uid,)))
        return True

    def _write(self, effect: Bind, seat: Seat, write: DeviceWrite, *, late: bool) -> bool:
        claim, wanted = self.get(seat.namespace, write.name), dict(seat.devices).get(write.name)
        if claim is None or claim.uid != write.uid or claim.deleting or claim.allocation is wanted is None:
            return False
        user = write.group_uid or seat.uid
        if wanted is not None and claim.allocation != wanted:
            its = {uid for uid, each in effect.devices.items() if any(one.uid == write.uid for one in each)}
            if not set(claim.reserved_for) <= its or any(map(self._is_bound, claim.reserved_for)):
                return False
            self._check(claim, seat, wanted, late=late)
            self.put(replace(claim, allocation=wanted, reserved_for=(user,)))
        elif user not in claim.reserved_for:
            self.put(replace(claim, reserved_for=(*claim.reserved_for, user)))
        return True

    def _check(self, claim: Claim, seat: Seat, allocation: Allocation, *, late: bool) -> None:
        """Invariants of an allocation that is about to be written."""
        ids = {each.id for each in allocation.results}
        if late:
            self.contested |= ids
        if late or self.restored:
            return
        recorded = [
            each
            for record in self._scenario.etcd.values()
            if record.state is RecordState.BINDING
            for each in record.seats
            if each.uid == seat.uid
        ]
        assert any(each.devices == seat.devices for each in recorded), (
            f"I2: {claim.id} is allocated for {seat.uid} without a durable permit for that"
        )
        for other in self.all():
            if other.id != claim.id and other.allocation is not None:
                both = ids & {each.id for each in other.allocation.results}
                assert both <= self.contested, f"I3: {sorted(map(str, both))} of {other.id} are allocated to {claim.id}"

    def release(self, effect: Bind, results: Sequence[BindResult]) -> None:
        """Removes what was written for pods that were not bound."""
        if self.unobserved:
            return
        failed = {result.uid for result in results if result.outcome in _RELEASED and not self._is_bound(result.uid)}
        if self.lost:
            unbound = (seat for seat in effect.seats if seat.uid in failed)
            self.contested.update(each.id for seat in unbound for _, one in seat.devices for each in one.results)
            return
        used = {
            (seat.namespace, write.name): write.group_uid
            for seat in effect.seats
            if seat.uid in failed
            for write in effect.devices.get(seat.uid, ())
        }
        created = [self.get(seat.namespace, extended_name(seat)) for seat in effect.seats if seat.uid in failed]
        self.remove(*(claim for claim in created if claim is not None))
        released = []
        for (namespace, name), group in used.items():
            claim = self.get(namespace, name)
            if claim is None:
                continue
            left = {group} if group and not self._group_is_bound(group) else failed
            remaining = tuple(uid for uid in claim.reserved_for if uid not in left)
            if claim.reserved_for and not remaining:
                released.append(self.without_allocation(claim))
            elif remaining != claim.reserved_for:
                released.append(self.written(replace(claim, reserved_for=remaining)))
        if released:
            self._scenario.change(device_objects=released)

    def _group_is_bound(self, group: str) -> bool:
        """A pod of the PodGroup is bound."""
        return any(pod.node for pod in self._scenario.cluster.pods.values() if pod.group_uid == group)

    def _is_bound(self, uid: str) -> bool:
        pod = self._scenario.cluster.pods.get(uid)
        return pod is not None and bool(pod.node)

    # -- deallocation

    def deallocate(self, effect: Deallocate) -> tuple[DeallocateResult, ...]:
        """Deallocates stale claims as binding does."""
        results = []
        for each in effect.claims:
            claim, known = self.get(each.pods[0].namespace, each.name), {*(pod.uid for pod in each.pods), *each.groups}
            if self.failures:
                self.failures -= 1
                results.append(DeallocateResult(each.uid, DeallocateOutcome.FAILED, "500: try again"))
                continue
            kept = claim is None or claim.version != each.version or not set(claim.reserved_for) <= known
            if claim is None or kept or any(self._is_bound(uid) for uid in self._users(each, claim)):
                results.append(DeallocateResult(each.uid, DeallocateOutcome.KEPT))
            else:
                self._scenario.change(device_objects=[self.without_allocation(claim)])
                results.append(DeallocateResult(each.uid, DeallocateOutcome.DEALLOCATED))
        return tuple(results)

    def _users(self, stale: StaleClaim, claim: Claim) -> set[str]:
        """The pods that the order names, and those of its PodGroups that use the claim."""
        pods = self._scenario.cluster.pods.values()
        of_groups = {
            pod.uid
            for pod in pods
            if pod.group_uid in stale.groups and claim.name in pod.group_claims and not pod.phase.ended
        }
        return of_groups | {pod.uid for pod in stale.pods}

    # -- at a bind

    def are_ready(self, pod: PodFacts, *, extended: bool) -> bool:
        """The pod's claims are allocated and reserved for it, or for its PodGroup. `extended`: also one for extended
        resources.
        """
        names = [*pod.device_claims, *([extended_name(pod)] if extended else [])]
        found = [self.get(pod.namespace, name) for name in names if not self.unobserved]
        return all(claim is not None and is_ready(claim, pod) for claim in found)

    def check_bound(self, pod: PodFacts, seat: Seat) -> None:
        """A pod that is bound has its devices."""
        if EXTENDED_CLAIM in dict(seat.devices):
            self.with_extended.add(pod.uid)
        else:
            self.with_extended.discard(pod.uid)
        names = (name if name != EXTENDED_CLAIM else extended_name(seat) for name, _ in seat.devices)
        for name in dict.fromkeys((*pod.device_claims, *names)) if not self.unobserved else ():
            claim = self.get(pod.namespace, name)
            assert claim is not None and is_ready(claim, pod), (
                f"devices: {pod.uid} is bound to {seat.node}, and its claim {name} is not allocated to it"
            )
            node = self._scenario.cluster.nodes.get(seat.node)
            assert node is None or usable_on(claim, node), (
                f"I3: {pod.uid} is bound to {seat.node}, where the devices of its claim {name} cannot be used"
            )


def extended_name(pod: PodFacts | Seat) -> str:
    """Name of the claim for the pod's extended resources."""
    return f"{pod.uid}-extended".replace("/", "-")


def is_ready(claim: Claim, pod: PodFacts) -> bool:
    """The claim is allocated, and reserved for the pod or its PodGroup."""
    return claim.allocation is not None and not {pod.uid, pod.group_uid}.isdisjoint(claim.reserved_for)


def slices_of(objects: Iterable[DeviceObject]) -> list[Slice]:
    """The slices of complete pools."""
    found = (each for each in objects if each.kind is DeviceObjectKind.SLICE and each.content)
    return [each for one in found if (each := msgspec.json.decode(one.content, type=Slice)).count == 1]


def _claim(each: DeviceObject) -> Claim:
    return msgspec.json.decode(each.content, type=Claim)
