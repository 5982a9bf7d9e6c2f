"""Turns reasons into pod conditions and events, and problems of topology trees into events, at a bounded rate (I10).

A reason of another identity (`reasons.Theme`) is reported at once, as conditions and events. A reason of which only
numbers differ is not: whenever capacity is freed or taken, the numbers of every pending gang change, and reporting them
all would cost more than starting the next gang. Such changes are reported as conditions only, gang by gang, at a fixed
rate over all gangs, of which namespaces take turns, and of each gang at intervals.

Another wait (`report/waits`) is reported at once, too, as conditions of all members it concerns in one report, since
autoscalers act on the condition's reason: nodes are not asked for any longer than they are needed. So is another
nominated node, on which a member holds capacity: that of its seat, or of a nomination for its group.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.cache.nodes import TopologyTrees
from muster.coordinator.core.deadlines import Deadlines
from muster.coordinator.core.effects import EventType, KubeEvent, PodCondition, Report
from muster.coordinator.core.gang.gang import Gang, Group, QueueKey, pod_reference
from muster.coordinator.core.gang.subgroups import held_off
from muster.coordinator.core.priority_queue import PriorityQueue
from muster.coordinator.core.report.diagnosis import wait_of
from muster.coordinator.core.report.nominated_nodes import nominated_nodes
from muster.coordinator.core.report.overlaps import Overlaps
from muster.coordinator.core.report.reasons import LATER, NOTHING, Kind, Theme, is_news, kind, reason, theme, warnings
from muster.coordinator.core.report.waits import Wait
from muster.coordinator.core.slices import GANGS, Slices
from muster.dialects.registry import event_reason
from muster.gangs.facts import ObjectReference, Problem, Severity
from muster.queues.fair_queue import FairQueue


class Budget:
    """A token bucket that may be overdrawn; it is then empty until the debt is refilled."""

    def __init__(self, per_second: float, max_saved: float) -> None:
        self._per_second = per_second
        self._saving_seconds = max_saved / per_second
        self._empty_at = -self._saving_seconds

    @property
    def ready_at(self) -> float:
        """Time from which tokens may be spent."""
        return self._empty_at

    def spend(self, amount: float, now: float) -> None:
        """Takes tokens, into debt if necessary."""
        self._save_up_to(now)
        self._empty_at += amount / self._per_second

    def use_up(self, amount: float, now: float) -> None:
        """Takes tokens as far as there are any, without debt, for work that cannot wait."""
        self._save_up_to(now)
        self._empty_at = max(self._empty_at, min(now, self._empty_at + amount / self._per_second))

    def _save_up_to(self, now: float) -> None:
        self._empty_at = max(self._empty_at, now - self._saving_seconds)


SETTLE_SECONDS = 0.1
"""How long a reason must hold before it is reported: gangs that start at once get no conditions."""
BETWEEN_PODS_SECONDS = 0.5
"""The same for a gang that lacks members: its next pod is likely to be created within this time."""
CREATION_SECONDS = 2.0
"""How long at most a gang is not reported as incomplete because its pods are still being created."""
STARTING_SECONDS = 1.0
"""After this time without a bind, members for which nodes were asked are reported as starting."""
PODS_PER_SECOND = 200
"""Maximum rate of conditions of one gang; one report of all its members is saved up."""
CHANGES_PER_SECOND = 20
"""Maximum rate of conditions of which only numbers differ, over all gangs: each is a write of the API server."""
CHANGES_APART_SECONDS = 10.0
"""Minimum interval of such changes of one gang, whose numbers may change with every pod that comes or goes."""
MAX_CHANGES_SAVED = 200
"""Burst after a quiet time, so that a change of a single gang is reported without delay."""
HEAD_EVERY = 4
"""Every fourth change reported is of the first gang in queue order, which is the one people look at."""
PODS_WITH_EVENTS = 64
"""Maximum number of pods of a gang, first by name, that get events; all get the condition."""
_OF_NOMINATIONS: Final = (Wait.PREEMPTING, Wait.RESERVED)


class _Message(NamedTuple):
    theme: Theme
    text: str
    wait: Wait
    node: str = ""
    """The nominated node."""


@dataclass(slots=True)
class _Reported:
    theme: Theme = NOTHING
    wait: Wait = Wait.FAILED
    pods: dict[str, _Message] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    overlaps: Overlaps = field(default_factory=Overlaps)
    acted_on: bool = False
    """Some members were last reported to wait for nodes, or to have a nominated one: autoscalers act on it."""
    complete: bool = False
    """All members existed when the report that is due was scheduled."""
    members: int = 0
    """Number of pods when the report that is due was scheduled, or when more had been created since."""
    scheduled_at: float = 0.0
    """Monotonic time at which that report was scheduled."""
    paid_at: float = 0.0
    """Monotonic time up to which the rate of the gang's conditions is used up."""
    not_before: float = 0.0
    numbers_not_before: float = 0.0
    """Monotonic time before which no change is reported of which only numbers differ."""


def _namespace(gang: Gang) -> str:
    """The namespace in a gang's id: "dialect/namespace/name"."""
    return gang.id.split("/", 2)[1]


class Reports:
    """Turns reasons into conditions and events. What is kept about a gang ends with it."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._reported: dict[Gang, _Reported] = {}
        self._nominated: dict[Group, dict[str, str]] = {}
        """Nominated nodes by uid of the members of groups with a nomination; ends with the step."""
        self._due: Deadlines[Gang] = Deadlines()
        """When to compare the reasons of touched gangs with the reported ones."""
        self._changed: FairQueue[Gang, None] = FairQueue()
        """Gangs whose numbers differ from the reported ones, the longest waiting of each namespace first; no more than
        gangs, and until they are reported, have nothing to report, or are removed."""
        self._in_order: PriorityQueue[Gang, tuple[QueueKey, str]] = PriorityQueue()
        """The same gangs, as they were in queue order when their numbers were found to differ."""
        self._later: Deadlines[Gang] = Deadlines()
        """When such gangs are to be among them whose numbers were reported a short time ago."""
        self._budget = Budget(CHANGES_PER_SECOND, MAX_CHANGES_SAVED)
        self._turns = 0

    def look(self, gang: Gang, now: float) -> Report | None:
        """Schedules the report of a touched gang; returns warnings to report now."""
        reported = self._reported.get(gang)
        if reported is None:
            reported = self._reported[gang] = _reported_earlier(gang)
        if kind(gang) is Kind.NONE and not gang.invalid:
            outdated = reported.acted_on and next(_outdated(gang, reported), None) is not None
            if not outdated or reported.theme != NOTHING:
                self._due.discard(gang)
            if outdated and gang not in self._due:
                self._due.put(gang, max(now + STARTING_SECONDS, reported.not_before))
            reported.theme = NOTHING
            self._unchanged(gang)
        elif gang not in self._due:
            reported.scheduled_at = now
            self._schedule(gang, reported, now)
        elif len(gang.pods) > reported.members and not reported.complete:
            self._schedule(gang, reported, now)
        return self._warn(gang, reported)

    def _schedule(self, gang: Gang, reported: _Reported, now: float) -> None:
        reported.members, reported.complete = len(gang.pods), gang.all_present
        settled = now + (SETTLE_SECONDS if reported.complete else BETWEEN_PODS_SECONDS)
        self._due.put(gang, max(min(settled, reported.scheduled_at + CREATION_SECONDS), reported.not_before))

    def forget(self, gang: Gang) -> None:
        """Drops the state of a removed gang."""
        self._reported.pop(gang, None)
        self._due.discard(gang)
        self._unchanged(gang)

    def repeat(self) -> None:
        """Report all reasons again: what was written may be lost."""
        for gang, reported in self._reported.items():
            again = _reported_earlier(gang, reported.pods)
            reported.theme, reported.pods, reported.warnings = NOTHING, again.pods, ()
            reported.acted_on = again.acted_on

    def next_time(self) -> float | None:
        """Returns when the next report is due."""
        times = (self._due.next_time(), self._later.next_time(), self._budget.ready_at if self._changed else None)
        return min((time for time in times if time is not None), default=None)

    def any_due(self, now: float) -> bool:
        """A report may be due."""
        return bool(self._changed) or self._due.any_due(now) or self._later.any_due(now)

    def due(self, now: float) -> Slices[list[Report]]:
        """Returns the reports that are due, in slices of GANGS."""
        reports: list[Report | None] = []
        for number, gang in enumerate(self._due.take_due(now), start=1):
            reports.append(self._news(gang, now))
            if number % GANGS == 0:
                yield
        for gang in self._later.take_due(now):
            self._queue_change(gang)
        while self._changed and self._budget.ready_at <= now:
            if len(reports) % GANGS == 0:
                yield
            gang = self._turn()
            if (not_before := self._reported[gang].not_before) > now:
                if gang not in self._due:
                    self._due.put(gang, not_before)
            else:
                reports.append(self._changes(gang, now))
        self._nominated.clear()
        return [report for report in reports if report is not None]

    def _turn(self) -> Gang:
        self._turns += 1
        if self._turns % HEAD_EVERY == 0 and (first := self._in_order.first()) is not None:
            gang = first[0]
        else:
            [entry] = self._changed.take(1)
            gang = entry.key
        self._unchanged(gang)
        return gang

    def _unchanged(self, gang: Gang) -> None:
        """The gang is reported, or has nothing to report."""
        self._changed.discard(_namespace(gang), gang)
        self._in_order.discard(gang)
        self._later.discard(gang)

    def _queue_change(self, gang: Gang) -> None:
        self._changed.put(_namespace(gang), gang, None)
        self._in_order.put(gang, (gang.group.key, gang.id))

    def _news(self, gang: Gang, now: float) -> Report | None:
        reported = self._reported[gang]
        reported.pods = {uid: message for uid, message in reported.pods.items() if uid in gang.pods}
        news, other_waits, changed = {}, {}, False
        why = self._why(gang, reported)
        for uid, message in self._by_pod(gang, why, reported):
            before = reported.pods.get(uid)
            if before is None or is_news(before.theme, message.theme):
                news[uid] = message
                continue
            after = _after(before, message)
            if (before.wait, before.node) != (after.wait, after.node):
                other_waits[uid] = after
            elif before.text != after.text:
                changed = True
        if changed and reported.numbers_not_before > now:
            self._later.put(gang, reported.numbers_not_before)
        elif changed:
            self._queue_change(gang)
        else:
            self._unchanged(gang)
        events = self._events(gang, reported, why, news)
        news.update(other_waits)
        if not news and not events:
            return None
        self._budget.use_up(len(news), now)
        return self._report(gang, reported, news, events, now)

    def _changes(self, gang: Gang, now: float) -> Report | None:
        reported = self._reported[gang]
        changes = {}
        for uid, message in self._by_pod(gang, self._why(gang, reported), reported):
            before = reported.pods.get(uid)
            if before is not None and before.text != message.text and not is_news(before.theme, message.theme):
                changes[uid] = _after(before, message)
        if not changes:
            return None
        self._budget.spend(len(changes), now)
        reported.numbers_not_before = now + CHANGES_APART_SECONDS
        return self._report(gang, reported, changes, (), now)

    def _by_pod(self, gang: Gang, why: _Message, reported: _Reported) -> Iterator[tuple[str, _Message]]:
        """Yields the message for each pod that is not about to be bound; a problem of the pod itself comes first."""
        failing = why.theme.kind is Kind.NOT_BOUND
        if why.text:
            nodes = self._nominated_nodes(gang.group) if why.wait in _OF_NOMINATIONS else {}
            paused = held_off(gang, self._cache.ledger.selection)
            for uid in gang.pending:
                if uid in gang.invalid:
                    continue
                if paused is not None and uid in paused.uids:
                    yield uid, why._replace(wait=Wait.SHRUNK)
                else:
                    yield uid, why._replace(node=nodes[uid]) if uid in nodes else why
            for uid in gang.hold.marked:
                if uid not in gang.invalid:
                    yield uid, why._replace(wait=Wait.TIMED_OUT)
            with_seat = why.wait if failing else Wait.HOLDING
            for uid, held in gang.seats.items() if failing or not gang.permit.granted else ():
                if uid not in gang.invalid:
                    yield uid, why._replace(wait=with_seat, node=held.seat.node)
        if not failing:
            yield from _outdated(gang, reported)
        for uid in gang.invalid:
            problem = gang.pods[uid].problem
            yield uid, _Message(Theme(Kind.BAD_POD, problem), problem, Wait.BLOCKED_POD)

    def _nominated_nodes(self, group: Group) -> dict[str, str]:
        nodes = self._nominated.get(group)
        if nodes is None:
            nomination = self._cache.nominations.get(group)
            found = nominated_nodes(nomination, self._node_of) if nomination is not None else {}
            nodes = self._nominated[group] = found
        return nodes

    def _node_of(self, uid: str) -> str:
        """The nominated node that was last reported for a pod."""
        reported = self._reported.get(self._cache.gang_of[uid])
        before = reported.pods.get(uid) if reported is not None else None
        return before.node if before is not None else ""

    def _why(self, gang: Gang, reported: _Reported) -> _Message:
        """Why the gang waits. An attempt that failed does not change that, unless the gang waited for capacity that is
        not nominated for it any more.
        """
        about, wait = theme(gang), wait_of(gang, self._cache)
        if wait is Wait.FAILED and not is_news(reported.theme, about) and reported.wait not in _OF_NOMINATIONS:
            wait = reported.wait
        reported.wait = wait
        return _Message(about, reason(gang), wait)

    @staticmethod
    def _report(
        gang: Gang, reported: _Reported, pods: dict[str, _Message], events: tuple[KubeEvent, ...], now: float
    ) -> Report:
        earlier, reported.pods = reported.pods, reported.pods | pods
        reported.acted_on = any(message.wait.nodes_help or message.node for message in reported.pods.values())
        reported.paid_at = max(reported.paid_at, now) + 1 + len(pods) / PODS_PER_SECOND
        reported.not_before = max(now, reported.paid_at - 1 - len(gang.pods) / PODS_PER_SECOND)
        conditions = ((gang.pods[uid], message) for uid, message in pods.items())
        return Report(
            gang.id,
            tuple(
                PodCondition(
                    *(pod.uid, pod.namespace, pod.name),
                    *(message.wait.reason, message.text, message.node),
                    first=pod.uid not in earlier,
                    changed=pod.uid in earlier and bool(earlier[pod.uid].text),
                )
                for pod, message in conditions
            ),
            events,
        )

    @staticmethod
    def _events(gang: Gang, reported: _Reported, why: _Message, news: dict[str, _Message]) -> tuple[KubeEvent, ...]:
        told = why.theme.kind in LATER and not is_news(reported.theme, why.theme)  # of pods that came before
        new = [uid for uid, message in news.items() if not (told and message.theme == why.theme)]
        first = sorted(new, key=lambda uid: gang.pods[uid].name)[:PODS_WITH_EVENTS]
        events = [_failed(gang, pod_reference(gang.pods[uid]), news[uid].text) for uid in first]
        if is_news(reported.theme, why.theme):
            reported.theme = why.theme
            regarding = gang.facts.definition if gang.facts is not None else None
            if why.theme.kind is Kind.RAISED:  # it concerns no pod that exists
                regarding = gang.reference
            if regarding is not None and why.text:
                events.append(_failed(gang, regarding, why.text))
        return tuple(events)

    def _warn(self, gang: Gang, reported: _Reported) -> Report | None:
        notes = warnings(gang)
        if overlap := reported.overlaps.describe(gang, self._cache.ledger.selection):
            notes.append(overlap)
        if not notes and not reported.warnings:
            return None
        # a corrected problem is reported again when it returns
        reported.warnings = tuple(note for note in reported.warnings if note in notes)
        new = [note for note in notes if note not in reported.warnings]
        regarding = gang.reference if new else None
        if regarding is None:
            return None
        reported.warnings += tuple(new)
        return Report(
            gang.id,
            events=tuple(KubeEvent(regarding, EventType.WARNING, "GangDeclaration", note) for note in new),
        )


def _reported_earlier(gang: Gang, uids: Container[str] = ()) -> _Reported:
    """Before the first report: nominated nodes that an earlier leader wrote are to be confirmed or removed. The pods
    with these uids have a condition.
    """
    pods = {
        uid: _Message(NOTHING, "", Wait.TURN, pod.nominated_node)
        for uid, pod in gang.pods.items()
        if pod.nominated_node or uid in uids
    }
    return _Reported(pods=pods, acted_on=any(message.node for message in pods.values()))


def _after(before: _Message, message: _Message) -> _Message:
    """The message as it is reported if it is no news."""
    return message if message.theme == before.theme else message._replace(theme=before.theme)


def _outdated(gang: Gang, reported: _Reported) -> Iterator[tuple[str, _Message]]:
    """Yields messages for members that have no reason to wait, as far as autoscalers act on what was reported last:
    members whose seat is, or is about to be, permitted; and if the gang has no reason, members that hold nothing now.
    """
    if not reported.acted_on:
        return
    if gang.permit.granted or gang.group.persist_id is not None:
        text = f"gang {gang.label} is starting: the pod has a node and is being bound"
        for uid, held in gang.seats.items():
            before, node = reported.pods.get(uid), held.seat.node
            if before is not None and (before.wait.nodes_help or before.node not in ("", node)):
                yield uid, before._replace(text=text, wait=Wait.STARTING, node=node)
    if kind(gang) is Kind.NONE:
        text = f"{'pod' if gang.plain else 'gang'} {gang.label} is tried again"
        for uid in gang.pending:
            before = reported.pods.get(uid)
            if before is not None and before.node:
                yield uid, before._replace(text=text, wait=Wait.TURN, node="")


def _failed(gang: Gang, regarding: ObjectReference, note: str) -> KubeEvent:
    return KubeEvent(regarding, EventType.WARNING, event_reason(gang.id), note)


TREE_SETTLE_SECONDS = 1.0
"""Nodes are often added or removed in numbers: only problems that remain for so long are reported."""
TREE_REPEAT_SECONDS = 30.0
"""Minimum interval of reports that differ in details, such as missing nodes; a rejected tree is reported at once."""


class TreeReports:
    """Problems of topology trees, reported as events on the objects that define them (I10). What is kept about a tree
    ends with it.
    """

    def __init__(self, trees: TopologyTrees) -> None:
        self._trees = trees
        self._seen = 0
        self._reported: dict[str, frozenset[str]] = {}
        self._not_before: dict[str, float] = {}
        """When to report a tree again at the earliest, in this order; an entry ends then, whether the tree is there or
        not."""
        self._due: dict[str, float] = {}

    def next_time(self) -> float | None:
        """Returns when the next report is due."""
        return min(self._due.values(), default=None)

    def due(self, now: float) -> list[Report]:
        """Returns the reports that are due."""
        if self._not_before:
            for name in [name for name, _ in takewhile(lambda item: item[1] <= now, self._not_before.items())]:
                del self._not_before[name]
        if self._seen != self._trees.version:
            self._seen = self._trees.version
            self._look(now)
        if not self._due:
            return []
        ready = [name for name, at in self._due.items() if at <= now]
        return [report for name in ready if (report := self._tell(name, now)) is not None]

    def _look(self, now: float) -> None:
        there = {tree.name: _problems(tree.problems) for tree in self._trees.all()}
        for kept in (self._reported, self._due):
            for name in kept.keys() - there.keys():
                del kept[name]
        for name, problems in there.items():
            reported = self._reported.get(name, frozenset())
            if problems == reported:
                self._due.pop(name, None)
                continue
            soon = now + TREE_SETTLE_SECONDS
            tree = self._trees.get(name)
            refused = tree is not None and any(
                each.severity is Severity.BLOCKING and each.message not in reported for each in tree.problems
            )
            at = soon if refused else max(soon, self._not_before.get(name, 0.0))
            self._due[name] = min(at, self._due.get(name, at))

    def _tell(self, name: str, now: float) -> Report | None:
        del self._due[name]
        tree = self._trees.get(name)
        if tree is None:
            return None
        reported = self._reported.get(name, frozenset())
        self._reported[name] = _problems(tree.problems)
        self._not_before.pop(name, None)
        self._not_before[name] = now + TREE_REPEAT_SECONDS
        news = {each.message: each.about or tree.definition for each in tree.problems if each.message not in reported}
        events = [
            KubeEvent(about, EventType.WARNING, "TopologyTree", message)
            for message, about in sorted(news.items())
            if about is not None
        ]
        return Report("", events=tuple(events)) if events else None


def _problems(problems: tuple[Problem, ...]) -> frozenset[str]:
    return frozenset(problem.message for problem in problems)
