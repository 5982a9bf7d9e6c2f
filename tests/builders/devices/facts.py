"""Small facts about devices for tests: selectors are "attribute=value"."""

from muster.devices.allocation import Devices
from muster.devices.facts import (
    Alternative,
    Attribute,
    Claim,
    Constraint,
    CounterSet,
    Device,
    DeviceClass,
    DeviceTaint,
    DeviceToleration,
    Request,
    Slice,
)
from muster.devices.search import BUDGET
from muster.devices.selectors import SelectorError
from muster.gangs.facts import NodeFacts

DRIVER = "gpu"


def matches(expression: str, device: Device) -> bool:
    name, _, value = expression.partition("=")
    if name not in device.attributes:
        raise SelectorError(f'"{expression}" on device {device.name}: no such attribute')
    return device.attributes[name] == value


def device(
    name: str, *, counters: int = 0, of: str = "set", taint: str = "", kind: str = "gpu", **attributes: Attribute
) -> Device:
    return Device(
        name,
        DRIVER,
        {"kind": kind, **attributes},
        consumes=(CounterSet(of, (("memory", counters),)),) if counters else (),
        taints=(DeviceTaint(taint),) if taint else (),
    )


def gpus(node: str, number: int, *, name: str = "") -> Slice:
    """A local pool of equal devices but for their serial numbers."""
    devices = tuple(device(f"gpu-{i}", serial=f"{node}-{i}") for i in range(number))
    return Slice(name or node, DRIVER, node, node_name=node, devices=devices)


def mig(node: str, cards: int) -> list[Slice]:
    """Cards with 8 units of memory each, whole or as partitions of 4, 2 and 1 units."""
    devices = []
    for card in range(cards):
        sizes = {8: 1, 4: 2, 2: 4, 1: 8}
        for size, number in sizes.items():
            devices += [
                device(f"card-{card}-{size}-{i}", kind=f"mig{size}", counters=size, of=f"card-{card}", parent=f"{card}")
                for i in range(number)
            ]
    shared = tuple(CounterSet(f"card-{card}", (("memory", 8),)) for card in range(cards))
    return [
        Slice(f"{node}-devices", DRIVER, node, count=2, node_name=node, devices=tuple(devices)),
        Slice(f"{node}-counters", DRIVER, node, count=2, node_name=node, shared=shared),
    ]


def way(
    count: int = 1,
    *selectors: str,
    name: str = "",
    admin: bool = False,
    tolerations: tuple[DeviceToleration, ...] = (),
    kind: str = "gpu",
) -> Alternative:
    return Alternative(kind, name, selectors, count, admin, tolerations)


def claim(*ways: Alternative, name: str = "c", constraints: tuple[Constraint, ...] = ()) -> Claim:
    """A claim with a request for each alternative."""
    return Claim(
        "team", name, requests=tuple(Request(f"r{i}", (each,)) for i, each in enumerate(ways)), constraints=constraints
    )


def cluster(*slices: Slice, budget: int = BUDGET) -> Devices:
    devices = Devices(matches, budget)
    for each in slices:
        devices.put_slice(each)
    for kind in ("gpu", "mig8", "mig4", "mig2", "mig1"):
        devices.put_class(DeviceClass(kind, (f"kind={kind}",)))
    return devices


def node(name: str, **labels: str) -> NodeFacts:
    return NodeFacts(name, labels=labels)
