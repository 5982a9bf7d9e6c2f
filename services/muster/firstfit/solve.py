"""First fit: each member goes to the first node, by name, on which it fits; a group that does not reach its minimums is
not placed. Unsupported features are rejected by name, never ignored.
"""

from collections import Counter
from collections.abc import Mapping

from muster.firstfit.node_usage import NodeUsage
from muster.gangs.facts import PodClass
from muster.gangs.solve import Assignment, Explanation, SolveGang, SolveGroup, SolveOutcome, SolveResult


def solve_group(
    usage: NodeUsage, classes: Mapping[str, PodClass], group: SolveGroup, *, preemption_allowed: bool = False
) -> SolveResult:
    """The result for one group; its seats remain in `usage`.

    `preemption_allowed`: the request has potential victims. This implementation ignores them, so it proves nothing.
    """
    unsupported = _unsupported(group, classes)
    if unsupported:
        summary = f"first-fit does not support {unsupported}; use another placement for it"
        return SolveResult(group.id, SolveOutcome.NOT_FOUND, explanation=Explanation(summary))
    seats = [_Seats(usage, classes, gang) for gang in group.gangs]
    for gang, seated in zip(group.gangs, seats, strict=True):  # all minimums before any member above a minimum
        if seated.fill(gang.minimum) < gang.minimum:
            proved = not preemption_allowed and _counting_proves(group, classes)
            explanation = seated.explain()
            for each in seats:
                each.release()
            outcome = SolveOutcome.INFEASIBLE if proved else SolveOutcome.NOT_FOUND
            return SolveResult(group.id, outcome, explanation=explanation)
    for gang, seated in zip(group.gangs, seats, strict=True):
        seated.fill(sum(role.wanted for role in gang.roles))
    assignments = tuple(assignment for seated in seats for assignment in seated.assignments())
    return SolveResult(group.id, SolveOutcome.PLACED, assignments)


class _Seats:
    """Seats of one gang's members by role and node."""

    def __init__(self, usage: NodeUsage, classes: Mapping[str, PodClass], gang: SolveGang) -> None:
        self._usage, self._gang = usage, gang
        self._roles = [(classes[role.class_id], role.wanted) for role in gang.roles]
        self._seats: Counter[tuple[int, str]] = Counter()
        self._seated = [0] * len(self._roles)

    def fill(self, wanted: int) -> int:
        """Seat members, in the order of roles, until `wanted` have a seat; returns how many have."""
        for index, (pod_class, of_role) in enumerate(self._roles):
            for node in self._usage.nodes:
                while (
                    self._seated[index] < of_role and sum(self._seated) < wanted and self._usage.fits(pod_class, node)
                ):
                    self._usage.put(pod_class, node)
                    self._seats[index, node] += 1
                    self._seated[index] += 1
        return sum(self._seated)

    def release(self) -> None:
        """Give up all seats."""
        for (index, node), count in self._seats.items():
            self._usage.put(self._roles[index][0], node, -count)
        self._seats.clear()
        self._seated = [0] * len(self._roles)

    def assignments(self) -> list[Assignment]:
        return [Assignment(self._gang.id, index, node, count) for (index, node), count in self._seats.items()]

    def explain(self) -> Explanation:
        """Why each node rejects the first member that has no seat."""
        index = next(index for index, (_, wanted) in enumerate(self._roles) if self._seated[index] < wanted)
        lost = Counter(self._usage.filter_reason(self._roles[index][0], node) or "" for node in self._usage.nodes)
        fit, needed, nodes = sum(self._seated), self._gang.minimum, len(self._usage.nodes)
        reasons = ", ".join(f"{count} {reason}" for reason, count in lost.most_common()) or "there are no nodes"
        return Explanation(
            summary=f"{fit} of {needed} members fit first-fit; 0/{nodes} nodes fit the next one: {reasons}",
            gang=self._gang.id,
            class_id=self._gang.roles[index].class_id,
            fit=fit,
            needed=needed,
            filtered_nodes=tuple(lost.most_common()),
        )


def _unsupported(group: SolveGroup, classes: Mapping[str, PodClass]) -> str:
    """A feature that the group requires and this implementation lacks; "" if none."""
    if group.composites:
        return "composites"
    if any(constraint.hard for gang in group.gangs for constraint in gang.constraints):
        return "hard topology constraints"
    for pod_class in (classes[role.class_id] for gang in group.gangs for role in gang.roles):
        if pod_class.shared_claims:
            return "ResourceClaims that pods share before they are allocated"
        if pod_class.required_pod_affinity:
            return "required pod affinity"
        if any(spread.hard for spread in pod_class.spread):
            return "topologySpreadConstraints with DoNotSchedule"
    return ""


def _counting_proves(group: SolveGroup, classes: Mapping[str, PodClass]) -> bool:
    """First fit is exact: all members are equal and have no anti-affinity, so their order does not matter."""
    roles = [role for gang in group.gangs for role in gang.roles]
    return len(roles) == 1 and not classes[roles[0].class_id].required_pod_anti_affinity
