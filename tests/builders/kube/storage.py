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
    size: str = "1Gi",
    selector: Object | None = None,
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
    spec: Object = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}}
    if selector is not None:
        spec["selector"] = selector
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
    size: str = "1Gi",
    modes: tuple[str, ...] = ("ReadWriteOnce",),
    storage_class: str = "",
    phase: str = "",
    claim: str = "",
) -> Object:
    """A volume, usable on nodes that match one of the terms, or on all nodes. `claim`: "namespace/name" or
    "namespace/name/uid" of its claim.
    """
    spec: Object = {"capacity": {"storage": size}, "accessModes": list(modes), "storageClassName": storage_class}
    if claim:
        names = dict(zip(("namespace", "name", "uid"), claim.split("/"), strict=False))
        spec["claimRef"] = {"kind": "PersistentVolumeClaim", **names}
    if driver:
        spec["csi"] = {"driver": driver, "volumeHandle": handle or name}
    if terms:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(terms)}}
    return {
        "metadata": {"name": name, "uid": uid or f"uid-volume-{name}", "labels": labels or {}},
        "spec": spec,
        "status": {"phase": phase or ("Bound" if claim else "Available")},
    }


def local_volume(name: str, node: str, size: str = "1Gi", **more: Any) -> Object:
    """A volume of the class "local" on a node."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return volume_object(name, term, size=size, storage_class="local", **more)


def local_class() -> Object:
    """The class of these volumes."""
    return class_object("local", provisioner="kubernetes.io/no-provisioner")


def driver_object(name: str = "disk.example.com", *, publishes: bool = True) -> Object:
    """A CSIDriver."""
    return {"metadata": {"name": name, "uid": f"uid-driver-{name}"}, "spec": {"storageCapacity": publishes}}


def segment_object(
    name: str,
    topology: Object | None,
    capacity: str | None,
    *,
    storage_class: str = "fast",
    largest: str | None = None,
    namespace: str = "storage",
) -> Object:
    """A CSIStorageCapacity."""
    made: Object = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-segment-{name}"},
        "storageClassName": storage_class,
    }
    given = {"nodeTopology": topology, "capacity": capacity, "maximumVolumeSize": largest}
    return {**made, **{key: value for key, value in given.items() if value is not None}}


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
