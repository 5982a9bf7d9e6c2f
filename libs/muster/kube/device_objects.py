"""ResourceSlices, DeviceClasses, ResourceClaims and DeviceTaintRules as the API serves them, and their facts."""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from muster.devices.decoding import BadDeviceObject, decode_claim, decode_class, decode_slice, decode_taint_rule
from muster.devices.facts import Claim, DeviceClass, Slice, TaintRule
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, ObjectMeta, salvage

T = TypeVar("T")


class DeviceResource(Struct, frozen=True, gc=False):
    """An object of resource.k8s.io, whose content is decoded by one of the functions below."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Raw = NOTHING
    status: Raw = NOTHING


class Decoded(NamedTuple, Generic[T]):
    """The facts of an object; None if it cannot be read, because of `problem`."""

    facts: T | None
    problem: str = ""


_resource: Final = msgspec.json.Decoder(DeviceResource)


def decode_device_resource(data: Encoded) -> DeviceResource:
    """Decode an object; fields with wrong types keep their defaults. Raises BadObject."""
    try:
        return _resource.decode(data)
    except UNREADABLE:
        return DeviceResource(**salvage(DeviceResource, data)[0])


def slice_facts(given: DeviceResource) -> Decoded[Slice]:
    """The facts of a ResourceSlice."""
    return _decoded("ResourceSlice", given, decode_slice)


def class_facts(given: DeviceResource) -> Decoded[DeviceClass]:
    """The facts of a DeviceClass."""
    return _decoded("DeviceClass", given, decode_class)


def claim_facts(given: DeviceResource) -> Decoded[Claim]:
    """The facts of a ResourceClaim."""
    return _decoded("ResourceClaim", given, decode_claim)


def taint_rule_facts(given: DeviceResource) -> Decoded[TaintRule]:
    """The facts of a DeviceTaintRule."""
    return _decoded("DeviceTaintRule", given, decode_taint_rule)


def _decoded(kind: str, given: DeviceResource, read: Callable[[object], T]) -> Decoded[T]:
    fields: dict[str, Any] = {"metadata": msgspec.to_builtins(given.metadata)}
    try:
        for name, raw in (("spec", given.spec), ("status", given.status)):
            if raw is not NOTHING:
                fields[name] = msgspec.json.decode(raw)
        return Decoded(read(fields))
    except BadDeviceObject as bad:
        return Decoded(None, str(bad))
    except UNREADABLE as error:
        return Decoded(None, f"{kind} {given.metadata.name} cannot be read: {error}")
