"""Turns of namespaces: which active groups one solve request takes, and when slow groups are tried.

A request takes groups in queue order, but a fifth of it is kept for turns of namespaces: those of which queue order has
taken none. The namespace that was last served the longest ago is the first; its first group is taken whatever its
priority, and more of the priority with which the request begins. So a namespace waits as many requests for its first
attempt as there are other namespaces that wait, divided by the groups of a fifth, however many groups they have
(decision 0049). If all active groups fit into one request, turns change nothing.

A group that is too large for its namespace's turn, may not share the request, or must not be solved beside the solves
under way, is the first of a later request, at most of every other one. If it must not even then, no other request
begins before it may.

Surplus, the members above the minimum of running gangs, has no turns: it is taken when no other active group is left.

Slow groups are those for which placement ran out of time. They are tried alone, for a bounded share of time, and
namespaces take turns there, too.
"""

from collections import Counter, deque
from collections.abc import Callable
from enum import Enum, auto
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from muster.coordinator.core.events import Now
from muster.coordinator.core.gang.gang import SURPLUS, Group, QueueKey
from muster.coordinator.core.slices import Slices
from muster.coordinator.core.term_state import TurnState, monotonic_time, unix_time

MAX_PASSED_OVER: Final = 200
"""Groups that are passed over for one solve; groups behind them are not considered."""
OFFERS: Final = 10
"""Groups that are offered in one slice: for each one a pod class may be compared with 5,000 nodes, 1 to 3 ms."""
TURNS_SHARE: Final = 5
"""One of so many groups and pods of a request is for turns of namespaces."""
_SPARE: Final = 64
SLOW_SHARE: Final = 0.2
"""Share of placement's time for slow groups, all of them together, however many there are and whoever created them."""
_LONGEST_SLOW_TURN_SECONDS: Final = 30.0
"""After this time a group that got its turn and was not tried no longer keeps the next one from its turn."""

Entry = tuple[QueueKey, str]
"""Queue position and group id."""


class Answer(Enum):
    """Decision about a group that a request could take."""

    TAKEN = auto()
    """The request has it, and it is not active any more."""
    LEFT = auto()
    """The group is not active any more, since others of its equivalence class are tried."""
    PASSED_OVER = auto()
    """The group must not be solved beside the solves under way."""
    FULL = auto()
    """The group is too large for the rest of the request, or may not share it."""


Offer = Callable[[Entry, int], Answer]
"""Offers a group to a request that may have so many pods."""


def namespace_of(position: QueueKey) -> str:
    """The namespace of a group's oldest gang, by the group's queue position."""
    return position[3]


def _is_surplus(entry: Entry) -> bool:
    return entry[0][0] == SURPLUS


class ActiveGroups:
    """Active groups in queue order, and the order in which their namespaces were served.

    An entry ends when its group is taken or not active any more; entries that are void are less than those that are
    not, and 64 per namespace. Namespaces without active groups are forgotten with the next request.
    """

    def __init__(self) -> None:
        self._positions: dict[str, QueueKey] = {}
        self._heaps: dict[str, list[Entry]] = {}
        """By namespace, the one that was served the longest ago first. Entries of other positions than the group's are
        void.
        """
        self._counts: Counter[str] = Counter()
        """Groups by namespace."""
        self._first: str | None = None
        """Namespace with which a request is to begin."""
        self._first_waits = False
        """A request began without it."""

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, group_id: object) -> bool:
        return group_id in self._positions

    def put(self, group_id: str, position: QueueKey) -> None:
        """Add a group, or change its position."""
        if self._positions.get(group_id) == position:
            return
        self.discard(group_id)
        namespace = namespace_of(position)
        self._positions[group_id] = position
        self._counts[namespace] += 1
        heappush(self._heaps.setdefault(namespace, []), (position, group_id))

    def discard(self, group_id: str) -> bool:
        """Remove a group; returns whether it was there."""
        if (position := self._positions.pop(group_id, None)) is None:
            return False
        namespace = namespace_of(position)
        self._counts[namespace] -= 1
        heap = self._heaps[namespace]
        if len(heap) > 2 * self._counts[namespace] + _SPARE:
            # Once each: an entry is valid again when its group is put back at the same position, beside the new one.
            heap[:] = dict.fromkeys(entry for entry in heap if self._is_valid(entry))
            heapify(heap)
        return True

    def head(self, namespace: str) -> Entry | None:
        """The first group of the namespace that was not passed over; None: there is none."""
        heap = self._heaps[namespace]
        while heap and not self._is_valid(heap[0]):
            heappop(heap)
        return heap[0] if heap else None

    def forget_namespaces(self) -> None:
        """No group is active any more."""
        self._heaps.clear()
        self._counts.clear()

    def term_state(self) -> TurnState:
        """The order in which namespaces were served."""
        served = tuple(namespace for namespace in self._heaps if self._counts[namespace])
        return TurnState(served, self._first, self._first_waits)

    def resume(self, state: TurnState) -> None:
        """Continue that order with the namespaces that have active groups."""
        for namespace in state.namespaces:
            if (heap := self._heaps.pop(namespace, None)) is not None:
                self._heaps[namespace] = heap
        self._first, self._first_waits = state.first, state.first_waits

    def skip(self, namespace: str) -> Entry:
        """Remove the entry of the namespace's first group, for the time of one request."""
        return heappop(self._heaps[namespace])

    def take(self, max_groups: int, max_pods: int, offer: Offer) -> Slices[None]:
        """Offer groups to one request, until it has so many. In slices of OFFERS groups."""
        if not self._positions:
            self.forget_namespaces()
            return
        for namespace in [namespace for namespace in self._heaps if not self._counts[namespace]]:
            del self._heaps[namespace], self._counts[namespace]
        walk = _Walk(self, list(self._heaps), offer)
        if len(self._heaps) == 1:
            yield from walk.in_order(max_groups, max_pods)
        elif (yield from self._begin_with_first(walk, max_pods)):
            for_turns = max(1, max_groups // TURNS_SHARE)
            yield from walk.in_order(max_groups - for_turns, max_pods - max_pods // TURNS_SHARE)
            yield from walk.turns(for_turns, max_pods)
            yield from walk.in_order(max_groups, max_pods)
        for entry in walk.passed_over:
            heappush(self._heaps[namespace_of(entry[0])], entry)
        if walk.taken:
            self._served(walk)

    def _begin_with_first(self, walk: "_Walk", max_pods: int) -> Slices[bool]:
        """Take the group that was to be first. False: it must not be solved now, and others have gone before it."""
        if self._first not in self._heaps or ((head := self.head(self._first)) is not None and _is_surplus(head)):
            self._first = None
            return True
        while (entry := self.head(self._first)) is not None and not _is_surplus(entry):
            answer = walk.offer(entry, max_pods)
            if answer is not Answer.LEFT:
                return answer is Answer.TAKEN or not self._first_waits
            if walk.ends_slice:
                yield
        return True

    def _served(self, walk: "_Walk") -> None:
        for namespace in walk.namespaces:
            self._heaps[namespace] = self._heaps.pop(namespace)
        if self._first in walk.namespaces:
            self._first, self._first_waits = None, False
        elif self._first in self._heaps:
            self._first_waits = True
        else:
            first = next((each for each in self._heaps if (head := self.head(each)) and not _is_surplus(head)), None)
            self._first, self._first_waits = (first if first not in walk.namespaces else None), False

    def _is_valid(self, entry: Entry) -> bool:
        return self._positions.get(entry[1]) == entry[0]


class _Walk:
    """Offers groups to one request."""

    def __init__(self, active: ActiveGroups, namespaces: list[str], offer: Offer) -> None:
        self._active, self._offer = active, offer
        heads = ((active.head(namespace), namespace) for namespace in namespaces)
        self._heads = [(head, namespace) for head, namespace in heads if head is not None]
        heapify(self._heads)
        self._level = self._heads[0][0][0][:2] if self._heads else ()
        """Whether the first group is under repair, and its priority."""
        self._all = namespaces
        self._misses = 0
        self._offered = 0
        self.taken = 0
        self.namespaces: dict[str, None] = {}
        """Namespaces of which groups were taken."""
        self.passed_over: list[Entry] = []

    @property
    def ends_slice(self) -> bool:
        """OFFERS groups were offered since the last slice."""
        return self._offered % OFFERS == 0

    def in_order(self, max_groups: int, max_pods: int) -> Slices[None]:
        """Take groups in queue order, until the request has so many groups or pods."""
        while self._heads and self.taken < max_groups and self._misses < MAX_PASSED_OVER:
            head, namespace = self._heads[0]
            if (current := self._active.head(namespace)) is None:
                heappop(self._heads)
            elif current != head:
                heapreplace(self._heads, (current, namespace))
            elif self.offer(current, max_pods) is Answer.FULL:
                return
            elif self.ends_slice:
                yield

    def turns(self, max_groups: int, max_pods: int) -> Slices[None]:
        """Take so many groups of namespaces of which none was taken, one of each in turn; more than one of those that
        have the priority of the first group.
        """
        most = self.taken + max_groups
        waiting = deque(namespace for namespace in self._all if namespace not in self.namespaces)
        while waiting and self.taken < most and self._misses < MAX_PASSED_OVER:
            namespace = waiting.popleft()
            head = self._active.head(namespace)
            if head is None or _is_surplus(head) or (namespace in self.namespaces and head[0][:2] != self._level):
                continue
            if self.offer(head, max_pods) is not Answer.FULL:
                waiting.append(namespace)
            if self.ends_slice:
                yield

    def offer(self, head: Entry, max_pods: int) -> Answer:
        """Offer the first group of a namespace; one that is passed over is not offered again."""
        self._offered += 1
        answer = self._offer(head, max_pods)
        namespace = namespace_of(head[0])
        if answer is Answer.TAKEN:
            self.taken += 1
            self.namespaces[namespace] = None
        elif answer is Answer.PASSED_OVER:
            self.passed_over.append(self._active.skip(namespace))
        if answer in (Answer.PASSED_OVER, Answer.FULL):
            self._misses += 1
        return answer


class SlowGroups:
    """Slow groups that wait for their turn. Namespaces take turns; of a namespace those whose backoff ends first are in
    front.

    There is at most one entry per group. It ends with the group's turn, or at the namespace's next turn if the group
    waits no more.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[float, str]]] = {}
        """By namespace, the one that had its turn the longest ago first."""
        self._ids: set[str] = set()
        self._turn: str | None = None
        self._not_before = 0.0

    def wait(self, group: Group, until: float) -> None:
        """The group may have its turn from this time on."""
        if group.id not in self._ids:
            self._ids.add(group.id)
            heappush(self._waiting.setdefault(namespace_of(group.key), []), (until, group.id))

    def next_turn(self, now: float, waits: Callable[[str], bool]) -> str | None:
        """Id of the group whose turn begins now, if any; `waits`: whether a group with this id still waits."""
        if now < self._not_before or not self._waiting:
            return None
        for namespace, waiting in list(self._waiting.items()):
            group_id = self._first(waiting, now, waits)
            if group_id is not None or not waiting:
                del self._waiting[namespace]
            if group_id is None:
                continue
            if waiting:
                self._waiting[namespace] = waiting
            self._turn = group_id
            self._not_before = now + _LONGEST_SLOW_TURN_SECONDS
            return group_id
        return None

    def _first(self, waiting: list[tuple[float, str]], now: float, waits: Callable[[str], bool]) -> str | None:
        while waiting and waiting[0][0] <= now:
            _, group_id = heappop(waiting)
            self._ids.discard(group_id)
            if waits(group_id):
                return group_id
        return None

    def has_turn(self, group: Group) -> bool:
        """The group may be tried now."""
        return group.id == self._turn

    def tried(self, group: Group, seconds: float, now: float) -> None:
        """The group's try ended after so many seconds."""
        if group.id == self._turn:
            self._turn = None
            self._not_before = now + seconds * (1 / SLOW_SHARE - 1)

    def term_state(self, now: Now) -> tuple[list[tuple[str, float]], float]:
        """Ids of the groups that wait and when their backoff ends, in the order of turns, and when the next turn may
        begin, as Unix times.
        """
        waiting = [
            (group_id, unix_time(until, now)) for some in self._waiting.values() for until, group_id in sorted(some)
        ]
        return waiting, unix_time(self._not_before, now)

    def resume(self, not_before: float, now: Now) -> None:
        """No turn begins before this Unix time."""
        self._not_before = monotonic_time(not_before, now)

    def next_time(self) -> float | None:
        """When the next turn may begin; None: no group waits."""
        first = min((waiting[0][0] for waiting in self._waiting.values()), default=None)
        return max(first, self._not_before) if first is not None else None
