"""What is sent to the API server: paths and JSON, made for speed because there is one per pod."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct, UnsetType

STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"
MERGE: Final = "application/merge-patch+json"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: where its pod goes. Whoever makes the volume takes it off if that cannot be done there."""

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


def pod_path(namespace: str, name: str) -> str:
    """Of a pod. Names that are no names stay within their part of the path."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def binding(namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> bytes:
    """Puts the pod with that uid on a node; the annotations are added to the pod in the same write."""
    meta = _BindingMeta(name, namespace, uid, dict(annotations) if annotations else UNSET)
    return _encode(_Binding(meta, _Target(node)))


def claim_path(namespace: str, name: str) -> str:
    """Of a PersistentVolumeClaim."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/persistentvolumeclaims/{quote(name, safe='')}"


def selected_node_patch(uid: str, resource_version: str, node: str) -> bytes:
    """Asks for a volume that can be used on the node, unless the claim is another or has changed since that version. A
    merge patch.
    """
    metadata = {"uid": uid, "resourceVersion": resource_version, "annotations": {SELECTED_NODE: node}}
    return _encode({"metadata": metadata})


def eviction(namespace: str, name: str, uid: str) -> bytes:
    """Evicts the pod with that uid, and no other."""
    return _encode(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
    )


def marks_patch(
    uid: str, *, labels: Mapping[str, str | None] = _NONE, annotations: Mapping[str, str | None] = _NONE
) -> bytes:
    """Sets labels and annotations, and removes those that are None, unless the pod is another. A merge patch."""
    given = {"labels": labels, "annotations": annotations}
    return _encode({"metadata": {"uid": uid, **{name: dict(marks) for name, marks in given.items() if marks}}})


def condition_patch(uid: str, resource_version: str, condition: Mapping[str, Any]) -> bytes:
    """Sets one condition, unless the pod is another or has changed since that version. A strategic merge patch."""
    return _encode(
        {"metadata": {"uid": uid, "resourceVersion": resource_version}, "status": {"conditions": [condition]}}
    )


def volume_path(name: str) -> str:
    """Of a PersistentVolume."""
    return f"/api/v1/persistentvolumes/{quote(name, safe='')}"


def node_path(name: str) -> str:
    """Of a node."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def events_path(namespace: str, name: str = "") -> str:
    """Of a namespace's events, or of one of them."""
    path = f"/apis/events.k8s.io/v1/namespaces/{quote(namespace, safe='')}/events"
    return f"{path}/{quote(name, safe='')}" if name else path


def encode(content: Mapping[str, Any]) -> bytes:
    """Any JSON object."""
    return _encode(content)


def timestamp(unix_seconds: float) -> str:
    """metav1.Time: whole seconds."""
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(unix_seconds: float) -> str:
    """metav1.MicroTime: exactly six digits after the point."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
