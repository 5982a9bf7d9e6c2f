"""Devices as expressions see them, from their form in a ResourceSlice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.cel.quantity import Quantity
from muster.cel.semver import BadVersion, Semver
from muster.cel.values import INT_MAX, INT_MIN, Domains
from muster.devices.facts import Device as DeviceFacts
from muster.devices.facts import Version
from muster.gangs.quantity import BadQuantity
from muster.gangs.quoting import quoted

AttributeValue = int | bool | str | Semver | list[int] | list[bool] | list[str] | list[Semver]
"""The value of an attribute, or several."""


class BadDevice(ValueError):
    """A device with an attribute or capacity that has no value in CEL; no expression can be evaluated for it."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a pool. Not changed after it was made: selectors share its maps."""

    driver: str
    attributes: Domains
    """AttributeValue by domain and name."""
    capacity: Domains
    """Quantity by domain and name."""
    allow_multiple_allocations: bool = False


def device_of(
    driver: str,
    attributes: Mapping[str, AttributeValue],
    capacity: Mapping[str, Quantity],
    allow_multiple_allocations: bool = False,
) -> Device:
    """A device from values by qualified name; names without a domain belong to the driver's."""
    return Device(driver, _by_domain(driver, attributes), _by_domain(driver, capacity), allow_multiple_allocations)


def device_of_slice(driver: str, raw: Mapping[str, Any]) -> Device:
    """A device of `spec.devices` in a ResourceSlice (resource.k8s.io/v1) of this driver. Raises BadDevice."""
    attributes = {name: _attribute(name, value) for name, value in _map(raw, "attributes").items()}
    capacity = {name: _quantity(name, value) for name, value in _map(raw, "capacity").items()}
    return device_of(driver, attributes, capacity, raw.get("allowMultipleAllocations") is True)


def device_of_facts(facts: DeviceFacts) -> Device:
    """A device of the cluster. Raises BadDevice."""
    attributes = {
        name: _value(name, "version", value.text) if isinstance(value, Version) else value
        for name, value in facts.attributes.items()
    }
    return device_of(facts.driver, attributes, {name: Quantity.of(nanos) for name, nanos in facts.capacity.items()})


def _by_domain(driver: str, values: Mapping[str, Any]) -> Domains:
    domains = Domains()
    for qualified, value in values.items():
        domain, slash, name = qualified.partition("/")
        domains.setdefault(domain if slash else driver, {})[name if slash else qualified] = value
    return domains


def _map(raw: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = raw.get(field) or {}
    if not isinstance(found, Mapping):
        raise BadDevice(f"{field} is not a map")
    return found


_TYPES: Final = {"int": int, "bool": bool, "string": str, "version": str}


def _attribute(name: str, raw: Any) -> Any:
    """An AttributeValue."""
    for field, kind in _TYPES.items() if isinstance(raw, Mapping) else ():
        value, several = raw.get(field), raw.get(f"{field}s")
        if isinstance(several, list) and all(type(each) is kind for each in several):
            return [_value(name, field, each) for each in several]
        if type(value) is kind:
            return _value(name, field, value)
    raise BadDevice(f"attribute {quoted(name)} has none of {', '.join(_TYPES)}, or a value of another type")


def _value(name: str, field: str, value: Any) -> Any:
    if field == "version":
        try:
            return Semver.parsed(value)
        except BadVersion as bad:
            raise BadDevice(f"attribute {quoted(name)}: {bad}") from None
    if field == "int" and not INT_MIN <= value <= INT_MAX:
        raise BadDevice(f"attribute {quoted(name)} is beyond 64 bits")
    return value


def _quantity(name: str, raw: Any) -> Quantity:
    text = raw.get("value") if isinstance(raw, Mapping) else None
    try:
        return Quantity.parsed(str(text))
    except BadQuantity as bad:
        raise BadDevice(f"capacity {quoted(name)}: {bad}") from None
