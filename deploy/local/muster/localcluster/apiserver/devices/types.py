"""JSON types of claims, templates and device classes, as far as defaults and validation read them."""

from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from muster.localcluster.apiserver.pod_types import NodeSelector
from muster.localcluster.apiserver.status import bad_request
from muster.localcluster.apiserver.store import Object

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
T = TypeVar("T", bound=Struct)


class Cel(Struct):
    """A CEL expression."""

    expression: str | None = None


class Selector(Struct):
    """A selector of devices."""

    cel: Cel | None = None


class Toleration(Struct, rename="camel"):
    """A toleration of device taints."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class Opaque(Struct):
    """Parameters for a driver."""

    driver: str | None = None
    parameters: Any = None


class Config(Struct):
    """Configuration of a class, claim or allocation; `source` only of an allocation."""

    requests: list[str] | None = None
    opaque: Opaque | None = None
    source: str | None = None


class Exact(Struct, rename="camel"):
    """A request for devices of one class, or a subrequest, which has a name."""

    name: str | None = None
    device_class_name: str | None = None
    selectors: list[Selector] | None = None
    allocation_mode: str | None = None
    count: Int64 | None = None
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None
    capacity: dict[str, Any] | None = None


class Request(Struct, rename="camel"):
    """A request of a claim."""

    name: str | None = None
    exactly: Exact | None = None
    first_available: list[Exact] | None = None


class Constraint(Struct, rename="camel"):
    """A constraint over the devices of a claim."""

    requests: list[str] | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Struct):
    """spec.devices of a claim."""

    requests: list[Request] | None = None
    constraints: list[Constraint] | None = None
    config: list[Config] | None = None


class ClaimSpec(Struct):
    """spec of a claim."""

    devices: DeviceClaim | None = None


class Result(Struct, rename="camel"):
    """An allocated device."""

    request: str | None = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    admin_access: bool | None = None
    tolerations: list[Toleration] | None = None
    share_id: str | None = field(default=None, name="shareID")


class Results(Struct):
    """status.allocation.devices of a claim."""

    results: list[Result] | None = None
    config: list[Config] | None = None


class Allocation(Struct, rename="camel"):
    """status.allocation of a claim."""

    devices: Results | None = None
    node_selector: NodeSelector | None = None


class Consumer(Struct, rename="camel"):
    """An entry of status.reservedFor."""

    api_group: str | None = None
    resource: str | None = None
    name: str | None = None
    uid: str | None = None


class DeviceStatus(Struct, rename="camel"):
    """An entry of status.devices, which drivers write."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    share_id: str | None = field(default=None, name="shareID")


class ClaimStatus(Struct, rename="camel"):
    """status of a claim."""

    allocation: Allocation | None = None
    reserved_for: list[Consumer] | None = None
    devices: list[DeviceStatus] | None = None


class Claim(Struct):
    """A ResourceClaim."""

    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class TemplateSpec(Struct):
    """spec of a ResourceClaimTemplate."""

    metadata: dict[str, Any] | None = None
    spec: ClaimSpec | None = None


class Template(Struct):
    """A ResourceClaimTemplate."""

    spec: TemplateSpec | None = None


class ClassSpec(Struct, rename="camel"):
    """spec of a DeviceClass."""

    selectors: list[Selector] | None = None
    config: list[Config] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Struct):
    """A DeviceClass."""

    spec: ClassSpec | None = None


_VERSION: Final = "v1"


def read(obj: Object, shape: type[T]) -> T:
    """The object in its types. Raises StatusError 400."""
    try:
        return msgspec.convert(obj, shape)
    except msgspec.ValidationError as error:
        raise unreadable(obj, f"json: {error}".replace("$.", "")) from error


def unreadable(obj: Object, detail: str) -> Exception:
    """StatusError 400 for an object with a value of a wrong type."""
    kind = obj["kind"]
    return bad_request(f'{kind} in version "{_VERSION}" cannot be handled as a {kind}: {detail}')
