"""DeviceClasses and claim templates of a world, and the devices that pods have."""

from typing import Any

from builders.e2e.world import World
from builders.gangs.manifests import Workload
from muster.localcluster.kubelets.devices.cards import DRIVER

API = "resource.k8s.io/v1"


async def with_claims(world: World, workload: Workload, *requests: dict[str, Any], **devices: Any) -> Workload:
    """The workload, whose pods have a claim each, from a template that is created. `devices`: further fields of
    spec.devices.
    """
    workload = world.here(workload)
    await world.cluster.apply(*_objects(world, workload, requests, devices))
    reference = {"name": "devices", "resourceClaimTemplateName": workload.name}
    return workload.with_spec(resourceClaims=[reference])


async def with_named_claim(world: World, workload: Workload, *requests: dict[str, Any]) -> Workload:
    """The workload, whose pods use one claim, which is created with its name."""
    workload = world.here(workload)
    device_class, namespace, template = _objects(world, workload, requests, {})
    claim = {**template, "kind": "ResourceClaim", "spec": template["spec"]["spec"]}
    await world.cluster.apply(device_class, namespace, claim)
    return workload.with_spec(resourceClaims=[{"name": "devices", "resourceClaimName": workload.name}])


async def with_extended_resource(world: World, workload: Workload, count: int) -> Workload:
    """The workload, whose pods request so many of an extended resource that the DeviceClass of this world backs."""
    workload, resource = world.here(workload), f"{world.name}.example.com/gpu"
    device_class, namespace, _ = _objects(world, workload, (), {})
    device_class["spec"]["extendedResourceName"] = resource
    await world.cluster.apply(device_class, namespace)
    return workload.asking_each({"cpu": "1", resource: count})


def gpus(world: World, count: int = 1, *expressions: str, **more: Any) -> dict[str, Any]:
    """A request for so many GPUs that all expressions select."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": class_of(world), "count": count, "selectors": selectors, **more}


def class_of(world: World) -> str:
    """The DeviceClass of all GPUs of the nodes of this world."""
    return f"gpu.{world.name}"


def _objects(
    world: World, workload: Workload, requests: tuple[dict[str, Any], ...], devices: dict[str, Any]
) -> list[dict[str, Any]]:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    listed = [{"name": f"r{number}", "exactly": each} for number, each in enumerate(requests)]
    return [
        {
            "apiVersion": API,
            "kind": "DeviceClass",
            "metadata": {"name": class_of(world)},
            "spec": {"selectors": [{"cel": {"expression": expression}}]},
        },
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.namespace}},
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "spec": {"spec": {"devices": {"requests": listed, **devices}}},
        },
    ]


async def claims_of(world: World, workload: Workload) -> list[dict[str, Any]]:
    """The claims in the namespace of the workload."""
    namespace = world.here(workload).namespace
    answer = await world.cluster.call("GET", f"/apis/{API}/namespaces/{namespace}/resourceclaims")
    return list(answer["items"])


async def devices_of(world: World, workload: Workload) -> dict[str, list[str]]:
    """Names of the allocated devices, as "pool/device", by pod that the claim is reserved for."""
    found: dict[str, list[str]] = {}
    for claim in await claims_of(world, workload):
        status = claim.get("status") or {}
        results = (status.get("allocation") or {"devices": {"results": []}})["devices"]["results"]
        for user in status.get("reservedFor") or ():
            found.setdefault(user["name"], []).extend(f"{each['pool']}/{each['device']}" for each in results)
    return found
