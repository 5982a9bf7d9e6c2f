"""JSON of Kubernetes objects, as sent by an API server."""

import json
from collections.abc import Mapping
from typing import Any

from muster.kube.objects import Node, Pod, decode_node, decode_pod

Fields = Mapping[str, Any]


def container(name: str = "main", requests: Any = None, **more: Any) -> dict[str, Any]:
    """A container; `requests` go to resources.requests."""
    resources = {} if requests is None else {"resources": {"requests": requests}}
    return {"name": name, "image": "registry.example.com/work:1", **resources, **more}


def sidecar(name: str, requests: Any, **more: Any) -> dict[str, Any]:
    """A restartable init container (a sidecar)."""
    return container(name, requests, restartPolicy="Always", **more)


def container_status(name: str = "main", allocated: Any = None, actual: Any = None) -> dict[str, Any]:
    """A container's status; `actual` goes to resources.requests."""
    status: dict[str, Any] = {"name": name, "ready": True}
    if allocated is not None:
        status["allocatedResources"] = allocated
    if actual is not None:
        status["resources"] = {"requests": actual}
    return status


def pod_json(
    name: str = "pod-0", spec: Fields | None = None, metadata: Fields | None = None, status: Fields | None = None
) -> bytes:
    """A pending pod of Muster's scheduler that requests one cpu, with overrides."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-of-{name}",
                "resourceVersion": "17",
                "creationTimestamp": "2026-01-31T12:00:00Z",
                **(metadata or {}),
            },
            "spec": {"schedulerName": "muster", "containers": [container(requests={"cpu": "1"})], **(spec or {})},
            "status": {"phase": "Pending", **(status or {})},
        },
        separators=(",", ":"),
    ).encode()


def pod(
    name: str = "pod-0", spec: Fields | None = None, metadata: Fields | None = None, status: Fields | None = None
) -> Pod:
    """pod_json, decoded."""
    return decode_pod(pod_json(name, spec, metadata, status))


def node_json(
    name: str = "node-0", spec: Fields | None = None, metadata: Fields | None = None, status: Fields | None = None
) -> bytes:
    """A ready node, with overrides."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": f"uid-of-{name}", "resourceVersion": "5", **(metadata or {})},
            "spec": spec or {},
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
                **(status or {}),
            },
        }
    ).encode()


def node(
    name: str = "node-0", spec: Fields | None = None, metadata: Fields | None = None, status: Fields | None = None
) -> Node:
    """node_json, decoded."""
    return decode_node(node_json(name, spec, metadata, status))
