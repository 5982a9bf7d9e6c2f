"""Converts CSINodes, CSIDrivers and CSIStorageCapacities to facts: how many volumes of which drivers may be attached to
a node, and how much storage the drivers can provision where.
"""

from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.node_regions import EVERYWHERE, NOWHERE, Region
from muster.gangs.quantity import INT64_MAX, BadQuantity, to_amount
from muster.kube.objects import NOTHING, UNREADABLE, Encoded, ObjectMeta, salvage
from muster.kube.pod_requests import quantity_text
from muster.kube.selectors import BadSelector, label_selector

S = TypeVar("S", bound=Struct)


class Allocatable(Struct, frozen=True, gc=False):
    """Volumes that may be attached; None: no limit."""

    count: int | None = None


class NodeDriver(Struct, frozen=True, gc=False):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: Allocatable | None = None


class CSINodeSpec(Struct, frozen=True, gc=False):
    """spec of a CSINode."""

    drivers: list[NodeDriver] | None = None


class CSINode(Struct, frozen=True, gc=False):
    """The CSI drivers of the node with the same name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSINodeSpec = field(default_factory=CSINodeSpec)


class CSIDriverSpec(Struct, rename="camel", frozen=True, gc=False):
    """spec of a CSIDriver."""

    storage_capacity: bool | None = None


class CSIDriver(Struct, frozen=True, gc=False):
    """A CSI driver."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: CSIDriverSpec = field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Struct, rename="camel", frozen=True, gc=False):
    """Storage that a driver can provision for a storage class on the nodes of a topology segment."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    node_topology: Raw = NOTHING
    storage_class_name: str = ""
    capacity: Raw = NOTHING
    maximum_volume_size: Raw = NOTHING


def decode_csi_driver(data: Encoded) -> CSIDriver:
    """Decode a CSIDriver; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(CSIDriver, _csi_driver, data)


def decode_storage_capacity(data: Encoded) -> CSIStorageCapacity:
    """Decode a CSIStorageCapacity; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(CSIStorageCapacity, _storage_capacity, data)


_csi_driver: Final = msgspec.json.Decoder(CSIDriver)
_storage_capacity: Final = msgspec.json.Decoder(CSIStorageCapacity)


def decode_csi_node(data: Encoded) -> CSINode:
    """Decode a CSINode; fields with wrong types keep their defaults. Raises BadObject."""
    return _decoded(CSINode, _csi_node, data)


_csi_node: Final = msgspec.json.Decoder(CSINode)


def _decoded(kind: type[S], decoder: msgspec.json.Decoder[S], data: Encoded) -> S:
    try:
        return decoder.decode(data)
    except UNREADABLE:
        return kind(**salvage(kind, data)[0])


def attach_limits(csi_node: CSINode) -> dict[str, int]:
    """Limits of a node by driver; drivers without a limit are missing. kube-scheduler ignores limits below 0, too.

    Limits are cut to int64, the range of amounts in messages.
    """
    return {
        each.name: min(each.allocatable.count, INT64_MAX)
        for each in csi_node.spec.drivers or ()
        if each.allocatable is not None and each.allocatable.count is not None and each.allocatable.count >= 0
    }


class SegmentFacts(Struct, frozen=True, gc=False):
    """A CSIStorageCapacity: bytes that can be provisioned in a region, and of one volume; None: not stated."""

    storage_class: str
    region: Region
    capacity_bytes: int | None
    volume_bytes: int | None


def segment_facts(given: CSIStorageCapacity) -> SegmentFacts:
    """The facts of a CSIStorageCapacity; a malformed one offers nothing."""
    try:
        selector = label_selector(bytes(given.node_topology))
    except BadSelector:
        selector = label_selector(b"")
    region = NOWHERE
    if selector.requirements is not None:
        labels = tuple(
            NodeRequirement(each.key, NodeOperator(each.operator.value), each.values) for each in selector.requirements
        )
        region = ((NodeSelectorTerm(labels),),) if labels else EVERYWHERE
    return SegmentFacts(given.storage_class_name, region, _bytes(given.capacity), _bytes(given.maximum_volume_size))


def _bytes(raw: Raw) -> int | None:
    if bytes(raw) in (b"", b"null"):
        return None
    try:
        return max(0, to_amount("storage", quantity_text(raw), round_up=False))
    except BadQuantity:
        return 0
