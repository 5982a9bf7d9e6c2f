"""Device objects as cluster-state streams them."""

import msgspec

from muster.devices.facts import Allocation, Claim, Device, DeviceClass, DeviceId, DeviceResult, Slice
from muster.gangs.facts import DeviceObject, DeviceObjectKind

GPU = "device.attributes['gpu'].kind == 'gpu'"


def slice_object(node: str, number: int, *, generation: int = 0, slices: int = 1, name: str = "") -> DeviceObject:
    """Equal GPUs of a node, "gpu-0", "gpu-1" ..., as many as `number`: one of so many slices of its pool, by default
    with the name of the node, else with devices "NAME-gpu-0" ...
    """
    prefix = f"{name}-" if name else ""
    devices = tuple(Device(f"{prefix}gpu-{i}", "gpu", {"gpu/kind": "gpu"}) for i in range(number))
    facts = Slice(name or node, "gpu", node, generation=generation, count=slices, node_name=node, devices=devices)
    return DeviceObject(DeviceObjectKind.SLICE, name or node, msgspec.json.encode(facts))


def network_object(number: int) -> DeviceObject:
    """Equal GPUs that all nodes can use, "gpu-0", "gpu-1" ..., as many as `number`."""
    devices = tuple(Device(f"gpu-{i}", "gpu", {"gpu/kind": "gpu"}) for i in range(number))
    facts = Slice("network", "gpu", "network", all_nodes=True, devices=devices)
    return DeviceObject(DeviceObjectKind.SLICE, "network", msgspec.json.encode(facts))


def class_object(*config: str, extended_resource: str = "") -> DeviceObject:
    """The class "gpu" of all GPUs; `config`: parameters for the driver, as JSON."""
    facts = DeviceClass("gpu", (GPU,), config=config, extended_resource=extended_resource)
    return DeviceObject(DeviceObjectKind.CLASS, "gpu", msgspec.json.encode(facts))


def claim_object(facts: Claim) -> DeviceObject:
    return DeviceObject(DeviceObjectKind.CLAIM, facts.id, msgspec.json.encode(facts))


def allocated(claim: Claim, *names: str, node: str = "n0") -> Claim:
    """The claim with these devices of a node."""
    results = tuple(DeviceResult("r0", DeviceId("gpu", node, name)) for name in names)
    return msgspec.structs.replace(claim, allocation=Allocation(results))
