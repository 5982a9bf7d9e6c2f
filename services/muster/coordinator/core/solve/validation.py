"""Validates placement answers against members, ledger and topology constraints, and reserves their seats, or rejects
them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.topology import TopologyTrees
from muster.coordinator.core.cache.volume_choices import NoVolume
from muster.coordinator.core.effects import AnswerRejected, Rejection, RejectionReason
from muster.coordinator.core.events import Seat
from muster.coordinator.core.gang.gang import Gang, Group
from muster.coordinator.core.permits.binding import avoid_node
from muster.coordinator.core.solve.request import placed
from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts, PodFacts, split_kind
from muster.gangs.solve import Assignment, SolveGroup
from muster.topology.constraints import as_text
from muster.topology.ranks import Path


class Rejections:
    """Rejections of this term by reason, and rejections that are not reported yet."""

    def __init__(self) -> None:
        self.counts: Counter[RejectionReason] = Counter()
        self._reports: list[AnswerRejected] = []

    def add(self, group: Group, rejection: Rejection) -> None:
        self.counts[rejection.reason] += 1
        for gang in group.gangs:
            gang.attempts.reject(rejection.reason)
        if group.gangs:
            count = self.counts[rejection.reason]
            self._reports.append(AnswerRejected(group.gangs[0].id, rejection.reason, rejection.message, count))

    def take_reports(self) -> list[AnswerRejected]:
        """Rejections since the last call."""
        reports, self._reports = self._reports, []
        return reports


def validate_and_reserve(
    ledger: Ledger,
    trees: TopologyTrees,
    group: Group,
    request: SolveGroup,
    assignments: Sequence[Assignment],
    nominated: Mapping[str, Int64],
) -> Rejection | dict[Gang, int]:
    """Give seats to members and reserve them, or reject the answer and change nothing. Returns how many members of
    which gangs got a seat.

    Seats of members that are gone since the request stay empty; the minimum must be reached without them, unless the
    group accumulates.
    """
    gangs = {gang.id: gang for gang in group.gangs}
    requested = _requested_by_role(request)
    malformed = _malformed(gangs, requested, assignments)
    if malformed is not None:
        return Rejection(RejectionReason.MALFORMED, malformed)
    seats = _seats(gangs, requested, _by_neighbourhood(gangs, trees, ledger, assignments), ledger)
    for gang in group.gangs_to_place if not group.accumulates else ():
        if len(seats[gang.id]) < gang.minimum:
            message = f"it seats {len(seats[gang.id])} of gang {gang.label}, which needs {gang.minimum}"
            return Rejection(RejectionReason.INCOMPLETE, message)
    demand = Counter((seat.node, seat.class_id) for taken in seats.values() for seat in taken)
    problem = ledger.refusal(demand, nominated)
    if problem is not None:
        return problem
    for gang_id, taken in seats.items():
        nodes = Counter(seat.node for seat in taken)
        broken = violated_constraint(ledger, trees, gangs[gang_id], nodes, whole=not group.accumulates)
        if broken is not None:
            return Rejection(RejectionReason.CONSTRAINT, broken)
    if ledger.volumes.claims:
        no_volume = _choose_volumes(ledger, gangs, seats)
        if no_volume is not None:
            return no_volume
    for gang_id, taken in seats.items():
        ledger.reserve(taken)
        for seat in taken:
            gangs[gang_id].take_seat(seat)
    return {gang: len(seats[gang.id]) for gang in group.gangs if seats[gang.id]}


def _choose_volumes(ledger: Ledger, gangs: Mapping[str, Gang], seats: dict[str, list[Seat]]) -> Rejection | None:
    """Add to the seats the volumes chosen for all claims of the group together; or why there are none."""
    pods = {uid: pod for gang in gangs.values() for uid, pod in gang.pending.items() if pod.claims}
    chosen = ledger.volumes.choose((seat for taken in seats.values() for seat in taken if seat.uid in pods), pods)
    if isinstance(chosen, NoVolume):
        for gang_id, taken in seats.items():
            if any(seat.node == chosen.node and seat.uid in pods for seat in taken):
                avoid_node(gangs[gang_id], chosen.node)
        return Rejection(RejectionReason.INSUFFICIENT_CAPACITY, chosen.message, chosen.node)
    for gang_id, taken in seats.items() if chosen else ():
        seats[gang_id] = [replace(seat, volumes=chosen[seat.uid]) if seat.uid in chosen else seat for seat in taken]
    return None


def violated_constraint(
    ledger: Ledger, trees: TopologyTrees, gang: Gang, taken: Counter[str], *, whole: bool
) -> str | None:
    """Which hard constraint of the gang forbids that many more members on these nodes; None: none does."""
    if not taken or not any(each.hard for each in gang.constraints):
        return None
    before: Counter[str] = Counter()
    for pods in placed(gang):
        before[pods.node] += pods.count
    return broken_constraint(gang, trees, ledger.nodes, before, before + taken, whole=whole)


def _requested_by_role(request: SolveGroup) -> dict[tuple[str, int], tuple[str, int]]:
    return {
        (gang.id, index): (role.class_id, role.wanted)
        for gang in request.gangs
        for index, role in enumerate(gang.roles)
    }


def _malformed(
    gangs: dict[str, Gang], requested: dict[tuple[str, int], tuple[str, int]], assignments: Sequence[Assignment]
) -> str | None:
    placed: Counter[tuple[str, int]] = Counter()
    for assignment in assignments:
        key = (assignment.gang, assignment.role)
        if key not in requested:
            return f'it seats role {assignment.role} of gang "{assignment.gang[:64]}", for which it was not asked'
        if assignment.count < 1:
            return f'it seats {assignment.count} pods on node "{assignment.node[:64]}"'
        placed[key] += assignment.count
    for (gang_id, role), count in placed.items():
        if gang_id in gangs and count > requested[gang_id, role][1]:
            return f"it seats {count} pods of gang {gangs[gang_id].label}, {requested[gang_id, role][1]} were asked"
    return None


def _seats(
    gangs: dict[str, Gang],
    requested: dict[tuple[str, int], tuple[str, int]],
    assignments: Sequence[Assignment],
    ledger: Ledger,
) -> dict[str, list[Seat]]:
    """Seats by gang: members of a role by the ranks that they ask for, then by name, in the order of assignments."""
    members: dict[str, dict[str, list[PodFacts]]] = {}
    seats: dict[str, list[Seat]] = {gang_id: [] for gang_id in gangs}
    for assignment in assignments:
        if assignment.gang not in gangs:
            continue
        if assignment.gang not in members:
            kinds = {kind for (gang_id, _), (kind, _) in requested.items() if gang_id == assignment.gang}
            members[assignment.gang] = _members_by_kind(gangs[assignment.gang], kinds, ledger)
        pods = members[assignment.gang].get(requested[assignment.gang, assignment.role][0], [])
        for _ in range(min(assignment.count, len(pods))):
            pod = pods.pop()
            seat = Seat(pod.uid, pod.namespace, pod.name, pod.class_id, assignment.node, pod.label_set)
            seats[assignment.gang].append(seat)
    return seats


def _members_by_kind(gang: Gang, kinds: Iterable[str], ledger: Ledger) -> dict[str, list[PodFacts]]:
    """Pending members by the kinds of the request, the first at the end of each list.

    If only one kind of a class was requested, all members of the class are of that kind, even if a selector that was
    created since tells them apart.
    """
    of_class: defaultdict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        of_class[split_kind(kind)[0]].append(kind)
    members: defaultdict[str, list[PodFacts]] = defaultdict(list)
    for pod in sorted(gang.pending.values(), key=_turn, reverse=True):
        same_class = of_class[pod.class_id]
        kind = same_class[0] if len(same_class) == 1 else ledger.kind(pod.class_id, pod.label_set)
        members[kind].append(pod)
    return members


def _turn(pod: PodFacts) -> tuple[bool, int, int, str]:
    return pod.wanted_rank < 0, pod.wanted_rank, len(pod.name), pod.name


def _by_neighbourhood(
    gangs: Mapping[str, Gang], trees: TopologyTrees, ledger: Ledger, assignments: Sequence[Assignment]
) -> Sequence[Assignment]:
    """The assignments in the order of the answer; those of gangs whose members ask for ranks by place in the tree, so
    that members with consecutive ranks are near each other.
    """
    asking = {
        gang.id: trees.get(gang.facts.tree)
        for gang in gangs.values()
        if gang.facts is not None and any(pod.wanted_rank >= 0 for pod in gang.pending.values())
    }
    if not asking:
        return assignments

    def place(assignment: Assignment) -> Path:
        tree, node = asking.get(assignment.gang), ledger.nodes.get(assignment.node)
        return trees.path(tree, node) if tree is not None and node is not None else ()

    return sorted(assignments, key=place)


Sizes = Mapping[Path, Counter[Path]]
"""Members by domain, in each domain of the constrained level above."""


def broken_constraint(
    gang: Gang,
    trees: TopologyTrees,
    nodes: Mapping[str, NodeFacts],
    before: Counter[str],
    after: Counter[str],
    *,
    whole: bool,
) -> str | None:
    """The topology constraint check: the first hard constraint that does not hold, in words; None: all do. `before` and
    `after` are members by node. How many domains are used, and how evenly, is only judged where all members are in one
    domain above: what holds however a solver may read the rules.

    A constraint that was violated before, because nodes moved or members ended, is not held against the answer. Unless
    `whole`, more members will follow, and only violations that they cannot mend count.
    """
    tree = trees.get(gang.facts.tree) if gang.facts is not None else None
    if tree is None:
        return None
    levels = [level.name for level in tree.levels]
    constrained = sorted({levels.index(each.level) for each in gang.constraints if each.level in levels})
    paths = {node: trees.path(tree, nodes[node]) for node in after if node in nodes}
    for each in gang.constraints:
        if not each.hard or each.level not in levels or not (whole or each.policy is LevelPolicy.PACK):
            continue
        level = levels.index(each.level)
        above = max((index for index in constrained if index < level), default=-1)
        if _holds(each, _sizes(after, paths, above, level)):
            continue
        if not before or _holds(each, _sizes(before, paths, above, level)):
            return f'it divides the members in a way that "{as_text(each)}" forbids'
    return None


def _sizes(members: Counter[str], paths: Mapping[str, Path], above: int, level: int) -> Sizes:
    sizes: defaultdict[Path, Counter[Path]] = defaultdict(Counter)
    for node, count in members.items():
        if (path := paths.get(node)) is not None:
            sizes[path[: above + 1]][path[: level + 1]] += count
    return sizes


def _holds(constraint: LevelConstraint, sizes: Sizes) -> bool:
    every = [size for domains in sizes.values() for size in domains.values()]
    match constraint.policy:
        case LevelPolicy.PACK:
            return all(len(domains) == 1 for domains in sizes.values())
        case LevelPolicy.SPREAD:
            return len(sizes) > 1 or _even(every)
        case LevelPolicy.PARTITION:
            return len(sizes) > 1 or (len(every) == constraint.count and _even(every))
        case LevelPolicy.RANGE:
            return all(constraint.minimum <= size <= constraint.maximum for size in every)
        case LevelPolicy.FACTOR:
            return all(size % max(1, constraint.count) == 0 for size in every)


def _even(sizes: Iterable[int]) -> bool:
    sizes = list(sizes)
    return not sizes or max(sizes) - min(sizes) <= 1
