"""Solve requests, and the validation of their answers.

A request has the pending members of a group by kind, with the constraints that placement needs. Its answer is validated
against members, ledger and topology constraints; then its seats are reserved, or it is rejected.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence

from msgspec.structs import replace

from muster.coordinator.core.cache.device_choices import NoDevices
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.cache.volume_choices import NoVolume
from muster.coordinator.core.effects import AnswerRejected, Rejection, RejectionReason
from muster.coordinator.core.events import Seat
from muster.coordinator.core.gang.composite_trees import composites_of, incomplete_composite
from muster.coordinator.core.gang.gang import EquivalenceKey, Gang, Group, lowest_preempting_priority
from muster.coordinator.core.gang.subgroups import attempt_of, divide, gang_id_of, subgroup_name_of
from muster.coordinator.core.permits.binding import avoid_node
from muster.coordinator.core.preemption.nomination import longest_run, may_borrow, may_preempt
from muster.coordinator.core.slices import Slices
from muster.coordinator.core.solve.composites import in_composites, subgroups_to_place, violated_composite
from muster.gangs.capacity import Int64
from muster.gangs.counted_resources import is_device_resource
from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts, PodFacts, split_kind
from muster.gangs.solve import Assignment, Composite, PodsOnNode, Role, SolveGang, SolveGroup
from muster.topology.constraints import as_text
from muster.topology.ranks import Path


def to_place(
    group: Group, ledger: Ledger, trees: TopologyTrees, known: Mapping[str, Gang], *, to_run: bool = False
) -> SolveGroup:
    """The solve request of a group: pending members by kind, of gangs and subgroups that need seats. `known` are all
    gangs by id. `to_run`: members are not placed singly, but as many as the minimums need.
    """
    gangs = group.gangs_to_place
    if any(gang.facts is not None and gang.facts.subgroups for gang in gangs):
        return _with_subgroups(group, gangs, ledger, trees, to_run=to_run)
    requested = [_gang_to_place(gang, ledger, to_run=to_run) for gang in gangs]
    if any(gang.facts is not None and gang.facts.composites for gang in gangs):
        return in_composites(group.id, gangs, requested, known)
    return SolveGroup(group.id, tuple(requested), partial=group.non_strict)


def _with_subgroups(
    group: Group, gangs: Sequence[Gang], ledger: Ledger, trees: TopologyTrees, *, to_run: bool
) -> SolveGroup:
    requested: list[SolveGang] = []
    composites: list[Composite] = []
    for gang in gangs:
        divided = gang.facts is not None and gang.facts.subgroups
        attempt = attempt_of(gang, ledger.selection, to_run=to_run) if divided else ""
        if isinstance(attempt, str):  # the gang has none, or fails the pre-enqueue check by now
            requested.append(_gang_to_place(gang, ledger, to_run=to_run))
            continue
        leaves, own = subgroups_to_place(gang, attempt, trees, lambda pods: _roles(pods, ledger))
        first = len(composites)
        requested += [replace(leaf, composite=leaf.composite + first if leaf.composite >= 0 else -1) for leaf in leaves]
        composites += [replace(each, parent=each.parent + first if each.parent >= 0 else -1) for each in own]
    return SolveGroup(group.id, tuple(requested), composites=tuple(composites))


def as_declared_now(
    request: SolveGroup, group: Group, ledger: Ledger, trees: TopologyTrees, known: Mapping[str, Gang]
) -> SolveGroup | None:
    """The request with the composites that its answer must satisfy now; None: the group would have other subgroups,
    minimums or domains, so that the answer is out of date.
    """
    facts = [gang.facts for gang in group.gangs_to_place if gang.facts is not None]
    if not _is_divided(request) and not any(each.subgroups or each.composites for each in facts):
        return request
    now = to_place(group, ledger, trees, known)
    return replace(request, composites=now.composites) if _structure(now) == _structure(request) else None


def _structure(request: SolveGroup) -> tuple[object, ...]:
    gangs = [(gang.id, gang.minimum, gang.composite, gang.tree, gang.constraints) for gang in request.gangs]
    return (*gangs, *(replace(each, placed=()) for each in request.composites))


def equivalence_key(group: Group, request: SolveGroup) -> EquivalenceKey:
    """The request without names, whether pods may be evicted for the group, and how long it runs, on which depends
    which nominated capacity it may use (backfill), as on whether it gives it back, and how many more members a repair
    needs to reach the minimum. A right to preempt that is not the priority is part of it: in a class, who is ahead in
    the queue may evict at least as much.
    """
    requested = [
        (gang.minimum, gang.roles, gang.tree, gang.constraints, gang.placed, gang.composite) for gang in request.gangs
    ]
    gangs, surplus = group.gangs_to_place, group.surplus
    priority: int | None = lowest_preempting_priority(gangs)
    if priority == group.priority:
        priority = None
    borrows = surplus and may_borrow(group)
    to_run = sum([gang.must_place_to_run - gang.must_place for gang in gangs if gang.lost or gang.broken])
    waits = longest_run(group), request.partial, surplus, borrows, to_run
    return (may_preempt(group), priority, *waits, request.composites, *requested)


def demand(group: Group) -> Counter[str]:
    """Members of the group to place, by class."""
    return Counter(pod.class_id for gang in group.gangs_to_place for pod in gang.pending.values())


def kinds_to_place(group: Group, ledger: Ledger) -> set[str]:
    """Kinds of the members of the group to place."""
    pending = {(pod.class_id, pod.label_set) for gang in group.gangs_to_place for pod in gang.pending.values()}
    return {ledger.kind(class_id, label_set) for class_id, label_set in pending}


def label_sets_to_place(group: Group) -> frozenset[str]:
    """Label sets of the members of the group to place."""
    return frozenset([pod.label_set for gang in group.gangs_to_place for pod in gang.pending.values()])


def _gang_to_place(gang: Gang, ledger: Ledger, *, to_run: bool) -> SolveGang:
    roles = _roles(gang.pending.values(), ledger)
    minimum, facts = gang.batch, gang.facts
    if to_run:
        minimum = max(minimum, min(gang.must_place_to_run, len(gang.pending)))
    avoided = tuple(sorted(gang.bind.avoided_nodes))
    if facts is None or not gang.constraints:
        return SolveGang(gang.id, minimum, roles, facts.tree if facts is not None else "", avoided=avoided)
    return SolveGang(gang.id, minimum, roles, facts.tree, gang.constraints, placed(gang), avoided)


def _roles(pods: Iterable[PodFacts], ledger: Ledger) -> tuple[Role, ...]:
    pending = Counter((pod.class_id, pod.label_set) for pod in pods)
    counts: dict[str, int] = {}
    for (class_id, label_set), count in pending.items():
        kind = ledger.kind(class_id, label_set)
        counts[kind] = counts.get(kind, 0) + count
    return tuple(Role(kind, counts[kind]) for kind in sorted(counts, key=lambda kind: _preference(kind, ledger)))


def _preference(kind: str, ledger: Ledger) -> tuple[bool, str]:
    """Sort key of roles. Of pods that share a claim the one that requests its devices comes first: if fewer members are
    placed than exist, it is one of them, so that the devices are counted.
    """
    pod_class = ledger.classes[split_kind(kind)[0]]
    requests = pod_class.shared_claims and any(is_device_resource(name) for name, _ in pod_class.requests)
    return not requests, kind


def placed(gang: Gang) -> tuple[PodsOnNode, ...]:
    """Members that have a seat or are bound, by node and class."""
    running = ((gang.pods[uid].node, gang.pods[uid].class_id) for uid in gang.bound)
    decided = ((seat.node, seat.class_id) for seat in (*gang.unbound_seats, *gang.acknowledged.values()))
    counts = Counter((*running, *decided))
    return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in sorted(counts.items()))


class Rejections:
    """Rejections of this term by reason, and those of this step, which are reported at its end."""

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
    label_sets: Container[str],
    assignments: Sequence[Assignment],
    nominated: Mapping[str, Int64],
    known: Mapping[str, Gang],
) -> Slices[Rejection | dict[Gang, int]]:
    """Give seats to members and reserve them, or reject the answer and change nothing. Returns how many members of
    which gangs got a seat. `label_sets`: of the members that were requested; `known` are all gangs by id. Devices are
    chosen in slices.

    Seats of members that are gone since the request stay empty; the minimum must be reached without them, unless the
    group non_strict.
    """
    gangs = {gang.id: gang for gang in group.gangs}
    requested = _requested_by_role(request)
    malformed = _malformed(gangs, requested, assignments)
    if malformed is not None:
        return Rejection(RejectionReason.MALFORMED, malformed)
    in_order = _by_neighbourhood(gangs, trees, ledger, assignments)
    seats, placed_by_request = _seats(gangs, requested, label_sets, in_order, ledger)
    incomplete = violated_division(ledger, trees, request, placed_by_request)
    if incomplete is not None:
        return Rejection(RejectionReason.CONSTRAINT, incomplete)
    incomplete = _incomplete(group, seats, known) if not group.non_strict else None
    if incomplete is not None:
        return Rejection(RejectionReason.INCOMPLETE, incomplete)
    demand = Counter((seat.node, seat.class_id) for taken in seats.values() for seat in taken)
    problem = ledger.refusal(demand, nominated)
    if problem is not None:
        return problem
    for gang_id, taken in seats.items():
        nodes = Counter(seat.node for seat in taken)
        broken = violated_constraint(ledger, trees, gangs[gang_id], nodes, whole=not group.non_strict)
        if broken is not None:
            return Rejection(RejectionReason.CONSTRAINT, broken)
    if ledger.volumes.claims:
        no_volume = _choose_volumes(ledger, gangs, seats)
        if no_volume is not None:
            return no_volume
    no_devices = yield from _choose_devices(ledger, gangs, seats, _places_by_devices(ledger, demand))
    if no_devices is not None:
        return no_devices
    for gang_id, taken in seats.items():
        ledger.reserve(taken)
        for seat in taken:
            gangs[gang_id].take_seat(seat)
    return {gang: len(seats[gang.id]) for gang in group.gangs if seats[gang.id]}


def _incomplete(group: Group, seats: Mapping[str, Sequence[Seat]], known: Mapping[str, Gang]) -> str | None:
    """The gang that would start with fewer members than its minimum, or the composite that would start with fewer
    children, in words (I1); None: none would.
    """
    gangs = [gang for gang in group.gangs_to_place if seats[gang.id] or not composites_of(gang)]
    for gang in gangs:
        if len(seats[gang.id]) < gang.must_place:
            return f"it seats {len(seats[gang.id])} of gang {gang.label}, which needs {gang.must_place}"
    return incomplete_composite(gangs, known)


def _is_divided(request: SolveGroup) -> bool:
    """The request has composites, or subgroups of gangs."""
    return bool(request.composites) or any(subgroup_name_of(gang.id) for gang in request.gangs)


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


def _places_by_devices(ledger: Ledger, demand: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Nodes and classes of pods whose extended resources the node may offer as devices."""
    return {
        (node, class_id)
        for node, class_id in demand
        if ledger.classes[class_id].extended and ledger.nodes[node].device_backed
    }


def _choose_devices(
    ledger: Ledger, gangs: Mapping[str, Gang], seats: dict[str, list[Seat]], by_devices: set[tuple[str, str]]
) -> Slices[Rejection | None]:
    """Add to the seats the devices chosen for all claims of the group together, and for extended resources of pods
    `by_devices`; or why there are none.
    """
    pods = {uid: pod for gang in gangs.values() for uid, pod in gang.pending.items() if pod.device_claims}
    if by_devices:
        for gang_id, taken in seats.items():
            pending = gangs[gang_id].pending
            pods.update((seat.uid, pending[seat.uid]) for seat in taken if (seat.node, seat.class_id) in by_devices)
    claiming = [seat for taken in seats.values() for seat in taken if seat.uid in pods]
    if not claiming:
        return None
    classes = {class_id: ledger.classes[class_id] for _, class_id in by_devices}
    chosen = yield from ledger.devices.choose(claiming, pods, ledger.nodes, classes, _Members(gangs.values()))
    if isinstance(chosen, NoDevices):
        for gang_id, taken in seats.items():
            if any(seat.node == chosen.node and seat.uid in pods for seat in taken):
                avoid_node(gangs[gang_id], chosen.node)
        return Rejection(RejectionReason.INSUFFICIENT_CAPACITY, chosen.message, chosen.node)
    for gang_id, taken in seats.items() if chosen else ():
        seats[gang_id] = [replace(seat, devices=chosen.get(seat.uid, ())) for seat in taken]
    return None


class _Members:
    """Uids of the pods of gangs."""

    def __init__(self, gangs: Iterable[Gang]) -> None:
        self._pods = [gang.pods for gang in gangs]

    def __contains__(self, uid: object) -> bool:
        return any(uid in pods for pods in self._pods)


def claim_in_allocation(group: Group, ledger: Ledger) -> str:
    """The ResourceClaim of pending members that is being allocated for pods outside the group, in words; empty: there
    is none. It decides where they may go, and they need no further devices for it.
    """
    pods = (pod for gang in group.gangs for pod in gang.pending.values() if pod.device_claims)
    return ledger.devices.waits_for(pods, _Members(group.gangs))


def violated_constraint(
    ledger: Ledger, trees: TopologyTrees, gang: Gang, taken: Counter[str], *, whole: bool
) -> str | None:
    """Which hard constraint of the gang forbids that many more members on these nodes; None: none does."""
    if not taken or not any(each.hard for each in gang.constraints):
        return None
    tree = gang.facts.tree if gang.facts is not None else ""
    before = _by_node(placed(gang))
    return broken_constraint(tree, gang.constraints, trees, ledger.nodes, before, before + taken, whole=whole)


def violated_division(
    ledger: Ledger, trees: TopologyTrees, request: SolveGroup, taken: Mapping[str, Counter[str]]
) -> str | None:
    """The composite, or the hard constraint of a subgroup, that the members violate which are placed by gang of the
    request and node, in words; None: none, or there are neither.
    """
    if not _is_divided(request):
        return None
    violated = violated_composite(request, taken, trees, ledger.nodes)
    if violated is not None:
        return violated
    for part in request.gangs:
        members = taken.get(part.id)
        if members and subgroup_name_of(part.id) and any(each.hard for each in part.constraints):
            before = _by_node(part.placed)
            after = before + members
            violated = broken_constraint(part.tree, part.constraints, trees, ledger.nodes, before, after, whole=True)
            if violated is not None:
                break
    return violated


def _by_node(placed: Iterable[PodsOnNode]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for pods in placed:
        counts[pods.node] += pods.count
    return counts


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
    for (requested_id, role), count in placed.items():
        gang_id = gang_id_of(requested_id)
        if gang_id in gangs and count > requested[requested_id, role][1]:
            return (
                f"it seats {count} pods of gang {gangs[gang_id].label}, {requested[requested_id, role][1]} were asked"
            )
    return None


def _seats(
    gangs: dict[str, Gang],
    requested: dict[tuple[str, int], tuple[str, int]],
    label_sets: Container[str],
    assignments: Sequence[Assignment],
    ledger: Ledger,
) -> tuple[dict[str, list[Seat]], dict[str, Counter[str]]]:
    """Seats by gang: members of a role by the ranks that they ask for, then by name, in the order of assignments; and
    how many of each gang or subgroup of the request are on which node.
    """
    members: dict[str, dict[str, list[PodFacts]]] = {}
    seats: dict[str, list[Seat]] = {gang_id: [] for gang_id in gangs}
    nodes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    of_gang = {requested_id: gang_id_of(requested_id) for requested_id, _ in requested}
    pending: dict[str, Iterable[PodFacts]] = {}
    for gang in gangs.values():
        pending[gang.id] = gang.pending.values()
        if gang.facts is not None and gang.facts.subgroups:
            pending[gang.id] = []
            pending |= {each.id: each.pending for each in divide(gang, ledger.selection)}
    for assignment in assignments:
        gang_id = of_gang[assignment.gang]
        if gang_id not in gangs:
            continue
        if assignment.gang not in members:
            kinds = {kind for (requested_id, _), (kind, _) in requested.items() if requested_id == assignment.gang}
            members[assignment.gang] = _members_by_kind(pending.get(assignment.gang, ()), kinds, label_sets, ledger)
        pods = members[assignment.gang].get(requested[assignment.gang, assignment.role][0], [])
        nodes[assignment.gang][assignment.node] += min(assignment.count, len(pods))
        for _ in range(min(assignment.count, len(pods))):
            pod = pods.pop()
            seat = Seat(pod.uid, pod.namespace, pod.name, pod.class_id, assignment.node, pod.label_set)
            seats[gang_id].append(seat)
    return seats, nodes


def _members_by_kind(
    pods: Iterable[PodFacts], kinds: Iterable[str], label_sets: Container[str], ledger: Ledger
) -> dict[str, list[PodFacts]]:
    """Pending members by the kinds of the request, the first at the end of each list.

    If only one kind of a class was requested, all members of the class with a label set of the request are of that
    kind, even if a selector that was created since tells them apart.
    """
    of_class: defaultdict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        of_class[split_kind(kind)[0]].append(kind)
    members: defaultdict[str, list[PodFacts]] = defaultdict(list)
    for pod in sorted(pods, key=_turn, reverse=True):
        same_class = of_class[pod.class_id]
        one_kind = len(same_class) == 1 and pod.label_set in label_sets
        kind = same_class[0] if one_kind else ledger.kind(pod.class_id, pod.label_set)
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
        tree, node = asking.get(gang_id_of(assignment.gang)), ledger.nodes.get(assignment.node)
        return trees.path(tree, node) if tree is not None and node is not None else ()

    return sorted(assignments, key=place)


Sizes = Mapping[Path, Counter[Path]]
"""Members by domain, in each domain of the constrained level above."""


def broken_constraint(
    tree_name: str,
    constraints: Sequence[LevelConstraint],
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
    tree = trees.get(tree_name)
    if tree is None:
        return None
    levels = tree.level_names
    constrained = sorted({levels.index(each.level) for each in constraints if each.level in levels})
    paths = {node: trees.path(tree, nodes[node]) for node in after if node in nodes}
    for each in constraints:
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
