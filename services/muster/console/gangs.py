"""The gangs as the coordinator reports them: their rows, counts by namespace, starts, and phases so far. No I/O."""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from muster.console.feed import Feed
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase

PENDING: Final = frozenset(
    {Phase.PHASE_GATHERING, Phase.PHASE_QUEUED, Phase.PHASE_SOLVING, Phase.PHASE_WAITING, Phase.PHASE_TIMED_OUT}
)
"""Phases of gangs that have not started."""
_NOT_STARTED: Final = PENDING | {Phase.PHASE_PERMITTED}
QUEUED: Final = frozenset({Phase.PHASE_QUEUED, Phase.PHASE_SOLVING, Phase.PHASE_WAITING})
"""Phases of gangs in the queue."""

MINUTES: Final = 60
"""Starts are counted for so many minutes."""
_MAX_REASON: Final = 1000
"""Characters of a reason in a row; the gang's page has all of it."""
_MAX_PHASES: Final = 50
"""Last changes of phase that are remembered of each gang."""


class PhaseChange(Struct, frozen=True, gc=False):
    """When a phase was first seen. `known`: it began then; otherwise the console began to watch later."""

    phase: str
    unix_millis: int
    known: bool


class Counts(Struct):
    """Gangs of some namespaces. `oldest`: the pending gang that waits longest, "" if there is none, and when it was
    created, seconds since 1970.
    """

    phases: dict[str, int]
    queued: int
    pending_pods: int
    oldest_seconds: int
    oldest: str


class _OfNamespace:
    """Counts of one namespace, which change with each gang."""

    def __init__(self) -> None:
        self.phases: Counter[str] = Counter()
        self.queued = 0
        self.pending_pods = 0
        self.pending: list[tuple[int, str]] = []
        """Creation and id of pending gangs, the oldest first."""


class Gangs:
    """All gangs by id. `feed` has a row for each."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.last_start_seconds = 0
        """When a gang was last seen to start, since 1970; 0: not yet."""
        self._gangs: dict[str, Gang] = {}
        self._phases: dict[str, deque[PhaseChange]] = {}
        self._namespaces: dict[str, _OfNamespace] = {}
        self._starts: deque[tuple[int, int]] = deque(maxlen=MINUTES + 1)
        """Minutes since 1970, with the number of starts."""

    def __len__(self) -> int:
        return len(self._gangs)

    def get(self, id_: str) -> Gang | None:
        """The gang with this id."""
        return self._gangs.get(id_)

    def ids(self) -> list[str]:
        """Ids of all gangs."""
        return list(self._gangs)

    @property
    def holding(self) -> list[str]:
        """Ids of gangs that hold reservations without a permit."""
        return [id_ for id_, gang in self._gangs.items() if gang.phase == Phase.PHASE_WAITING and gang.reserved]

    @property
    def namespaces(self) -> list[str]:
        """Namespaces with gangs."""
        return list(self._namespaces)

    def phases_of(self, id_: str) -> list[PhaseChange]:
        """Changes of a gang's phase, the oldest first."""
        return list(self._phases.get(id_, ()))

    def put(self, gang: Gang, unix_millis: int, *, live: bool) -> None:
        """Add or replace a gang. `live`: it has changed just now; otherwise it is part of the first list."""
        before = self._gangs.get(gang.id)
        if before is not None:
            self._count(before, -1)
        self._gangs[gang.id] = gang
        self._count(gang, 1)
        if before is None or before.phase != gang.phase:
            history = self._phases.setdefault(gang.id, deque(maxlen=_MAX_PHASES))
            history.append(PhaseChange(phase_word(gang.phase), unix_millis, known=live))
            if live and _starts(gang) and (before is None or before.phase in _NOT_STARTED):
                self._add_start(unix_millis // 1000)
        self.feed.put(gang.id, gang.namespace, msgspec.json.encode(row(gang)))

    def remove(self, id_: str) -> None:
        """Remove a gang, if it exists."""
        gang = self._gangs.pop(id_, None)
        if gang is None:
            return
        self._count(gang, -1)
        self._phases.pop(id_, None)
        self.feed.remove(id_)

    def keep_only(self, ids: Iterable[str]) -> None:
        """Remove all others: they disappeared while the coordinator was not watched."""
        for id_ in self._gangs.keys() - set(ids):
            self.remove(id_)

    def starts_by_minute(self, now_seconds: int) -> list[int]:
        """Starts in each of the last minutes, the present one last."""
        starts = dict(self._starts)
        minute = now_seconds // 60
        return [starts.get(each, 0) for each in range(minute - MINUTES + 1, minute + 1)]

    def counts(self, namespaces: Iterable[str] | None = None) -> Counts:
        """Counts of these namespaces; None: of all."""
        names = self._namespaces if namespaces is None else namespaces
        chosen = [self._namespaces[name] for name in names if name in self._namespaces]
        phases: Counter[str] = Counter()
        for each in chosen:
            phases.update(each.phases)
        oldest = min((each.pending[0] for each in chosen if each.pending), default=(0, ""))
        return Counts(
            phases=dict(phases),
            queued=sum(each.queued for each in chosen),
            pending_pods=sum(each.pending_pods for each in chosen),
            oldest_seconds=oldest[0],
            oldest=oldest[1],
        )

    def _count(self, gang: Gang, times: int) -> None:
        counts = self._namespaces.setdefault(gang.namespace, _OfNamespace())
        word = phase_word(gang.phase)
        counts.phases[word] += times
        if not counts.phases[word]:
            del counts.phases[word]
        counts.queued += times * (gang.phase in QUEUED)
        if gang.phase in PENDING:
            counts.pending_pods += times * (gang.members - gang.bound)
            entry = (gang.created_seconds, gang.id)
            if times > 0:
                insort(counts.pending, entry)
            else:
                del counts.pending[bisect_left(counts.pending, entry)]
        if not counts.phases:
            del self._namespaces[gang.namespace]

    def _add_start(self, unix_seconds: int) -> None:
        self.last_start_seconds = unix_seconds
        minute = unix_seconds // 60
        if self._starts and self._starts[-1][0] == minute:
            self._starts[-1] = (minute, self._starts[-1][1] + 1)
        else:
            self._starts.append((minute, 1))


def phase_word(phase: Phase.ValueType) -> str:
    """Phase as in all output: "queued", "timed-out", ..."""
    return Phase.Name(phase).removeprefix("PHASE_").lower().replace("_", "-")


def row(gang: Gang) -> dict[str, object]:
    """The row of a gang."""
    return {
        "id": gang.id,
        "namespace": gang.namespace,
        "name": gang.name,
        "dialect": gang.dialect,
        "phase": phase_word(gang.phase),
        "minimum": gang.minimum,
        "members": gang.members,
        "bound": gang.bound,
        "reserved": gang.reserved,
        "priority": gang.priority,
        "created": gang.created_seconds,
        "cycle": gang.schedule_cycle,
        "start_seconds": gang.start_seconds if gang.HasField("start_seconds") else None,
        "reason": gang.reason[:_MAX_REASON],
    }


def _starts(gang: Gang) -> bool:
    return gang.phase in (Phase.PHASE_BINDING, Phase.PHASE_SATISFIED)
