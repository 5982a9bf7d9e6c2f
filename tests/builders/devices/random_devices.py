"""Random instances of device allocation: JSON objects, which kube-scheduler's allocator and Muster's read."""

import re
from random import Random
from typing import Any, Final

from muster.devices.allocation import Devices
from muster.devices.decoding import decode_claim, decode_class, decode_slice
from muster.devices.facts import Claim, Device, DeviceId
from muster.devices.selectors import SelectorError
from muster.gangs.facts import NodeFacts

JSON = dict[str, Any]
NODE: Final = "n1"
LABELS: Final = {"zone": "a"}
DRIVERS: Final = ("gpu.example.com", "nic.example.com")
_CLASSES: Final = ("gpu", "gpu", "nic", "large")
_EXPRESSION: Final = re.compile(
    r'(?:device\.driver == "(?P<driver>[^"]+)")|'
    r'(?:"(?P<has>\w+)" in device\.attributes\["(?P<domain>[^"]+)"\] && )?'
    r'device\.attributes\["(?P<of>[^"]+)"\]\.(?P<id>\w+) == "(?P<value>\w+)"'
)


def matches(expression: str, device: Device) -> bool:
    """Evaluates the expressions that instances use."""
    found = _EXPRESSION.fullmatch(expression)
    assert found, expression
    if found["driver"]:
        return device.driver == found["driver"]
    name = f"{found['of']}/{found['id']}"
    if name not in device.attributes:
        if found["has"]:
            return False
        raise SelectorError(f"{expression}: no such key: {found['id']}")
    return device.attributes[name] == found["value"]


def _equal(random: Random) -> str:
    driver, name = random.choice((DRIVERS[0], *DRIVERS)), random.choice(("model", "model", "root"))
    access = f'device.attributes["{driver}"].{name} == "{random.choice("aab")}"'
    return access if random.random() < 0.05 else f'"{name}" in device.attributes["{driver}"] && {access}'


def _selectors(random: Random, most: int) -> list[JSON]:
    return [{"cel": {"expression": _equal(random)}} for _ in range(most if random.random() < 0.35 else 0)]


def _taints(random: Random) -> list[JSON]:
    if random.random() < 0.8:
        return []
    return [{"key": random.choice("kl"), "value": "v", "effect": random.choice(("NoSchedule", "NoExecute", "None"))}]


def _tolerations(random: Random) -> list[JSON]:
    if random.random() < 0.7:
        return []
    toleration = random.choice(({"operator": "Exists"}, {"key": "k", "operator": "Equal", "value": "v"}, {"key": "l"}))
    return [toleration | ({"effect": "NoSchedule"} if random.random() < 0.3 else {})]


def _where(random: Random) -> JSON:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [random.choice("aab")]}]}
    return random.choice(
        ({"allNodes": True}, {"nodeName": random.choice((NODE, "n2"))}, {"nodeSelector": {"nodeSelectorTerms": [term]}})
    )


def _device(random: Random, name: str, counters: int, per_device: bool) -> JSON:
    attributes: JSON = {}
    if random.random() < 0.9:
        attributes["model"] = {"string": random.choice("aab")}
    if random.random() < 0.8:
        key = random.choice(("root", "example.org/root"))
        attributes[key] = random.choice(({"string": "a"}, {"string": "b"}, {"int": 1}, {"bool": True}))
    device: JSON = {"name": name, "attributes": attributes, "taints": _taints(random)}
    if counters and random.random() < 0.8:
        amounts = {f"c{i}": {"value": str(random.randint(1, 3))} for i in range(random.randint(1, counters))}
        device["consumesCounters"] = [{"counterSet": random.choice(("set-0", "set-1")), "counters": amounts}]
    if per_device:
        device |= _where(random)
    return device


def _pool(random: Random, driver: str, name: str) -> list[JSON]:
    counters = random.choice((0, 0, 0, 1, 2))
    generation = random.randint(1, 3)
    number = random.choice((1, 1, 2))
    count = number + bool(counters)
    if random.random() < 0.05:
        count += 1
    kind = random.choice(("local", "local", "local", "slices", "devices"))
    same = {"nodeName": NODE}
    slices: list[JSON] = []

    def add(spec: JSON, generation: int = generation) -> None:
        pool = {"name": name, "generation": generation, "resourceSliceCount": count}
        meta = {"name": f"{driver}-{name}-{len(slices):02}"}
        slices.append({"metadata": meta, "spec": {"driver": driver, "pool": pool} | spec})

    for part in range(number):
        where = {"perDeviceNodeSelection": True} if kind == "devices" else same if kind == "local" else _where(random)
        names = [f"d{part}{i}" for i in range(random.randint(1, 6))]
        if random.random() < 0.02:
            names.append(names[0])
        add(where | {"devices": [_device(random, each, counters, kind == "devices") for each in names]})
    if counters:
        sets = [
            {"name": f"set-{i}", "counters": {f"c{j}": {"value": str(random.randint(2, 6))} for j in range(counters)}}
            for i in range(2 if random.random() < 0.97 else 1)
        ]
        add((same if kind == "local" else {"allNodes": True}) | {"sharedCounters": sets})
    if kind == "local" and random.random() < 0.1:
        add(same | {"devices": [_device(random, "old", 0, False)]}, generation - 1)
    return slices


def _way(random: Random) -> JSON:
    way: JSON = {
        "deviceClassName": random.choice(_CLASSES),
        "selectors": _selectors(random, 1),
        "tolerations": _tolerations(random),
        "allocationMode": "ExactCount",
    }
    if random.random() < 0.1:
        way["allocationMode"] = "All"
    else:
        way["count"] = random.choice((1, 1, 1, 2, 2, 3))
    return way


def _request(random: Random, name: str) -> JSON:
    if random.random() < 0.25:
        return {"name": name, "firstAvailable": [_way(random) | {"name": f"s{i}"} for i in range(random.randint(1, 3))]}
    exactly = _way(random)
    if random.random() < 0.1:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _claim(random: Random, name: str) -> JSON:
    requests = [_request(random, f"r{i}") for i in range(random.choice((1, 1, 2, 3)))]
    constraints: list[JSON] = []
    if random.random() < 0.35:
        kind = random.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
        attribute = random.choice((f"{DRIVERS[0]}/model", f"{DRIVERS[0]}/root", "example.org/root"))
        constraints.append({kind: attribute})
        if random.random() < 0.4:
            constraints[-1]["requests"] = [requests[0]["name"]]
    meta = {"namespace": "team", "name": name}
    return {"metadata": meta, "spec": {"devices": {"requests": requests, "constraints": constraints}}}


def random_instance(seed: int) -> JSON:
    """A node, slices of two to five pools, three classes, devices that are allocated, and claims of a pod."""
    random = Random(seed)
    slices = []
    for number in range(random.randint(2, 5)):
        slices += _pool(random, random.choice((*DRIVERS, DRIVERS[0])), f"pool-{number}")
    ids = {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each in slices
        for device in each["spec"].get("devices", ())
    }
    share = random.choice((0, 0, 0, 0.2, 0.5))
    selectors = {
        "gpu": [f'device.driver == "{DRIVERS[0]}"'],
        "nic": [f'device.driver == "{DRIVERS[1]}"'],
        "large": [
            f'device.driver == "{DRIVERS[0]}"',
            f'"model" in device.attributes["{DRIVERS[0]}"] && device.attributes["{DRIVERS[0]}"].model == "a"',
        ],
    }
    return {
        "node": {"metadata": {"name": NODE, "labels": LABELS}},
        "slices": slices,
        "classes": [
            {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": each}} for each in expressions]}}
            for name, expressions in selectors.items()
        ],
        "allocated": [each for each in sorted(ids) if random.random() < share],
        "claims": [_claim(random, f"c{i}") for i in range(random.choice((1, 1, 1, 2, 3)))],
    }


def decoded(instance: JSON) -> tuple[Devices, NodeFacts, list[Claim]]:
    """The instance as facts."""
    devices = Devices(matches)
    for each in instance["slices"]:
        devices.put_slice(decode_slice(each))
    for each in instance["classes"]:
        devices.put_class(decode_class(each))
    devices.allocate_ids(DeviceId(*each) for each in instance["allocated"])
    return devices, NodeFacts(NODE, labels=LABELS), [decode_claim(each) for each in instance["claims"]]
