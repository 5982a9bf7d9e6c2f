"""Facts to compute again because of other objects: in slices, between which the event loop has other work (I12).

One object may concern all pods or nodes: a StorageClass, the smallest attach limit of a driver, a new size of static
volumes, a PriorityClass, a disruption budget. What it concerns is queued. A short queue is computed with the change
itself, as if there were none; a long one slice by slice. Until all that was queued when a kind reached a revision is
computed, subscribers are not told that it has, so that nobody takes a part of a change for the whole.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final

SLICE: Final = 250
"""Facts that are computed in one piece: about 10 ms of processor time, with their encoding."""


class Recomputed(IntEnum):
    """Kinds of facts that are computed again."""

    POD = 0
    NODE = 1
    GANG = 2
    OWNED_POD = 3
    """The gang of a pod's controller changed."""
    BUDGET = 4


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
        self._taken = 0
        self._causes: dict[str, int] = {}  # newest revision of changes that queued something
        self._waiting: dict[tuple[int, str], int] = {}  # revision by number of entries and kind, in this order

    def __len__(self) -> int:
        """Number of facts to compute again."""
        return len(self._queue)

    @property
    def causes(self) -> Mapping[str, int]:
        """Newest revisions, by kind, of the changes that queued what is being computed."""
        return self._causes

    def add(self, fact: Recomputed, names: Collection[str], kind: str, revision: int) -> None:
        """Queue facts because of a change of an object. Those that are queued keep their place."""
        if not names:
            return
        self._causes[kind] = max(revision, self._causes.get(kind, 0))
        for name in names:
            entry = (fact, name)
            if entry not in self._queued:
                self._queued.add(entry)
                self._queue.append(entry)
                self._added += 1

    def take(self) -> Iterable[Entry]:
        """Take the entries of one slice, oldest first."""
        for _ in range(min(SLICE, len(self._queue))):
            entry = self._queue.popleft()
            self._queued.discard(entry)
            self._taken += 1
            yield entry

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
