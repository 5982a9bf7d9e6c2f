"""The order in which gang groups may choose: active ones by key, unschedulable ones parked until something helps."""

import heapq
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from muster.coordinator.core.gang.group import Group, QueueKey
from muster.coordinator.core.gang.state import EquivalenceKey
from muster.coordinator.core.queue.equivalence import EquivalenceClasses
from muster.retry.backoff import backoff_seconds

RETRY_SHARE = 0.2
"""At most this share of time goes into trying parked groups again, however often something changes; but when others are
tried they are tried too, since they may stand before those in the queue.
"""
MAX_RETRY_WAIT_SECONDS = 1.0
"""But it never waits longer than this: a solve that was slow once must not keep others from starting."""
MAX_PASSED_OVER = 200
"""Those behind them are not looked at."""
INITIAL_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 10.0
AWAY_SECONDS = 0.5
"""When placement itself cannot be reached; nothing speaks against the gang then."""


@dataclass(frozen=True)
class Beside:
    """What is under way: how many speak for a shape there, and which groups may be asked for at the same time."""

    speaking: Mapping[EquivalenceKey, int] = field(default_factory=dict)
    fits_in: Callable[[Group], bool] = lambda _group: True


Standing = Literal["active", "backoff", "unschedulable"]

ALONE: Final = Beside()
"""Nothing is."""


class Queue:
    """Groups that want seats.

    active: to be tried now. backoff: to be tried at a time. unschedulable: to be tried when something helps; then all
    of them at once, so that the queue order decides and not who was tried last. Of those that are alike only the first
    are let out then, in the order of their line; whoever of them goes without having been tried, the next is let out.
    """

    def __init__(self) -> None:
        self._active: list[tuple[QueueKey, str]] = []
        self._active_keys: dict[str, QueueKey] = {}
        self._backoff: list[tuple[float, str]] = []
        self._backoff_until: dict[str, float] = {}
        self._unschedulable: dict[str, Group] = {}
        self._alike = EquivalenceClasses()
        self._speaks: dict[str, EquivalenceKey] = {}  # those that are to be tried, and speak for a line then
        self._speaking: Counter[EquivalenceKey] = Counter()  # how many of them are active
        self._due: dict[EquivalenceKey, float] = {}  # lines out of which the next are to be let, and when
        self._groups: dict[str, Group] = {}
        self._help_came = False
        self.helps = 0
        """How often something happened that helps."""
        self.activations = 0
        """How often a group came, or came back, to be tried."""
        self._next_retry = 0.0

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, group: object) -> bool:
        return isinstance(group, Group) and self._groups.get(group.id) is group

    # -- in and out

    def activate(self, group: Group) -> None:
        """Try it at the next opportunity, in its turn."""
        self._place(group, speaks=group.queueing.equivalence_key)
        if group.queueing.equivalence_key is not None:
            self._speaking[group.queueing.equivalence_key] += 1
        key = group.key
        self._active_keys[group.id] = key
        self.activations += 1
        heapq.heappush(self._active, (key, group.id))

    def back_off(self, group: Group, now: float, failure: str = "", *, away: bool = False) -> None:
        """Try it again after a while that doubles with every failure in a row; soon if placement is only `away`."""
        group.queueing.fail(failure)
        self._place(group, speaks=group.queueing.equivalence_key)
        seconds = AWAY_SECONDS
        if not away:
            group.queueing.back_off()
            seconds = backoff_seconds(INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, group.queueing.backoffs)
        self._backoff_until[group.id] = now + seconds
        heapq.heappush(self._backoff, (now + seconds, group.id))

    @staticmethod
    def reset_backoff(group: Group) -> None:
        """The next backoff is the shortest again."""
        group.queueing.reset_backoff()

    @staticmethod
    def clear_failure(group: Group) -> None:
        """The last attempt did not fail."""
        group.queueing.fail("")

    @staticmethod
    def classify(group: Group, key: EquivalenceKey | None) -> None:
        """Set the equivalence class of a group that has no place; None: it is in none."""
        group.queueing.classify(key)

    def park(self, group: Group) -> None:
        """It cannot be placed now: try it when something helps."""
        self._place(group)
        if group.queueing.equivalence_key is not None:
            self._alike.put(group, group.queueing.equivalence_key)
        else:
            self._unschedulable[group.id] = group

    def remove(self, group: Group) -> None:
        """It wants nothing any more."""
        self._place(group)
        self._groups.pop(group.id, None)

    def stand_alone(self, group: Group) -> None:
        """Nobody speaks for it any more, nor does it for others; it waits as it did."""
        group.queueing.classify(None)
        if group.id in self._active_keys:
            self.activate(group)
        elif group.id in self._groups and group.id not in self._backoff_until:
            self.park(group)

    def settle(self, shape: EquivalenceKey, speaker: Group, now: float, *, fits: bool | None) -> None:
        """What became of one that spoke for a shape: it has a place, or has none, or it is not known (None). Then the
        next is asked for when the speaker is.
        """
        others = self._speaking[shape] > 0 or self._alike.first(shape) is not None
        self._alike.came_out(shape, fits=bool(fits) and others)
        if fits:
            self._next_of(shape)
        elif fits is None:
            later = 0.0 if speaker.id in self._active_keys else now + AWAY_SECONDS
            self._next_of(shape, at=self._backoff_until.get(speaker.id, later))

    def first_behind(self, shape: EquivalenceKey) -> QueueKey | None:
        """Place in the queue of the first for which another speaks; None: there is none."""
        first = self._alike.first(shape)
        return first.key if first is not None else None

    def behind(self, shape: EquivalenceKey) -> Iterator[Group]:
        """Those for which another speaks."""
        return self._alike.behind(shape)

    def _place(self, group: Group, *, speaks: EquivalenceKey | None = None) -> None:
        """It leaves where it stood; where it goes it speaks for this shape."""
        spoke = self._leave(group.id)
        self._groups[group.id] = group
        if speaks is not None:
            self._speaks[group.id] = speaks
        if spoke is not None and spoke != speaks:
            self._next_of(spoke)

    def _leave(self, group_id: str) -> EquivalenceKey | None:
        """It stands nowhere. Returns what it would have spoken for."""
        self._alike.drop(group_id)
        self._backoff_until.pop(group_id, None)
        self._unschedulable.pop(group_id, None)
        spoke = self._speaks.pop(group_id, None)
        if self._active_keys.pop(group_id, None) is not None and spoke is not None:
            self._speaking[spoke] -= 1
            if not self._speaking[spoke]:
                del self._speaking[spoke]
        return spoke

    def _next_of(self, shape: EquivalenceKey, at: float = 0.0) -> None:
        self._due[shape] = min(at, self._due.get(shape, at))
        self.activations += 1

    # -- what helps

    def help_came(self) -> None:
        """Something happened that could let a parked group start: room, a node, a changed node. It counts also for
        those that are being solved now, on a state that may be older.
        """
        self._help_came = True
        self.helps += 1

    def missed_help(self) -> None:
        """Help came while a group was being solved, and those that were parked then were tried again meanwhile."""
        self._help_came = True

    def retried(self, began: float, ended: float) -> None:
        """A solve took this long: the next round over parked groups waits in proportion."""
        self._next_retry = ended + min(MAX_RETRY_WAIT_SECONDS, (ended - began) * (1 / RETRY_SHARE - 1))

    # -- taking

    def take(
        self,
        now: float,
        most_groups: int,
        most_pods: int,
        kind: Callable[[Group], Hashable] = lambda _group: None,
        beside: Beside | None = None,
    ) -> list[Group]:
        """The head of the queue, as far as it is of one kind: what is taken leaves the queue. Those that are not to be
        asked for beside others that are under way are passed over, and stay; who says so has called `wake`.
        """
        if beside is None:
            self.wake(now)
        passed_over: list[tuple[QueueKey, str]] = []
        taken = self._take(most_groups, most_pods, kind, beside or ALONE, passed_over)
        for entry in passed_over:
            heapq.heappush(self._active, entry)
        return taken

    def _take(
        self,
        most_groups: int,
        most_pods: int,
        kind: Callable[[Group], Hashable],
        beside: Beside,
        passed_over: list[tuple[QueueKey, str]],
    ) -> list[Group]:
        taken: list[Group] = []
        spoken_for = Counter(beside.speaking)
        pods = 0
        while self._active and len(taken) < most_groups and len(passed_over) < MAX_PASSED_OVER:
            key, group_id = self._active[0]
            if self._active_keys.get(group_id) != key:
                heapq.heappop(self._active)
                continue
            group = self._groups[group_id]
            size = sum(len(gang.pending) for gang in group.gangs)
            if taken and (pods + size > most_pods or kind(group) != kind(taken[0])):
                break
            heapq.heappop(self._active)
            if not beside.fits_in(group):
                passed_over.append((key, group_id))
                continue
            if (shape := group.queueing.equivalence_key) is not None:
                if spoken_for[shape] >= self._alike.at_once(shape):
                    self._leave(group_id)
                    self._alike.put(group, shape)
                    continue
                spoken_for[shape] += 1
            self._leave(group_id)
            del self._groups[group_id]
            taken.append(group)
            pods += size
        return taken

    def next_time(self) -> float | None:
        """When `take` will have something that it has not now; None: only an event can bring it."""
        times = []
        while self._backoff and self._backoff_until.get(self._backoff[0][1]) != self._backoff[0][0]:
            heapq.heappop(self._backoff)
        if self._backoff:
            times.append(self._backoff[0][0])
        times += [at for shape, at in self._due.items() if self._alike.first(shape) is not None]
        if self._help_came and (self._unschedulable or self._alike.shapes()):
            times.append(self._next_retry)
        return min(times, default=None)

    def parked(self) -> Iterator[Group]:
        """Groups that had no place when they were tried, and wait for something that helps; of those that are alike the
        first, and who has the highest priority.
        """
        yield from self._unschedulable.values()
        yield from self._alike.heads()

    def standings(self) -> Iterator[tuple[Standing, Group]]:
        """All groups with the way in which they wait."""
        for id_, group in self._groups.items():
            if id_ in self._active_keys:
                yield "active", group
            else:
                yield "backoff" if id_ in self._backoff_until else "unschedulable", group

    def ordered(self) -> Iterator[Group]:
        """All groups in queue order, whichever way they wait."""
        return iter(sorted(self._groups.values(), key=lambda group: (group.key, group.id)))

    def wake(self, now: float, *, in_time: bool = False) -> None:
        """Those come back whose time it is. Those that are parked come also when others are tried anyway, unless they
        are to come `in_time`.
        """
        while self._backoff and self._backoff[0][0] <= now:
            until, group_id = heapq.heappop(self._backoff)
            if self._backoff_until.get(group_id) == until:
                self.activate(self._groups[group_id])
        if self._help_came and ((self._active and not in_time) or now >= self._next_retry):
            self._help_came = False
            for group in list(self._unschedulable.values()):
                self.activate(group)
            self._due.update(dict.fromkeys(self._alike.shapes(), now))
        for shape in [shape for shape, at in self._due.items() if at <= now]:
            del self._due[shape]
            for group in self._alike.first_ones(shape, self._alike.at_once(shape) - self._speaking[shape]):
                self.activate(group)
