"""Bound pods of gangs as they are listed in solve requests that may remove some of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from msgspec import Struct

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.subgroups import subgroup_id
from muster.coordinator.core.preemption.surplus import given_up_order, kept_pods, losses, spare
from muster.gangs.facts import PodFacts
from muster.gangs.solve import PodsOnNode, VictimGang

MAX_EXACT: Final = 64
"""Pods of a gang whose order placement knows exactly; of the others it knows the order on each node."""


class OfferedPods(Struct, frozen=True):
    """Uids by node and kind, in the order in which they are removed, and their counts.

    Up to `spare` pods may be removed one by one, all of them in the first `spare_entries` of `counted`; `kept` are
    removed only with their whole gang.
    """

    places: dict[tuple[str, str], list[str]]
    counted: tuple[PodsOnNode, ...]
    spare: int = 0
    spare_entries: int = 0
    kept: frozenset[str] = frozenset()

    def taken(self, removed: VictimGang) -> list[str] | None:
        """The chosen pods; None if they are more than were offered."""
        counts: Counter[tuple[str, str]] = Counter()
        for each in removed.pods:
            if each.count <= 0:
                return None
            counts[each.node, each.class_id] += each.count
        uids: list[str] = []
        for place, count in counts.items():
            there = self.places.get(place, [])
            if count > len(there):
                return None
            uids += there[:count]
        return uids

    @staticmethod
    def of(places: dict[tuple[str, str], list[str]]) -> "OfferedPods":
        """Pods with their counts."""
        counted = tuple(PodsOnNode(node, kind, len(uids)) for (node, kind), uids in places.items())
        return OfferedPods(places, counted)


class SplitOffer(NamedTuple):
    """The bound pods of a gang: those that go one by one, subgroups that can go whole, and the others."""

    singly: OfferedPods
    subgroups: list[tuple[str, OfferedPods, tuple[str, ...]]]
    """By id in solve requests: the pods, and those of them that could go one by one, which go with the others."""
    rest: OfferedPods


def offered(pods: Iterable[tuple[str, str, str]]) -> OfferedPods:
    """Pods as (uid, node, kind), in the order in which they are removed."""
    places: dict[tuple[str, str], list[str]] = {}
    add_offered(places, pods)
    return OfferedPods.of(places)


def add_offered(places: dict[tuple[str, str], list[str]], pods: Iterable[tuple[str, str, str]]) -> None:
    """Add pods, given as (uid, node, kind), to the places where they are."""
    for uid, node, kind in pods:
        places.setdefault((node, kind), []).append(uid)


def surplus_first(gang: Gang, ledger: Ledger) -> OfferedPods:
    """The bound pods of the gang in the order in which it gives them up. Those that it can spare, at most MAX_EXACT,
    are listed one by one, so that placement knows their order across nodes.
    """
    if gang.facts is not None and gang.facts.subgroups:
        singly, subgroups, rest = losses(gang, ledger.selection)
        rest = [*(pod for subgroup in subgroups for pod in subgroup.pods), *rest]
        return _listed(singly, rest, len(singly), ledger)
    in_order, number = given_up_order(gang), spare(gang)
    kept = kept_pods(gang, in_order) if number else frozenset()
    singly = [pod for pod in in_order if pod.uid not in kept]
    return _listed(singly, [pod for pod in in_order if pod.uid in kept], min(number, len(singly)), ledger)


def split_offer(gang: Gang, ledger: Ledger) -> SplitOffer:
    """The bound pods of a gang by how it can lose them, as they are listed in requests."""
    singly, subgroups, rest = losses(gang, ledger.selection)

    def listed(pods: Iterable[PodFacts]) -> OfferedPods:
        return offered((pod.uid, pod.node, ledger.kind(pod.class_id, pod.label_set)) for pod in pods)

    return SplitOffer(
        _listed(singly, (), len(singly), ledger),
        [(each.id, listed(each.pods), tuple(pod.uid for pod in each.singly)) for each in subgroups],
        listed(rest),
    )


def _listed(singly: Sequence[PodFacts], rest: Sequence[PodFacts], number: int, ledger: Ledger) -> OfferedPods:
    """Pods of which `number` may be removed one by one, all of them among `singly`."""
    entries: list[tuple[tuple[str, str], list[str]]] = []
    places: dict[tuple[str, str], list[str]] = {}
    exact = min(number, MAX_EXACT)

    def place(pod: PodFacts) -> tuple[str, str]:
        return pod.node, ledger.kind(pod.class_id, pod.label_set)

    for at, pods in groupby(singly[:exact], key=place):
        entries.append((at, [pod.uid for pod in pods]))
    spare_entries = 0
    for part in (singly[exact:], rest):
        merged: dict[tuple[str, str], list[str]] = {}
        add_offered(merged, ((pod.uid, *place(pod)) for pod in part))
        entries += merged.items()
        spare_entries = spare_entries or len(entries)
    for at, uids in entries:
        places.setdefault(at, []).extend(uids)
    counted = tuple(PodsOnNode(node, kind, len(uids)) for (node, kind), uids in entries)
    return OfferedPods(places, counted, number, spare_entries if rest else 0, frozenset(pod.uid for pod in rest))


def singly_id(gang: Gang) -> str:
    """Id in solve requests of the pods that a gang can lose one by one, where they are listed apart from the others."""
    return subgroup_id(gang, "")
