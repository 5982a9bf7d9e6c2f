"""Pools of devices, assembled from ResourceSlices, as one node sees them."""

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct

from muster.devices.facts import MAX_POOL_DEVICES, CounterSet, Device, DeviceId, Selection, Slice
from muster.gangs.facts import NodeFacts
from muster.gangs.node_filters import term_matches
from muster.gangs.quoting import quoted

PoolKey = tuple[str, str]
"""Driver and name of a pool."""
CounterKey = tuple[str, str]
"""Counter set and counter of a pool."""


class SlicePart(Struct, frozen=True):
    """A slice, and the indexes of its devices that the node can use; None: all."""

    slice: Slice
    indexes: tuple[int, ...] | None = None

    def devices(self) -> Iterator[tuple[int, Device]]:
        if self.indexes is None:
            return enumerate(self.slice.devices)
        return ((index, self.slice.devices[index]) for index in self.indexes)


class NodePool(Struct, frozen=True):
    """A pool as a node sees it. `problem`: why no device of it may be used; "": they may.

    `counters`: the shared amounts. `consumers`: the devices of the whole pool, on other nodes too, that consume them.
    """

    driver: str
    name: str
    parts: tuple[SlicePart, ...] = ()
    problem: str = ""
    counters: dict[CounterKey, int] = {}
    consumers: tuple[tuple[DeviceId, tuple[CounterSet, ...]], ...] = ()


class Pools:
    """All ResourceSlices, by pool; only the newest generation of a pool counts.

    Nothing is remembered of slices that are gone: a pool whose driver starts again at a lower generation is used as
    soon as the slices of the higher one are removed. Pools of which every slice names the same node are assembled once
    per change; others for each call, because the labels of the node decide. Size: the slices that exist.
    """

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._pools: dict[PoolKey, dict[str, Slice]] = {}
        self._on_node: dict[str, set[PoolKey]] = {}
        """Pools with a slice that names the node."""
        self._elsewhere: dict[PoolKey, int] = {}
        """Number of slices of a pool that name no node, where there are any."""
        self._local: dict[PoolKey, NodePool] = {}
        self.with_unsupported: dict[str, None] = {}
        """Names of the slices with devices that are not supported, in the order in which they appeared."""
        self.versions: dict[PoolKey, int] = {}
        """Changes of a pool's slices; ends with the pool."""
        self._changes: Final = [0]

    def __len__(self) -> int:
        """Number of slices."""
        return len(self._slices)

    def put(self, slice_: Slice) -> None:
        """Add a slice, or replace the one of its name."""
        self.remove(slice_.name)
        key = (slice_.driver, slice_.pool)
        self._slices[slice_.name] = slice_
        if any(each.unsupported is not None for each in slice_.devices):
            self.with_unsupported[slice_.name] = None
        self._pools.setdefault(key, {})[slice_.name] = slice_
        if slice_.node_name:
            self._on_node.setdefault(slice_.node_name, set()).add(key)
        else:
            self._elsewhere[key] = self._elsewhere.get(key, 0) + 1
        self.touch(key)

    def remove(self, name: str) -> Slice | None:
        """Remove a slice; returns it if there was one."""
        slice_ = self._slices.pop(name, None)
        if slice_ is None:
            return None
        self.with_unsupported.pop(name, None)
        key = (slice_.driver, slice_.pool)
        slices = self._pools[key]
        del slices[name]
        if slice_.node_name:
            if all(each.node_name != slice_.node_name for each in slices.values()):
                named = self._on_node[slice_.node_name]
                named.discard(key)
                if not named:
                    del self._on_node[slice_.node_name]
        else:
            self._elsewhere[key] -= 1
            if not self._elsewhere[key]:
                del self._elsewhere[key]
        self.touch(key)
        if not slices:
            del self._pools[key], self.versions[key]
        return slice_

    @property
    def names(self) -> Collection[str]:
        """Names of the slices."""
        return self._slices.keys()

    @property
    def slices(self) -> Collection[Slice]:
        """All slices, older generations included."""
        return self._slices.values()

    def slice_named(self, name: str) -> Slice | None:
        """The slice with this name, if there is one."""
        return self._slices.get(name)

    def nodes_of(self, key: PoolKey) -> set[str] | None:
        """Nodes that the slices of a pool name; None: other nodes may use it, too."""
        if key in self._elsewhere:
            return None
        return {each.node_name for each in self._pools.get(key, {}).values()}

    @property
    def named_nodes(self) -> Collection[str] | None:
        """Nodes with devices; None: any node may have some."""
        return None if self._elsewhere else self._on_node.keys()

    def touch(self, key: PoolKey) -> None:
        """Count a change of the pool, or of the devices of it that are allocated."""
        if key in self._pools:
            self._changes[0] += 1
            self.versions[key] = self._changes[0]
        self._local.pop(key, None)

    @property
    def keys(self) -> Collection[PoolKey]:
        """Drivers and names of the pools."""
        return self._pools.keys()

    def newest_of(self, key: PoolKey) -> tuple[list[Slice], str]:
        """The slices of a pool's newest generation, none of one that is gone, and why its devices must not be used."""
        slices = self._pools.get(key)
        if slices is None:
            return [], ""
        newest = _newest(slices)
        return newest, _problem(tuple(map(SlicePart, newest)), newest)

    def stamp(self, node: NodeFacts) -> tuple[int, int] | None:
        """Changes when the pools of the node do; None: pools depend on the labels of nodes, so that it is unknown."""
        if self._elsewhere:
            return None
        keys = self._on_node.get(node.name, ())
        return len(keys), max((self.versions[key] for key in keys), default=0)

    def on_node(self, node: NodeFacts) -> list[NodePool]:
        """Pools with devices for the node, by driver and name."""
        keys = self._on_node.get(node.name, set())
        found = []
        for key in sorted(keys | self._elsewhere.keys() if self._elsewhere else keys):
            pool = self._local.get(key)
            if pool is None:
                pool = _assembled(key, self._pools[key], node)
                if pool is not None and all(each.node_name == node.name for each in self._pools[key].values()):
                    self._local[key] = pool
            if pool is not None:
                found.append(pool)
        return found


def selected(node: NodeFacts, node_name: str, all_nodes: bool, selector: Selection) -> bool:
    """The node is named, or one of a selection that names none."""
    if node_name:
        return node_name == node.name
    return all_nodes or (selector is not None and any(term_matches(term, node) for term in selector))


def _part(slice_: Slice, node: NodeFacts) -> SlicePart | None:
    """The part of a slice that the node can use; None: no part."""
    if not slice_.per_device:
        here = selected(node, slice_.node_name, slice_.all_nodes, slice_.node_selector)
        return SlicePart(slice_) if here else None
    indexes = tuple(
        index
        for index, each in enumerate(slice_.devices)
        if selected(node, each.node_name, each.all_nodes, each.node_selector)
    )
    return SlicePart(slice_, indexes) if indexes else None


def _newest(slices: dict[str, Slice]) -> list[Slice]:
    """The slices of the newest generation, by name."""
    generation = max(each.generation for each in slices.values())
    return [slices[name] for name in sorted(slices) if slices[name].generation == generation]


def _assembled(key: PoolKey, slices: dict[str, Slice], node: NodeFacts) -> NodePool | None:
    """The pool for the node; None: the newest generation has no device for it."""
    newest = _newest(slices)
    parts = tuple(part for part in (_part(each, node) for each in newest) if part is not None)
    if not parts:
        return None
    driver, name = key
    counters = {
        (each.name, counter): value for slice_ in newest for each in slice_.shared for counter, value in each.counters
    }
    problem = _problem(parts, newest)
    if problem:
        return NodePool(driver, name, parts, problem)
    consumers = tuple(
        (DeviceId(driver, name, device.name), device.consumes)
        for slice_ in newest
        for device in slice_.devices
        if device.consumes
    )
    return NodePool(driver, name, parts, "", counters, consumers)


def _problem(parts: tuple[SlicePart, ...], newest: list[Slice]) -> str:
    """Why the pool must not be used; "": it may."""
    count = parts[0].slice.count
    if count not in (len(newest), len(parts)):
        return f"is incomplete: {len(newest)} of {count} ResourceSlices exist"
    if sum(len(each.devices) for each in newest) > MAX_POOL_DEVICES:
        return f"has more than {MAX_POOL_DEVICES} devices"
    names: set[str] = set()
    for part in parts:
        for device in part.slice.devices:
            if device.name in names:
                return f"has two devices named {quoted(device.name)}"
            names.add(device.name)
    shared: dict[str, set[str]] = {}
    for slice_ in newest:
        for each in slice_.shared:
            if each.name in shared:
                return f"has two counter sets named {quoted(each.name)}"
            shared[each.name] = {counter for counter, _ in each.counters}
    for slice_ in newest:
        for device in slice_.devices:
            for consumed in device.consumes:
                if consumed.name not in shared:
                    return f"has no counter set {quoted(consumed.name)}, which device {quoted(device.name)} consumes"
                for counter, _ in consumed.counters:
                    if counter not in shared[consumed.name]:
                        return (
                            f"has no counter {quoted(counter)} in counter set {quoted(consumed.name)}, which device "
                            f"{quoted(device.name)} consumes"
                        )
    return ""
