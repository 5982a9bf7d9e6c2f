"""Initial objects of a cluster: namespaces, system priority classes, default roles."""

import uuid

from muster.localcluster.apiserver.access.defaults import default_roles
from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.store import Object

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def bootstrap(cluster: Cluster) -> None:
    """Create missing objects."""
    for name in _NAMESPACES:
        namespace = _new("v1", "Namespace", name)
        namespace["metadata"]["labels"] = {"kubernetes.io/metadata.name": name}
        namespace |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        _put(cluster, namespace)
        account = _new("v1", "ServiceAccount", "default")
        account["metadata"]["namespace"] = name
        _put(cluster, account)
    for name, value in _PRIORITIES.items():
        of_system = _new("scheduling.k8s.io/v1", "PriorityClass", name)
        description = f"Used for system critical pods ({name.removeprefix('system-')})."
        of_system |= {"value": value, "preemptionPolicy": "PreemptLowerPriority", "description": description}
        _put(cluster, of_system)
    for role in default_roles():
        role["metadata"] |= _identity()
        _put(cluster, role)


def _new(api_version: str, kind: str, name: str) -> Object:
    return {"kind": kind, "apiVersion": api_version, "metadata": {"name": name, **_identity()}}


def _identity() -> Object:
    return {"uid": str(uuid.uuid4()), "creationTimestamp": now_text()}


def _put(cluster: Cluster, obj: Object) -> None:
    kind = cluster.kinds.named(obj["apiVersion"], obj["kind"])
    assert kind is not None
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    key = f"{namespace}/{metadata['name']}" if namespace else metadata["name"]
    if cluster.store.get(kind.collection, key) is None:
        cluster.store.put(kind.collection, key, obj)
