"""First fit: each member goes to the first node, by name, that takes it; a group that does not reach its minimums goes
nowhere. What this implementation leaves out is refused by name, never passed over.
"""

from collections import Counter
from collections.abc import Mapping

from muster.firstfit.table import Table
from muster.gangs.facts import PodClass
from muster.placement.v1 import placement_pb2 as pb

_Outcome = pb.GroupResult.Outcome


def solve_group(
    table: Table, classes: Mapping[str, PodClass], group: pb.GangGroup, *, as_it_is: bool = True
) -> pb.GroupResult:
    """The answer for one group; what it was given stays taken. Not `as_it_is`: something might have been removed for
    it, which this implementation does not try.
    """
    missing = _not_supported(group, classes)
    if missing:
        explanation = pb.Explanation(summary=f"first-fit does not support {missing}; use another placement for it")
        return pb.GroupResult(id=group.id, outcome=_Outcome.OUTCOME_NOT_FOUND, explanation=explanation)
    seats = [_Seats(table, classes, gang) for gang in group.gangs]
    for gang, seated in zip(group.gangs, seats, strict=True):  # all minimums before anybody's members above it
        if seated.fill(gang.minimum) < gang.minimum:
            outcome = (
                _Outcome.OUTCOME_INFEASIBLE if as_it_is and _proved(group, classes) else _Outcome.OUTCOME_NOT_FOUND
            )
            explanation = seated.explain()
            for each in seats:
                each.give_back()
            return pb.GroupResult(id=group.id, outcome=outcome, explanation=explanation)
    for gang, seated in zip(group.gangs, seats, strict=True):
        seated.fill(sum(role.wanted for role in gang.roles))
    return pb.GroupResult(
        id=group.id,
        outcome=_Outcome.OUTCOME_PLACED,
        assignments=[assignment for seated in seats for assignment in seated.assignments()],
    )


class _Seats:
    """What the members of one gang have been given: how many, by role and node."""

    def __init__(self, table: Table, classes: Mapping[str, PodClass], gang: pb.Gang) -> None:
        self._table, self._gang = table, gang
        self._roles = [(classes[role.class_id], role.wanted) for role in gang.roles]
        self._given: Counter[tuple[int, str]] = Counter()
        self._have = [0] * len(self._roles)

    def fill(self, wanted: int) -> int:
        """Go on until so many have a seat, first roles first; returns how many have."""
        for index, (pod_class, of_role) in enumerate(self._roles):
            for node in self._table.nodes:
                while self._have[index] < of_role and sum(self._have) < wanted and self._table.takes(pod_class, node):
                    self._table.put(pod_class, node)
                    self._given[index, node] += 1
                    self._have[index] += 1
        return sum(self._have)

    def give_back(self) -> None:
        """Nobody has a seat any more."""
        for (index, node), count in self._given.items():
            self._table.put(self._roles[index][0], node, -count)
        self._given.clear()
        self._have = [0] * len(self._roles)

    def assignments(self) -> list[pb.Assignment]:
        return [
            pb.Assignment(gang=self._gang.id, role=index, node=node, count=count)
            for (index, node), count in self._given.items()
        ]

    def explain(self) -> pb.Explanation:
        """What keeps each node from taking the first member that found none."""
        index = next(index for index, (_, wanted) in enumerate(self._roles) if self._have[index] < wanted)
        lost = Counter(self._table.in_the_way(self._roles[index][0], node) or "" for node in self._table.nodes)
        fit, needed, nodes = sum(self._have), self._gang.minimum, len(self._table.nodes)
        reasons = ", ".join(f"{count} {reason}" for reason, count in lost.most_common()) or "there are no nodes"
        return pb.Explanation(
            summary=f"{fit} of {needed} members fit first-fit; 0/{nodes} nodes take the next: {reasons}",
            gang=self._gang.id,
            class_id=self._gang.roles[index].class_id,
            fit=fit,
            needed=needed,
            filtered_nodes=[pb.FilteredNodes(reason=reason, nodes=count) for reason, count in lost.most_common()],
        )


def _not_supported(group: pb.GangGroup, classes: Mapping[str, PodClass]) -> str:
    """What the group asks for that it would not be sure to get; "" if nothing."""
    if any(constraint.hard for gang in group.gangs for constraint in gang.constraints):
        return "hard topology constraints"
    for pod_class in (classes[role.class_id] for gang in group.gangs for role in gang.roles):
        if pod_class.required_pod_affinity:
            return "required pod affinity"
        if any(spread.hard for spread in pod_class.spread):
            return "topologySpreadConstraints with DoNotSchedule"
    return ""


def _proved(group: pb.GangGroup, classes: Mapping[str, PodClass]) -> bool:
    """Members of one kind that do not keep each other away: in whatever order, as many fit and no more."""
    roles = [role for gang in group.gangs for role in gang.roles]
    return len(roles) == 1 and not classes[roles[0].class_id].required_pod_anti_affinity
