"""Checks placement's answers: nothing is believed that the ledger and the gangs' own members do not bear out."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from muster.coordinator.core.divided import broken_constraint
from muster.coordinator.core.events import Seat
from muster.coordinator.core.gang import Gang
from muster.coordinator.core.group import Group
from muster.coordinator.core.ledger import Ledger
from muster.coordinator.core.questions import placed
from muster.coordinator.core.refusals import Refusal, RefusalReason
from muster.coordinator.core.trees import Trees
from muster.gangs.capacity import Int64
from muster.gangs.facts import PodFacts
from muster.gangs.solve import Assignment, SolveGroup


def refused_or_seated(
    ledger: Ledger,
    trees: Trees,
    group: Group,
    asked: SolveGroup,
    assignments: Sequence[Assignment],
    nominated: Mapping[str, Int64],
) -> Refusal | dict[Gang, int]:
    """Give seats to the members and reserve them, or say why the answer cannot be used and change nothing. Returns how
    many members of which gangs got a seat.

    Members that went away since the question leave their seats empty; the minimum must be reached without them, unless
    the group accumulates.
    """
    gangs = {gang.id: gang for gang in group.gangs}
    wanted = _wanted_by_role(asked)
    malformed = _malformed(gangs, wanted, assignments)
    if malformed is not None:
        return Refusal(RefusalReason.MALFORMED, malformed)
    seats = _seats(gangs, wanted, assignments)
    for gang in group.to_seat if not group.accumulates else ():
        if len(seats[gang.id]) < gang.minimum:
            message = f"it seats {len(seats[gang.id])} of gang {gang.label}, which needs {gang.minimum}"
            return Refusal(RefusalReason.INCOMPLETE, message)
    demand = Counter((seat.node, seat.class_id) for taken in seats.values() for seat in taken)
    problem = ledger.refusal(demand, nominated)
    if problem is not None:
        return problem
    for gang_id, taken in seats.items():
        nodes = Counter(seat.node for seat in taken)
        broken = forbidden(ledger, trees, gangs[gang_id], nodes, whole=not group.accumulates)
        if broken is not None:
            return Refusal(RefusalReason.CONSTRAINT, broken)
    for gang_id, taken in seats.items():
        ledger.reserve(taken)
        for seat in taken:
            gangs[gang_id].take_seat(seat)
    return {gang: len(seats[gang.id]) for gang in group.gangs if seats[gang.id]}


def forbidden(ledger: Ledger, trees: Trees, gang: Gang, taken: Counter[str], *, whole: bool) -> str | None:
    """Which hard constraint of the gang forbids so many more members on these nodes; None: none does."""
    if not taken or not any(each.hard for each in gang.constraints):
        return None
    before: Counter[str] = Counter()
    for pods in placed(gang):
        before[pods.node] += pods.count
    return broken_constraint(gang, trees, ledger.nodes, before, before + taken, whole=whole)


def _wanted_by_role(asked: SolveGroup) -> dict[tuple[str, int], tuple[str, int]]:
    return {
        (gang.id, index): (role.class_id, role.wanted) for gang in asked.gangs for index, role in enumerate(gang.roles)
    }


def _malformed(
    gangs: dict[str, Gang], wanted: dict[tuple[str, int], tuple[str, int]], assignments: Sequence[Assignment]
) -> str | None:
    placed: Counter[tuple[str, int]] = Counter()
    for assignment in assignments:
        key = (assignment.gang, assignment.role)
        if key not in wanted:
            return f'it seats role {assignment.role} of gang "{assignment.gang[:64]}", for which it was not asked'
        if assignment.count < 1:
            return f'it seats {assignment.count} pods on node "{assignment.node[:64]}"'
        placed[key] += assignment.count
    for (gang_id, role), count in placed.items():
        if gang_id in gangs and count > wanted[gang_id, role][1]:
            return f"it seats {count} pods of gang {gangs[gang_id].label}, {wanted[gang_id, role][1]} were asked"
    return None


def _seats(
    gangs: dict[str, Gang], wanted: dict[tuple[str, int], tuple[str, int]], assignments: Sequence[Assignment]
) -> dict[str, list[Seat]]:
    """Which pod goes where: members of a role by name, assignments in the order of the answer."""
    members: dict[str, dict[str, list[PodFacts]]] = {}
    seats: dict[str, list[Seat]] = {gang_id: [] for gang_id in gangs}
    for assignment in assignments:
        if assignment.gang not in gangs:
            continue
        if assignment.gang not in members:
            members[assignment.gang] = _members_by_class(gangs[assignment.gang])
        class_id = wanted[assignment.gang, assignment.role][0]
        pods = members[assignment.gang].get(class_id, [])
        for _ in range(min(assignment.count, len(pods))):
            pod = pods.pop()
            seats[assignment.gang].append(Seat(pod.uid, pod.namespace, pod.name, class_id, assignment.node))
    return seats


def _members_by_class(gang: Gang) -> dict[str, list[PodFacts]]:
    """Waiting members by class, the first by name at the end of each list."""
    members: defaultdict[str, list[PodFacts]] = defaultdict(list)
    for pod in sorted(gang.waiting.values(), key=lambda pod: (len(pod.name), pod.name), reverse=True):
        members[pod.class_id].append(pod)
    return members
