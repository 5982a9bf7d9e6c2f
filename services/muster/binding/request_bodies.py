"""JSON request bodies for the API server, encoded from structs because every bind sends one."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

JSON: Final = "application/json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim with its pod's node. The provisioner removes it if it cannot create the volume there."""

_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume whose claim was set by the volume controller or a scheduler, not by its creator."""

_NONE: Final[Mapping[str, str | None]] = MappingProxyType({})


class _BindingMeta(Struct, frozen=True, gc=False):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | UnsetType = UNSET


class _Target(Struct, frozen=True, gc=False):
    name: str
    apiVersion: str = "v1"  # noqa: N815
    kind: str = "Node"


class _Binding(Struct, frozen=True, gc=False):
    metadata: _BindingMeta
    target: _Target
    apiVersion: str = "v1"  # noqa: N815
    kind: str = "Binding"


_encode = msgspec.json.Encoder().encode


def binding_body(namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> bytes:
    """Binding of the pod with that uid to a node; the API server adds the annotations to the pod in the same write."""
    meta = _BindingMeta(name, namespace, uid, dict(annotations) if annotations else UNSET)
    return _encode(_Binding(meta, _Target(node)))


def selected_node_patch(uid: str, resource_version: str, node: str) -> bytes:
    """Merge patch that requests a volume for the node, if the claim still has that uid and version."""
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": {SELECTED_NODE: node}}
    return _encode({"metadata": metadata})


def claim_ref_patch(uid: str, resource_version: str, namespace: str, name: str, claim_uid: str) -> bytes:
    """Merge patch that reserves a volume for a claim, if the volume still has that uid and version."""
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name}
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": {_BOUND_BY_CONTROLLER: "yes"}}
    return _encode({"metadata": metadata, "spec": {"claimRef": {**reference, "uid": claim_uid}}})


def no_claim_ref_patch(uid: str, resource_version: str) -> bytes:
    """Merge patch that gives a volume back, if it still has that uid and version."""
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": {_BOUND_BY_CONTROLLER: None}}
    return _encode({"metadata": metadata, "spec": {"claimRef": None}})


def eviction_body(namespace: str, name: str, uid: str) -> bytes:
    """Eviction of the pod with that uid, and of no other."""
    return _encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
    )


def metadata_patch(
    uid: str, *, labels: Mapping[str, str | None] = _NONE, annotations: Mapping[str, str | None] = _NONE
) -> bytes:
    """Merge patch that sets labels and annotations, and removes those that are None, if the pod has that uid."""
    given = {"labels": labels, "annotations": annotations}
    return _encode({"metadata": {"uid": uid, **{name: dict(values) for name, values in given.items() if values}}})


def status_patch(uid: str, resource_version: str, status: Mapping[str, Any]) -> bytes:
    """Strategic merge patch of a pod's status, if the pod still has that uid and version."""
    return _encode({"metadata": {"uid": uid, "resourceVersion": resource_version}, "status": status})


def first_condition_patch(uid: str, condition: Mapping[str, Any], nominated_node: str) -> bytes:
    """JSON patch of the status of a pending pod that has no conditions and no node, and still has that uid.

    The API server tests the pod as it is when it writes. It takes a missing field for null.
    """
    patch = [*_pending_pod(uid), _test("/status/conditions", None)]
    patch.append({"op": "add", "path": "/status/conditions", "value": [condition]})
    if nominated_node:
        patch.append({"op": "add", "path": "/status/nominatedNodeName", "value": nominated_node})
    return _encode(patch)


def same_condition_patch(uid: str, condition: Mapping[str, Any], nominated_node: str) -> bytes:
    """JSON patch of reason and message of the first condition of a pending pod that has no node, and still has that
    uid. The condition has that type and status already, and the pod no nominated node unless one is written.
    """
    first = "/status/conditions/0/"
    patch = [*_pending_pod(uid), *(_test(first + name, condition[name]) for name in ("type", "status"))]
    patch += [{"op": "add", "path": first + name, "value": condition[name]} for name in ("reason", "message")]
    if nominated_node:
        patch.append({"op": "add", "path": "/status/nominatedNodeName", "value": nominated_node})
    else:
        patch.append(_test("/status/nominatedNodeName", None))
    return _encode(patch)


def _pending_pod(uid: str) -> list[dict[str, Any]]:
    return [_test("/metadata/uid", uid), _test("/spec/nodeName", None), _test("/status/phase", "Pending")]


def _test(path: str, value: str | None) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


def encode(content: Mapping[str, Any]) -> bytes:
    return _encode(content)
