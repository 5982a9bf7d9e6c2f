"""When the events of which namespace are listed, to find why controllers do not create members that gangs lack.

A pass is one list of a namespace's events, page by page, and serves all of its incomplete gangs. Namespaces take turns,
page by page: next is the one whose pass has been due for the longest. A pass is due when a gang has lacked members for
a few seconds, and again and again while there is such a gang; after a pass that took the API server long, later.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from muster.clusterstate.gangs import Gangs
from muster.kube.creation_failures import CreationFailure, EventPage

EVENTS_PER_PAGE: Final = 500

_PAUSE_PER_SECOND: Final = 100
"""Seconds of pause for each second that the pass took: so a namespace costs about 1 % of a core of the API server."""


class Pace(Struct, frozen=True):
    """Intervals in seconds. `request`: between requests; `creation`: how long a gang may lack members before its
    events are listed; `pause`: from the end of a pass to the next one of the namespace; `news`: the same if another
    gang has become incomplete.
    """

    request: float = 0.5
    creation: float = 5.0
    pause: float = 30.0
    news: float = 10.0


class PageRequest(NamedTuple):
    """A page to request; the first one has no token."""

    namespace: str
    continue_token: str


class _Pass(Struct):
    """A pass under way: the newest failure of each controller of incomplete gangs, and of those that may be controllers
    of gangs with this name, of which none is known. It ends with the last page.
    """

    newest: dict[str, CreationFailure | None]
    by_name: dict[str, CreationFailure | None]
    continue_token: str = ""
    seconds: float = 0.0


class _Turn(Struct):
    due: float
    ended: float = float("-inf")
    under_way: _Pass | None = None


class EventPasses:
    """Passes of namespaces with incomplete gangs, with the last of which the entry ends. A pass keeps one failure for
    each controller of these gangs, or for the gang (I11).
    """

    def __init__(self, gangs: Gangs, pace: Pace) -> None:
        self._gangs = gangs
        self._pace = pace
        self._turns: dict[str, _Turn] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def next(self, now: float) -> PageRequest | None:
        """The page to request now; None: none is due. Its response is to be given to `take`, or `fail`."""
        self._note_changes(now)
        while (namespace := min(self._turns, key=lambda each: self._turns[each].due, default=None)) is not None:
            turn = self._turns[namespace]
            if turn.due > now:
                return None
            if turn.under_way is None:
                turn.under_way = self._begun(namespace)
            if turn.under_way.newest or turn.under_way.by_name:
                return PageRequest(namespace, turn.under_way.continue_token)
            self._end(turn, now)  # nobody would report anything
        return None

    def take(self, namespace: str, page: EventPage, seconds: float, now: float) -> Mapping[str, list[CreationFailure]]:
        """The response to a request, which took so long. Returns, after the last page, all failures that concern
        incomplete gangs of the namespace, by gang.
        """
        turn = self._turns.get(namespace)
        if turn is None or (under_way := turn.under_way) is None:
            return {}
        under_way.seconds += seconds
        _add(under_way, page.failures)
        if page.continue_token:
            under_way.continue_token, turn.due = page.continue_token, now
            return {}
        self._end(turn, now, under_way.seconds)
        return {
            gang_id: list(self._failures_of(gang_id, under_way))
            for gang_id in self._gangs.incomplete.by_namespace.get(namespace, ())
        }

    def fail(self, namespace: str, now: float, seconds: float = 0.0) -> None:
        """There is no response that could be read: what is known stays until a later pass."""
        if (turn := self._turns.get(namespace)) is not None:
            self._end(turn, now, seconds)

    def _begun(self, namespace: str) -> _Pass:
        newest: dict[str, CreationFailure | None] = {}
        by_name: dict[str, CreationFailure | None] = {}
        for gang_id in self._gangs.incomplete.by_namespace[namespace]:
            newest.update(dict.fromkeys(self._gangs.controllers_of(gang_id)))
            if self._gangs.has_unknown_controller(gang_id):
                by_name[_name_of(gang_id)] = None
        return _Pass(newest, by_name)

    def _failures_of(self, gang_id: str, under_way: _Pass) -> Iterator[CreationFailure]:
        for uid in self._gangs.controllers_of(gang_id):
            if (failure := under_way.newest.get(uid)) is not None:
                yield failure
        named = under_way.by_name.get(_name_of(gang_id))
        if named is not None and self._gangs.has_unknown_controller(gang_id):
            yield named.found_by_name

    def _note_changes(self, now: float) -> None:
        incomplete, pace = self._gangs.incomplete, self._pace
        for namespace in [each for each in self._turns if each not in incomplete.by_namespace]:
            del self._turns[namespace]
        for namespace in incomplete.take_changed():
            turn = self._turns.get(namespace)
            if turn is None:
                self._turns[namespace] = _Turn(now + pace.creation)
            elif turn.under_way is None:
                turn.due = min(turn.due, max(now + pace.creation, turn.ended + pace.news))

    def _end(self, turn: _Turn, now: float, seconds: float = 0.0) -> None:
        turn.under_way, turn.ended = None, now
        turn.due = now + max(self._pace.pause, _PAUSE_PER_SECOND * seconds)


def _add(under_way: _Pass, failures: Iterable[CreationFailure]) -> None:
    for each in failures:
        if each.controller in under_way.newest:
            _keep_newest(under_way.newest, each.controller, each)
        elif under_way.by_name:
            for name in _beginnings(each.name):
                if name in under_way.by_name:
                    _keep_newest(under_way.by_name, name, each)


def _keep_newest(newest: dict[str, CreationFailure | None], key: str, failure: CreationFailure) -> None:
    known = newest[key]
    if known is None or failure.seen_seconds >= known.seen_seconds:
        newest[key] = failure


def _beginnings(name: str) -> Iterator[str]:
    """The name, and what it begins with before a dash: `train-worker-0`, `train-worker`, `train`."""
    while name:
        yield name
        name = name.rpartition("-")[0]


def _name_of(gang_id: str) -> str:
    return gang_id.rpartition("/")[2]
