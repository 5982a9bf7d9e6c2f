"""Pods that are offered to placement by node and class, so that the counts in its answer lead back to them."""

from collections.abc import Iterable

from msgspec import Struct

from muster.gangs.solve import PodsOnNode, VictimGang


class OfferedPods(Struct, frozen=True):
    """Uids by node and class, those that are to go first first; and how many they are."""

    places: dict[tuple[str, str], list[str]]
    counted: tuple[PodsOnNode, ...]

    def taken(self, removed: VictimGang) -> list[str] | None:
        """The pods that are meant; None if it is more than was offered."""
        uids: list[str] = []
        for each in removed.pods:
            there = self.places.get((each.node, each.class_id), [])
            if not 0 < each.count <= len(there):
                return None
            uids += there[: each.count]
        return uids


def offered(pods: Iterable[tuple[str, str, str]]) -> OfferedPods:
    """Pods as (uid, node, class id), those that are to go first first."""
    places: dict[tuple[str, str], list[str]] = {}
    for uid, node, class_id in pods:
        places.setdefault((node, class_id), []).append(uid)
    return OfferedPods(
        places, tuple(PodsOnNode(node, class_id, len(uids)) for (node, class_id), uids in places.items())
    )
