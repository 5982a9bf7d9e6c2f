"""Nodes by labels: many selectors over many nodes, without comparing all of them with each other."""

from collections.abc import Collection, Mapping, Set

from muster.gangs.selectors import LabelSelector, Operator, Requirement


class LabelledNodes:
    """An index of nodes by the labels that selectors require. It lives as long as one computation."""

    def __init__(self, nodes: Mapping[str, Mapping[str, str]], keys: Collection[str]) -> None:
        """`nodes`: labels by node name; `keys`: labels that selectors name."""
        self._all = nodes.keys()
        self._having: dict[str, set[str]] = {key: set() for key in keys}
        self._by_value: dict[tuple[str, str], set[str]] = {}
        for name, labels in nodes.items():
            for key in labels.keys() & self._having.keys():
                self._having[key].add(name)
                self._by_value.setdefault((key, labels[key]), set()).add(name)

    def selected(self, selector: LabelSelector) -> Set[str]:
        """Names of the nodes that a selector selects."""
        if selector.requirements is None:
            return set()
        found: Set[str] = self._all
        for each in sorted(selector.requirements, key=_is_negative):
            found = found - self._of(each) if _is_negative(each) else self._of(each) & found
        return found

    def _of(self, requirement: Requirement) -> Set[str]:
        """Nodes that have the label, or one of the values if there are any."""
        if not requirement.values:
            return self._having[requirement.key]
        found = [self._by_value.get((requirement.key, value), set()) for value in requirement.values]
        return found[0] if len(found) == 1 else set().union(*found)


def _is_negative(requirement: Requirement) -> bool:
    return requirement.operator in (Operator.NOT_IN, Operator.DOES_NOT_EXIST)
