"""Pools of devices, assembled from ResourceSlices, as one node sees them."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.devices.facts import MAX_POOL_DEVICES, CounterSet, Device, DeviceId, Selection, Slice
from muster.gangs.facts import NodeFacts
from muster.gangs.node_filters import term_matches
from muster.gangs.quoting import quoted

PoolKey = tuple[str, str]
"""Driver and name of a pool."""
CounterKey = tuple[str, str]
"""Counter set and counter of a pool."""
Stamp = tuple[int, int, tuple[int, ...]]
"""Number of pools of a node only, the newest version of its pools, and the views of those that nodes share."""
_Seen = tuple[tuple[str, tuple[int, ...] | None], ...]
"""Slices, and indexes of their devices, that nodes see."""
_FEW_VIEWS: Final = 16


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
    `view`: of a pool that nodes share, a number that nodes have in common which see the same devices of it; another
    one after each change of its slices. 0: the pool is of one node.
    """

    driver: str
    name: str
    parts: tuple[SlicePart, ...] = ()
    problem: str = ""
    counters: dict[CounterKey, int] = {}
    consumers: tuple[tuple[DeviceId, tuple[CounterSet, ...]], ...] = ()
    view: int = 0

    @property
    def key(self) -> PoolKey:
        return self.driver, self.name

    @property
    def devices(self) -> int:
        """Number of devices of the slices that the node can use."""
        return sum(len(part.slice.devices) for part in self.parts)


class Pools:
    """All ResourceSlices, by pool; only the newest generation of a pool counts.

    Nothing is remembered of slices that are gone: a pool whose driver starts again at a lower generation is used as
    soon as the slices of the higher one are removed. Pools of which every slice names the same node are assembled once
    per change; those that nodes share once for all nodes that see the same devices. Size: the slices that exist, and an
    entry for each node that was asked for while there are shared pools, until `remove_node`.
    """

    def __init__(self) -> None:
        self._slices: dict[str, Slice] = {}
        self._pools: dict[PoolKey, dict[str, Slice]] = {}
        self._on_node: dict[str, set[PoolKey]] = {}
        """Pools with a slice that names the node."""
        self._elsewhere: dict[PoolKey, int] = {}
        """Number of slices of a pool that name no node, where there are any."""
        self._local: dict[PoolKey, NodePool] = {}
        self._views: dict[PoolKey, dict[_Seen, NodePool]] = {}
        """Shared pools by the devices that a node sees; of each at most twice as many as nodes were asked for, and
        _FEW_VIEWS. Ends with a change of the pool's slices.
        """
        self._shared_of: dict[str, tuple[Mapping[str, str], tuple[NodePool, ...]]] = {}
        """Shared pools by node, for these labels; ends with a change of a shared pool's slices."""
        self._last_view = 0
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
        self._slices_changed(key)

    def remove(self, name: str) -> Slice | None:
        """Remove a slice; returns it if there was one."""
        slice_ = self._slices.pop(name, None)
        if slice_ is None:
            return None
        self.with_unsupported.pop(name, None)
        key = (slice_.driver, slice_.pool)
        slices = self._pools[key]
        del slices[name]
        self._slices_changed(key)
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

    def remove_node(self, name: str) -> None:
        """Forget which shared pools a node sees."""
        self._shared_of.pop(name, None)

    def _slices_changed(self, key: PoolKey) -> None:
        self.touch(key)
        if key in self._elsewhere:
            self._views.pop(key, None)
            self._shared_of.clear()

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

    def stamp(self, node: NodeFacts) -> Stamp:
        """Changes when the pools of the node do, or what is allocated of them."""
        keys = self._on_node.get(node.name, ())
        if not self._elsewhere:
            return len(keys), max((self.versions[key] for key in keys), default=0), ()
        shared = self.shared(node)
        newest = max((self.versions[key] for key in (*keys, *(each.key for each in shared))), default=0)
        return len(keys), newest, tuple(each.view for each in shared)

    def shared(self, node: NodeFacts) -> tuple[NodePool, ...]:
        """Pools with devices for the node that other nodes can use, too, by driver and name."""
        if not self._elsewhere:
            return ()
        known = self._shared_of.get(node.name)
        if known is not None and known[0] == node.labels:
            return known[1]
        found = (self._view(key, node) for key in sorted(self._elsewhere))
        pools = tuple(each for each in found if each is not None)
        self._shared_of[node.name] = node.labels, pools
        return pools

    def _view(self, key: PoolKey, node: NodeFacts) -> NodePool | None:
        """The shared pool as the node sees it; None: it has no device for it."""
        newest = _newest(self._pools[key])
        parts = _parts(newest, node)
        if not parts:
            return None
        views = self._views.setdefault(key, {})
        seen = tuple((part.slice.name, part.indexes) for part in parts)
        pool = views.get(seen)
        if pool is None:
            if len(views) >= 2 * len(self._shared_of) + _FEW_VIEWS:  # most are of nodes that are gone
                views.clear()
            self._last_view += 1
            pool = views[seen] = replace(_assembled(key, newest, parts), view=self._last_view)
        return pool

    def on_node(self, node: NodeFacts) -> list[NodePool]:
        """Pools with devices for the node, by driver and name."""
        found = list(self.shared(node))
        for key in sorted(self._on_node.get(node.name, set()) - self._elsewhere.keys()):
            pool = self._local.get(key)
            if pool is None:
                newest = _newest(self._pools[key])
                if not (parts := _parts(newest, node)):
                    continue
                pool = _assembled(key, newest, parts)
                if all(each.node_name == node.name for each in self._pools[key].values()):
                    self._local[key] = pool
            found.append(pool)
        found.sort(key=lambda each: each.key)
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


def _parts(newest: list[Slice], node: NodeFacts) -> tuple[SlicePart, ...]:
    """The parts of a pool's slices that the node can use."""
    return tuple(part for part in (_part(each, node) for each in newest) if part is not None)


def _assembled(key: PoolKey, newest: list[Slice], parts: tuple[SlicePart, ...]) -> NodePool:
    """The pool of which a node can use these parts."""
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
