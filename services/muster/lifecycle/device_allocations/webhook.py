"""The validating admission webhook for devices: reviews of updates of the status of ResourceClaims."""

from typing import Final

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.quoting import quoted
from muster.kube.allocated_devices import allocated_devices
from muster.kube.objects import NOTHING, BadObject, ObjectMeta
from muster.lifecycle.admission_server import AdmissionRequest, AdmissionServer, CannotDecide, Decision
from muster.lifecycle.device_allocations.admission import DeviceAdmission
from muster.lifecycle.device_allocations.ledger import Allocation
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.metrics import DEVICE_REVIEW_SECONDS
from muster.rpc.https import ReloadedTls

PATH: Final = "/devices"

_MAX_DIGITS: Final = 18  # each such number fits into 64 bits
_SUBJECT: Final = ("resource.k8s.io", "resourceclaims")


class _Claim(Struct, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: Raw = NOTHING


_claim: Final = msgspec.json.Decoder(_Claim)


def device_webhook(
    address: str, tls: ReloadedTls, admission: DeviceAdmission, informers: SharedInformers
) -> AdmissionServer:
    """The server of the webhook. Ready once the informers have synced."""

    async def decide(request: AdmissionRequest) -> Decision:
        allocation = _allocation(request)
        if allocation is None:
            return Decision()
        if not informers.synced.is_set():
            raise CannotDecide("informers have not synced yet: try again")
        return await admission.review(allocation)

    ready, seconds = informers.synced.is_set, DEVICE_REVIEW_SECONDS
    return AdmissionServer("device", address, PATH, tls, decide, is_ready=ready, seconds=seconds)


def _allocation(request: AdmissionRequest) -> Allocation | None:
    """The allocation that the update makes; None: the claim gets no device that it did not have. Raises BadObject and
    what UNREADABLE has.
    """
    resource = (request.resource.group, request.resource.resource)
    if resource != _SUBJECT or request.sub_resource != "status" or request.operation != "UPDATE":
        return None
    before, after = _claim.decode(request.old_object), _claim.decode(request.object)
    devices = allocated_devices(after.status).own
    if devices <= allocated_devices(before.status).own:
        return None
    metadata = before.metadata
    if not metadata.resource_version.isdecimal() or len(metadata.resource_version) > _MAX_DIGITS:
        raise BadObject(f"the old object has no number as resourceVersion: {quoted(metadata.resource_version)}")
    name = f"{request.namespace or metadata.namespace}/{metadata.name or request.name}"
    revision, ordered = int(metadata.resource_version), tuple(sorted(devices))
    return Allocation(metadata.uid, name, revision, ordered, dry_run=request.dry_run)
