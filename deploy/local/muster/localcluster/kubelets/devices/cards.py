"""Devices of simulated GPU cards, in the form of ResourceSlices.

Attributes and the partitions of MIG-capable cards are like those of NVIDIA's driver for dynamic resource allocation.
Names and uuids depend only on the node, so that a restarted kubelet publishes the same devices.
"""

import uuid
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

DRIVER: Final = "gpu.example.com"
CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Label of nodes in an NVLink domain."""
NODES_PER_DOMAIN: Final = 4

JSON = dict[str, Any]


class CardKind(StrEnum):
    """Kinds of cards: plain GPUs, GPUs with MIG partitions, GPUs of nodes that form NVLink domains."""

    GPU = "gpu"
    MIG = "mig"
    NVLINK = "nvlink"


class Cards(Struct, frozen=True):
    """Cards of one node."""

    kind: CardKind
    count: int


class _Model(Struct, frozen=True):
    """Attributes of a model; memory in Gi."""

    product: str
    architecture: str
    memory: int


class _Profile(Struct, frozen=True):
    """A partition: its share of the multiprocessors and of the memory slices, and the first slices it may have."""

    name: str
    multiprocessors: int
    slices: int
    starts: tuple[int, ...]


_MODELS: Final = {
    CardKind.GPU: _Model("NVIDIA A100-SXM4-80GB", "Ampere", 80),
    CardKind.MIG: _Model("NVIDIA H100 80GB HBM3", "Hopper", 80),
    CardKind.NVLINK: _Model("NVIDIA GB200", "Blackwell", 184),
}
_DRIVER_VERSION: Final = "570.86.15"
_MULTIPROCESSORS: Final = 132
_SLICES: Final = 8
"""Memory slices of a MIG-capable card."""
_PROFILES: Final = (
    _Profile("1g.10gb", 16, 1, (0, 1, 2, 3, 4, 5, 6)),
    _Profile("2g.20gb", 32, 2, (0, 2, 4)),
    _Profile("3g.40gb", 60, 4, (0, 4)),
    _Profile("7g.80gb", 132, 8, (0,)),
)
_CARDS_PER_SLICE: Final = 4
"""MIG-capable cards of one ResourceSlice, which may have 64 devices that consume counters."""
_COUNTER_SETS_PER_SLICE: Final = 8


def slice_specs(node: str, cards: Cards, generation: int = 1) -> list[JSON]:
    """Specs of all ResourceSlices of a node; its pool has its name."""
    contents = list(_contents(node, cards))
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(contents)}
    return [{"driver": DRIVER, "nodeName": node, "pool": pool, **each} for each in contents]


def clique(first_node: str) -> str:
    """Value of the clique label for the NVLink domain that begins with a node."""
    return f"{_uuid(first_node, 'nvlink')}.0"


def _contents(node: str, cards: Cards) -> Iterator[JSON]:
    if cards.kind is not CardKind.MIG:
        yield {"devices": [_card(node, cards.kind, index) for index in range(cards.count)]}
        return
    shared = [{"name": _counter_set(index), "counters": _counters(range(_SLICES))} for index in range(cards.count)]
    for first in range(0, cards.count, _COUNTER_SETS_PER_SLICE):
        yield {"sharedCounters": shared[first : first + _COUNTER_SETS_PER_SLICE]}
    for first in range(0, cards.count, _CARDS_PER_SLICE):
        indices = range(first, min(first + _CARDS_PER_SLICE, cards.count))
        yield {"devices": [device for index in indices for device in _partitionable(node, index)]}


def _card(node: str, kind: CardKind, index: int) -> JSON:
    """A whole card."""
    model = _MODELS[kind]
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "type": {"string": "gpu"},
            **_attributes_of(model, index),
            "uuid": {"string": f"GPU-{_uuid(node, f'gpu-{index}')}"},
            "index": {"int": index},
        },
        "capacity": {"memory": {"value": f"{model.memory}Gi"}},
    }


def _partitionable(node: str, index: int) -> Iterator[JSON]:
    """A MIG-capable card and all its partitions."""
    card, model = _card(node, CardKind.MIG, index), _MODELS[CardKind.MIG]
    yield {**card, "consumesCounters": [{"counterSet": _counter_set(index), "counters": _counters(range(_SLICES))}]}
    for profile in _PROFILES:
        for start in profile.starts:
            name = f"gpu-{index}-mig-{profile.name.replace('.', '')}-{start}"
            slices = range(start, start + profile.slices)
            counters = _counters(slices, profile.multiprocessors)
            yield {
                "name": name,
                "attributes": {
                    "type": {"string": "mig"},
                    "profile": {"string": profile.name},
                    **_attributes_of(model, index),
                    "uuid": {"string": f"MIG-{_uuid(node, name)}"},
                    "parentUUID": card["attributes"]["uuid"],
                    "parentIndex": {"int": index},
                },
                "capacity": {
                    "memory": {"value": f"{model.memory // _SLICES * profile.slices}Gi"},
                    "multiprocessors": {"value": str(profile.multiprocessors)},
                },
                "consumesCounters": [{"counterSet": _counter_set(index), "counters": counters}],
            }


def _attributes_of(model: _Model, index: int) -> JSON:
    """Attributes of a card and its partitions; two cards share a PCIe root."""
    return {
        "productName": {"string": model.product},
        "architecture": {"string": model.architecture},
        "driverVersion": {"version": _DRIVER_VERSION},
        "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{index // 2 * 16:02x}"},
    }


def _counter_set(index: int) -> str:
    return f"gpu-{index}"


def _counters(slices: range, multiprocessors: int = _MULTIPROCESSORS) -> JSON:
    return {"multiprocessors": {"value": str(multiprocessors)}} | {
        f"memory-slice-{each}": {"value": "1"} for each in slices
    }


def _uuid(node: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.{node}.{DRIVER}"))
