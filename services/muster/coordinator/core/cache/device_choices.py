"""Chooses devices for the ResourceClaims of seats.

Nodes offer numbers of free devices as resources, so that placement and ledger have counted them already. Numbers are
necessary and mostly suffice; the choice decides. Devices are chosen for all seats of a node together, for a claim that
pods share once: each of their seats has the choice. Pods outside the gang group wait until it is allocated.
"""

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from itertools import chain, islice
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.cel.probe import SelectorProbe
from muster.cel.selection import DeviceSelection
from muster.coordinator.core.effects import DeviceWrite, ExtendedClaimWrite
from muster.coordinator.core.events import Seat
from muster.coordinator.core.slices import Slices
from muster.devices.allocation import Devices, held, usable_on
from muster.devices.allocation_json import allocation_json
from muster.devices.extended_resources import EXTENDED_CLAIM, ExtendedClaim, classes_by_resource, extended_claim
from muster.devices.facts import Allocation, Alternative, Claim, DeviceClass, DeviceId, Slice
from muster.devices.holdings import Holdings
from muster.devices.search import BUDGET, MAX_DEPTH, Outcome, depth_of
from muster.gangs.facts import Batch, DeviceObject, DeviceObjectKind, NodeFacts, PodClass, PodFacts
from muster.gangs.quoting import quoted

MOST_TOGETHER: Final = 64
"""Claims of one node for which devices are searched together, if one search can have as many devices; more are
searched in parts, each with all claims of its seats."""
MOST_ALTERNATIVES: Final = 128
"""Alternatives of the requests of such claims; each may select other devices."""
_MOST_PROBED: Final = 8
"""Slices that are looked at for a message."""
_STEPS: Final = BUDGET // 6
"""Steps of one search, about 50 ms: a step of the coordinator waits for it (I12)."""

Chosen = dict[str, tuple[tuple[str, Allocation], ...]]
"""Pairs of claim and allocation, by uid of the pod."""


class NoDevices(Struct, frozen=True):
    """Why the claims of a group cannot all have devices, and on which node; empty: on whichever node."""

    message: str
    node: str = ""


class DeviceChoices:
    """Free devices, claims, and the devices that reservations have.

    Objects end with their facts. What a seat holds ends with the reservation, or if that was bound, with the pod: the
    pod may be observed bound before its claims are observed allocated (I11).
    """

    def __init__(self) -> None:
        self.claims: dict[str, Claim] = {}
        self._devices = Devices(DeviceSelection().matches, _STEPS)
        self._probe = SelectorProbe()
        self._holdings = Holdings(self._devices)
        self._bound: set[str] = set()
        self._extended: dict[str, str] = {}
        """Claims for extended resources by the uid of their pod."""
        self._by_resource: dict[str, DeviceClass] | None = None
        """Classes by extended resource; None: to be computed, because a class changed."""
        self._sharers: dict[str, dict[str, Allocation]] = {}
        """Seats for which the devices of a claim were chosen, by claim and uid: as long as they hold these."""
        self._claims_of: dict[str, tuple[str, ...]] = {}
        """The same claims by uid of the seat."""
        self._allocated: dict[str, dict[str, Claim]] = {}
        """Claims by uid of what they are allocated to (`Claim.allocated_to`), and id; each ends with its allocation."""
        self._changed_users: dict[str, None] = {}
        """Uids of the same for which allocations changed, until `take_changed_users`, which every batch calls."""
        self._group_pods: dict[str, dict[str, None]] = {}
        """Uids of pods without a node that use claims of a PodGroup, by its uid; each ends with the pod, or its node.
        """
        self._contested = False
        """Seats hold devices that a claim got, or lost what was chosen for their claim, until `take_contested`."""
        self._apply: Final[Mapping[DeviceObjectKind, Callable[[DeviceObject], None]]] = {
            DeviceObjectKind.SLICE: self._put_slice,
            DeviceObjectKind.CLASS: self._put_class,
            DeviceObjectKind.CLAIM: self._put_claim,
        }

    # -- what is seen

    def apply(self, batch: Batch) -> None:
        """Take in device objects."""
        for each in batch.device_objects:
            self._apply[each.kind](each)

    def missing(self, batch: Batch) -> tuple[DeviceObject, ...]:
        """Removals of the objects that are known and not in a snapshot."""
        there = {(each.kind, each.name) for each in batch.device_objects}
        known = [
            *((DeviceObjectKind.SLICE, name) for name in self._devices.pools.names),
            *((DeviceObjectKind.CLASS, name) for name in self._devices.classes),
            *((DeviceObjectKind.CLAIM, name) for name in self.claims),
        ]
        return tuple(DeviceObject(*key) for key in known if key not in there)

    def drop_node(self, name: str) -> None:
        self._devices.remove_node(name)

    def _put_slice(self, each: DeviceObject) -> None:
        if each.content:
            self._devices.put_slice(msgspec.json.decode(each.content, type=Slice))
        else:
            self._devices.remove_slice(each.name)

    def _put_class(self, each: DeviceObject) -> None:
        self._by_resource = None
        if each.content:
            self._devices.put_class(msgspec.json.decode(each.content, type=DeviceClass))
        else:
            self._devices.remove_class(each.name)

    def _put_claim(self, each: DeviceObject) -> None:
        before = self.claims.get(each.name)
        if before is not None and before.extended and self._extended.get(before.owner) == each.name:
            del self._extended[before.owner]
        if each.content:
            claim = self.claims[each.name] = msgspec.json.decode(each.content, type=Claim)
            if claim.extended:
                self._extended[claim.owner] = each.name
            self._holdings.hold(each.name, held([claim]))
            self._put_allocation(each.name, before, claim)
            self._contested |= self._is_contested(claim)
        elif self.claims.pop(each.name, None) is not None:
            self._holdings.hold(each.name, ())
            self._put_allocation(each.name, before, None)

    def _put_allocation(self, id_: str, before: Claim | None, after: Claim | None) -> None:
        """Note to what the claim is allocated."""
        for uid in before.allocated_to if before is not None else ():
            claims = self._allocated[uid]
            del claims[id_]
            if not claims:
                del self._allocated[uid]
            self._changed_users[uid] = None
        if after is None:
            return
        for uid in after.allocated_to:
            self._allocated.setdefault(uid, {})[id_] = after
            self._changed_users[uid] = None

    def take_changed_users(self) -> Collection[str]:
        """Uids of pods and PodGroups for which allocations of claims changed since the last call."""
        if not self._changed_users:
            return ()
        changed, self._changed_users = self._changed_users, {}
        return changed

    def put_group_pod(self, before: PodFacts | None, after: PodFacts | None) -> None:
        """A pod was added, changed or removed: note whose PodGroup's claims it uses."""
        if before is not None and before.group_uid:
            pods = self._group_pods[before.group_uid]
            pods.pop(before.uid, None)
            if not pods:
                del self._group_pods[before.group_uid]
        if after is not None and after.group_uid:
            self._group_pods.setdefault(after.group_uid, {})[after.uid] = None

    def pods_of_group(self, uid: str) -> Collection[str]:
        """Uids of pods without a node that use claims of the PodGroup."""
        return self._group_pods.get(uid, ())

    def _is_contested(self, claim: Claim) -> bool:
        """The claim was allocated otherwise than for the seats for which its devices were chosen, if any."""
        got, sharers = held([claim]), self._sharers.get(claim.id, {})
        if not got:
            return False
        chosen = next(iter(sharers.values()), None)
        if chosen is not None and got != _ids(chosen):
            return True
        own = (claim.id, claim.owner, *sharers)
        return any(
            self._holdings.holders(device) > sum(device in self._holdings.of(holder) for holder in dict.fromkeys(own))
            for device in got
        )

    def take_contested(self) -> bool:
        """Since the last call claims got devices that were chosen for other seats, or others than were chosen."""
        contested, self._contested = self._contested, False
        return contested

    @property
    def has_allocations(self) -> bool:
        """Some claims are allocated to pods or PodGroups."""
        return bool(self._allocated)

    def allocated_to(self, uids: Set[str]) -> list[Claim]:
        """Claims that are allocated to one of these pods or PodGroups."""
        found = dict[str, Claim]()
        for uid in sorted(uids & self._allocated.keys()):
            found |= {id_: self._allocated[uid][id_] for id_ in sorted(self._allocated[uid]) if id_ not in found}
        return list(found.values())

    # -- reservations

    def take(self, seat: Seat) -> None:
        """The seat's devices are chosen for it."""
        self._holdings.hold(seat.uid, _held(seat))
        claims = ((name, allocation) for name, allocation in seat.devices if name != EXTENDED_CLAIM)
        self._share(seat.uid, {f"{seat.namespace}/{name}": allocation for name, allocation in claims})

    def has_lost(self, seat: Seat) -> bool:
        """Another claim got a device of the seat, or one of its claims was allocated otherwise."""
        for name, allocation in seat.devices:
            claim = self.claims.get(self._key(seat, name))
            if claim is not None and claim.allocation is not None and held([claim]) != _ids(allocation):
                return True
        return not self.is_kept(seat)

    def is_kept(self, seat: Seat) -> bool:
        """None of the seat's devices is held for another claim, or for a pod that does not share the claim."""
        claims = [self._key(seat, name) for name, _ in seat.devices]
        own = {seat.uid, *claims, *(uid for claim in claims for uid in self._sharers.get(claim, ()))}
        return self._holds_alone(own, _held(seat))

    def _holds_alone(self, own: Set[str], devices: Iterable[DeviceId]) -> bool:
        """None of the devices is held by anybody but these holders."""
        holdings = self._holdings
        return all(holdings.holders(each) <= sum(each in holdings.of(holder) for holder in own) for each in devices)

    def taken(self, seats: Iterable[Seat]) -> set[str]:
        """Uids of seats of which another claim got a device. Seats that share all their claims are checked once."""
        kept: dict[tuple[str, ...], bool] = {}
        found = set()
        for seat in seats:
            if seat.devices:
                claims = tuple(self._key(seat, name) for name, _ in seat.devices)
                key = claims if all(claims) else (*claims, seat.uid)
                if key not in kept:
                    kept[key] = self.is_kept(seat)
                if not kept[key]:
                    found.add(seat.uid)
        return found

    def bound(self, seat: Seat) -> None:
        """The seat's pod is bound."""
        self._bound.add(seat.uid)

    def release(self, uid: str) -> None:
        """The seat is lost."""
        self._holdings.hold(uid, ())
        self._share(uid, {})

    def _share(self, uid: str, allocations: Mapping[str, Allocation]) -> None:
        """Replace the allocations, by claim, that are chosen for the seat."""
        for claim in self._claims_of.pop(uid, ()):
            sharers = self._sharers[claim]
            del sharers[uid]
            if not sharers:
                del self._sharers[claim]
        if allocations:
            self._claims_of[uid] = tuple(allocations)
        for claim, allocation in allocations.items():
            self._sharers.setdefault(claim, {})[uid] = allocation

    def end_pod(self, uid: str) -> None:
        """The pod is gone, has ended, or is not bound any more."""
        if uid in self._bound:
            self._bound.discard(uid)
            self.release(uid)

    @property
    def has_bound_pods(self) -> bool:
        """There are pods that `end_pod` matters to."""
        return bool(self._bound)

    def lacks_choice(self, seat: Seat, names: Iterable[str]) -> bool:
        """One of the pod's claims is gone, or needs devices and none are chosen for it, or the seat has devices for a
        claim that is not the pod's any more: another claim in its place may be allocated elsewhere.
        """
        names = tuple(names)
        chosen = {name for name, _ in seat.devices}
        if not chosen <= {*names, EXTENDED_CLAIM}:
            return True
        claims = ((name, self.claims.get(f"{seat.namespace}/{name}")) for name in names)
        return any(claim is None or (claim.allocation is None and name not in chosen) for name, claim in claims)

    def _key(self, seat: Seat, name: str) -> str:
        """Namespace and name of the seat's claim; of one for extended resources, once it exists."""
        return f"{seat.namespace}/{name}" if name != EXTENDED_CLAIM else self._extended.get(seat.uid, "")

    # -- extended resources

    def extended(self, node: NodeFacts, pod_class: PodClass) -> ExtendedClaim | None:
        """The claim that pods of the class need on the node for extended resources; None: none."""
        if not pod_class.extended or not node.device_backed:
            return None
        if self._by_resource is None:
            self._by_resource = classes_by_resource(self._devices.classes)
        return extended_claim(pod_class.extended, node.device_backed, self._by_resource)

    def lacks_extended(self, seat: Seat, node: NodeFacts, pod_class: PodClass) -> bool:
        """The devices chosen for extended resources are not those that the pod needs on the node now."""
        wanted, allocation = self.extended(node, pod_class), dict(seat.devices).get(EXTENDED_CLAIM)
        if wanted is None or allocation is None:
            return (wanted is None) != (allocation is None)
        return not wanted.fits([each.request for each in allocation.results])

    def extended_write(self, seat: Seat, node: NodeFacts, pod_class: PodClass) -> ExtendedClaimWrite | None:
        """The claim to create for the seat's extended resources; None: none."""
        wanted, allocation = self.extended(node, pod_class), dict(seat.devices).get(EXTENDED_CLAIM)
        if wanted is None or allocation is None:
            return None
        claim = Claim(seat.namespace, EXTENDED_CLAIM, requests=wanted.requests)
        content = allocation_json(claim, allocation, self._devices.classes)
        return ExtendedClaimWrite(wanted.spec_json(), content, wanted.mappings)

    def waits_for(self, pods: Iterable[PodFacts], group: Container[str]) -> str:
        """The claim of one of these pods, which have no seats, that is being allocated for pods outside the group, in
        words; empty: there is none. `group`: uids of its pods.
        """
        claims = (f"{pod.namespace}/{name}" for pod in pods for name in pod.device_claims)
        return next((_allocated_for_others(claim) for claim in claims if self._is_closed(claim, group)), "")

    def _is_closed(self, id_: str, group: Container[str]) -> bool:
        """Devices of the claim are chosen for seats of pods outside the group, and it is not allocated yet."""
        sharers, claim = self._sharers.get(id_), self.claims.get(id_)
        if sharers is None or claim is None or claim.allocation is not None:
            return False
        return any(uid not in group for uid in sharers)

    # -- choice

    def choose(
        self,
        seats: Iterable[Seat],
        pods: Mapping[str, PodFacts],
        nodes: Mapping[str, NodeFacts],
        classes: Mapping[str, PodClass] = MappingProxyType({}),
        group: Container[str] = (),
    ) -> Slices[Chosen | NoDevices]:
        """Devices for all claims of these seats that need some, and for their extended resources. The same for the same
        state. `classes`: of pods with extended resources. `group`: uids of all pods of the group; what was chosen for a
        seat of it is chosen for the others that share the claim. In slices, between which devices that are chosen count
        as allocated.
        """
        by_claim: dict[str, Allocation] = {}
        by_node: dict[str, list[tuple[Seat, Claim]]] = {}
        for seat in seats:
            for name in pods[seat.uid].device_claims:
                claim = self.claims.get(f"{seat.namespace}/{name}")
                if claim is None:
                    return NoDevices(f"ResourceClaim {seat.namespace}/{name} is gone", seat.node)
                if claim.owner == seat.uid and claim.is_allocated_to_owner:
                    return NoDevices(f"ResourceClaim {claim.id} has to be deallocated before")
                if self._is_closed(claim.id, group):
                    return NoDevices(_allocated_for_others(claim.id), "")
                if claim.id not in by_claim and claim.allocation is None and (sharers := self._sharers.get(claim.id)):
                    by_claim[claim.id] = first = next(iter(sharers.values()))
                    if not self._holds_alone({claim.id, *sharers}, _ids(first)):
                        return NoDevices(f"devices chosen for ResourceClaim {claim.id} are allocated to another", "")
                by_node.setdefault(seat.node, []).append((seat, claim))
            pod_class = classes.get(seat.class_id)
            extended = self.extended(nodes[seat.node], pod_class) if pod_class is not None else None
            if extended is not None:
                if extended.problem:
                    return NoDevices(f"pod {seat.namespace}/{seat.name}: {extended.problem}", seat.node)
                name = f"{EXTENDED_CLAIM} of {seat.name}"
                to_create = Claim(seat.namespace, name, requests=extended.requests, extended=True)
                by_node.setdefault(seat.node, []).append((seat, to_create))
        taken: set[DeviceId] = set()
        try:
            for node, wants in sorted(by_node.items()):
                failure = yield from self._choose_on(nodes[node], wants, by_claim, taken)
                if failure is not None:
                    return failure
                yield
        finally:
            self._devices.release_ids(taken)
        chosen: Chosen = {}
        for wants in by_node.values():
            for seat, claim in wants:
                if claim.id in by_claim:
                    chosen[seat.uid] = (*chosen.get(seat.uid, ()), (_recorded_name(claim), by_claim[claim.id]))
        return chosen

    def _choose_on(
        self, node: NodeFacts, wants: list[tuple[Seat, Claim]], chosen: dict[str, Allocation], taken: set[DeviceId]
    ) -> Slices[NoDevices | None]:
        """Add the allocations of the claims on one node, the devices of which are marked as allocated, to `chosen` and
        `taken`. Claims of pods on other nodes are there already if pods share them. In slices: a search, and what
        `Devices.evaluate` does before it.
        """
        for _, claim in wants:
            if claim.id in chosen and not usable_on(replace(claim, allocation=chosen[claim.id]), node):
                why = f"node {node.name} cannot use the devices of ResourceClaim {claim.id}, which pods share"
                return NoDevices(why, node.name)
        claims = {claim.id: (seat, claim) for seat, claim in reversed(wants) if claim.id not in chosen}
        wants = list(reversed(claims.values()))
        some = _parts(wants)
        if len(some) > 1:
            for each in some:
                failure = yield from self._choose_on(node, each, chosen, taken)
                if failure is not None:
                    return failure
                yield
            return None
        unchosen = [claim for _, claim in wants]
        yield from self._devices.evaluate(node, self._devices.selector_lists(unchosen))
        answer = self._devices.allocate(node, unchosen)
        if answer.outcome is not Outcome.FOUND:
            listed = _listed(claim for _, claim in wants)
            why = answer.reason or f"node {node.name} has no devices for {listed} together ({answer.outcome.value})"
            return NoDevices(why, node.name)
        unallocated = [claim for _, claim in wants if claim.allocation is None]
        for claim, allocation in zip(unallocated, answer.allocations, strict=True):
            chosen[claim.id] = allocation
            ids = _ids(allocation)
            taken |= ids
            self._devices.allocate_ids(ids)
        return None

    # -- explanations

    @property
    def devices(self) -> Devices:
        """Pools, classes and allocated devices; not to be changed."""
        return self._devices

    def claims_of(self, pod: PodFacts) -> list[Claim]:
        """The known claims of a pod."""
        known = (self.claims.get(f"{pod.namespace}/{name}") for name in pod.device_claims)
        return [each for each in known if each is not None]

    def held(self) -> dict[DeviceId, str]:
        """A holder of each device that is in use: a claim, or the uid of a pod."""
        return self._holdings.by_device()

    def failure(self, alternative: Alternative) -> str:
        """The error of a selector of the class or the request, if it fails for one of few devices of distinct pools."""
        device_class, pools = self._devices.classes.get(alternative.device_class), self._devices.pools
        if device_class is None:
            return ""
        newest = (slices[0].devices[:1] for key in pools.keys if (slices := pools.newest_of(key)[0]))
        return self._probe.failure((*device_class.selectors, *alternative.selectors), chain.from_iterable(newest))

    def unsupported(self, alternative: Alternative) -> tuple[DeviceId, str] | None:
        """A device that the class and the request select, and the feature because of which it is not allocated; looks
        at few devices.
        """
        device_class, pools = self._devices.classes.get(alternative.device_class), self._devices.pools
        if device_class is None or not pools.with_unsupported:
            return None
        selectors = (*device_class.selectors, *alternative.selectors)
        for name in tuple(islice(pools.with_unsupported, _MOST_PROBED)):
            slice_ = pools.slice_named(name)
            odd = [each for each in slice_.devices if each.unsupported is not None] if slice_ is not None else ()
            found = self._probe.first_match(selectors, odd)
            if slice_ is not None and found is not None and found.unsupported is not None:
                return DeviceId(slice_.driver, slice_.pool, found.name), found.unsupported
        return None

    # -- writes

    def writes(self, seat: Seat, pod: PodFacts) -> tuple[DeviceWrite, ...]:
        """Writes to the pod's claims."""
        allocations = dict(seat.devices)
        found = []
        for name in pod.device_claims:
            claim = self.claims.get(f"{seat.namespace}/{name}")
            if claim is not None:
                allocation = allocations.get(name)
                content = allocation_json(claim, allocation, self._devices.classes) if allocation is not None else b""
                group = (pod.group_name, pod.group_uid) if name in pod.group_claims else ("", "")
                found.append(DeviceWrite(name, claim.uid, content, *group))
        return tuple(found)


def _recorded_name(claim: Claim) -> str:
    """The claim's name in seats; EXTENDED_CLAIM if it is to be created."""
    return claim.name if claim.uid or not claim.extended else EXTENDED_CLAIM


def _parts(wants: list[tuple[Seat, Claim]]) -> list[list[tuple[Seat, Claim]]]:
    """Seats with all their claims, in order, in parts for one search each."""
    by_seat: dict[str, list[tuple[Seat, Claim]]] = {}
    for want in wants:
        by_seat.setdefault(want[0].uid, []).append(want)
    parts: list[list[tuple[Seat, Claim]]] = []
    depth = alternatives = 0
    for of_seat in by_seat.values():
        depth += depth_of(claim for _, claim in of_seat)
        alternatives += _alternatives(of_seat)
        together = len(parts[-1]) + len(of_seat) if parts else MOST_TOGETHER + 1
        if together <= MOST_TOGETHER and depth <= MAX_DEPTH and alternatives <= MOST_ALTERNATIVES:
            parts[-1] += of_seat
        else:
            parts.append(of_seat)
            depth, alternatives = depth_of(claim for _, claim in of_seat), _alternatives(of_seat)
    return parts


def _alternatives(wants: Iterable[tuple[Seat, Claim]]) -> int:
    return sum(len(request.alternatives) for _, claim in wants for request in claim.requests)


def still_allocated(claim: Claim) -> str:
    """A stale allocation, in words."""
    results = claim.allocation.results if claim.allocation is not None else ()
    device = f" {results[0].id}" if results else ""
    more = f" and {len(results) - 1} more" if len(results) > 1 else ""
    whose = "its pod" if claim.is_allocated_to_owner and not claim.idle else "its pods"
    return f"ResourceClaim {quoted(claim.id)} still has{device or ' devices'}{more} of an earlier placement of {whose}"


def _held(seat: Seat) -> set[DeviceId]:
    """Devices that are chosen for the seat; admin access holds none."""
    return {id_ for _, allocation in seat.devices for id_ in _ids(allocation)}


def _ids(allocation: Allocation) -> set[DeviceId]:
    return {each.id for each in allocation.results if not each.admin_access}


def _allocated_for_others(claim: str) -> str:
    return f"ResourceClaim {claim} is being allocated for other pods that share it"


def _listed(claims: Iterable[Claim]) -> str:
    names = sorted(claim.id for claim in claims)
    shown = ", ".join(names[:3])
    return f"ResourceClaims {shown}{' and others' if len(names) > 3 else ''}"
