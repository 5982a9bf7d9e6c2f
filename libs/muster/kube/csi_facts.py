"""Converts CSINodes to facts: how many volumes of which drivers may be attached to a node."""

from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from muster.kube.objects import UNREADABLE, Encoded, ObjectMeta, salvage

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
    """Limits of a node by driver; drivers without a limit are missing. kube-scheduler ignores limits below 0, too."""
    return {
        each.name: each.allocatable.count
        for each in csi_node.spec.drivers or ()
        if each.allocatable is not None and each.allocatable.count is not None and each.allocatable.count >= 0
    }
