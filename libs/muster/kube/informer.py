"""Follows one kind of the Kubernetes API: lists it, watches it, lists anew when it must, and never gives up.

    list (pages) --> watch from the list's revision --> watch from the last revision seen --> ...
      ^   ^                  | 410: the revision is too old, or the kind is gone
      |   +------------------+
      +-- wait: the kind is not to be had (its CustomResourceDefinition is not installed, or it may not be read)

Of a kind that comes in several versions the first that the server has is followed, from list to list.

Failures are retried for ever with exponential backoff and full jitter. What was told stays valid meanwhile: it is
stale, but consistent.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Generic, TypeVar

import structlog
from msgspec import Struct
from msgspec.structs import replace

from muster.kube import metrics
from muster.kube.api_resources import ApiResource
from muster.kube.line_batches import LineBatches
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import BadObject, BadResourceVersion
from muster.kube.session import ApiStatusError, KubeSession, KubeUnreachable, Response
from muster.kube.watch_decoding import Bookmark, Decoding, Page, WatchStatus
from muster.retry.retrying import jittered_seconds, retry_forever

T = TypeVar("T")
R = TypeVar("R")

_log = structlog.get_logger(__name__)


class Pace(Struct, frozen=True):
    """How an informer goes about it. Bounds are the first and the longest; pauses are jittered below them."""

    page_size: int = 500
    """Objects per page of a list: 1.5 MB of pods. Larger pages save no time and block for longer."""
    batch_size: int = 200
    """Objects told at once, at most: what follows from them must not hold up the event loop for many milliseconds."""
    list_timeout_seconds: float = 60.0
    watch_seconds: tuple[float, float] = (240.0, 480.0)
    """The server ends a watch after a time between these, so that watches spread over the API servers there are."""
    silence_seconds: float = 30.0
    """A watch that says nothing for so long is opened anew. Mostly nothing has happened (bookmarks come only now and
    then, and not at all where nothing changes), but the connection may be dead without a sign."""
    hasty_seconds: float = 1.0
    """A watch that ends sooner without a word counts as a failure, so that it is not retried in a spin."""
    retry_seconds: tuple[float, float] = (0.2, 5.0)
    """Pauses after failures. A state grows old during an outage, so its end must be noticed soon."""
    absent_seconds: tuple[float, float] = (2.0, 30.0)
    """Pauses between looks for a kind that is not served."""


_LIST_ANEW = frozenset({400, 404, 410, 504})
"""Answers to a watch that no later watch from the same revision would mend: the revision is not one of this server
(400, or 504 when it waits in vain to reach it, as after a restore from a backup), too old (410), or the kind is gone
(404)."""


class _Expired(RuntimeError):
    """The watch cannot go on from where it was: the kind has to be listed."""


class _Hasty(RuntimeError):
    """The server ended the watch at once."""


class Informer(Generic[T]):
    """Tells `sink` all changes of a kind, in order.

    `sink` is called on the event loop with at most `Pace.batch_size` changes and must not block. `complete` is set once
    the first list has been told, or the kind turned out not to be had; it stays set.
    """

    def __init__(
        self,
        session: KubeSession,
        resource: ApiResource[T],
        sink: Callable[[ObjectChanges[T]], None],
        pace: Pace = Pace(),  # noqa: B008 (a frozen value)
    ) -> None:
        self.resource = resource
        self.complete = asyncio.Event()
        self._session = session
        self._sink = sink
        self._pace = pace
        self._decoding = Decoding(resource)
        self._selected = {"labelSelector": resource.label_selector} if resource.label_selector else {}
        self._paths = (resource.path, *resource.older_paths)
        self._path = resource.path
        self._revisions: dict[str, int] = {}  # uid -> resourceVersion, of everything told and not removed
        self._through = 0
        self._absences = 0
        self._log = _log.bind(kind=resource.kind)
        self.heard_at: float | None = None
        """When the API server last said anything of it, by the monotonic clock; None: never, or it is not to be had."""
        metrics.expose_watch(self)

    @property
    def kind(self) -> str:
        """What it follows."""
        return self.resource.kind

    @property
    def objects(self) -> int:
        """How many it knows."""
        return len(self._revisions)

    async def run(self) -> None:
        """Until cancelled."""
        fruitless = 0
        while True:
            available = await self._persistently("list", self._list)
            self.complete.set()
            if not available:
                self._absences += 1
                # At least half of the bound: lists of a kind that is not served must not follow one another at once.
                seconds = jittered_seconds(self._pace.absent_seconds, self._absences, least_jitter=0.5)
                await asyncio.sleep(seconds)
                continue
            self._absences = 0
            listed = self._through
            await self._follow()
            fruitless = fruitless + 1 if self._through == listed else 0
            if fruitless:
                await asyncio.sleep(jittered_seconds(self._pace.retry_seconds, fruitless))

    async def _persistently(self, what: str, step: Callable[[], Awaitable[R]]) -> R:
        failures = 0

        def note(attempt: int, error: BaseException, pause_seconds: float) -> None:
            nonlocal failures
            failures = attempt
            metrics.FAILURES.labels(self.kind).add()
            say = self._log.warning if attempt & (attempt - 1) == 0 else self._log.debug  # ever less often
            say(f"{what} failed; tried again", error=str(error), attempt=attempt, pause_seconds=round(pause_seconds, 3))

        result = await retry_forever(
            step,
            on=(KubeUnreachable, ApiStatusError, BadObject, BadResourceVersion, _Hasty),
            bounds=self._pace.retry_seconds,
            before_wait=note,
        )
        if failures:
            self._log.info(f"{what} works again", failures=failures)
        return result

    # -- list

    async def _list(self) -> bool:
        """List everything and tell what differs from what was told. False: the kind is not to be had."""
        missing = set(self._revisions)
        token = ""
        while True:
            page = await self._page(token)
            if page is None:
                await self._tell_absent()
                return False
            missing.difference_update(map(_uid, page.items))
            await self._tell([item for item in page.items if not self._is_told(item)])
            token = page.proceed
            if not token:
                break
        self._through = page.revision
        self.heard_at = monotonic()
        metrics.LISTS.labels(self.kind).add()
        await self._tell([Removed(uid) for uid in sorted(missing)], page.revision)
        self._log.info("listed", objects=len(self._revisions), revision=page.revision)
        return True

    async def _page(self, token: str) -> Page[T] | None:
        """A page of the list of all objects. None: the kind is not to be had."""
        query = {"limit": str(self._pace.page_size), **self._selected}
        if token:
            query["continue"] = token
        response = await (self._ask(self._path, query) if token else self._ask_first(query))
        if response.status == 404 and self.resource.optional:
            self._note_absence("not served; it is picked up when it appears")
            return None
        if response.status == 403 and self.resource.dispensable and not self._through:
            self._note_absence(f"goes on without it, until it may be read: {ApiStatusError.from_response(response)}")
            return None
        if response.status != 200:
            raise ApiStatusError.from_response(response)
        page = self._decoding.page(response.body)
        return _versioned(page, self._path) if self.resource.older_paths else page

    async def _ask(self, path: str, query: dict[str, str]) -> Response:
        return await self._session.request("GET", path, query=query, timeout_seconds=self._pace.list_timeout_seconds)

    async def _ask_first(self, query: dict[str, str]) -> Response:
        """The first page, of the first version that is served."""
        for path in self._paths:
            response = await self._ask(path, query)
            if response.status != 404:
                break
        if response.status == 200 and path != self._path:
            self._path = path
            self._revisions = dict.fromkeys(self._revisions, 0)  # all is told again, in this version
        return response

    def _note_absence(self, why: str) -> None:
        if not self.complete.is_set() or self._revisions:
            self._log.warning(why, path=self._path)

    async def _tell_absent(self) -> None:
        self.heard_at = None
        await self._tell([Removed(uid) for uid in sorted(self._revisions)])

    def _is_told(self, item: T) -> bool:
        return self._revisions.get(_uid(item)) == _revision(item)

    # -- watch

    async def _follow(self) -> None:
        """Watch until everything has to be listed anew."""
        try:
            while True:
                await self._persistently("watch", self._watch)
        except _Expired as expired:
            self._log.info("has to be listed anew", reason=str(expired), revision=self._through)

    async def _watch(self) -> None:
        """One watch, to its end. Raises what is worth a pause before the next one."""
        loop = asyncio.get_running_loop()
        started, began = loop.time(), self._through
        lost: KubeUnreachable | None = None
        try:
            await self._read_watch()
        except KubeUnreachable as error:
            lost = error
        seconds = loop.time() - started
        if self._through != began or seconds >= self._pace.silence_seconds:
            self._log.debug("watch ended; goes on from where it was", why=str(lost), revision=self._through)
        elif lost is not None:
            raise lost
        elif seconds < self._pace.hasty_seconds:
            raise _Hasty("the server ended the watch at once")

    async def _read_watch(self) -> None:
        query = {
            **self._selected,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._through),
            "timeoutSeconds": str(round(random.uniform(*self._pace.watch_seconds))),  # noqa: S311
        }
        stream = self._session.stream(self._path, query, read_timeout_seconds=self._pace.silence_seconds)
        async with stream as (status, lines):
            if status != 200:
                raise _refusal(status, b"\n".join([line async for line in lines]))
            self.heard_at = monotonic()
            async with LineBatches(lines, self._pace.batch_size) as batches:
                async for batch in batches:
                    await self._take_in(batch)

    async def _take_in(self, lines: list[bytes]) -> None:
        """Tell what the lines say; an error among them ends the watch after what came before it."""
        self.heard_at = monotonic()
        metrics.EVENTS.labels(self.kind).add(len(lines))
        items: list[T | Removed] = []
        through = self._through
        failure: Exception | None = None
        for line in lines:
            try:
                event = self._decoding.event(line)
            except (BadObject, BadResourceVersion) as error:
                failure = _Expired(str(error))
                break
            if isinstance(event, WatchStatus):
                failure = _failure(event)
                break
            if isinstance(event, Bookmark):
                through = max(through, event.revision)
            else:
                items.append(event)
                through = max(through, _revision(event))
        self._through = through
        await self._tell(items, through)
        if failure is not None:
            raise failure

    # -- both

    async def _tell(self, items: list[T | Removed], through: int = 0) -> None:
        """Hand over in batches; the last one says how far everything has been told (0: not known yet)."""
        for item in items:
            if type(item) is Removed:
                self._revisions.pop(item.uid, None)
            else:
                self._revisions[_uid(item)] = _revision(item)
        size = self._pace.batch_size
        last = max(0, len(items) - 1) // size * size
        for start in range(0, last, size):
            self._sink(ObjectChanges(self.resource.kind, items[start : start + size]))
            await asyncio.sleep(0)
        if items or through:
            self._sink(ObjectChanges(self.resource.kind, items[last:], through))


def _uid(item: Any) -> str:
    uid: str = item.uid if type(item) is Removed else item.metadata.uid
    return uid


def _revision(item: Any) -> int:
    revision: int = item.revision if type(item) is Removed else item.metadata.revision
    return revision


def _versioned(page: Page[T], path: str) -> Page[T]:
    """Items of a list of a built-in kind leave out their version, which is in the path."""
    version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]
    items: list[Any] = page.items
    return replace(page, items=[each if each.api_version else replace(each, api_version=version) for each in items])


def _refusal(status: int, body: bytes) -> Exception:
    """What to make of a watch that was not opened."""
    error = ApiStatusError.from_response(Response(status, {}, body))
    if status in _LIST_ANEW:
        return _Expired(str(error))
    return error


def _failure(status: WatchStatus) -> Exception:
    """What to make of an error in the midst of a watch."""
    if status.code in _LIST_ANEW:
        return _Expired(f"{status.reason or status.code}: {status.message}")
    return ApiStatusError(status.code, status.reason, status.message)
