"""JSON of ResourceSlices, DeviceClasses, ResourceClaims and DeviceTaintRules, and of pods that use claims."""

from typing import Any

Object = dict[str, Any]

DRIVER = "gpu.example.com"
NETWORK = "network"
"""Pool of devices that all nodes share."""


def device_object(name: str, **more: Any) -> Object:
    """A GPU as a driver publishes it; `memory` in Gi, `taint`: the key of one, further attributes by name."""
    memory, taint = more.pop("memory", 40), more.pop("taint", "")
    attributes: Object = {"type": {"string": "gpu"}}
    for key, value in more.items():
        attributes[key] = {{bool: "bool", int: "int"}.get(type(value), "string"): value}
    found: Object = {"name": name, "attributes": attributes, "capacity": {"memory": {"value": f"{memory}Gi"}}}
    if taint:
        found["taints"] = [{"key": taint, "effect": "NoSchedule"}]
    return found


def slice_object(
    name: str,
    devices: int | list[Object],
    *,
    node: str = "",
    pool: str = "",
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> Object:
    """A ResourceSlice; `devices`: their number, or the devices; of node `name` unless another selection is given."""
    listed = [device_object(f"gpu-{i}") for i in range(devices)] if isinstance(devices, int) else devices
    where = {} if "nodeSelector" in spec or "allNodes" in spec else {"nodeName": node or name}
    return {
        "metadata": {"name": name, "uid": f"uid-slice-{name}"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool or node or name, "generation": generation, "resourceSliceCount": count},
            "devices": listed,
            **where,
            **spec,
        },
    }


def device_class_object(name: str = "gpu", *expressions: str, **spec: Any) -> Object:
    """A DeviceClass of all GPUs, or with these expressions."""
    selectors = expressions or (f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'",)
    return {
        "metadata": {"name": name, "uid": f"uid-class-{name}"},
        "spec": {"selectors": [{"cel": {"expression": each}} for each in selectors], **spec},
    }


def taint_rule_object(name: str, selector: Object | None, *, effect: str = "NoSchedule", key: str = "") -> Object:
    """A DeviceTaintRule with its name as the key of the taint, or `key`; `selector`: spec.deviceSelector."""
    spec: Object = {"taint": {"key": key or name, "effect": effect}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return {"metadata": {"name": name, "uid": f"uid-rule-{name}"}, "spec": spec}


def exactly(count: int = 1, *expressions: str, device_class: str = "gpu", **more: Any) -> Object:
    """A request for devices; `expressions`: its own selectors."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": device_class, "count": count, "selectors": selectors, **more}


def resource_claim_object(
    name: str,
    *requests: Object,
    namespace: str = "ml",
    owner: str = "",
    on: str = "",
    devices: tuple[str, ...] = (),
    users: tuple[str, ...] = (),
    deleting: bool = False,
    uid: str = "",
    extended: bool = False,
    **spec: Any,
) -> Object:
    """A ResourceClaim; `requests`: as of `exactly`, one by default; `devices`: those allocated, of the pool of node
    `on`, or of pool "network", which all nodes share; `users`: uids of pods that it is reserved for.
    """
    metadata: Object = {"name": name, "namespace": namespace, "uid": uid or f"uid-claim-{namespace}-{name}"}
    if extended:
        metadata["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    if owner:
        metadata["ownerReferences"] = [
            {"uid": owner, "controller": True, "apiVersion": "v1", "kind": "Pod", "name": "x"}
        ]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    listed = [{"name": f"r{i}", "exactly": each} for i, each in enumerate(requests or (exactly(),))]
    status: Object = {}
    if devices:
        results = [{"request": "r0", "driver": DRIVER, "pool": on, "device": each} for each in devices]
        here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}]
        where = {} if on == NETWORK else {"nodeSelector": {"nodeSelectorTerms": here}}
        status["allocation"] = {"devices": {"results": results}, **where}
    if users:
        status["reservedFor"] = [{"resource": "pods", "name": each, "uid": each} for each in users]
    return {"metadata": metadata, "spec": {"devices": {"requests": listed, **spec}}, "status": status}


def using_claims(*names: str, template: str = "") -> list[Object]:
    """spec.resourceClaims of a pod; with `template` they are created from that."""
    key, value = ("resourceClaimTemplateName", template) if template else ("resourceClaimName", "")
    return [{"name": name, key: value or name} for name in names]
