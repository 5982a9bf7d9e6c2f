"""ResourceClaims that are generated from templates, for pods and for PodGroups."""

from typing import Final

import msgspec

from muster.localcluster.apiserver.devices.kinds import GROUP
from muster.localcluster.apiserver.store import Object

_POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation with the name of the claim in the pod."""
_MAX_BASE: Final = 57  # leaves 5 random characters and a hyphen of a label


def generated_claim(owning: Object, name: str, template: Object, *, kind: str = "Pod", version: str = "v1") -> Object:
    """A new claim for the entry `name` of the resourceClaims of a pod or PodGroup, which owns it."""
    metadata = owning["metadata"]
    owner = {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"]}
    described = template["spec"].get("metadata") or {}
    annotation = {_POD_CLAIM: name} if kind == "Pod" else {}
    metadata = {
        "generateName": _name_base(metadata["name"], name),
        "namespace": metadata["namespace"],
        "annotations": {**(described.get("annotations") or {}), **annotation},
        "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
    }
    if described.get("labels"):
        metadata["labels"] = dict(described["labels"])
    # Stored objects must not be modified, and defaults are set in place.
    spec = msgspec.json.decode(msgspec.json.encode(template["spec"]["spec"]))
    return {"kind": "ResourceClaim", "apiVersion": f"{GROUP}/v1", "metadata": metadata, "spec": spec}


def owning_pod(metadata: Object) -> Object | None:
    """Owner reference to the pod that a claim was generated for; None: it was not generated."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner["apiVersion"] == "v1" and owner["kind"] == "Pod":
            return owner  # type: ignore[no-any-return]
    return None


def pod_claim_of(metadata: Object) -> str | None:
    """Name of a generated claim in the resourceClaims of its pod."""
    return (metadata.get("annotations") or {}).get(_POD_CLAIM)


def _name_base(pod: str, name: str) -> str:
    """`<pod>-<name>-`; long names are shortened in proportion, so that a part of both remains."""
    length = len(pod) + len(name) + 2
    if length > _MAX_BASE:
        pod, name = (each[: len(each) * (_MAX_BASE - 2) // length].rstrip(".-") for each in (pod, name))
    return f"{pod}-{name}-"
