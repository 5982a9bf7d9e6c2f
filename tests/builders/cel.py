"""Devices, expressions over them and results for tests."""

from collections.abc import Mapping
from typing import Any

from muster.cel.device import Device, device_of_slice
from muster.cel.errors import BadExpression, EvaluationFailed
from muster.cel.selector import compile_selector

Case = tuple[str, bool | str]
"""An expression, and its result or a part of the error's message."""
DRIVER = "gpu.example.com"
GPU: Mapping[str, Any] = {
    "attributes": {
        "type": {"string": "gpu"},
        "model": {"string": "Accel H100 80GB HBM3"},
        "index": {"int": 3},
        "healthy": {"bool": True},
        "driverVersion": {"version": "580.65.6"},
        "links": {"strings": ["a", "b"]},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "other.example.com/rack": {"string": "r7"},
    },
    "capacity": {"memory": {"value": "80Gi"}, "other.example.com/ports": {"value": "4"}},
}


FIELDS: list[Case] = [
    ('device.driver == "gpu.example.com"', True),
    ('device.driver == "other"', False),
    ('device.attributes["gpu.example.com"].type == "gpu"', True),
    ('device.attributes["gpu.example.com"]["type"] == "gpu"', True),
    ('device.attributes["resource.kubernetes.io"].pcieRoot == "pci0000:00"', True),
    ('device.attributes[device.driver].type == "gpu"', True),
    ('device.attributes["gpu.example.com"].index > 0', True),
    ('device.attributes["gpu.example.com"].index in [1, 3]', True),
    ('device.attributes["gpu.example.com"].healthy', True),
    ('device.attributes["gpu.example.com"].index', "the result is int, not bool"),
    ('device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("0.0.1"))', True),
    ('device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("v570.0", true))', True),
    (
        'device.attributes["gpu.example.com"].driverVersion > "1.0.0"',
        "no such overload: _>_(kubernetes.Semver, string)",
    ),
    ('device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Ki"))', True),
    ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
    ('device.capacity["gpu.example.com"]["memory"] == quantity("80Gi")', True),
    ('device.capacity["other.example.com"].ports.asInteger() == 4', True),
    ("device.allowMultipleAllocations == false", True),
    ("device.allowMultipleAllocations", False),
    ("has(device.driver) && has(device.attributes) && has(device.allowMultipleAllocations)", True),
    ("has(device.attributes.foo)", True),
    ("has(device.foo)", "no field foo"),
    ('cel.bind(d, device, d.driver == "gpu.example.com" && has(d.driver) && !d.allowMultipleAllocations)', True),
    ('device.?attributes.orValue({})["gpu.example.com"].type == "gpu"', True),
    ("cel.bind(d, device, d.foo == 1)", "device has no field foo"),
    ("[device].exists(d, d.attributes['gpu.example.com'].index == 3)", True),
    ("device == device && .device.driver == .device.driver", True),
]
MISSING: list[Case] = [
    ('device.attributes["no-such-domain"].name', "no such key: name"),
    ('device.attributes["no-such-domain"]["name"].isGreaterThan(quantity("0"))', "no such key: name"),
    ('device.attributes["gpu.example.com"].name == 1', "no such key: name (the map has driverVersion, healthy"),
    ('device.attributes["gpu.example.com"].name == 1 || true', True),
    ('"no-such-domain" in device.attributes', False),
    ('"gpu.example.com" in device.attributes', True),
    ('"name" in device.capacity["no-such-domain"]', False),
    ('!("name" in device.capacity["x"]) || device.capacity["x"].name.isGreaterThan(quantity("1Ki"))', True),
    ('has(device.attributes["gpu.example.com"].type) && !has(device.attributes["gpu.example.com"].name)', True),
    ('has(device.attributes["no-such-domain"].type)', False),
    ("device.attributes[?'x'].orValue({}) == {}", True),
    ("device.attributes[?'x'].orValue({}).?name.orValue(0) == 0", True),
    ('device.attributes["gpu.example.com"].?name.orValue("none") == "none"', True),
    ('device.attributes["gpu.example.com"][?"index"].orValue(0) == 3', True),
    ('device.attributes["x"].size() == 0', True),
    ('device.attributes["gpu.example.com"].model.foo == 1', "no such overload: select(string, string)"),
]
IDIOMS: list[Case] = [
    ('cel.bind(dra, device.attributes["gpu.example.com"], dra.healthy && dra.index < 4)', True),
    ('device.attributes["gpu.example.com"].model.lowerAscii().matches("^.*h100.*$")', True),
    ('device.attributes["gpu.example.com"].model.split(" ").size() >= 2', True),
    ('device.attributes.exists_one(x, x == "gpu.example.com")', True),
    ('device.attributes["gpu.example.com"].exists_one(x, x == "model")', True),
    ('device.attributes["gpu.example.com"].exists(k, v, k == "index" && v == 3)', True),
    ('device.capacity.exists_one(x, x == "gpu.example.com")', True),
    ("device.attributes.size() == 3 && device.capacity.size() == 2", True),
    ('device.attributes["gpu.example.com"].links.size() == 2', True),
    ('device.attributes["gpu.example.com"].links.exists(x, x == "a")', True),
    ('device.attributes["gpu.example.com"].type.includes("gpu")', True),
    ('"b" in device.attributes["gpu.example.com"].links', True),
    ('device.attributes["gpu.example.com"].index.exists(x, x > 0)', "int is neither a list nor a map"),
    (
        'device.driver == "gpu.example.com" && (device.attributes["gpu.example.com"].type == "gpu" ||'
        ' device.attributes["gpu.example.com"].type == "mig")',
        True,
    ),
    (
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("1Ki")) &&\n'
        'device.attributes["gpu.example.com"].healthy &&\n'
        'device.attributes["gpu.example.com"]["index"] > 0 &&\n'
        'device.attributes["gpu.example.com"]["driverVersion"].isGreaterThan(semver("0.0.1"))\n',
        True,
    ),
]


def gpu(**changes: Any) -> Device:
    """A device of DRIVER with the fields of GPU."""
    return device_of_slice(DRIVER, {**GPU, **changes})


def outcome(expression: str, device: Device | None = None) -> bool | str:
    """The result, or the message of the error."""
    try:
        return compile_selector(expression).matches(device or gpu())
    except (BadExpression, EvaluationFailed) as error:
        return str(error)


def agrees(case: Case) -> bool:
    """Whether the outcome for the device of `gpu` is as expected."""
    expression, expected = case
    found = outcome(expression)
    return found is expected or (isinstance(found, str) and isinstance(expected, str) and expected in found)
