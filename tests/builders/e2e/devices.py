"""DeviceClasses and claim templates of a world, and the devices that pods have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import eventually
from muster.localcluster.kubelets.devices.cards import DRIVER

API = "resource.k8s.io/v1"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
CLAIMS_FOR_TRIAL: Final = 65
"""Claims among which binding allocates at least one without adding the finalizer first. If it had the finalizer, new
claims are taken to have it, too.
"""
_TAINT_RULE_VERSIONS = ("v1", "v1beta2")
"""Versions of DeviceTaintRules, the newest first; API servers serve beta versions on request only."""


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


async def undefine_claims(world: World, workload: Workload) -> None:
    """Delete the template, or the named claim, of a workload."""
    namespace = world.here(workload).namespace
    for kind in ("resourceclaimtemplates", "resourceclaims"):
        await world.cluster.try_call("DELETE", f"/apis/{API}/namespaces/{namespace}/{kind}/{workload.name}")


def gpus(world: World, count: int = 1, *expressions: str, **more: Any) -> dict[str, Any]:
    """A request for so many GPUs that all expressions select."""
    return request(class_of(world), count, *expressions, **more)


def request(device_class: str, count: int = 1, *expressions: str, **more: Any) -> dict[str, Any]:
    """A request for so many devices of a class that all expressions select."""
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"deviceClassName": device_class, "count": count, "selectors": selectors, **more}


def first_of(*requests: dict[str, Any]) -> dict[str, Any]:
    """A request for the first of these, which are named "s0", "s1" ..."""
    return {"firstAvailable": [{"name": f"s{number}", **each} for number, each in enumerate(requests)]}


async def device_class(world: World, name: str, expression: str) -> str:
    """Create a DeviceClass of this world; returns its full name."""
    full_name = f"{name}.{world.name}"
    await world.cluster.apply(_class(full_name, expression))
    return full_name


async def publish(
    world: World,
    pool: str,
    *devices: dict[str, Any],
    owner: str,
    driver: str = DRIVER,
    generation: int = 1,
    number: int = 0,
    count: int = 1,
    **spec: Any,
) -> str:
    """Publish slice `number` of a pool as a driver does; for the node `owner` unless `spec` selects nodes otherwise,
    and deleted with it. Returns the name of the slice.
    """
    where = {} if spec.keys() & {"nodeSelector", "allNodes", "perDeviceNodeSelection"} else {"nodeName": owner}
    pooled = {"name": pool, "generation": generation, "resourceSliceCount": count}
    name = f"{pool}-{driver}-{generation}-{number}"
    uid = world.cluster.nodes[owner]["metadata"]["uid"]
    owners = [{"apiVersion": "v1", "kind": "Node", "name": owner, "uid": uid, "controller": True}]
    await world.cluster.apply(
        {
            "apiVersion": API,
            "kind": "ResourceSlice",
            "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"driver": driver, "pool": pooled, "devices": list(devices), **where, **spec},
        }
    )
    return name


async def withdraw(world: World, *names: str) -> None:
    """Delete slices, as a driver that is removed does."""
    for name in names:
        await world.cluster.call("DELETE", f"/apis/{API}/resourceslices/{name}")


@asynccontextmanager
async def tainted_by_rule(world: World, pool: str, key: str) -> AsyncIterator[None]:
    """Devices of a pool have a taint by a DeviceTaintRule until the end of the block. Skips the test where the API
    server serves no rules.
    """
    collections = [f"/apis/resource.k8s.io/{version}/devicetaintrules" for version in _TAINT_RULE_VERSIONS]
    served = [path for path in collections if (await world.cluster.try_call("GET", path)).status == 200]
    if not served:
        pytest.skip("this API server serves no DeviceTaintRules")
    rule = {
        "apiVersion": served[0].removeprefix("/apis/").removesuffix("/devicetaintrules"),
        "kind": "DeviceTaintRule",
        "metadata": {"name": world.name},
        "spec": {"deviceSelector": {"pool": pool}, "taint": {"key": key, "effect": "NoSchedule"}},
    }
    await world.cluster.call("POST", served[0], rule)
    try:
        yield
    finally:
        await world.cluster.call("DELETE", f"{served[0]}/{world.name}")


async def slices_of(world: World, node: str) -> list[str]:
    """Names of the slices of a node."""
    listed = await world.cluster.call("GET", f"/apis/{API}/resourceslices?fieldSelector=spec.nodeName={node}")
    return [str(each["metadata"]["name"]) for each in listed["items"]]


async def results_of(world: World, workload: Workload) -> list[dict[str, Any]]:
    """Allocated devices of all claims in the namespace of the workload, as the status lists them."""
    claims = [(claim.get("status") or {}).get("allocation") for claim in await claims_of(world, workload)]
    return [result for allocation in claims if allocation for result in allocation["devices"]["results"]]


def device(name: str, *, taint: str = "", **attributes: str) -> dict[str, Any]:
    """A device with these attributes."""
    taints = {"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}, **taints}


def class_of(world: World) -> str:
    """The DeviceClass of all GPUs of the nodes of this world."""
    return f"gpu.{world.name}"


def _objects(
    world: World, workload: Workload, requests: tuple[dict[str, Any], ...], devices: dict[str, Any]
) -> list[dict[str, Any]]:
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    listed = [
        {"name": f"r{number}", **(each if "firstAvailable" in each else {"exactly": each})}
        for number, each in enumerate(requests)
    ]
    return [
        _class(class_of(world), expression),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": workload.namespace}},
        {
            "apiVersion": API,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "spec": {"spec": {"devices": {"requests": listed, **devices}}},
        },
    ]


def _class(name: str, expression: str) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


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


async def has_a_device_each(world: World, workload: Workload) -> None:
    """Check that the gang runs, with one device for each pod, and that no other device is allocated."""
    await world.bound(workload)
    on, found = world.bound_pods(workload), await devices_of(world, workload)
    devices = [device for each in found.values() for device in each]
    assert found.keys() == on.keys()
    assert len(devices) == len(set(devices)) == len(on)
    assert all(device.startswith(f"{on[pod]}/") for pod, each in found.items() for device in each)
    allocated = [each for each in await claims_of(world, workload) if (each.get("status") or {}).get("allocation")]
    assert len(allocated) == len(devices)


async def create_with_finalizers(world: World, workload: Workload) -> None:
    """Create the pods of a gang, add the finalizer to their claims, then create its PodGroup."""
    await world.add_pods(workload)

    async def exist() -> bool:
        return len(await claims_of(world, workload)) == workload.size

    await eventually(exist, "the claims of all pods exist")
    path = f"/apis/{API}/namespaces/{world.here(workload).namespace}/resourceclaims"
    claims = [f"{path}/{each['metadata']['name']}" for each in await claims_of(world, workload)]
    await asyncio.gather(*(world.cluster.merge(each, {"metadata": {"finalizers": [FINALIZER]}}) for each in claims))
    await world.define(workload)


async def run_claims_with_finalizer(world: World) -> None:
    """Run a gang whose claims have the finalizer before they are allocated, and delete it: binding takes new claims to
    have it then. Needs a node for every eight of CLAIMS_FOR_TRIAL GPUs.
    """
    many = gang("protected").of(CLAIMS_FOR_TRIAL).declared_by("koordinator")
    many = await with_claims(world, many, gpus(world))
    await create_with_finalizers(world, many)
    await has_a_device_each(world, many)
    await world.delete(many)
