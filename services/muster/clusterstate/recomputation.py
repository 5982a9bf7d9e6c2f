"""Facts to compute again because of other objects: in slices, between which the event loop has other work (I12).

One object may concern all pods or nodes: a StorageClass, the smallest attach limit of a driver, a new size of static
volumes, a PriorityClass, a disruption budget. What it concerns is queued. A short queue is computed with the change
itself, as if there were none; a long one slice by slice. Until all that was queued when a kind reached a revision is
computed, subscribers are not told that it has, so that nobody takes a part of a change for the whole.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final

SLICE: Final = 250
"""Facts that are computed in one piece: about 10 ms of processor time, with their encoding, if they are ordinary."""
WEIGHT_OF_GANG: Final = 5
"""Processor time of a gang's facts in multiples of a pod's."""


class Recomputed(IntEnum):
    """Kinds of facts that are computed again."""

    POD = 0
    NODE = 1
    GANG = 2
    OWNED_POD = 3
    """The gang of a pod's controller changed."""
    BUDGET = 4
    STATIC_VOLUME = 5
    """A volume that may be one of a class without provisioner now, or not any more."""
    STATIC_CLAIM = 6
    """A claim, "namespace/name", that may need such a volume now, or not any more."""

    TOPOLOGY_MAP = 7
    """The tree of a ConfigMap, by its uid."""
    TREE = 8
    """A tree that nodes may have changed, by name; the empty name stands for those of HyperNodes."""
    PATTERN = 9
    """Nodes that a pattern of HyperNodes matches."""
    GROUPED_POD = 10
    """The group that a pod names is basic now, or not any more."""
    DEVICE_SLICE = 11
    """A ResourceSlice whose devices DeviceTaintRules may have changed, by name."""
    DEVICE_OFFERS = 12
    """A node of which what it offers of many devices is computed in steps, by name."""


_FIRST: Final = (Recomputed.STATIC_VOLUME, Recomputed.STATIC_CLAIM, Recomputed.DEVICE_SLICE)

Entry = tuple[Recomputed, str]
"""Kind, and uid, name or id."""


class Recomputation:
    """A queue of facts without repetition, and revisions that wait until the facts queued before them are computed.

    It has at most one entry per fact, which ends when it is taken, and at most one revision per kind of objects and
    entry, which ends when that entry and all before it are taken (I11).
    """

    def __init__(self) -> None:
        self._queue: deque[Entry] = deque()
        self._queued: set[Entry] = set()
        self._added = 0
        self._first = 0  # queued facts on which others depend
        self._taken = 0
        self._causes: dict[str, int] = {}  # newest revision of changes that queued something
        self._waiting: dict[tuple[int, str], int] = {}  # revision by number of entries and kind, in this order

    def __len__(self) -> int:
        """Number of facts to compute again."""
        return len(self._queue)

    @property
    def taken(self) -> int:
        """Number of facts that were taken so far."""
        return self._taken

    @property
    def causes(self) -> Mapping[str, int]:
        """Newest revisions, by kind, of the changes that queued what is being computed."""
        return self._causes

    def add(self, fact: Recomputed, names: Collection[str], kind: str, revision: int) -> None:
        """Queue facts because of a change of an object. Those that are queued keep their place."""
        if names:
            self._causes[kind] = max(revision, self._causes.get(kind, 0))
            new = [entry for name in names if (entry := (fact, name)) not in self._queued]
            self._queued.update(new)
            self._queue.extend(new)
            self._added += len(new)

    def add_first(self, entries: Collection[Entry], kind: str, revision: int) -> None:
        """Queue facts on which others depend before all others: none of these is computed from half of a change. While
        such facts are queued, more of them wait for their turn, so that no others wait forever.
        """
        new = [entry for entry in entries if entry not in self._queued]
        if not new:
            return
        self._causes[kind] = max(revision, self._causes.get(kind, 0))
        self._queued.update(new)
        self._added += len(new)
        queued, self._first = self._first, self._first + len(new)
        if queued:
            self._queue.extend(new)
        else:
            self._queue.extendleft(reversed(new))
            self._waiting = {(place + len(new), each): through for (place, each), through in self._waiting.items()}

    def resume(self, fact: Recomputed, name: str) -> None:
        """Go on with a fact that was taken before all others: revisions that waited for it wait on."""
        self._queued.add((fact, name))
        self._queue.appendleft((fact, name))
        self._added += 1
        self._waiting = {(place + 1, each): through for (place, each), through in self._waiting.items()}

    def take(self, weight: Callable[[Recomputed], int], is_used: Callable[[], bool]) -> Iterable[Entry]:
        """Take the entries of one slice, oldest first: `SLICE` of them, or fewer if they weigh more than 1 each or the
        time of the slice `is_used`.
        """
        left = SLICE
        while left > 0 and self._queue:
            entry = self._queue.popleft()
            self._queued.discard(entry)
            self._taken += 1
            self._first -= entry[0] in _FIRST
            left -= weight(entry[0])
            yield entry
            if is_used():
                break

    def reach(self, kind: str, through: int) -> None:
        """A kind is known up to a revision. If it has queued something, subscribers must wait for all present entries
        until they may rely on it.
        """
        place = self._added if kind in self._causes else self._taken
        self._waiting[place, kind] = through

    def restart(self, kind: str, through: int) -> None:
        """Forget later revisions of a kind: its history was restarted."""
        if kind in self._causes:
            self._causes[kind] = min(through, self._causes[kind])
        self._waiting = {place: each for place, each in self._waiting.items() if place[1] != kind}

    def reached(self) -> dict[str, int]:
        """Revisions of kinds for which all entries before them are taken."""
        places = [place for place in self._waiting if place[0] <= self._taken]
        found = {place[1]: self._waiting.pop(place) for place in places}
        if not self._queue:
            self._causes.clear()
        return found
