"""Volumes of storage classes without a provisioner, as offers of nodes and requests of pods.

A node offers, for each size that the class has, the number of its free volumes of at least this size. A claim requests
one of its own size and one of each smaller size: so the claims on a node have volumes if and only if none of these
numbers is exceeded. Which claim gets which volume is decided with the permit, by the coordinator.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from muster.gangs.counted_resources import static_volumes
from muster.gangs.facts import Amounts
from muster.gangs.node_regions import NodeRegions, Region
from muster.kube.volume_facts import VolumeFacts, VolumeNeeds

MAX_SIZES = 16
"""Sizes of a class that are told apart; of more sizes, claims request a smaller one, so that a node may turn out to
have no volume that is large enough when the volumes are chosen."""

_Modes = tuple[str, str]
"""Volume mode and access mode."""


class _Sizes:
    """Sizes of the volumes of one class and volume mode, `every` and `told_apart` in ascending order."""

    def __init__(self) -> None:
        self.every: list[int] = []
        self.told_apart: list[int] = []
        self._volumes: Counter[int] = Counter()

    def count(self, size: int, sign: int) -> bool:
        """Count a volume. Returns whether other sizes are told apart."""
        self._volumes[size] += sign
        if sign > 0 and self._volumes[size] == 1:
            insort(self.every, size)
        elif not self._volumes[size]:
            del self._volumes[size]
            del self.every[bisect_left(self.every, size)]
        before, self.told_apart = self.told_apart, self.every[:: -(-len(self.every) // MAX_SIZES) or 1]
        return before != self.told_apart

    def requested(self, size: int) -> Sequence[int]:
        """The sizes that a claim requests."""
        at = bisect_left(self.every, size)
        if at == len(self.every):  # no volume is large enough
            return (size,)
        return [each for each in self.told_apart if each <= self.every[at]]


_NO_SIZES: Final = _Sizes()


class StaticVolumes:
    """Volumes by class and region. Entries end with their volume (I11)."""

    def __init__(self, regions: NodeRegions) -> None:
        self._regions = regions
        self._sizes: dict[tuple[str, str], _Sizes] = {}  # by class and volume mode
        self._free: dict[Region, dict[str, dict[_Modes, Counter[int]]]] = {}  # class, modes, size -> number

    def add(self, volume: VolumeFacts, sign: int) -> bool:
        """Count a volume, free or not, or with -1 forget it. Returns whether other sizes are told apart."""
        key = (volume.storage_class, volume.has.volume_mode)
        sizes = self._sizes.setdefault(key, _Sizes())
        changed = sizes.count(volume.has.size_bytes, sign)
        if not sizes.every:
            del self._sizes[key]
        return changed

    def free(self, volume: VolumeFacts, sign: int) -> Collection[str]:
        """Count a free volume, or with -1 one that is not free any more. Returns the nodes concerned."""
        region, has = volume.demands, volume.has
        if sign > 0:
            self._regions.add(region)
        nodes = tuple(self._regions.nodes(region))
        by_modes = self._free.setdefault(region, {}).setdefault(volume.storage_class, {})
        for access_mode in has.access_modes:
            sizes = by_modes.setdefault((has.volume_mode, access_mode), Counter())
            sizes[has.size_bytes] += sign
            if not sizes[has.size_bytes]:
                del sizes[has.size_bytes]
            if not sizes:
                del by_modes[has.volume_mode, access_mode]
        if not by_modes:
            del self._free[region][volume.storage_class]
        if not self._free[region]:
            del self._free[region]
        if sign < 0:
            self._regions.discard(region)
        return nodes

    def offered(self, node: str, is_static: Callable[[str], bool]) -> Amounts:
        """Free volumes that a node can use."""
        found: Counter[str] = Counter()
        for region in self._regions.regions(node):
            for name, by_modes in self._free.get(region, {}).items():
                if is_static(name):
                    for modes, sizes in by_modes.items():
                        self._count(found, name, modes, sizes)
        return tuple(found.items())

    def _count(self, found: Counter[str], name: str, modes: _Modes, sizes: Mapping[int, int]) -> None:
        for least in self._sizes[name, modes[0]].told_apart:
            number = sum(count for size, count in sizes.items() if size >= least)
            if number:
                found[static_volumes(name, *modes, least)] += number

    def requested(self, name: str, needs: VolumeNeeds) -> Amounts:
        """Requests of a claim of the class."""
        sizes = self._sizes.get((name, needs.volume_mode), _NO_SIZES).requested(needs.size_bytes)
        return tuple(
            (static_volumes(name, needs.volume_mode, access_mode, size), 1)
            for access_mode in needs.access_modes
            for size in sizes
        )
