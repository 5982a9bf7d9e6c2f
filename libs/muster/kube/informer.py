"""Informer: lists and watches one API resource, relists when the watch cannot be resumed, and never gives up.

    list (pages) --> watch from the list's revision --> watch from the last revision seen --> ...
      ^   ^                  | 410: the revision is too old, or the resource is not served any more
      |   +------------------+
      +-- wait: the resource is unavailable (its CustomResourceDefinition is not installed, or reading it is forbidden)

Of a resource with several API versions each list uses the first that the server has.

Failures are retried forever with exponential backoff and full jitter. Delivered objects stay valid meanwhile: stale,
but consistent.

An object that cannot be read is counted, logged and reported (see malformed_objects), and the stream continues. Its
last readable state stays delivered; without a readable uid, an object counts as removed by the next list.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from time import monotonic
from typing import Any, Generic, TypeVar

import structlog
from msgspec import Raw, Struct
from msgspec.structs import replace

from muster.kube import metrics
from muster.kube.api_resources import ApiResource
from muster.kube.line_batches import LineBatches, Spacing
from muster.kube.malformed_objects import MalformedObjects, Unreadable
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import BadObject, BadResourceVersion
from muster.kube.session import (
    MAX_BODY_BYTES,
    ApiStatusError,
    KubeSession,
    KubeUnreachable,
    Response,
    ResponseTooLong,
)
from muster.kube.watch_decoding import Bookmark, Page, UnusualPage, WatchDecoder, WatchStatus
from muster.retry.retrying import jittered_seconds, retry_forever

T = TypeVar("T")
R = TypeVar("R")

_log = structlog.get_logger(__name__)


class InformerOptions(Struct, frozen=True):
    """Sizes and times of an informer. Pairs are the first and the longest bound of pauses, which are jittered below."""

    page_size: int = 5_000
    """Most objects per page of a list. The API server works for each page in proportion to all objects of the kind, so
    that pages of 500 pods cost it twice the time of one page with all, of 60,000, and more of 150,000."""
    first_page_size: int = 100
    page_bytes: int = 16 * 1024 * 1024
    """Bytes per page that are aimed at: pages get fewer objects where these are larger. Two pages are in memory."""
    max_page_bytes: int = 32 * 1024 * 1024
    """Bytes of a page of several objects; a longer one is requested again with fewer."""
    repaired_bytes: int = 2 * 1024 * 1024
    """The same, of a page that must be repaired, which blocks for 10 ms per MB."""
    batch_size: int = 200
    """Maximum number of changes per delivery: handling them must not block the event loop for many milliseconds."""
    batch_bytes: int = 256 * 1024
    """Maximum of bytes per delivery, for the same reason; an object that is larger is delivered alone."""
    spacing: Spacing = Spacing()
    """When a delivery of a watch is due that is not full; by default at once."""
    list_timeout_seconds: float = 60.0
    watch_seconds: tuple[float, float] = (240.0, 480.0)
    """The server ends a watch after a random time between these, so that watches spread over the API servers."""
    idle_seconds: float = 30.0
    """A watch without events for this long is reopened. Usually nothing has changed (bookmarks are rare, and absent
    without changes), but the connection may be silently dead."""
    min_watch_seconds: float = 1.0
    """A watch that ends sooner without an event counts as a failure, so that it is not reopened in a loop."""
    retry_seconds: tuple[float, float] = (0.2, 5.0)
    """Pauses after failures. State becomes stale during an outage, so its end must be noticed soon."""
    unavailable_seconds: tuple[float, float] = (2.0, 30.0)
    """Pauses between lists of an unavailable resource."""


_RELIST_STATUSES = frozenset({400, 404, 410, 504})
"""Statuses of a watch after which it cannot be resumed: the revision is unknown to the server (400, or 504 when the
server does not reach it, as after a restore from a backup), too old (410), or the resource is not served any more
(404)."""


class _RelistRequired(RuntimeError):
    """The watch cannot be resumed."""


class _WatchTooShort(RuntimeError):
    """The server ended the watch at once without an event."""


class Informer(Generic[T]):
    """Delivers all changes of a resource to `sink`, in order.

    `sink` is called on the event loop with at most `InformerOptions.batch_size` changes and must not block: changes
    that take too long for one call are returned by it, and delivered again after other tasks have run (I12); None: all
    were taken in. `complete` is set once the first list has been delivered, or the resource is found unavailable; it
    stays set.
    """

    def __init__(
        self,
        session: KubeSession,
        resource: ApiResource[T],
        sink: Callable[[ObjectChanges[T]], ObjectChanges[T] | None],
        options: InformerOptions = InformerOptions(),  # noqa: B008 (a frozen value)
        report: Callable[[Unreadable], None] | None = None,
    ) -> None:
        """`report` is called with each object that cannot be read completely, at each list or change of it."""
        self.resource = resource
        self.complete = asyncio.Event()
        self._session = session
        self._sink = sink
        self._options = options
        self._malformed = MalformedObjects(resource.kind, report)
        self._decoder = WatchDecoder(resource, self._malformed)
        self._largest_page = options.page_size  # lower until a list completes, after a page that was too long
        self._page_size = min(options.first_page_size, options.page_size)
        self._selector = {"labelSelector": resource.label_selector} if resource.label_selector else {}
        self._paths = (resource.path, *resource.older_paths)
        self._path = resource.path
        self._revisions: dict[str, int] = {}  # uid -> resourceVersion, of all delivered objects
        self._through = 0
        self._unavailable_lists = 0
        self._log = _log.bind(kind=resource.kind)
        self.last_response_at: float | None = None
        """Time of the last response by the monotonic clock; None: never, or the resource is unavailable."""
        metrics.expose_watch(self)

    @property
    def kind(self) -> str:
        """Plural and group of the resource."""
        return self.resource.kind

    @property
    def objects(self) -> int:
        """Number of delivered objects."""
        return len(self._revisions)

    async def run(self) -> None:
        """List and watch until cancelled."""
        futile_watches = 0
        while True:
            available = await self._retry(self._list, failed="list_failed", recovered="list_recovered")
            self.complete.set()
            if not available:
                self._unavailable_lists += 1
                # At least half of the bound: lists of a kind that is not served must not follow one another at once.
                seconds = jittered_seconds(self._options.unavailable_seconds, self._unavailable_lists, least_jitter=0.5)
                await asyncio.sleep(seconds)
                continue
            self._unavailable_lists = 0
            listed = self._through
            await self._watch_until_expired()
            futile_watches = futile_watches + 1 if self._through == listed else 0
            if futile_watches:
                await asyncio.sleep(jittered_seconds(self._options.retry_seconds, futile_watches))

    async def _retry(self, step: Callable[[], Awaitable[R]], *, failed: str, recovered: str) -> R:
        failures = 0

        def note(attempt: int, error: BaseException, pause_seconds: float) -> None:
            nonlocal failures
            failures = attempt
            metrics.FAILURES.labels(self.kind).add()
            log = self._log.warning if attempt & (attempt - 1) == 0 else self._log.debug  # with growing intervals
            log(failed, error=str(error), attempt=attempt, pause_seconds=round(pause_seconds, 3))

        result = await retry_forever(
            step,
            on=(KubeUnreachable, ApiStatusError, BadObject, BadResourceVersion, _WatchTooShort),
            bounds=self._options.retry_seconds,
            before_wait=note,
        )
        if failures:
            self._log.info(recovered, failures=failures)
        return result

    # -- list

    async def _list(self) -> bool:
        """List all objects, and deliver the differences. False: the resource is unavailable."""
        missing = set(self._revisions)
        page: Page | None = None
        async with aclosing(self._pages()) as pages:
            async for following in pages:
                if page is None and following.revision < self._through:
                    self._forget_history(following.revision)
                page = following
                await self._deliver_page(page, missing)
        if page is None:
            await self._deliver_unavailable()
            return False
        self._through = page.revision
        self._largest_page = self._options.page_size
        self.last_response_at = monotonic()
        metrics.LISTS.labels(self.kind).add()
        await self._deliver([Removed(uid) for uid in sorted(missing)], page.revision)
        self._log.info("list_completed", objects=len(self._revisions), revision=page.revision)
        return True

    def _forget_history(self, revision: int) -> None:
        """The API server was restored from a backup: equal revisions are no proof of equal objects any more."""
        self._log.warning("history_restarted", revision=revision, before=self._through)
        self._revisions = dict.fromkeys(self._revisions, 0)

    async def _pages(self) -> AsyncGenerator[Page, None]:
        """The pages of the list; none if the resource is unavailable. While one is taken in, the next is requested."""
        requested = asyncio.create_task(self._page(""))
        try:
            while (page := await requested) is not None:
                if page.continue_token:
                    requested = asyncio.create_task(self._page(page.continue_token))
                yield page
                if not page.continue_token:
                    return
        finally:
            requested.cancel()
            await asyncio.gather(requested, return_exceptions=True)

    async def _page(self, token: str) -> Page | None:
        """A page of the list. None: the resource is unavailable."""
        while True:
            try:
                response = await (self._request_page(self._path, token) if token else self._request_first_page())
                if response.status != 200:
                    self._check_available(response)
                    return None
                few = self._page_size == 1 or len(response.body) <= self._options.repaired_bytes
                page = self._decoder.page(response.body, repair=few)
                break
            except (ResponseTooLong, UnusualPage):
                if self._page_size == 1:
                    raise
                self._largest_page = self._page_size = max(1, self._page_size // 8)
        if page.items:
            fitting = self._options.page_bytes * len(page.items) // len(response.body)
            self._page_size = max(1, min(fitting, self._largest_page))
        return page

    def _check_available(self, response: Response) -> None:
        """Log why the resource is unavailable. Raises ApiStatusError for other failures."""
        if response.status == 404 and self.resource.optional:
            self._log_unavailable("the API server does not serve it")
        elif response.status == 403 and self.resource.dispensable and not self._through:
            self._log_unavailable(str(ApiStatusError.from_response(response)))
        else:
            raise ApiStatusError.from_response(response)

    async def _request_page(self, path: str, token: str = "") -> Response:
        query = {"limit": str(self._page_size), **self._selector}
        if token:
            query["continue"] = token
        options = self._options
        return await self._session.request(
            "GET",
            path,
            query=query,
            timeout_seconds=options.list_timeout_seconds,
            max_bytes=options.max_page_bytes if self._page_size > 1 else MAX_BODY_BYTES,
        )

    async def _request_first_page(self) -> Response:
        """The first page, from the first API version that is served."""
        for path in self._paths:
            response = await self._request_page(path)
            if response.status != 404:
                break
        if response.status == 200 and path != self._path:
            self._path = path
            self._revisions = dict.fromkeys(self._revisions, 0)  # deliver all objects again, in this version
        return response

    def _log_unavailable(self, reason: str) -> None:
        if not self.complete.is_set() or self._revisions:
            self._log.warning("resource_unavailable", reason=reason, path=self._path)

    async def _deliver_unavailable(self) -> None:
        self.last_response_at = None
        await self._deliver([Removed(uid) for uid in sorted(self._revisions)])

    def _skip(self, unreadable: list[Unreadable]) -> None:
        for each in unreadable:
            kept = each.uid in self._revisions
            self._malformed.note(each, effect="its last readable state is used" if kept else "it is ignored")

    async def _deliver_page(self, page: Page, missing: set[str]) -> None:
        """Decode the items in batches, deliver those that are new, and take all of them out of `missing`."""
        version = _version_of(self._path) if self.resource.older_paths else ""
        for items in self._batches(page.items):
            objects, unreadable = self._decoder.objects(items)
            if version:
                objects = [_with_version(each, version) for each in objects]
            missing.difference_update(map(_uid, objects))
            missing.difference_update([each.uid for each in unreadable])
            self._skip(unreadable)
            await self._deliver([each for each in objects if self._revisions.get(_uid(each)) != _revision(each)])
            await asyncio.sleep(0)

    def _batches(self, items: list[Raw]) -> Iterator[list[Raw]]:
        start, size = 0, 0
        for index, item in enumerate(items):
            size += len(item)
            if index > start and (size > self._options.batch_bytes or index - start == self._options.batch_size):
                yield items[start:index]
                start, size = index, len(item)
        yield items[start:]

    # -- watch

    async def _watch_until_expired(self) -> None:
        """Watch until a relist is required."""
        try:
            while True:
                await self._retry(self._watch, failed="watch_failed", recovered="watch_recovered")
        except _RelistRequired as expired:
            self._log.info("relist_required", reason=str(expired), revision=self._through)

    async def _watch(self) -> None:
        """One watch until it ends. Raises the errors after which the next watch has to wait."""
        loop = asyncio.get_running_loop()
        started, began = loop.time(), self._through
        reason = ""
        try:
            await self._read_watch()
        except ResponseTooLong as error:  # the next watch would send the same event
            raise _RelistRequired(str(error)) from error
        except KubeUnreachable as error:
            if self._through == began and loop.time() - started < self._options.idle_seconds:
                raise
            reason = str(error)
        seconds = loop.time() - started
        if reason or self._through != began or seconds >= self._options.idle_seconds:
            self._log.debug("watch_ended", reason=reason, revision=self._through)
        elif seconds < self._options.min_watch_seconds:
            raise _WatchTooShort("the server ended the watch at once")

    async def _read_watch(self) -> None:
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(self._through),
            "timeoutSeconds": str(round(random.uniform(*self._options.watch_seconds))),  # noqa: S311
        }
        stream = self._session.stream(self._path, query, read_timeout_seconds=self._options.idle_seconds)
        async with stream as (status, lines):
            if status != 200:
                raise _open_error(status, b"\n".join([line async for line in lines]))
            self.last_response_at = monotonic()
            options = self._options
            async with LineBatches(lines, options.batch_size, options.batch_bytes, options.spacing) as batches:
                async for batch in batches:
                    await self._process(batch)
                    del batch  # the next may come in minutes

    async def _process(self, lines: list[bytes]) -> None:
        """Deliver the events; an error event ends the watch after the events before it are delivered."""
        self.last_response_at = monotonic()
        metrics.EVENTS.labels(self.kind).add(len(lines))
        items: list[T | Removed] = []
        unreadable: list[Unreadable] = []
        through = self._through
        failure: Exception | None = None
        for line in lines:
            try:
                event = self._decoder.event(line)
            except (BadObject, BadResourceVersion) as error:
                failure = _RelistRequired(str(error))
                break
            if isinstance(event, WatchStatus):
                failure = _event_error(event)
                break
            if isinstance(event, Bookmark):
                through = max(through, event.revision)
            elif isinstance(event, Unreadable):
                unreadable.append(event)
            else:
                items.append(event)
                through = max(through, _revision(event))
        self._through = through
        self._skip(unreadable)
        await self._deliver(items, through)
        if failure is not None:
            raise failure

    # -- both

    async def _deliver(self, items: list[T | Removed], through: int = 0) -> None:
        """Deliver in batches; the last one carries `through` (0: within a list)."""
        for item in items:
            if type(item) is Removed:
                self._revisions.pop(item.uid, None)
            else:
                self._revisions[_uid(item)] = _revision(item)
        size = self._options.batch_size
        for start in range(0, len(items) - size, size):
            await self._pass_on(ObjectChanges(self.resource.kind, items[start : start + size]))
            await asyncio.sleep(0)
        if items or through:
            last = (len(items) - 1) // size * size if items else 0
            await self._pass_on(ObjectChanges(self.resource.kind, items[last:], through))

    async def _pass_on(self, changes: ObjectChanges[T]) -> None:
        left = self._sink(changes)
        while left is not None:
            await asyncio.sleep(0)
            left = self._sink(left)


def _uid(item: Any) -> str:
    uid: str = item.uid if type(item) is Removed else item.metadata.uid
    return uid


def _revision(item: Any) -> int:
    revision: int = item.revision if type(item) is Removed else item.metadata.revision
    return revision


def _version_of(path: str) -> str:
    """The API version of a path, which lists of built-in resources omit in their items."""
    return path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]


def _with_version(item: Any, version: str) -> Any:
    return item if item.api_version else replace(item, api_version=version)


def _open_error(status: int, body: bytes) -> Exception:
    """The error for a watch that could not be opened."""
    error = ApiStatusError.from_response(Response(status, {}, body))
    if status in _RELIST_STATUSES:
        return _RelistRequired(str(error))
    return error


def _event_error(status: WatchStatus) -> Exception:
    """The error for an ERROR event of a watch."""
    if status.code in _RELIST_STATUSES:
        return _RelistRequired(f"{status.reason or status.code}: {status.message}")
    return ApiStatusError(status.code, status.reason, status.message)
