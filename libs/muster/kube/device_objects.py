"""Decodes ResourceSlices, DeviceClasses and ResourceClaims, with what is wrong with those that cannot be read."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct, field

from muster.devices.decoding import BadDeviceObject, decode_claim, decode_class, decode_slice
from muster.devices.facts import Claim, DeviceClass, Slice
from muster.kube.objects import UNREADABLE, BadObject, Encoded, ObjectMeta, salvage

T = TypeVar("T")


class DeviceObject(Struct, Generic[T], frozen=True):
    """An object of resource.k8s.io. `facts` None: it cannot be read, because of `problem`."""

    metadata: ObjectMeta
    facts: T | None = None
    problem: str = ""


class _Salvaged(Struct, frozen=True):
    metadata: ObjectMeta = field(default_factory=ObjectMeta)


ResourceSliceObject = DeviceObject[Slice]
DeviceClassObject = DeviceObject[DeviceClass]
ResourceClaimObject = DeviceObject[Claim]

_fields: Final = msgspec.json.Decoder(dict[str, Any])


def decode_resource_slice(data: Encoded) -> ResourceSliceObject:
    """Decode a ResourceSlice. Raises BadObject if it is not an object with metadata."""
    return _decoded(data, decode_slice)


def decode_device_class(data: Encoded) -> DeviceClassObject:
    """Decode a DeviceClass. Raises BadObject if it is not an object with metadata."""
    return _decoded(data, decode_class)


def decode_resource_claim(data: Encoded) -> ResourceClaimObject:
    """Decode a ResourceClaim. Raises BadObject if it is not an object with metadata."""
    return _decoded(data, decode_claim)


def _decoded(data: Encoded, read: Callable[[Mapping[str, Any]], T]) -> DeviceObject[T]:
    try:
        fields = _fields.decode(data)
        metadata = msgspec.convert(fields.get("metadata"), ObjectMeta)
    except (*UNREADABLE, msgspec.ValidationError):
        known, problem = salvage(_Salvaged, data)
        if "metadata" not in known:
            raise BadObject(problem or "it has no metadata") from None
        return DeviceObject(known["metadata"], problem=problem or "it is nested too deeply, or is no UTF-8")
    try:
        return DeviceObject(metadata, read(fields))
    except BadDeviceObject as bad:
        return DeviceObject(metadata, problem=str(bad))
