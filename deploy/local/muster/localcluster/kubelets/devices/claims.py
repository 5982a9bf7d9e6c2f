"""ResourceClaims as kubelets read them, and the claims that a pod uses."""

from typing import Any, Final

import msgspec
from msgspec import Struct, field

from muster.kube.api_resources import ApiResource
from muster.kube.objects import NOTHING, BadObject, Encoded, ObjectMeta
from muster.localcluster.kubelets.pod_types import RunPod

_POD_GROUPS: Final = ("scheduling.k8s.io", "podgroups")


class Result(Struct, rename="camel", frozen=True):
    """An allocated device."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class _Results(Struct, frozen=True):
    results: list[Result] | None = None


class _Allocation(Struct, frozen=True):
    devices: _Results = field(default_factory=_Results)


class _Consumer(Struct, rename="camel", frozen=True):
    uid: str = ""
    name: str = ""
    resource: str = ""
    api_group: str = ""


class _Status(Struct, rename="camel", frozen=True):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class ResourceClaim(Struct, frozen=True):
    """A ResourceClaim."""

    metadata: ObjectMeta
    status: _Status = field(default_factory=_Status)

    @property
    def key(self) -> str:
        """Namespace and name, with a slash."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def results(self) -> list[Result]:
        """Allocated devices; none if it is not allocated."""
        allocation = self.status.allocation
        return (allocation.devices.results if allocation is not None else None) or []

    def is_reserved_for(self, uid: str, group: str = "") -> bool:
        """Whether it is reserved for the pod with this uid or, if one is given, for the PodGroup of this name."""
        users = self.status.reserved_for or ()
        if group:
            return any((each.api_group, each.resource, each.name) == (*_POD_GROUPS, group) for each in users)
        return any(each.uid == uid for each in users)


class UsedClaim(Struct, frozen=True):
    """An entry of a pod's resourceClaims. `claim`: name of the ResourceClaim; None: not created yet, "": not needed."""

    name: str
    claim: str | None
    generated: bool


class _Entry(Struct, rename="camel", frozen=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _ExtendedStatus(Struct, rename="camel", frozen=True):
    resource_claim_name: str


_EXTENDED: Final = "extended resources"
_claim: Final = msgspec.json.Decoder(ResourceClaim)
_extended: Final = msgspec.json.Decoder(_ExtendedStatus | None)
_entries: Final = msgspec.json.Decoder(list[_Entry] | None)


def decode_resource_claim(data: Encoded) -> ResourceClaim:
    """Raises BadObject."""
    try:
        return _claim.decode(data)
    except msgspec.DecodeError as error:
        raise BadObject(f"not a ResourceClaim: {error}") from error


def used_claims(pod: RunPod) -> list[UsedClaim]:
    """Claims that the pod uses: one for extended resources, others in the order of its spec. Raises msgspec.DecodeError
    for fields of wrong types.
    """
    extended = pod.status.extended_resource_claim_status
    entry = _extended.decode(extended) if extended is not NOTHING else None
    claims = [UsedClaim(_EXTENDED, entry.resource_claim_name, True)] if entry is not None else []
    if pod.spec.resource_claims is NOTHING:
        return claims
    raw = pod.status.resource_claim_statuses
    statuses = (_entries.decode(raw) if raw is not NOTHING else None) or ()
    generated = {each.name: each.resource_claim_name or "" for each in statuses}
    return claims + [
        UsedClaim(each.name, each.resource_claim_name or generated.get(each.name), each.resource_claim_name is None)
        for each in _entries.decode(pod.spec.resource_claims) or ()
    ]


RESOURCE_CLAIMS: Final[ApiResource[Any]] = ApiResource(
    "resourceclaims.resource.k8s.io",
    "/apis/resource.k8s.io/v1/resourceclaims",
    ResourceClaim,
    decode_resource_claim,
    optional=True,
    dispensable=True,
)
