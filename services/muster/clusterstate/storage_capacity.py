"""Storage that drivers can provision for nodes (CSIStorageCapacity), as offers of nodes and requests of pods."""

from collections import Counter
from collections.abc import Callable

from muster.gangs.counted_resources import storage_capacity, volume_size
from muster.gangs.facts import Amounts, NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.node_regions import NodeRegions, Region
from muster.gangs.quantity import MAX_AMOUNT
from muster.kube.csi_facts import CSIDriver, CSIStorageCapacity, SegmentFacts, segment_facts
from muster.kube.volume_facts import NodeTerms

Labels = dict[str, str]


class StorageCapacities:
    """Capacity by storage class and region. It counts for classes of drivers that publish it, by their CSIDriver.

    Entries end with their objects (I11).
    """

    def __init__(self, regions: NodeRegions) -> None:
        self._regions = regions
        self._segments: dict[str, SegmentFacts] = {}  # by uid
        self._at: dict[Region, dict[str, SegmentFacts]] = {}  # by uid
        self._limiting: Counter[str] = Counter()  # segments with a largest volume, by storage class
        self._drivers: dict[str, str] = {}  # drivers that publish capacity, by uid

    def __len__(self) -> int:
        """Number of segments."""
        return len(self._segments)

    def put_driver(self, driver: CSIDriver) -> set[str]:
        """Take in a driver. Returns drivers that publish capacity now and did not, or the other way round."""
        before = self._published
        metadata = driver.metadata
        self._drivers.pop(metadata.uid, None)
        if driver.spec.storage_capacity:
            self._drivers[metadata.uid] = metadata.name
        return before ^ self._published

    def drop_driver(self, uid: str) -> set[str]:
        """Forget a driver. Returns drivers that do not publish capacity any more."""
        before = self._published
        self._drivers.pop(uid, None)
        return before ^ self._published

    def publishes(self, driver: str) -> bool:
        """The driver publishes capacity."""
        return driver in self._drivers.values()

    def put(self, given: CSIStorageCapacity) -> tuple[set[str], set[str]]:
        """Take in a segment. Returns the nodes concerned, and storage classes for which it changes whether they limit
        the size of volumes.
        """
        return self._set(given.metadata.uid, segment_facts(given))

    def drop(self, uid: str) -> tuple[set[str], set[str]]:
        """Forget a segment; see `put`."""
        return self._set(uid, None)

    def offered(self, node: str, published: Callable[[str], bool]) -> tuple[Amounts, Labels]:
        """Amounts that a node offers of classes whose capacity is published, and labels with the sizes of the
        largest volumes.

        Any one segment may have the volume, so that the largest counts.
        """
        capacity: dict[str, int] = {}
        largest: dict[str, int] = {}
        for region in self._regions.regions(node):
            for each in self._at.get(region, {}).values():
                name = each.storage_class
                if published(name):
                    most = each.volume_bytes if each.volume_bytes is not None else each.capacity_bytes or 0
                    in_all = each.capacity_bytes if each.capacity_bytes is not None else MAX_AMOUNT
                    capacity[name] = max(min(in_all, MAX_AMOUNT) if most else 0, capacity.get(name, 0))
                    largest[name] = max(most, largest.get(name, 0))
        offers = tuple((storage_capacity(name), amount) for name, amount in capacity.items() if amount)
        return offers, {volume_size(name): str(most) for name, most in largest.items() if self.limits_size(name)}

    def limits_size(self, storage_class: str) -> bool:
        """A segment of the class limits the size of one volume."""
        return storage_class in self._limiting

    def large_enough(self, storage_class: str, size_bytes: int) -> NodeTerms:
        """Terms that match nodes for which the class can provision a volume of this size."""
        least = NodeRequirement(volume_size(storage_class), NodeOperator.GT, (str(size_bytes - 1),))
        return (NodeSelectorTerm((least,)),)

    @property
    def _published(self) -> set[str]:
        return set(self._drivers.values())

    def _set(self, uid: str, after: SegmentFacts | None) -> tuple[set[str], set[str]]:
        before = self._segments.pop(uid, None)
        if before == after:
            if after is not None:
                self._segments[uid] = after
            return set(), set()
        limiting = set(self._limiting)
        nodes: set[str] = set()
        if before is not None:
            nodes.update(self._regions.nodes(before.region))
            del self._at[before.region][uid]
            if not self._at[before.region]:
                del self._at[before.region]
            self._count(before, -1)
            self._regions.discard(before.region)
        if after is not None:
            self._segments[uid] = after
            self._regions.add(after.region)
            self._at.setdefault(after.region, {})[uid] = after
            self._count(after, 1)
            nodes.update(self._regions.nodes(after.region))
        return nodes, limiting ^ set(self._limiting)

    def _count(self, segment: SegmentFacts, sign: int) -> None:
        if segment.volume_bytes is not None:
            self._limiting[segment.storage_class] += sign
            if not self._limiting[segment.storage_class]:
                del self._limiting[segment.storage_class]
