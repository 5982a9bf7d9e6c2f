"""JSON of claims, volumes and storage classes, and of pods that use claims."""

from typing import Any

Object = dict[str, Any]

WAITING = "WaitForFirstConsumer"
ZONE = "topology.kubernetes.io/zone"


def claim_object(
    name: str,
    *,
    volume: str = "",
    bound: bool | None = None,
    storage_class: str | None = "fast",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    annotations: dict[str, str] | None = None,
    namespace: str = "ml",
    uid: str = "",
    owner: str = "",
    deleting: bool = False,
    phase: str = "",
) -> Object:
    """A claim; bound if `volume` is given."""
    is_bound = bool(volume) if bound is None else bound
    shown = {**(annotations or {}), **({"pv.kubernetes.io/bind-completed": "yes"} if is_bound else {})}
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-claim-{namespace}-{name}",
        "annotations": shown,
    }
    if owner:
        metadata["ownerReferences"] = [
            {"uid": owner, "controller": True, "apiVersion": "v1", "kind": "Pod", "name": "pod"}
        ]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec: Object = {"accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if volume:
        spec["volumeName"] = volume
    return {
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase or ("Bound" if is_bound else "Pending")},
    }


def csi_node_object(name: str, uid: str = "", /, **limits: int | None) -> Object:
    """A CSINode with limits by driver; None: a driver without a limit."""
    drivers = [
        {"name": driver, "nodeID": name, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in limits.items()
    ]
    return {"metadata": {"name": name, "uid": uid or f"uid-csi-{name}"}, "spec": {"drivers": drivers}}


def volume_object(
    name: str,
    *terms: Object,
    uid: str = "",
    labels: dict[str, str] | None = None,
    driver: str = "",
    handle: str = "",
) -> Object:
    """A volume, usable on nodes that match one of the terms, or on all nodes."""
    spec: Object = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": handle or name}
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    return {"metadata": {"name": name, "uid": uid or f"uid-volume-{name}", "labels": labels or {}}, "spec": spec}


def zone_term(*zones: str) -> Object:
    """A term for nodes in these zones."""
    return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}


def class_object(
    name: str = "fast",
    *,
    mode: str | None = WAITING,
    provisioner: str = "disk.example.com",
    topologies: Any = None,
    uid: str = "",
) -> Object:
    """A storage class; by default WaitForFirstConsumer."""
    made: Object = {"metadata": {"name": name, "uid": uid or f"uid-class-{name}"}, "provisioner": provisioner}
    if mode is not None:
        made["volumeBindingMode"] = mode
    if topologies is not None:
        made["allowedTopologies"] = topologies
    return made


def in_zones(*zones: str) -> list[Object]:
    """allowedTopologies of a storage class."""
    return [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}]


def using(*claims: str, ephemeral: tuple[str, ...] = ()) -> list[Object]:
    """spec.volumes of a pod with these claims and ephemeral volumes."""
    return [
        {"name": "token", "projected": {"sources": []}},
        *(
            {"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": each}}
            for number, each in enumerate(claims)
        ),
        *({"name": each, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for each in ephemeral),
    ]
