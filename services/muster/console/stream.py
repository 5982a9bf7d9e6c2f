"""The events of one open page: the rows of feeds that changed, and the pages of its subject.

A stream costs the version that its browser has of each feed, and one event at a time: a browser that does not read gets
the newest state when it does. What its reader may see is reviewed again every minute.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.console import pages
from muster.console.access import ALLOWED_SECONDS, Access, NotAuthenticated, NotReviewed, User
from muster.console.coordinator import CoordinatorClient, NoAnswer, UnknownGang
from muster.console.feed import NOTHING, Feed
from muster.console.forecast import ForecastClient
from muster.console.pages import Namespaces
from muster.console.played_changes import PlayedChanges, waits_for_its_start
from muster.console.records import namespace_of
from muster.console.signal import Signal
from muster.console.state import State
from muster.coordinator.v1.coordinator_pb2 import Gang

DEBOUNCE_SECONDS: Final = 0.25
"""Changes within this time are sent together."""
HEARTBEAT_SECONDS: Final = 10.0
"""A browser that receives nothing for longer connects again; ages on the page are computed there."""
_SUBJECT_SECONDS: Final = 5.0
"""A gang's place in the queue also changes when the gang does not; new namespaces, and failed reviews, are reviewed."""
_ROWS_PER_EVENT: Final = 500
_HEARTBEAT: Final = b": still here\n\n"


class Requested(Struct, frozen=True):
    """What a page shows. `namespace`: one that its reader names; "": those with gangs."""

    feeds: tuple[str, ...] = ()
    overview: bool = False
    gang: str = ""
    node: str = ""
    namespace: str = ""


class Sources(Struct, frozen=True):
    """What all streams read from."""

    state: State
    signal: Signal
    coordinator: CoordinatorClient
    access: Access
    trace_url: str
    forecast: ForecastClient | None = None
    played: PlayedChanges | None = None
    """Changes that were played, if there is a forecast."""


class EventStream:
    """One open page of one reader."""

    def __init__(self, sources: Sources, token: str, requested: Requested) -> None:
        self._sources, self._token, self._requested = sources, token, requested
        self._user = User()
        self._namespaces: Namespaces = frozenset()
        self._judged: frozenset[str] = frozenset()
        self._reviewed_at = self._review_failed_at = float("-inf")
        self._versions = dict.fromkeys(requested.feeds, NOTHING)
        self._sent: dict[str, bytes] = {}
        self._gang_version, self._gang_read_at = -1, float("-inf")

    async def authenticate(self) -> User:
        """Find out who reads and what they may read. Raises NotAuthenticated and NotReviewed."""
        access, loop = self._sources.access, asyncio.get_running_loop()
        self._user = await access.user(self._token)
        if await access.sees_all(self._user):
            namespaces: Namespaces = None
        else:
            self._judged = self._to_judge()
            namespaces = await access.readable(self._user, self._judged)
        if namespaces != self._namespaces:
            self._namespaces = namespaces
            self._versions = dict.fromkeys(self._versions, NOTHING)
            self._sent.clear()
            self._gang_version = -1
        self._reviewed_at = loop.time()
        return self._user

    async def events(self) -> AsyncIterator[bytes]:
        """Encoded events, without end; ends after one that says so if the reader is not authenticated any more."""
        signal = self._sources.signal
        yield _event("session", self._session())
        while True:
            version = signal.version
            if self._must_review():
                try:
                    before = self._namespaces
                    await self.authenticate()
                    if before != self._namespaces:
                        yield _event("session", self._session())
                except NotAuthenticated as error:
                    yield _event("expired", {"error": str(error)})
                    return
                except NotReviewed:
                    self._review_failed_at = asyncio.get_running_loop().time()
                    if self._review_failed_at - self._reviewed_at > 2 * ALLOWED_SECONDS:
                        yield _event("expired", {"error": "rights could not be reviewed"})
                        return
            for name in self._versions:
                async for event in self._rows(name):
                    yield event
            async for event in self._pages():
                yield event
            await asyncio.sleep(DEBOUNCE_SECONDS)
            pause = _SUBJECT_SECONDS if self._requested.gang else HEARTBEAT_SECONDS
            await signal.newer_than(version, pause)
            if signal.version == version:
                yield _HEARTBEAT

    def _to_judge(self) -> frozenset[str]:
        """Namespaces whose rights are reviewed."""
        if self._requested.gang:
            return frozenset({namespace_of(self._requested.gang)})
        if self._requested.namespace:
            return frozenset({self._requested.namespace})
        return frozenset(self._sources.state.gangs.namespaces)

    def _must_review(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._review_failed_at < _SUBJECT_SECONDS:
            return False
        age = now - self._reviewed_at
        unknown = self._namespaces is not None and not self._to_judge() <= self._judged
        return age >= ALLOWED_SECONDS or (unknown and age >= _SUBJECT_SECONDS)

    def _session(self) -> dict[str, Any]:
        namespaces = self._namespaces
        return {
            "user": self._user.username,
            "sees_all": namespaces is None,
            "namespaces": sorted(namespaces) if namespaces is not None else [],
            "forecast": self._sources.forecast is not None,
        }

    async def _rows(self, name: str) -> AsyncIterator[bytes]:
        feed: Feed = self._sources.state.feeds[name]
        if feed.version == self._versions[name]:
            return
        change = feed.since(self._versions[name])
        self._versions[name] = change.version
        reset = change.reset
        namespaces = self._namespaces
        for start in range(0, len(change.rows) or 1, _ROWS_PER_EVENT):
            part = (row.for_reader(namespaces) for row in change.rows[start : start + _ROWS_PER_EVENT])
            rows = [row for row in part if row]
            removed = (
                [key for key, row in change.removed if namespaces is None or row.namespace in namespaces]
                if start == 0
                else []
            )
            if reset or rows or removed:
                yield _rows_event(name, rows, removed, reset=reset)
            reset = False
            await asyncio.sleep(0)

    async def _pages(self) -> AsyncIterator[bytes]:
        requested, state = self._requested, self._sources.state
        now = int(time.time())
        if "starts" in requested.feeds and self._sources.forecast is not None:
            for event in self._if_changed(
                "forecast", msgspec.structs.asdict(state.forecast.for_reader(self._namespaces))
            ):
                yield event
        if requested.overview:
            for event in self._if_changed("overview", pages.overview(state, self._namespaces, now)):
                yield event
        if requested.node:
            page = pages.node_page(state, requested.node) if self._namespaces is None else None
            for event in self._if_changed("node", page if page is not None else {"gone": requested.node}):
                yield event
        if requested.gang:
            async for event in self._gang_page():
                yield event

    async def _gang_page(self) -> AsyncIterator[bytes]:
        sources, id_ = self._sources, self._requested.gang
        loop = asyncio.get_running_loop()
        version = sources.state.gangs.feed.version_of(id_)
        if version == self._gang_version and loop.time() - self._gang_read_at < _SUBJECT_SECONDS:
            return
        self._gang_version, self._gang_read_at = version, loop.time()
        page: dict[str, Any]
        if not sources.state.may_see(id_, self._namespaces):
            page = {"gone": id_}
        else:
            try:
                answer = await sources.coordinator.explain(id_, version)
                played = self._played(answer.gang, version)
                page = pages.gang_page(sources.state, answer, self._namespaces, sources.trace_url, played)
            except UnknownGang:
                page = {"gone": id_}
            except NoAnswer as error:
                self._gang_version = -1
                page = {"unavailable": str(error)}
        for event in self._if_changed("gang", page):
            yield event

    def _played(self, gang: Gang, version: int) -> dict[str, Any] | None:
        """Changes with which a gang would start now; None: it does not wait, or nothing plays them."""
        if self._sources.played is None or not waits_for_its_start(gang):
            return None
        return pages.played_page(self._sources.played.of(gang, version), self._namespaces)

    def _if_changed(self, name: str, page: dict[str, Any]) -> Iterable[bytes]:
        event = _event(name, page)
        if self._sent.get(name) != event:
            self._sent[name] = event
            yield event


def _event(name: str, content: dict[str, Any]) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


def _rows_event(name: str, rows: list[bytes], removed: list[str], *, reset: bool) -> bytes:
    head = b"event: " + name.encode() + b'\ndata: {"reset":' + (b"true" if reset else b"false") + b',"rows":['
    return head + b",".join(rows) + b'],"removed":' + msgspec.json.encode(removed) + b"}\n\n"
