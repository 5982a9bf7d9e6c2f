"""The scheduling queue: active, backoff and unschedulable groups, as in kube-scheduler, but of whole gang groups.

- active: tried next, in the order of `Group.key`.
- backoff: tried at a time, after an attempt whose outcome could not be used.
- unschedulable: had no place; tried when an event happens that could help (`wake`, with the hints of `queue/wake.py`).
  All groups that an event could help become active together, so that queue order decides, and not the order of earlier
  attempts. Of an equivalence class only representatives become active; when one leaves without having been tried, the
  next does. A new group that equals a class of which nobody has a place joins it without having been tried.

Users see all three as the phase Queued, or Waiting if the group holds reservations.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final, Literal

from muster.coordinator.core.events import ClusterEvent, Now
from muster.coordinator.core.gang.gang import EquivalenceKey, Group, QueueKey
from muster.coordinator.core.queue.equivalence import EquivalenceClasses
from muster.coordinator.core.queue.turns import ActiveGroups, Answer, Entry
from muster.coordinator.core.queue.wake import EventLog, WakeIndex
from muster.coordinator.core.slices import OBJECTS, Slices, parts
from muster.coordinator.core.term_state import PausedGroup, QueueTermState, monotonic_time, unix_time
from muster.retry.backoff import backoff_seconds

RETRY_SHARE = 0.2
"""Share of time spent on trying unschedulable groups again, at most, however often events happen. When other groups are
tried anyway they are tried too, since they may precede those in the queue.
"""
MAX_RETRY_WAIT_SECONDS = 1.0
"""Longest wait for that share: one slow solve must not keep other groups from starting."""
INITIAL_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 10.0
AWAY_SECONDS = 0.5
"""How often a placement that cannot be reached is asked again, with all groups that failed for that in one request."""


@dataclass(frozen=True)
class Concurrency:
    """Limits set by solves under way: how many representatives of a class are in them, and which groups may be solved
    at the same time.
    """

    represented: Mapping[EquivalenceKey, int] = field(default_factory=dict)
    admits: Callable[[Group], bool] = lambda _group: True


Standing = Literal["active", "backoff", "unschedulable"]

NO_SOLVES: Final = Concurrency()


class Queue:
    """Groups that want seats: each until a solve takes it or it wants none any more, then with all that is kept by its
    id. What is kept by equivalence class ends with the class, at the next flush.
    """

    def __init__(self, unschedulable: WakeIndex) -> None:
        self._groups: dict[str, Group] = {}
        self._active = ActiveGroups()
        self._backoff: list[tuple[float, str]] = []
        """A heap. Each entry ends at its time; void are those with another time than that of the group."""
        self._backoff_until: dict[str, float] = {}
        self._unschedulable: dict[str, Group] = {}
        """Unschedulable groups that are in no equivalence class."""
        self._classes = EquivalenceClasses()
        self._wake_index = unschedulable
        self._represents: dict[str, EquivalenceKey] = {}
        """Classes of groups in active and backoff, by group id."""
        self._active_representatives: Counter[EquivalenceKey] = Counter()
        self._class_due: dict[EquivalenceKey, float] = {}
        """When the next representatives become active; an entry ends then."""
        self._emptied: set[EquivalenceKey] = set()
        """Classes whose last represented member or last active representative left; at the next flush, those without
        either are forgotten."""
        self._log = EventLog()
        self._recorders: list[EventLog] = []
        self.events = 0
        """Events so far."""
        self.activations = 0
        """How often a group became active, or was about to."""
        self._next_retry = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, Group) and self._groups.get(group.id) is group

    # -- in and out

    def activate(self, group: Group) -> None:
        """Try the group at the next opportunity, in its turn."""
        key = group.queueing.equivalence_key
        self._move(group, represents=key)
        if key is not None:
            self._active_representatives[key] += 1
        self.activations += 1
        self._active.put(group.id, group.key)

    def back_off(
        self, group: Group, now: float, failure: str = "", *, away: bool = False, at_least: float = 0.0
    ) -> None:
        """Try the group again after a pause that doubles with every failure in a row; soon if placement is `away`."""
        group.queueing.fail(failure)
        self._move(group, represents=group.queueing.equivalence_key)
        until = (now // AWAY_SECONDS + 1) * AWAY_SECONDS if away else now + self.next_backoff(group)
        until = max(until, now + at_least)
        self._backoff_until[group.id] = until
        heapq.heappush(self._backoff, (until, group.id))

    @staticmethod
    def next_backoff(group: Group) -> float:
        """Count a failure; returns the seconds of the pause, which doubles with every failure in a row."""
        group.queueing.back_off()
        return backoff_seconds(INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, group.queueing.backoffs)

    def park(self, group: Group, until: float) -> None:
        """The group waits until it is activated, which is not expected before this time."""
        self._move(group, represents=group.queueing.equivalence_key)
        self._backoff_until[group.id] = until

    def term_state(self, now: Now) -> Slices[QueueTermState]:
        """Groups in backoff, and turns of namespaces. In slices."""
        paused = []
        for some in parts(tuple(self._backoff_until.items())):
            for group_id, until in some:
                group = self._groups.get(group_id)
                if group is not None and not group.solve.slow:
                    paused.append(PausedGroup(group_id, unix_time(until, now), group.queueing.backoffs))
            yield
        return QueueTermState(tuple(paused), self._active.term_state(), unix_time(self._next_retry, now))

    def resume(self, state: QueueTermState, now: Now) -> None:
        """The groups that were in backoff are in it, if they still want seats."""
        for each in state.paused:
            if (group := self._groups.get(each.group)) is not None:
                group.queueing.restore(each.backoffs)
                until = monotonic_time(each.until, now)
                self._move(group, represents=group.queueing.equivalence_key)
                self._backoff_until[group.id] = until
                heapq.heappush(self._backoff, (until, group.id))
        self._log = EventLog()  # what the first snapshot and resuming changed is nothing new
        self._class_due.clear()
        self._active.resume(state.turns)
        self._next_retry = monotonic_time(state.next_retry, now)

    @property
    def events_wait(self) -> bool:
        """Events happened that may help unschedulable groups, which were not activated yet."""
        return bool(self._log) or bool(self._class_due)

    def resume_slow(self, group: Group, backoffs: int) -> None:
        """The group has been slow so many times in a row."""
        group.queueing.restore(backoffs)

    def set_unschedulable(self, group: Group) -> None:
        """The group has no place: try it again when an event could help."""
        self._move(group)
        key = group.queueing.equivalence_key
        if key is not None:
            self._add_to_class(group, key)
        else:
            self._unschedulable[group.id] = group
            self._wake_index.add(group.id, group)

    def is_active(self, group: Group) -> bool:
        """The group is tried at the next opportunity."""
        return group.id in self._active

    @property
    def has_active(self) -> bool:
        """Groups are tried at the next opportunity."""
        return bool(self._active)

    def is_parked(self, group_id: str) -> bool:
        """The group waits until it is activated, or until its backoff ends."""
        return group_id in self._backoff_until

    def activate_parked(self, group_id: str) -> None:
        """End the wait of a group that is parked."""
        self.activate(self._groups[group_id])

    def remove(self, group: Group) -> None:
        """The group wants no seats any more."""
        if group.id in self._groups:
            self._move(group)
            del self._groups[group.id]

    @staticmethod
    def reset_backoff(group: Group) -> None:
        """The group's next backoff is the shortest again."""
        group.queueing.reset_backoff()

    @staticmethod
    def clear_failure(group: Group) -> None:
        """The group's last attempt did not fail."""
        group.queueing.fail("")

    # -- equivalence classes

    @staticmethod
    def classify(group: Group, key: EquivalenceKey | None) -> None:
        """Set the equivalence class of a group that has no place; None: it is in none."""
        group.queueing.classify(key)

    def leave_class(self, group: Group) -> None:
        """The group is neither represented nor a representative any more; otherwise it waits as before."""
        group.queueing.classify(None)
        if group.id in self._active:
            self.activate(group)
        elif group.id in self._groups and group.id not in self._backoff_until:
            self.set_unschedulable(group)

    def settle(self, key: EquivalenceKey, representative: Group, now: float, *, fits: bool | None) -> None:
        """A representative of the class has a place, or has none, or that is not known (None): then the next one is
        tried when this one is.
        """
        others = self._active_representatives[key] > 0 or self._classes.first(key) is not None
        self._classes.settle(key, fits=bool(fits) and others)
        if fits:
            self._next_representative(key)
        elif fits is None:
            later = 0.0 if representative.id in self._active else now + AWAY_SECONDS
            self._next_representative(key, at=self._backoff_until.get(representative.id, later))

    @property
    def has_classes(self) -> bool:
        """Groups that had no place are in equivalence classes."""
        return bool(self._classes)

    def join_class(self, group: Group, key: EquivalenceKey) -> bool:
        """Put a group that was not tried yet into the class that it equals, if no group of the class has a place: the
        last one that was tried had none, nothing has happened since that could help, and the group is behind others of
        the class, so that no more nominated capacity is open to it. Returns whether it joined.
        """
        first = self._classes.first_position(key)
        if first is None or group.key < first:
            return False
        if self._active_representatives[key] or key in self._class_due or self._log:
            return False
        self.classify(group, key)
        self.set_unschedulable(group)
        return True

    def first_represented(self, key: EquivalenceKey) -> QueueKey | None:
        """Queue position of the first group of the class that is represented by another; None: there is none."""
        first = self._classes.first(key)
        return first.key if first is not None else None

    def represented(self, key: EquivalenceKey) -> Iterator[Group]:
        """Groups of the class that are represented by another."""
        return self._classes.members(key)

    def _add_to_class(self, group: Group, key: EquivalenceKey) -> None:
        self._classes.add(group, key)
        self._wake_index.add(key, group)

    def _move(self, group: Group, *, represents: EquivalenceKey | None = None) -> None:
        """The group leaves its place; in the next one it represents this class."""
        represented = self._leave(group.id)
        self._groups[group.id] = group
        group.queueing.rank(surplus=group.surplus)
        if represents is not None:
            self._represents[group.id] = represents
        if represented is not None and represented != represents:
            self._next_representative(represented)

    def _leave(self, group_id: str) -> EquivalenceKey | None:
        """Returns the class that the group would have represented."""
        if (emptied := self._classes.discard(group_id)) is not None:
            self._wake_index.discard(emptied)
            self._emptied.add(emptied)
        if self._unschedulable.pop(group_id, None) is not None:
            self._wake_index.discard(group_id)
        self._backoff_until.pop(group_id, None)
        represented = self._represents.pop(group_id, None)
        if self._active.discard(group_id) and represented is not None:
            self._active_representatives[represented] -= 1
            if not self._active_representatives[represented]:
                del self._active_representatives[represented]
                self._emptied.add(represented)
        return represented

    def _next_representative(self, key: EquivalenceKey, at: float = 0.0) -> None:
        self._class_due[key] = min(at, self._class_due.get(key, at))
        self.activations += 1

    # -- events

    def wake(self, event: ClusterEvent) -> None:
        """An event happened. Unschedulable groups that it could help become active at the next round of retries; those
        that are being solved now, on an older state, count as unschedulable since before the event.
        """
        self.events += 1
        self._log.add(event)
        for recorder in self._recorders:
            recorder.add(event)

    def record_events(self) -> EventLog:
        """A solve begins: its groups must not miss events until it ends."""
        recorder = EventLog()
        self._recorders.append(recorder)
        return recorder

    def replay_events(self, recorder: EventLog) -> None:
        """A solve has ended: events since it began could help its groups, too."""
        self._recorders.remove(recorder)
        self._log.merge(recorder)

    def solve_ended(self, began: float, ended: float) -> None:
        """The next round of retries waits in proportion to the time that a solve took."""
        self._next_retry = ended + min(MAX_RETRY_WAIT_SECONDS, (ended - began) * (1 / RETRY_SHARE - 1))

    def flush(self, now: float, *, only_due: bool = False) -> Slices[None]:
        """Activate groups whose backoff has expired, and groups that events could help: the latter also before the next
        round of retries is due if other groups are tried anyway, unless `only_due`. In slices, since one event may help
        all groups (I12); queue order decides among all of them, since groups are taken after the last slice.
        """
        if self._backoff and self._backoff[0][0] <= now:
            yield from self._activate_all(self._expired(now))
        if self._log and ((self._active and not only_due) or now >= self._next_retry):
            log, self._log = self._log, EventLog()
            helped = yield from self._wake_index.helped_by(log)
            yield from self._activate_all(self._helped(helped, now))
        for key in self._emptied:
            if self._classes.first(key) is None and not self._active_representatives[key]:
                self._classes.settle(key, fits=False)
        self._emptied.clear()
        if self._class_due:
            yield from self._activate_all(self._due_representatives(now))

    def _activate_all(self, groups: Iterable[Group]) -> Slices[None]:
        for number, group in enumerate(groups, start=1):
            self.activate(group)
            if number % OBJECTS == 0:
                yield

    def _expired(self, now: float) -> Iterator[Group]:
        while self._backoff and self._backoff[0][0] <= now:
            until, group_id = heapq.heappop(self._backoff)
            if self._backoff_until.get(group_id) == until:
                yield self._groups[group_id]

    def _helped(self, ids: Iterable[Hashable], now: float) -> Iterator[Group]:
        for id_ in ids:
            if (group := self._unschedulable.get(id_) if isinstance(id_, str) else None) is not None:
                yield group
            else:
                self._class_due[id_] = now

    def _due_representatives(self, now: float) -> Iterator[Group]:
        for key in [key for key, at in self._class_due.items() if at <= now]:
            del self._class_due[key]
            count = self._classes.representatives(key) - self._active_representatives[key]
            yield from self._classes.first_members(key, count)

    # -- taking groups

    def forget_turns(self) -> None:
        """No group is active: turns of namespaces begin anew."""
        self._active.forget_namespaces()

    def pop(
        self,
        max_groups: int,
        max_pods: int,
        kind: Callable[[Group], Hashable] = lambda _group: None,
        concurrency: Concurrency = NO_SOLVES,
        first: Iterable[Group] = (),
        join_class: Callable[[Group], bool] = lambda _group: False,
    ) -> Slices[list[Group]]:
        """Remove and return groups for one solve, in queue order: active groups that go `first`, the head of the queue,
        as far as it is of one kind, and groups of namespaces whose turn it is. Groups that must not be solved beside
        the solves under way are passed over, and stay. `join_class` moves a group that is in no class to one of which
        no group has a place, and returns whether it did. `flush` activates those that are to be tried, before. In
        slices, since many groups may have become active of which their classes need no try any more.
        """
        popped: list[tuple[Entry, Group]] = []
        represented = dict(concurrency.represented)
        pods = 0

        def offer(entry: Entry, max_pods: int) -> Answer:
            nonlocal pods
            group_id = entry[1]
            group = self._groups[group_id]
            if group.queueing.equivalence_key is None and join_class(group):
                return Answer.LEFT
            size = sum(len(gang.pending) for gang in group.gangs)
            if popped and (pods + size > max_pods or kind(group) != kind(popped[0][1])):
                return Answer.FULL
            if not concurrency.admits(group):
                return Answer.PASSED_OVER
            if (key := group.queueing.equivalence_key) is not None:
                if represented.get(key, 0) >= self._classes.representatives(key):
                    self._leave(group_id)
                    self._add_to_class(group, key)
                    return Answer.LEFT
                represented[key] = represented.get(key, 0) + 1
            self._leave(group_id)
            del self._groups[group_id]
            popped.append((entry, group))
            pods += size
            return Answer.TAKEN

        for group in first:
            if group.id in self._active and len(popped) < max_groups:
                offer((group.key, group.id), max_pods)
        if len(popped) < max_groups:
            yield from self._active.take(max_groups - len(popped), max_pods, offer)
        return [group for _, group in sorted(popped, key=itemgetter(0))]

    def next_time(self) -> float | None:
        """When `pop` may have something that it has not now; None: only an event can change that."""
        times = []
        while self._backoff and self._backoff_until.get(self._backoff[0][1]) != self._backoff[0][0]:
            heapq.heappop(self._backoff)
        if self._backoff:
            times.append(self._backoff[0][0])
        times += [at for key, at in self._class_due.items() if self._classes.first(key) is not None]
        if self._log and self._wake_index:
            times.append(self._next_retry)
        return min(times, default=None)

    # -- reading

    @property
    def groups(self) -> Mapping[str, Group]:
        """All groups by id, whichever part of the queue they are in."""
        return self._groups

    def unschedulable_heads(self) -> Iterator[Group]:
        """Unschedulable groups; of each equivalence class the first, and the one with the highest priority."""
        yield from self._unschedulable.values()
        yield from self._classes.heads()

    def standings(self) -> Iterator[tuple[Standing, Group]]:
        """All groups with the part of the queue that they are in."""
        for id_, group in self._groups.items():
            if id_ in self._active:
                yield "active", group
            else:
                yield "backoff" if id_ in self._backoff_until else "unschedulable", group
