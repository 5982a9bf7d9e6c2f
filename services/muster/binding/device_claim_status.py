"""Rules of writes to a ResourceClaim: the next write that its state needs, and the bodies of all writes.

    allocation of the claim                     step
    none, and one is to be written              PROTECT without the finalizer, then ALLOCATE; a new claim that has
                                                it needs one write only, which tests its state
    none, and none is to be written             rejected
    the one to be written, or none is           RESERVE for the pods that it is not reserved for, else DONE
    another, not reserved, or for these pods    DEALLOCATE, unless one of these pods is bound
    another, reserved for others or PodGroups   rejected

Claims are kept as the JSON that was read, so that writes keep fields that are not known here.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from muster.gangs.quoting import quoted
from muster.kube.objects import UNREADABLE
from muster.kube.timestamps import timestamp

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
"""Finalizer of allocated claims. kube-controller-manager removes it with the allocation."""

_MAX_SHOWN: Final = 3


class BadDeviceClaim(ValueError):
    """A ResourceClaim or an allocation that cannot be read."""


class ClaimRejected(Exception):
    """The pods cannot use the claim. The message says why, as the predicate of a sentence about the claim."""


class Step(Enum):
    """The next write to a claim."""

    DONE = auto()
    PROTECT = auto()
    """Add the finalizer."""
    ALLOCATE = auto()
    """Write the allocation, and reserve the claim for the pods."""
    RESERVE = auto()
    """Reserve the claim for the pods."""
    DEALLOCATE = auto()
    """Remove the allocation, all reservations and the status of the devices."""


class Device(Struct, frozen=True, order=True, gc=False):
    """A device that is allocated to a request of the claim."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""

    @property
    def name(self) -> tuple[str, str, str]:
        """Driver, pool and device."""
        return self.driver, self.pool, self.device

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


Devices = tuple[Device, ...]
"""In ascending order: the order in an allocation has no meaning."""


class WantedClaim(Struct, frozen=True):
    """A claim as a request gives it. `devices` are those of the allocation; None: without one."""

    namespace: str
    name: str
    uid: str
    allocation: Mapping[str, Raw] = {}
    devices: Devices | None = None


class Consumer(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry of status.reservedFor."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""

    def __str__(self) -> str:
        return f"pod {quoted(self.name)}" if self.resource == "pods" else quoted(f"{self.resource}/{self.name}")


class DeviceClaimState(Struct, frozen=True):
    """A claim as it was read. `devices`: None if it is not allocated."""

    uid: str
    version: str
    """metadata.resourceVersion."""
    deleting: bool
    finalizers: tuple[str, ...]
    devices: Devices | None
    consumers: tuple[Consumer, ...]
    fields: Mapping[str, Raw]
    status: Mapping[str, Raw]
    reservations: tuple[Raw, ...]
    """The consumers as JSON, in the same order."""


class _Allocated(Struct, frozen=True):
    results: list[Device] | None = None


class _Allocation(Struct, frozen=True):
    devices: _Allocated | None = None


class _Status(Struct, rename="camel", frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[Consumer] | None = None


class _Reservations(Struct, rename="camel", frozen=True):
    reserved_for: list[Raw] | None = None


class _Meta(Struct, rename="camel", frozen=True):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] | None = None


class _Claim(Struct, frozen=True):
    metadata: _Meta
    status: Raw = Raw(b"{}")


_claim: Final = msgspec.json.Decoder(_Claim)
_status: Final = msgspec.json.Decoder(_Status | None)
_reservations: Final = msgspec.json.Decoder(_Reservations | None)
_allocation: Final = msgspec.json.Decoder(_Allocation)
_object: Final = msgspec.json.Decoder(dict[str, Raw])
_object_or_null: Final = msgspec.json.Decoder(dict[str, Raw] | None)
_encode: Final = msgspec.json.Encoder().encode


def read_allocation(data: bytes) -> tuple[dict[str, Raw], Devices]:
    """The fields of an AllocationResult in JSON, and its devices. Raises BadDeviceClaim."""
    try:
        fields, devices = _object.decode(data), _devices(_allocation.decode(data))
    except UNREADABLE as error:
        raise BadDeviceClaim(f"not an AllocationResult in JSON: {error}") from error
    for each in devices:
        if not (each.request and each.driver and each.pool and each.device):
            named = f"device {quoted(str(each))} for request {quoted(each.request)}"
            raise BadDeviceClaim(f"{named}: a request, a driver, a pool and a device are required")
    return fields, devices


def read_claim(data: bytes) -> DeviceClaimState:
    """Raises BadDeviceClaim."""
    try:
        head = _claim.decode(data)
        status = _status.decode(head.status) or _Status()
        reservations = (_reservations.decode(head.status) or _Reservations()).reserved_for
        return DeviceClaimState(
            head.metadata.uid,
            head.metadata.resource_version,
            head.metadata.deletion_timestamp is not None,
            tuple(head.metadata.finalizers or ()),
            None if status.allocation is None else _devices(status.allocation),
            tuple(status.reserved_for or ()),
            _object.decode(data),
            _object_or_null.decode(head.status) or {},
            tuple(reservations or ()),
        )
    except UNREADABLE as error:
        raise BadDeviceClaim(f"cannot be read: {error}") from error


def pod_group(name: str, uid: str) -> Consumer:
    """A PodGroup that a claim is reserved for."""
    return Consumer("podgroups", name, uid, "scheduling.k8s.io")


def next_step(
    claim: DeviceClaimState, wanted: WantedClaim, users: Collection[str], groups: Collection[str] = ()
) -> Step:
    """The next write for the users with these uids; `groups`: those that are PodGroups, of which others may use the
    claim. Raises ClaimRejected.
    """
    if claim.uid != wanted.uid:
        raise ClaimRejected("was replaced by another claim of this name")
    if claim.deleting:
        raise ClaimRejected("is being deleted")
    if claim.devices is None:
        if wanted.devices is None:
            raise ClaimRejected("is not allocated, and no devices were chosen for it")
        return Step.ALLOCATE if FINALIZER in claim.finalizers else Step.PROTECT
    if wanted.devices in (None, claim.devices):
        return Step.RESERVE if unreserved(claim, users) else Step.DONE
    others = [each for each in claim.consumers if each.uid not in users or each.uid in groups]
    if not others:
        return Step.DEALLOCATE
    raise ClaimRejected(used_by(claim, others))


def used_by(claim: DeviceClaimState, consumers: Sequence[Consumer]) -> str:
    """Predicate of a claim with another allocation that these use."""
    return f"is allocated to other devices ({_listed(claim.devices or ())}) and used by {_listed(consumers)}"


def unreserved(claim: DeviceClaimState, users: Iterable[str]) -> list[str]:
    """The uids, of these, that the claim is not reserved for."""
    reserved = {each.uid for each in claim.consumers}
    return [uid for uid in users if uid not in reserved]


def protection_patch(uid: str) -> bytes:
    """Strategic merge patch that adds the finalizer, if the claim still has that uid."""
    return _encode({"metadata": {"uid": uid, "finalizers": [FINALIZER]}})


def unprotection_patch(uid: str) -> bytes:
    """Strategic merge patch that removes the finalizer, if the claim still has that uid."""
    return _encode({"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}})


def allocated_claim(claim: DeviceClaimState, wanted: WantedClaim, users: Iterable[Consumer], now: float) -> bytes:
    """The claim with the allocation, reserved for users. `now`: seconds since 1970."""
    changes = {"allocation": _written_allocation(wanted, now), "reservedFor": _reservations_for(claim, users)}
    return _with_status(claim, changes)


def first_allocation_patch(wanted: WantedClaim, users: Iterable[Consumer], now: float) -> bytes:
    """JSON patch that allocates the claim, if it has the finalizer, only that, and no status yet. `now`: as above.

    The API server tests the claim as it is when it writes. It takes a missing field for null.
    """
    expected: dict[str, Any] = {
        "/metadata/uid": wanted.uid,
        "/metadata/deletionTimestamp": None,
        "/metadata/finalizers": [FINALIZER],
        "/status": {},
    }
    patch: list[dict[str, Any]] = [{"op": "test", "path": path, "value": value} for path, value in expected.items()]
    status = {"allocation": _written_allocation(wanted, now), "reservedFor": list(users)}
    return _encode([*patch, {"op": "replace", "path": "/status", "value": status}])


def reserved_claim(claim: DeviceClaimState, users: Iterable[Consumer]) -> bytes:
    """The claim, reserved for users, too."""
    return _with_status(claim, {"reservedFor": _reservations_for(claim, users)})


def deallocated_claim(claim: DeviceClaimState) -> bytes:
    """The claim without its allocation and what depends on it."""
    return _with_status(claim, {"allocation": None, "reservedFor": None, "devices": None})


def released_claim(claim: DeviceClaimState, users: Collection[str], allocated: Devices | None) -> bytes | None:
    """The claim without the reservations for users with these uids; None if nothing changes.

    `allocated`: the devices that the call allocated; the allocation is removed with the last reservation.
    """
    remaining = [raw for each, raw in zip(claim.consumers, claim.reservations, strict=True) if each.uid not in users]
    if not remaining and allocated is not None and claim.devices == allocated:
        return deallocated_claim(claim)
    if len(remaining) == len(claim.reservations):
        return None
    return _with_status(claim, {"reservedFor": remaining})


def _with_status(claim: DeviceClaimState, change: Mapping[str, Any]) -> bytes:
    """The claim with other fields of status; None removes one."""
    status = {name: value for name, value in {**claim.status, **change}.items() if value is not None}
    return _encode({**claim.fields, "status": status})


def _written_allocation(wanted: WantedClaim, now: float) -> dict[str, Any]:
    return {"allocationTimestamp": timestamp(now), **wanted.allocation}


def _reservations_for(claim: DeviceClaimState, users: Iterable[Consumer]) -> list[Any]:
    return [*claim.reservations, *users]


def _devices(allocation: _Allocation) -> Devices:
    results = allocation.devices.results if allocation.devices is not None else None
    return tuple(sorted(results or ()))


def _listed(values: Sequence[object]) -> str:
    shown = ", ".join(str(each) for each in values[:_MAX_SHOWN])
    return f"{shown} and {len(values) - _MAX_SHOWN} more" if len(values) > _MAX_SHOWN else shown
