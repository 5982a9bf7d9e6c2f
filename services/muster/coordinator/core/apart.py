"""Which pods can be placed at the same time without knowing of one another: those that have no node in common.

Pods that mind each other, whatever the nodes, never can. The ledger knows amounts, so it would not find the conflict.
"""

from collections.abc import Collection, Iterable

from muster.coordinator.core.ledger import Ledger
from muster.gangs.facts import PodClass


class Apart:
    """For every class that was asked about, the nodes that would take its pods if they were empty."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._takers: dict[str, set[str]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def are(self, classes: Collection[str], others: Collection[str]) -> bool:
        """No node would take pods of both, and they do not mind each other."""
        return all(self._two_are(one, other) for one in classes for other in others)

    def conflicts_show(self, classes: Collection[str], others: Collection[str]) -> bool:
        """If both are placed where there is room for the one only, the ledger finds out."""
        known = self._ledger.classes
        return not any(
            _mind(known[one], known[other]) or (known[one].host_ports and known[other].host_ports)
            for one in classes
            for other in others
        )

    def look_again(self, nodes: Iterable[str]) -> None:
        """These nodes came, changed or went."""
        if not self._takers:
            return
        for node in nodes:
            for class_id, takers in self._takers.items():
                (takers.add if self._ledger.could_take(node, class_id) else takers.discard)(node)
        self._known.clear()

    def _two_are(self, one: str, other: str) -> bool:
        pair = (one, other) if one < other else (other, one)
        known = self._known.get(pair)
        if known is None:
            mind = _mind(self._ledger.classes[one], self._ledger.classes[other])
            known = self._known[pair] = not mind and self._of(one).isdisjoint(self._of(other))
        return known

    def _of(self, class_id: str) -> set[str]:
        takers = self._takers.get(class_id)
        if takers is None:
            could_take = self._ledger.could_take
            takers = self._takers[class_id] = {node for node in self._ledger.nodes if could_take(node, class_id)}
        return takers


def _mind(one: PodClass, other: PodClass) -> bool:
    """Where pods of the one are matters to those of the other: by affinity, anti-affinity or spread that must hold."""
    return not _named(one).isdisjoint(other.selected_by) or not _named(other).isdisjoint(one.selected_by)


def _named(pod_class: PodClass) -> set[str]:
    terms = (*pod_class.required_pod_affinity, *pod_class.required_pod_anti_affinity)
    return {term.selector for term in terms} | {spread.selector for spread in pod_class.spread if spread.hard}
