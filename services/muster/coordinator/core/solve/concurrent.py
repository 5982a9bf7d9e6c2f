"""Solves under way at the same time, and in which order their answers are taken, so that nobody is overtaken for ever.

A replica of placement does not know what the others are giving away at that moment. So answers may want the same room;
the ledger refuses all but the first. Who stands before in the queue is to be that:

- An answer waits while another solve is under way for somebody who stands before, and may want the same nodes.
- Who was refused for room that another answer took is tried again at once. Until that has an answer nobody who stands
  behind gets a node that it may want.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.core.gang.group import Group, QueueKey
from muster.coordinator.core.gang.state import EquivalenceKey
from muster.coordinator.core.preemption.nomination import demand
from muster.gangs.facts import PodClass
from muster.gangs.solve import SolveGroup, SolveResult

FIRST_PAUSE_SECONDS = 10.0
LONGEST_PAUSE_SECONDS = 600.0
MAX_GROUPS_AT_RISK = 10
"""Groups of one such question: who finds the room taken is asked for twice, and others wait for it meanwhile."""


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


class Together:
    """Groups of one solve: they have no node in common with others that are under way, and are not such that they could
    go to a replica of their own. At a risk: they may have nodes in common.
    """

    def __init__(self, apart: Apart, others: set[str], *, at_risk: bool) -> None:
        self._apart, self._others = apart, others
        self._independent = apart.conflicts_show if at_risk else apart.are
        self._classes: set[str] = set()

    def fits_in(self, group: Group) -> bool:
        """The group belongs to the solve; from then on it is a part of it."""
        classes = demand(group).keys()
        if not self._independent(classes, self._others):
            return False
        if self._classes and self._apart.are(classes, self._classes):
            return False
        self._classes.update(classes)
        return True


class Risks:
    """Whether it is worth while to ask for groups that may want the same nodes as others under way.

    While they got in each other's way it is tried again only now and then: the longer, the more often in a row.
    """

    def __init__(self) -> None:
        self._not_before = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    def worth_it(self, now: float) -> bool:
        """It may be tried."""
        return now >= self._not_before

    def came_out(self, overtaken: bool, now: float) -> None:
        """It was tried, and somebody found the room taken, or nobody did."""
        if overtaken:
            self._not_before = now + self._pause
            self._pause = min(LONGEST_PAUSE_SECONDS, 2 * self._pause)
        else:
            self._pause = FIRST_PAUSE_SECONDS


@dataclass(slots=True, eq=False)
class Attempt:
    """A solve: the groups, and what was asked for each, by group id."""

    solve_id: int
    groups: list[Group]
    asked: dict[str, SolveGroup]
    shapes: dict[str, EquivalenceKey]
    """Of groups that speak for others of their shape."""
    began: float
    helps: int = 0
    """How often something had helped parked groups when it began."""
    at_risk: bool = False
    """It may want the same nodes as others that were under way when it began."""
    answer: Solved | SolveFailed | None = None
    results: dict[str, SolveResult] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    """Nodes on which others got seats since it began."""
    overtaken: bool = False
    """Somebody was given room that was taken by then."""
    behind: QueueKey | None = None
    """Who stands behind this place is not to be seated: somebody who was not asked for may have a place as well."""


class ConcurrentSolves:
    """Solves without an answer, and answers that wait for their turn."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.begun = 0
        """Solves so far."""
        self._attempts: dict[int, Attempt] = {}
        self._first: dict[Group, frozenset[str]] = {}  # who was refused room that was taken -> its classes

    def __len__(self) -> int:
        return sum(attempt.answer is None for attempt in self._attempts.values())

    @property
    def waiting(self) -> bool:
        """There is an answer that waits for others."""
        return len(self._attempts) > len(self)

    @property
    def classes(self) -> set[str]:
        """Of all members that are being placed."""
        return {class_id for attempt in self._attempts.values() for class_id in _classes(attempt)}

    def speaking(self) -> Counter[EquivalenceKey]:
        """How many speak for a shape in solves under way."""
        return Counter(shape for attempt in self._attempts.values() for shape in attempt.shapes.values())

    def begin(self, attempt: Attempt) -> None:
        """It is under way."""
        self.begun += 1
        self._attempts[attempt.solve_id] = attempt

    def answered(self, answer: Solved | SolveFailed, now: float) -> list[Attempt]:
        """An answer came. Returns those whose turn it is: they are not under way any more."""
        attempt = self._attempts.get(answer.solve_id)
        if attempt is None or attempt.answer is not None:
            return []
        attempt.answer = answer
        if isinstance(answer, Solved):
            attempt.results = {result.id: result for result in answer.results}
        for group in attempt.groups:
            for gang in group.gangs:
                gang.attempts.charge(now - attempt.began)
        ready = [each for each in self._attempts.values() if each.answer is not None and not self._must_wait(each)]
        for each in ready:
            del self._attempts[each.solve_id]
        return ready

    def _must_wait(self, attempt: Attempt) -> bool:
        under_way = [other for other in self._attempts.values() if other.answer is None]
        if not under_way:
            return False
        seated = [group for group in attempt.groups if group.gangs and _nodes(attempt, group)]
        if not seated:
            return False
        last = max(group.key for group in seated)
        nodes = {node for group in seated for node in _nodes(attempt, group)}
        before = {
            class_id
            for other in under_way
            for group in other.groups
            if group.gangs and group.key < last
            for class_id in _classes_of(other.asked[group.id])
        }
        return self._may_want(before, nodes)

    def _may_want(self, classes: Collection[str], nodes: Collection[str]) -> bool:
        return any(self._ledger.could_take(node, class_id) for class_id in classes for node in nodes)

    # -- what came of it

    def took(self, ready: Sequence[Attempt], attempt: Attempt, group: Group) -> None:
        """The group got seats: the others that are under way, or were with it, do not know of it."""
        others = [*self._attempts.values(), *(each for each in ready if each is not attempt)]
        if others:
            nodes = _nodes(attempt, group)
            for other in others:
                other.taken |= nodes

    def overtaken(self, attempt: Attempt, group: Group) -> None:
        """The room that it was given was taken meanwhile: it goes first."""
        self._first[group] = frozenset(_classes_of(attempt.asked[group.id]))

    def settled(self, group: Group) -> None:
        """It was tried again."""
        self._first.pop(group, None)

    def forget_all_but(self, waiting: Container[Group]) -> None:
        """Who neither waits nor is being solved wants nothing any more."""
        for group in [group for group in self._first if group not in waiting and group.solve.solve_id is None]:
            del self._first[group]

    def belongs_to_others(self, attempt: Attempt, group: Group) -> bool:
        """Somebody who stands before the group was refused room, and may want the nodes that it was given."""
        if not self._first:
            return False
        key, nodes = group.key, _nodes(attempt, group)
        return any(
            first is not group and first.gangs and first.key < key and self._may_want(classes, nodes)
            for first, classes in self._first.items()
        )


def in_turn(attempts: list[Attempt]) -> Iterator[tuple[Attempt, Group]]:
    """The groups of these attempts in queue order; those of one in the order in which they were asked for."""
    pairs = [(attempt, group) for attempt in attempts for group in attempt.groups]
    if len(attempts) > 1:
        gone = [pair for pair in pairs if not pair[1].gangs]
        yield from gone
        pairs = sorted((pair for pair in pairs if pair[1].gangs), key=lambda pair: pair[1].key)
    yield from pairs


def _nodes(attempt: Attempt, group: Group) -> set[str]:
    result = attempt.results.get(group.id)
    return {assignment.node for assignment in result.assignments} if result is not None else set()


def _classes(attempt: Attempt) -> Iterator[str]:
    for asked in attempt.asked.values():
        yield from _classes_of(asked)


def _classes_of(asked: SolveGroup) -> set[str]:
    return {role.class_id for gang in asked.gangs for role in gang.roles}
