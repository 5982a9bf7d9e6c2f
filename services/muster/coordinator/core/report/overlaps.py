"""Finds members that two policies put into a subgroup, of which only the first counts."""

from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.subgroups import assignments
from muster.gangs.facts import SubgroupPolicy
from muster.gangs.quoting import quoted
from muster.gangs.selection import PodSelection


class Overlaps:
    """The overlaps of one gang. Each label set is compared with the policies once, when the gang has another number of
    members than before; entries end with the last member that has the label set (I11).
    """

    def __init__(self) -> None:
        self._policies: tuple[SubgroupPolicy, ...] = ()
        self._members = 0
        self._found: dict[str, tuple[str, str] | None] = {}
        """By label set: the names of the policy that counts and of the next one."""
        self._text = ""

    def describe(self, gang: Gang, selection: PodSelection) -> str:
        """Names a member in subgroups of two policies, and both; empty: there is none."""
        policies = gang.facts.subgroups if gang.facts is not None else ()
        if policies != self._policies:
            self._policies, self._members, self._found, self._text = policies, 0, {}, ""
        if len(policies) < 2 or len(gang.pods) == self._members:
            return self._text
        known, self._found = self._found, {}
        self._members, self._text = len(gang.pods), ""
        for pod in gang.pods.values():
            label_set = pod.label_set
            if label_set not in self._found:
                names = known[label_set] if label_set in known else self._compare(selection, label_set)
                self._found[label_set] = names
                if names is not None and not self._text:
                    self._text = _text(pod.name, *names)
        return self._text

    def _compare(self, selection: PodSelection, label_set: str) -> tuple[str, str] | None:
        found = assignments(self._policies, selection.labels(label_set))
        if (first := next(found, None)) is None or (second := next(found, None)) is None:
            return None
        return self._policies[first[0]].name, self._policies[second[0]].name


def _text(pod: str, first: str, second: str) -> str:
    both = f"pod {quoted(pod)} is in a subgroup of policy {quoted(first)} and in one of policy {quoted(second)}"
    return f"{both}: only the first counts; give each policy a labelSelector of its own"
