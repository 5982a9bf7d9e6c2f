"""Objects of resource.k8s.io/v1 for tests: classes, claims, templates, slices and allocations."""

from typing import Any

GROUP = "/apis/resource.k8s.io/v1"
CLASSES = f"{GROUP}/deviceclasses"
SLICES = f"{GROUP}/resourceslices"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = "gpu.example.com"


def request(name: str = "gpu", device_class: str = DRIVER, **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def spec_of(*requests: Any, **devices: Any) -> dict[str, Any]:
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def claim(name: str, *requests: Any, **devices: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec_of(*requests, **devices)}


def template(name: str, *requests: Any, metadata: Any = None, **devices: Any) -> dict[str, Any]:
    described = {} if metadata is None else {"metadata": metadata}
    return {"metadata": {"name": name}, "spec": {**described, "spec": spec_of(*requests, **devices)}}


def allocation(*devices: str, node: str = "n1", request: str = "gpu", driver: str = DRIVER) -> dict[str, Any]:
    """An allocation of devices of the node's pool."""
    results = [{"request": request, "driver": driver, "pool": node, "device": device} for device in devices]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    }


def reserved_for(*pods: Any) -> list[dict[str, str]]:
    """Entries of status.reservedFor for pods as the API returns them."""
    return [{"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in pods]


def slice_of(name: str, *devices: Any, node: str = "n1", **spec: Any) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": name},
        "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(devices), **spec},
    }
