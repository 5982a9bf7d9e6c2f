"""JSON types of ResourceSlices, as far as defaults and validation read them."""

from typing import Any

from msgspec import Struct, field

from muster.localcluster.apiserver.devices.types import Int64
from muster.localcluster.apiserver.pod_types import NodeSelector

Quantity = str | int | float


class Attribute(Struct):
    """The value of an attribute: one of the fields."""

    number: Int64 | None = field(default=None, name="int")
    flag: bool | None = field(default=None, name="bool")
    string: str | None = None
    version: str | None = None
    numbers: list[Int64] | None = field(default=None, name="ints")
    flags: list[bool] | None = field(default=None, name="bools")
    strings: list[str] | None = None
    versions: list[str] | None = None

    @property
    def values(self) -> list[Any]:
        """Values of all fields that are set."""
        every: tuple[Any, ...] = (self.number, self.flag, self.string, self.version)
        lists: tuple[Any, ...] = (self.numbers, self.flags, self.strings, self.versions)
        return [each for each in (*every, *lists) if each is not None]


class Capacity(Struct, rename="camel"):
    """A capacity."""

    value: Quantity
    request_policy: dict[str, Any] | None = None


class Counter(Struct):
    """The amount of a counter."""

    value: Quantity


class CounterSet(Struct):
    """Counters that devices of a pool share."""

    name: str | None = None
    counters: dict[str, Counter] | None = None


class Consumption(Struct, rename="camel"):
    """Counters that a device consumes."""

    counter_set: str | None = None
    counters: dict[str, Counter] | None = None


class Taint(Struct, rename="camel"):
    """A taint of a device."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class Device(Struct, rename="camel"):
    """A device."""

    name: str | None = None
    attributes: dict[str, Attribute] | None = None
    capacity: dict[str, Capacity] | None = None
    consumes_counters: list[Consumption] | None = None
    taints: list[Taint] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    allow_multiple_allocations: bool | None = None


class Pool(Struct, rename="camel"):
    """spec.pool of a slice."""

    name: str | None = None
    generation: Int64 | None = None
    resource_slice_count: Int64 | None = None


class SliceSpec(Struct, rename="camel"):
    """spec of a slice."""

    driver: str | None = None
    pool: Pool | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: list[Device] | None = None
    shared_counters: list[CounterSet] | None = None


class Slice(Struct):
    """A ResourceSlice."""

    spec: SliceSpec | None = None
