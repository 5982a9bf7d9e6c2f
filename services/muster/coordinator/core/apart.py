"""Which pods have no node in common: those can be placed at the same time without knowing of one another."""

from collections.abc import Collection, Iterable

from muster.coordinator.core.ledger import Ledger


class Apart:
    """For every class that was asked about, the nodes that would take its pods if they were empty."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._takers: dict[str, set[str]] = {}
        self._known: dict[tuple[str, str], bool] = {}

    def are(self, classes: Collection[str], others: Collection[str]) -> bool:
        """No node would take pods of both."""
        return all(self._two_are(one, other) for one in classes for other in others)

    def look_again(self, nodes: Iterable[str]) -> None:
        """These nodes came, changed or went."""
        if not self._takers:
            return
        for node in nodes:
            for class_id, takers in self._takers.items():
                (takers.add if self._ledger.could_take(node, class_id) else takers.discard)(node)
        self._known.clear()

    def _two_are(self, one: str, other: str) -> bool:
        if one == other:
            return not self._of(one)
        pair = (one, other) if one < other else (other, one)
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = self._of(one).isdisjoint(self._of(other))
        return known

    def _of(self, class_id: str) -> set[str]:
        takers = self._takers.get(class_id)
        if takers is None:
            could_take = self._ledger.could_take
            takers = self._takers[class_id] = {node for node in self._ledger.nodes if could_take(node, class_id)}
        return takers
