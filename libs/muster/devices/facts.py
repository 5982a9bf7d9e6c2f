"""Facts about devices, device classes and claims as values: the part of resource.k8s.io/v1 that decides an allocation.

Names of attributes and capacities are qualified ("domain/id"); those without a domain belong to the driver's.
Quantities (capacities, counters) are integers in billionths of a unit, exact.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from muster.gangs.facts import NodeSelectorTerm, TaintEffect, TolerationOperator

MAX_RESULTS: Final = 32
"""Devices that the API server accepts in the allocation of one claim."""
MAX_REQUESTS: Final = 32
"""Requests of one claim, and constraints."""
MAX_ALTERNATIVES: Final = 8
"""Subrequests of one request."""
MAX_SELECTORS: Final = 32
"""Selectors of one class or request."""
MAX_EXPRESSION_LENGTH: Final = 10 * 1024
"""Characters of a CEL expression."""
MAX_SLICE_DEVICES: Final = 128
"""Devices of one ResourceSlice."""
MAX_POOL_DEVICES: Final = 4096
"""Devices of one pool; a larger pool is invalid."""

Selection = tuple[NodeSelectorTerm, ...] | None
"""A node selector: one of the terms matches; None: there is no selector."""


class Unsupported(StrEnum):
    """Features of the API that Muster does not allocate; the values are the names in messages."""

    BINDING_CONDITIONS = "binding conditions"
    CONSUMABLE_CAPACITY = "consumable capacity"
    COMPATIBILITY_GROUPS = "compatibility groups"
    DERIVED_ATTRIBUTES = "derived attributes"
    NODE_ALLOCATABLE_RESOURCES = "node-allocatable resources"
    SELECTOR_TYPE = "a selector that is not CEL"
    CONSTRAINT_TYPE = "a constraint other than matchAttribute and distinctAttribute"
    ALLOCATION_MODE = "an allocation mode other than ExactCount and All"
    REQUEST_TYPE = "a request without exactly and firstAvailable"


class Version(Struct, frozen=True, gc=False):
    """A semantic version, which differs from a string of the same characters."""

    text: str


Attribute = bool | int | str | Version


class DeviceId(Struct, frozen=True, order=True, gc=False):
    """Names a device in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceTaint(Struct, frozen=True, gc=False):
    """A taint of a device. Effect NONE has no effect on allocation."""

    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


class TaintRule(Struct, frozen=True, gc=False):
    """A DeviceTaintRule: a taint of all devices that it selects. Fields that are empty select every device;
    `device_class` and `selectors` exist only until Kubernetes 1.34. `selects` False: it selects no device.
    """

    name: str
    taint: DeviceTaint
    selects: bool = True
    driver: str = ""
    pool: str = ""
    device: str = ""
    device_class: str = ""
    selectors: tuple[str, ...] = ()


class DeviceToleration(Struct, frozen=True, gc=False):
    """A toleration; effect NONE covers all effects, an empty key with EXISTS every taint."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect = TaintEffect.NONE
    seconds: int | None = None

    def tolerates(self, taint: DeviceTaint) -> bool:
        return (
            self.effect in (TaintEffect.NONE, taint.effect)
            and self.key in ("", taint.key)
            and (self.operator is TolerationOperator.EXISTS or self.value == taint.value)
        )


class CounterSet(Struct, frozen=True, gc=False):
    """Amounts by counter name, sorted by name: those that a pool shares, or those that a device consumes."""

    name: str
    counters: tuple[tuple[str, int], ...] = ()


class Device(Struct, frozen=True, gc=False):
    """A device. Node selection applies if the slice selects nodes per device."""

    name: str
    driver: str = ""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, int] = {}
    consumes: tuple[CounterSet, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    node_name: str = ""
    node_selector: Selection = None
    all_nodes: bool = False
    binds_to_node: bool = False
    unsupported: Unsupported | None = None
    """The feature because of which Muster does not allocate it."""


class Slice(Struct, frozen=True, gc=False):
    """A ResourceSlice: a part of one generation of a pool that consists of `count` slices."""

    name: str
    driver: str
    pool: str
    generation: int = 0
    count: int = 1
    node_name: str = ""
    node_selector: Selection = None
    all_nodes: bool = False
    per_device: bool = False
    devices: tuple[Device, ...] = ()
    shared: tuple[CounterSet, ...] = ()


class Config(Struct, frozen=True, gc=False):
    """Parameters of a claim for drivers, as JSON, and the requests that they are for; without any, for all."""

    opaque: str
    requests: tuple[str, ...] = ()


class DeviceClass(Struct, frozen=True, gc=False):
    """A device class. `created_seconds` decides between classes with one extended resource name; `config`: parameters
    for drivers, as JSON.
    """

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    created_seconds: int = 0
    unsupported: Unsupported | None = None
    config: tuple[str, ...] = ()


class Alternative(Struct, frozen=True, gc=False):
    """Devices of one class that meet all selectors: a request's only way (`name` is ""), or one of its subrequests.

    `count` 0: all of them.
    """

    device_class: str
    name: str = ""
    selectors: tuple[str, ...] = ()
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    unsupported: Unsupported | None = None

    def tolerates(self, device: Device) -> bool:
        """Whether the request tolerates all taints of the device that have an effect on allocation."""
        return self.untolerated(device) is None

    def untolerated(self, device: Device) -> DeviceTaint | None:
        """The first taint of the device with an effect on allocation that the request does not tolerate."""
        for taint in device.taints:
            if taint.effect is not TaintEffect.NONE and not any(each.tolerates(taint) for each in self.tolerations):
                return taint
        return None


class Request(Struct, frozen=True, gc=False):
    """A request of a claim: the first alternative that can be allocated."""

    name: str
    alternatives: tuple[Alternative, ...] = ()

    def path(self, alternative: Alternative) -> str:
        """The name in results and constraints: "request" or "request/subrequest"."""
        return f"{self.name}/{alternative.name}" if alternative.name else self.name


class Constraint(Struct, frozen=True, gc=False):
    """All devices of the requests (none named: of the claim) have the attribute, with one value or distinct values."""

    attribute: str = ""
    distinct: bool = False
    requests: tuple[str, ...] = ()
    unsupported: Unsupported | None = None

    def applies(self, request: str, path: str) -> bool:
        return not self.requests or request in self.requests or path in self.requests


class DeviceResult(Struct, frozen=True, gc=False):
    """A device that is allocated to a request."""

    request: str
    id: DeviceId
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()


class Allocation(Struct, frozen=True, gc=False):
    """status.allocation: devices, and the nodes where they can be used."""

    results: tuple[DeviceResult, ...] = ()
    node_selector: Selection = None


class Claim(Struct, frozen=True, gc=False):
    """A ResourceClaim. `owner`: uid of its controller; `reserved_for`: uids of the pods or PodGroups that use it;
    `extended`: a scheduler created it for extended resources that its owner requests; `version`: its resourceVersion;
    `unmet`: a binding condition of an allocated device because of which pods cannot use it yet, in words; `idle`: it is
    reserved for a PodGroup only, and no pod of that has a node.
    """

    namespace: str
    name: str
    uid: str = ""
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    allocation: Allocation | None = None
    reserved_for: tuple[str, ...] = ()
    owner: str = ""
    deleting: bool = False
    config: tuple[Config, ...] = ()
    extended: bool = False
    version: str = ""
    unmet: str = ""
    idle: bool = False

    @property
    def id(self) -> str:
        """Namespace and name, with a slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_allocated_to_owner(self) -> bool:
        """The claim belongs to one pod, and is allocated and reserved for no others."""
        return self.allocation is not None and bool(self.owner) and set(self.reserved_for) <= {self.owner}

    @property
    def allocated_to(self) -> tuple[str, ...]:
        """Uids of the pods or PodGroups that the allocation is for: those that the claim is reserved for; its owner if
        it is reserved for nobody. Empty if it is not allocated, or if that is unknown.
        """
        if self.allocation is None:
            return ()
        return self.reserved_for or ((self.owner,) if self.owner else ())

    @property
    def unsupported(self) -> str:
        """The request or constraint that Muster cannot allocate, with the name of the feature; "": none."""
        for request in self.requests:
            if not request.alternatives:
                return f"request {request.name}: {Unsupported.REQUEST_TYPE}"
            for each in request.alternatives:
                if each.unsupported is not None:
                    return f"request {request.path(each)}: {each.unsupported}"
        return next((f"constraints: {each.unsupported}" for each in self.constraints if each.unsupported), "")
