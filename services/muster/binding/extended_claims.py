"""The ResourceClaim for extended resources of a pod that a node offers as devices: its name, its content, and what the
pod's status says of it (KEP-5004).
"""

from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from muster.binding.device_claim_status import FINALIZER
from muster.binding.v1 import binding_pb2 as pb
from muster.devices.decoding import EXTENDED_ANNOTATION
from muster.kube.objects import UNREADABLE

_SUFFIX: Final = "-extended-resources-"
_DIGEST_BYTES: Final = 5
_MAX_NAME: Final = 253


class BadExtendedClaim(ValueError):
    """The claim of a request cannot be read."""


class _Exactly(Struct, rename="camel", frozen=True, order=True):
    device_class_name: str = ""
    allocation_mode: str = ""
    count: int = 1


class _Request(Struct, frozen=True, order=True):
    name: str
    exactly: _Exactly


class _Devices(Struct, frozen=True):
    requests: list[_Request]


class _Spec(Struct, frozen=True):
    devices: _Devices


class _Owner(Struct, frozen=True):
    uid: str = ""
    controller: bool | None = None


class _Meta(Struct, rename="camel", frozen=True):
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class Creation(Struct, frozen=True):
    """A claim to be created: its object in JSON, its spec, and the patch of its pod's status."""

    pod_namespace: str
    pod_name: str
    pod_uid: str
    body: bytes
    spec: bytes
    mappings: tuple[tuple[str, str, str], ...]

    @staticmethod
    def of(pod: pb.PodBinding) -> "Creation":
        """The claim of a pod, of a request that is validated."""
        given = pod.extended_claim
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": claim_name(pod.name, pod.uid),
                "namespace": pod.namespace,
                "annotations": {EXTENDED_ANNOTATION: "true"},
                "finalizers": [FINALIZER],
                "ownerReferences": [owner],
            },
            "spec": Raw(given.spec),
        }
        mappings = tuple((each.container, each.resource, each.request) for each in given.mappings)
        return Creation(pod.namespace, pod.name, pod.uid, msgspec.json.encode(body), given.spec, mappings)

    def is_of(self, metadata: Raw) -> bool:
        """Whether a claim with this metadata was created for the extended resources of the pod."""
        try:
            read = msgspec.json.decode(metadata, type=_Meta)
        except UNREADABLE:
            return False
        owners = [each.uid for each in read.owner_references or () if each.controller]
        return owners == [self.pod_uid] and (read.annotations or {}).get(EXTENDED_ANNOTATION) == "true"

    def has_spec(self, spec: Raw) -> bool:
        """Whether a claim with this spec has the wanted requests."""
        try:
            return sorted(_requests(spec)) == sorted(_requests(self.spec))
        except BadExtendedClaim:
            return False

    def status_patch(self, claim: str) -> bytes:
        """Merge patch of the pod's status with the name of the claim; without one the entry is removed."""
        entry: dict[str, Any] | None = None
        if claim:
            mappings = [
                {"containerName": container, "resourceName": resource, "requestName": request}
                for container, resource, request in self.mappings
            ]
            entry = {"resourceClaimName": claim, "requestMappings": mappings}
        return msgspec.json.encode(
            {"metadata": {"uid": self.pod_uid}, "status": {"extendedResourceClaimStatus": entry}}
        )


def claim_name(pod: str, uid: str) -> str:
    """Name of the claim for a pod's extended resources."""
    ending = _SUFFIX + blake2b(uid.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return pod[: _MAX_NAME - len(ending)].rstrip(".-") + ending


def check_spec(spec: bytes) -> None:
    """Raises BadExtendedClaim if it is no spec of a claim with requests for a number of devices."""
    if not _requests(spec):
        raise BadExtendedClaim("it has no requests")


def _requests(spec: bytes | Raw) -> list[_Request]:
    try:
        return msgspec.json.decode(spec, type=_Spec).devices.requests
    except UNREADABLE as error:
        raise BadExtendedClaim(f"not the spec of a ResourceClaim in JSON: {error}") from error
