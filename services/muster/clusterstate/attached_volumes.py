"""Attach limits of nodes (CSINode), and which volumes are attached to them by the pods that are there."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from muster.gangs.counted_resources import UNLIMITED, attachments
from muster.gangs.facts import Amounts
from muster.kube.csi_facts import CSINode, attach_limits

_NO_LIMITS: Final[Mapping[str, int]] = {}


class Attachment(Struct, frozen=True, gc=False):
    """A volume that a pod needs attached to its node.

    `volume` is its driver's handle, or its claim while it does not exist. `counted`: the pod's class requests it.
    """

    driver: str
    volume: str
    counted: bool = True


Attachments = tuple[Attachment, ...]


class AttachLimits:
    """Limits by node and driver. A driver is limited if it has a limit on some node; on the others it has none.

    Entries end with their CSINode (I11).
    """

    def __init__(self) -> None:
        self._of_node: dict[str, Mapping[str, int]] = {}
        self._names: dict[str, str] = {}  # uid of a CSINode -> name
        self._uids: dict[str, str] = {}
        self._sizes: defaultdict[str, Counter[int]] = defaultdict(Counter)  # driver -> limits, with numbers of nodes
        self._smallest: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of nodes with limits."""
        return len(self._of_node)

    def put(self, csi_node: CSINode) -> tuple[bool, set[str]]:
        """Take in a CSINode. Returns whether limits of its node changed, and drivers whose smallest limit did."""
        metadata = csi_node.metadata
        self._names[metadata.uid] = metadata.name
        self._uids[metadata.name] = metadata.uid
        return self._set(metadata.name, attach_limits(csi_node))

    def drop(self, uid: str) -> tuple[str, set[str]]:
        """Forget a CSINode. Returns its name, empty if it had no limits, and drivers whose smallest limit changed."""
        name = self._names.pop(uid, "")
        if self._uids.get(name) != uid:  # another one has its name by now
            return "", set()
        del self._uids[name]
        changed, drivers = self._set(name, _NO_LIMITS)
        return name if changed else "", drivers

    def smallest(self, driver: str) -> int | None:
        """The smallest limit of a driver on any node; None: it has none."""
        return self._smallest.get(driver)

    @property
    def drivers(self) -> Collection[str]:
        """Limited drivers."""
        return self._smallest.keys()

    def limit(self, node: str, driver: str) -> int:
        """Volumes of a limited driver that may be attached to a node."""
        return self._of_node.get(node, _NO_LIMITS).get(driver, UNLIMITED)

    def _set(self, node: str, limits: Mapping[str, int]) -> tuple[bool, set[str]]:
        before = self._of_node.pop(node, _NO_LIMITS)
        if limits:
            self._of_node[node] = limits
        if before == limits:
            return False, set()
        return True, {driver for driver in before.keys() | limits.keys() if self._count(driver, before, limits)}

    def _count(self, driver: str, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Count another limit of a driver on a node; returns whether its smallest limit changed."""
        sizes, smallest = self._sizes[driver], self._smallest.get(driver)
        old, new = before.get(driver), after.get(driver)
        if new is not None:
            sizes[new] += 1
        if old is not None:
            sizes[old] -= 1
            if not sizes[old]:
                del sizes[old]
        if not sizes:
            del self._sizes[driver], self._smallest[driver]
        elif new is not None and (smallest is None or new < smallest):
            self._smallest[driver] = new
        elif smallest not in sizes:
            self._smallest[driver] = min(sizes)
        return smallest != self._smallest.get(driver)


class AttachedVolumes:
    """Volumes on nodes by driver. A volume is attached once, however many pods of the node use it, and each of their
    classes may request it: the difference is added to what the node offers. Entries end when pods leave (I11).
    """

    def __init__(self, limits: AttachLimits) -> None:
        self._limits = limits
        self._pods: dict[str, tuple[str, Attachments]] = {}
        self._volumes: dict[tuple[str, str], Counter[str]] = {}  # pods by volume, on a node by a driver
        self._counted: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        """Number of pods on nodes with volumes of limited drivers."""
        return len(self._pods)

    def put(self, uid: str, node: str, volumes: Attachments) -> set[str]:
        """Set a pod's node (empty: none) and volumes. Returns the nodes that offer another number."""
        before = self._pods.get(uid, ("", ()))
        after = (node, volumes) if node and volumes else ("", ())
        if before == after:
            return set()
        places = {(where, each.driver) for where, all_ in (before, after) for each in all_}
        spare = {place: self._spare(place) for place in places}
        self._count(before, -1)
        self._count(after, 1)
        if after[0]:
            self._pods[uid] = after
        else:
            self._pods.pop(uid, None)
        return {place[0] for place in places if self._spare(place) != spare[place]}

    def offered(self, node: str) -> Amounts:
        """Attachable volumes of a node by driver: its limit, and volumes that several of its pods request."""
        return tuple(
            (attachments(driver), amount)
            for driver in self._limits.drivers
            if (amount := self._limits.limit(node, driver) + self._spare((node, driver))) > 0
        )

    def _spare(self, place: tuple[str, str]) -> int:
        return self._counted[place] - len(self._volumes.get(place, ())) if place in self._volumes else 0

    def _count(self, of_pod: tuple[str, Attachments], sign: int) -> None:
        node, volumes = of_pod
        for each in volumes:
            place = (node, each.driver)
            pods = self._volumes.setdefault(place, Counter())
            pods[each.volume] += sign
            if not pods[each.volume]:
                del pods[each.volume]
            self._counted[place] += sign * each.counted
            if not pods:
                del self._volumes[place]
                del self._counted[place]
