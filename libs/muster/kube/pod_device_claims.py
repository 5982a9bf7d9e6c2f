"""The ResourceClaims that a pod uses: those that it names, and those that were created for it from templates."""

from typing import Annotated, Final

from msgspec import Meta, Raw, Struct

from muster.gangs.quoting import quoted
from muster.kube.objects import NOTHING, decode_field

MAX_CLAIMS: Final = 256
"""ResourceClaims of one pod; the API server accepts no more."""

_NO_LIST: Final = (b"", b"null", b"[]")


class DeviceClaimOfPod(Struct, frozen=True, gc=False):
    """A ResourceClaim of a pod. `name` empty: it is not created from its template yet; one that is must be the pod's.

    `reference` is the name by which containers refer to it; `group`: uid of the pod's PodGroup, if it is that one's.
    """

    reference: str
    name: str = ""
    template: str = ""
    group: str = ""


class _Reference(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Created(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None


_References = Annotated[list[_Reference], Meta(max_length=MAX_CLAIMS)]
_CreatedClaims = Annotated[list[_Created], Meta(max_length=MAX_CLAIMS)]


def has_device_claims(references: Raw) -> bool:
    """Whether a pod's spec.resourceClaims has entries; if not, they need not be decoded."""
    return references is not NOTHING and bytes(references) not in _NO_LIST


def device_claims_of(references: Raw, statuses: Raw, problems: list[str]) -> tuple[DeviceClaimOfPod, ...]:
    """Claims in the raw JSON of spec.resourceClaims and status.resourceClaimStatuses, in the order of the former.

    An entry of a template of which the status says that no claim is needed is left out, as kube-scheduler does.
    Malformed lists are added to `problems`.
    """
    if not has_device_claims(references):
        return ()
    listed = decode_field(bytes(references), _References, "resourceClaims", problems) or []
    created_list = decode_field(bytes(statuses), _CreatedClaims, "status.resourceClaimStatuses", problems) or []
    created = {each.name: each.resource_claim_name for each in created_list}
    found: dict[str, DeviceClaimOfPod] = {}
    for each in listed:
        if each.resource_claim_name:
            found[each.name] = DeviceClaimOfPod(each.name, each.resource_claim_name)
        elif not each.resource_claim_template_name:
            problems.append(f"resourceClaims {quoted(each.name)} has neither resourceClaimName nor template")
        elif each.name not in created:
            found[each.name] = DeviceClaimOfPod(each.name, "", each.resource_claim_template_name)
        elif name := created[each.name]:
            found[each.name] = DeviceClaimOfPod(each.name, name, each.resource_claim_template_name)
    return tuple(found.values())
