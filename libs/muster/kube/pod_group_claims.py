"""The ResourceClaims of PodGroups (scheduling.k8s.io): those that they name, and those created for them from templates.

A pod of the group uses such a claim if an entry of its spec.resourceClaims equals that of the PodGroup.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from muster.kube.objects import NOTHING, UNREADABLE, PodGroup
from muster.kube.pod_device_claims import DeviceClaimOfPod

MAX_GROUP_CLAIMS: Final = 4
"""Claims of one PodGroup; the API server accepts no more."""


class GroupClaims(Struct, frozen=True, gc=False):
    """A PodGroup with its claims. Names of those that are not created yet are empty."""

    uid: str
    namespace: str
    name: str
    claims: tuple[DeviceClaimOfPod, ...]

    def claim_of(self, of_pod: DeviceClaimOfPod) -> DeviceClaimOfPod | None:
        """The claim that an entry of a pod means; None: it is the pod's own."""
        for each in self.claims:
            named = each.name if not each.template else ""
            own = of_pod.name if not of_pod.template else ""
            if (each.reference, each.template, named) == (of_pod.reference, of_pod.template, own):
                return each
        return None


class _Entry(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    resource_claims: Annotated[list[_Entry], Meta(max_length=MAX_GROUP_CLAIMS)] | None = None


class _Status(Struct, frozen=True, rename="camel"):
    resource_claim_statuses: list[_Entry] | None = None


_spec: Final = msgspec.json.Decoder(_Spec | None)
_status: Final = msgspec.json.Decoder(_Status | None)


def group_claims(group: PodGroup) -> GroupClaims | None:
    """The claims of a PodGroup; None: it has none. Those of a malformed list are claims of pods, which then wait for
    the claims of their own that nobody creates.
    """
    if group.spec is NOTHING or b"resourceClaims" not in bytes(group.spec):
        return None
    try:
        listed = (_spec.decode(group.spec) or _Spec()).resource_claims or ()
        statuses = (_status.decode(group.status) if group.status is not NOTHING else None) or _Status()
    except UNREADABLE:
        return None
    created = {each.name: each.resource_claim_name or "" for each in statuses.resource_claim_statuses or ()}
    claims = tuple(
        DeviceClaimOfPod(
            each.name,
            each.resource_claim_name or created.get(each.name, ""),
            "" if each.resource_claim_name else each.resource_claim_template_name or "",
        )
        for each in listed
    )
    metadata = group.metadata
    return GroupClaims(metadata.uid, metadata.namespace, metadata.name, claims) if claims else None
