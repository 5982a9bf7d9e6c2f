"""Concurrent solves: which groups may be solved by several placement replicas at once, and in which order answers
count.

A replica does not know what the others assign at that moment, so answers may want the same capacity; the ledger rejects
all but the first. The earliest in the queue is to be the first, so that no group is overtaken for ever:

- An answer waits while another solve is under way for an earlier group that may want the same nodes.
- A group that was rejected because another answer took its capacity is tried again at once. Until it has an answer, no
  later group gets a node that it may want.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.core.gang.gang import EquivalenceKey, Group, QueueKey
from muster.coordinator.core.queue.wake import EventLog
from muster.coordinator.core.solve.request import kinds_to_place
from muster.gangs.facts import PodClass, split_kind
from muster.gangs.node_columns import Bool
from muster.gangs.solve import SolveGroup, SolveResult

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0
MAX_GROUPS_AT_RISK = 10
"""Groups of one solve whose nodes other solves may want, too: a group that is overtaken is solved twice, and others
wait for it meanwhile.
"""


MAX_EVALUATIONS = 300
"""Comparisons of a pod class with all nodes for one solve request, 0.1 ms each for 5,000 nodes. Classes beyond are
taken to want any node: groups that could be solved at the same time may be passed over, until the next request.
"""
MAX_CLASSES = 300
"""Classes that are compared for one answer; more are taken to want any node."""
MAX_LABEL_SETS = 300
"""Label sets that are compared with all selectors for one group or solve, 0.05 ms each for 5,000 selectors; more are
taken to be selected by all.
"""


@dataclass(slots=True, eq=False)
class Wishes:
    """Nodes, and places by inter-pod rules, that pods of some classes may want."""

    nodes: Bool | None
    """bool[rows]; None: any node."""
    selectors: Bool
    """Selectors of required affinity, anti-affinity and spreading: bool[selectors]."""
    selected_by: Bool
    """Selectors that select one of the pods: bool[selectors]."""
    host_ports: bool = False

    def related(self, other: "Wishes") -> bool:
        """A required affinity, anti-affinity or spreading of the one selects pods of the other."""
        if not len(self.selectors):
            return False
        return bool((self.selectors & other.selected_by).any() or (other.selectors & self.selected_by).any())


class NodeSets:
    """Compares the wishes of pod classes. Nothing is remembered but eligible nodes, by the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._evaluations_before = 0

    def kinds(self, group: Group) -> set[str]:
        """Kinds of the members of the group to place."""
        return kinds_to_place(group, self._ledger)

    def begin(self) -> None:
        """A solve request is to be made: MAX_EVALUATIONS are allowed from now on."""
        self._evaluations_before = self._ledger.eligible.evaluations

    def wishes(self, kinds: Iterable[str]) -> Wishes:
        """Wishes of pods of these kinds; unknown classes, of pods that are gone, want nothing."""
        eligible, selection = self._ledger.eligible, self._ledger.selection
        class_ids: dict[str, None] = {}
        label_sets: set[str] = set()
        for class_id, label_set in map(split_kind, kinds):
            class_ids[class_id] = None
            if label_set:
                label_sets.add(label_set)
        selectors: Bool = np.zeros(selection.selector_rows, np.bool_)
        nodes: Bool | None = None
        any_node = host_ports = False
        for class_id in class_ids:
            pod_class = self._ledger.classes.get(class_id)
            if pod_class is None:
                continue
            if rows := [row for each in _selectors(pod_class) if (row := selection.selector_row(each)) >= 0]:
                selectors[rows] = True
            host_ports = host_ports or bool(pod_class.host_ports)
            if not any_node and (eligible.knows(class_id) or self._may_evaluate()):
                nodes = eligible.of(class_id) if nodes is None else nodes | eligible.of(class_id)
            else:
                any_node = True
        if nodes is None:
            nodes = np.zeros(eligible.rows, np.bool_)
        return Wishes(None if any_node else nodes, selectors, self._selecting(label_sets), host_ports)

    def _selecting(self, label_sets: Collection[str]) -> Bool:
        """Selectors that select one of the label sets, bool[selectors]."""
        selection = self._ledger.selection
        found: Bool = np.full(selection.selector_rows, len(label_sets) > MAX_LABEL_SETS)
        for label_set in label_sets if len(label_sets) <= MAX_LABEL_SETS else ():
            found |= selection.selecting(label_set)
        return found

    def _may_evaluate(self) -> bool:
        return self._ledger.eligible.evaluations - self._evaluations_before < MAX_EVALUATIONS


def disjoint(one: Wishes, other: Wishes) -> bool:
    """No node would take pods of both, and no inter-pod rule relates them: the ledger knows amounts, so it would not
    find a conflict of rules.
    """
    if one.nodes is None or other.nodes is None or one.related(other):
        return False
    return not (one.nodes & other.nodes).any()


def conflicts_visible(one: Wishes, other: Wishes) -> bool:
    """The ledger finds out if both are placed where there is capacity for one of them only."""
    return not (one.related(other) or (one.host_ports and other.host_ports))


def _selectors(pod_class: PodClass) -> set[str]:
    terms = (*pod_class.required_pod_affinity, *pod_class.required_pod_anti_affinity, *pod_class.shared_claims)
    if not (terms or pod_class.spread):
        return set()
    return {term.selector for term in terms} | {spread.selector for spread in pod_class.spread if spread.hard}


class Admission:
    """Which groups belong in one solve: their nodes are disjoint from those of the solves under way (`at_risk`: need
    not be), and not disjoint from one another, since else they could be solved by a replica of their own.
    """

    def __init__(self, node_sets: NodeSets, under_way: Collection[str], *, at_risk: bool) -> None:
        self._node_sets, self._at_risk = node_sets, at_risk
        self._under_way = node_sets.wishes(under_way) if under_way else None
        self._first: Group | None = None
        """The first group, if it was admitted without a comparison; its wishes are not known then."""
        self._admitted: Wishes | None = None

    def admits(self, group: Group) -> bool:
        """The group belongs in the solve, and is counted as a part of it from now on."""
        if self._under_way is None and self._admitted is None:
            if self._first is None:
                self._first = group
                return True
            self._admitted = self._wishes(self._first)
        wishes = self._wishes(group)
        if self._under_way is not None:
            independent = conflicts_visible if self._at_risk else disjoint
            if not independent(wishes, self._under_way):
                return False
        if self._admitted is not None and disjoint(wishes, self._admitted):
            return False
        self._admitted = wishes if self._admitted is None else _together(wishes, self._admitted)
        return True

    def _wishes(self, group: Group) -> Wishes:
        return self._node_sets.wishes(self._node_sets.kinds(group))


def _together(one: Wishes, other: Wishes) -> Wishes:
    nodes = None if one.nodes is None or other.nodes is None else one.nodes | other.nodes
    return Wishes(
        nodes,
        one.selectors | other.selectors,
        one.selected_by | other.selected_by,
        one.host_ports or other.host_ports,
    )


class RiskBackoff:
    """Whether groups are solved that may want the same nodes as those under way. After one was overtaken it pauses, and
    longer with every further time in a row.
    """

    def __init__(self) -> None:
        self._not_before = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    def allows(self, now: float) -> bool:
        return now >= self._not_before

    def settle(self, overtaken: bool, now: float) -> None:
        """A solve at risk has ended."""
        if overtaken:
            self._not_before = now + self._pause
            self._pause = min(LONGEST_PAUSE_SECONDS, 2 * self._pause)
        else:
            self._pause = FIRST_PAUSE_SECONDS


@dataclass(slots=True, eq=False)
class Attempt:
    """A solve under way, or answered and waiting for its turn."""

    solve_id: int
    groups: list[Group]
    requests: dict[str, SolveGroup]
    """Request by group id."""
    represents: dict[str, EquivalenceKey]
    """Equivalence classes that groups represent, by group id."""
    label_sets: dict[str, frozenset[str]]
    """Label sets of the members that were requested, by group id."""
    began: float
    events: EventLog
    """Events since it began."""
    at_risk: bool = False
    """The solve may want the same nodes as others that were under way when it began."""
    answer: Solved | SolveFailed | None = None
    results: dict[str, SolveResult] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    """Nodes on which groups of other solves got seats since it began."""
    overtaken: bool = False
    """A group was assigned capacity that another answer had taken."""
    seats_before: QueueKey | None = None
    """Groups behind this queue position get no seats: a group that was not in the solve may have a place as well."""


class ConcurrentSolves:
    """Solves without an answer, and answers that wait for their turn: at most one per replica of placement."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.begun = 0
        """Solves so far."""
        self._attempts: dict[int, Attempt] = {}
        self._unanswered = 0
        self._overtaken: dict[Group, frozenset[str]] = {}
        """Groups to be tried again first, since their capacity was taken, with their pod classes; each until it was, or
        is not to be tried now."""

    def __len__(self) -> int:
        return self._unanswered

    @property
    def answer_waits(self) -> bool:
        """An answer waits for those of other solves."""
        return len(self._attempts) > self._unanswered

    @property
    def kinds(self) -> set[str]:
        """Kinds of pods that are being placed: those of the requests, and those of the members by the selectors that
        exist now, since an answer may give a seat to a member that was created meanwhile.
        """
        found = {kind for attempt in self._attempts.values() for kind in _attempt_kinds(attempt)}
        if self._ledger.selection.selectors:
            for attempt in self._attempts.values():
                found.update(*(kinds_to_place(group, self._ledger) for group in attempt.groups if group.gangs))
        return found

    def represented(self) -> Counter[EquivalenceKey]:
        """Representatives under way by equivalence class."""
        return Counter(key for attempt in self._attempts.values() for key in attempt.represents.values())

    def begin(self, attempt: Attempt) -> None:
        self.begun += 1
        self._unanswered += 1
        self._attempts[attempt.solve_id] = attempt

    def answered(self, answer: Solved | SolveFailed, now: float) -> list[Attempt]:
        """Take in an answer. Returns the attempts whose turn it is; they are not under way any more."""
        attempt = self._attempts.get(answer.solve_id)
        if attempt is None or attempt.answer is not None:
            return []
        attempt.answer = answer
        self._unanswered -= 1
        if isinstance(answer, Solved):
            attempt.results = {result.id: result for result in answer.results}
        for group in attempt.groups:
            charge(group, now - attempt.began)
        ready = [each for each in self._attempts.values() if each.answer is not None and not self._must_wait(each)]
        for each in ready:
            del self._attempts[each.solve_id]
        return ready

    def _must_wait(self, attempt: Attempt) -> bool:
        under_way = [other for other in self._attempts.values() if other.answer is None]
        if not under_way:
            return False
        seated = [group for group in attempt.groups if group.gangs and assigned_nodes(attempt, group)]
        if not seated:
            return False
        last = max(group.key for group in seated)
        nodes = {node for group in seated for node in assigned_nodes(attempt, group)}
        earlier_classes = {
            class_id
            for other in under_way
            for group in other.groups
            if group.gangs and group.key < last
            for class_id in _classes(other.requests[group.id])
        }
        return self._may_want(earlier_classes, nodes)

    def _may_want(self, classes: Collection[str], nodes: Collection[str]) -> bool:
        class_ids = {split_kind(kind)[0] for kind in classes}
        if len(class_ids) > MAX_CLASSES:
            return True
        rows = self._ledger.rows_of(nodes)
        return any(self._ledger.could_take_one_of(rows, class_id) for class_id in class_ids)

    # -- outcomes

    def seated(self, ready: Sequence[Attempt], attempt: Attempt, group: Group) -> None:
        """The group got seats, of which other solves under way, or ready at the same time, do not know."""
        others = [*self._attempts.values(), *(each for each in ready if each is not attempt)]
        if others:
            nodes = assigned_nodes(attempt, group)
            for other in others:
                other.taken |= nodes

    def overtake(self, attempt: Attempt, group: Group) -> None:
        """The capacity that the group was assigned was taken meanwhile: it goes first."""
        self._overtaken[group] = frozenset(_classes(attempt.requests[group.id]))

    def settled(self, group: Group) -> None:
        """The group was tried again."""
        self._overtaken.pop(group, None)

    @property
    def overtaken(self) -> list[Group]:
        """Groups whose capacity was taken, and which go first, in queue order; surplus never does."""
        first = (group for group in self._overtaken if group.gangs and not group.surplus)
        return sorted(first, key=attrgetter("key"))

    def forget_all_but(self, is_active: Callable[[Group], bool]) -> None:
        """Forget overtaken groups that are neither to be tried now nor being solved: others would yield to them in vain
        until they are.
        """
        if not self._overtaken:
            return
        for group in [each for each in self._overtaken if each.solve.solve_id is None and not is_active(each)]:
            del self._overtaken[group]

    def wanted_by_earlier(self, attempt: Attempt, group: Group) -> bool:
        """An earlier group was overtaken, and may want the nodes that this group was assigned."""
        if not self._overtaken:
            return False
        key, nodes = group.key, assigned_nodes(attempt, group)
        return any(
            first is not group and first.gangs and first.key < key and self._may_want(classes, nodes)
            for first, classes in self._overtaken.items()
        )


def charge(group: Group, seconds: float) -> None:
    """Placement worked on a request with the group for so long."""
    for gang in group.gangs:
        gang.attempts.charge(seconds)


def in_queue_order(attempts: list[Attempt]) -> Iterator[tuple[Attempt, Group]]:
    """The groups of these attempts in queue order; groups of one attempt in the order of its request."""
    pairs = [(attempt, group) for attempt in attempts for group in attempt.groups]
    if len(attempts) > 1:
        yield from [pair for pair in pairs if not pair[1].gangs]  # gone meanwhile
        pairs = sorted((pair for pair in pairs if pair[1].gangs), key=lambda pair: pair[1].key)
    yield from pairs


def assigned_nodes(attempt: Attempt, group: Group) -> set[str]:
    """Nodes that the answer assigns to the group."""
    result = attempt.results.get(group.id)
    return {assignment.node for assignment in result.assignments} if result is not None else set()


def _attempt_kinds(attempt: Attempt) -> Iterator[str]:
    for request in attempt.requests.values():
        yield from _classes(request)


def _classes(request: SolveGroup) -> set[str]:
    return {role.class_id for gang in request.gangs for role in gang.roles}
