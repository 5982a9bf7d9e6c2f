"""HTTP server of the console: the files of the page, who the reader is, streams of events, and answers to what-if.

What-if is a POST, because manifests are long; it changes nothing either.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from muster.config.settings import CannotStart
from muster.console.access import MAX_NAMESPACES, NotAuthenticated, NotReviewed, User
from muster.console.forecast import (
    MAX_MANIFEST,
    Asked,
    BadQuestion,
    ForecastClient,
    NoForecast,
    NotAllowed,
    answer_page,
    check_allowed,
    named_namespaces,
)
from muster.console.metrics import EVENT_BYTES, REJECTED_STREAMS, STREAMS
from muster.console.stream import EventStream, Requested, Sources

READY_PATH: Final = "/ready"
MAX_STREAMS: Final = 200
MAX_STREAMS_OF_USER: Final = 20
"""Of one user; everybody is one without authentication."""

_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_MAX_PARAMETER: Final = 1000
_MAX_QUESTION: Final = 2 * MAX_MANIFEST
"""Bytes of a body: in JSON a character may take several."""
_MAX_REQUESTS: Final = 400
"""Requests that are answered at the same time, streams included."""
_WRITE_SECONDS: Final = 30.0
"""A browser that accepts no event for so long is disconnected."""
_BODY_SECONDS: Final = 10.0
"""A browser that has not sent a question by then is refused."""
_STOP_SECONDS: Final = 5.0
_LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_FEEDS: Final = frozenset({"gangs", "nodes", "trees", "problems", "preemptions", "starts", "usage"})
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}

_log = structlog.get_logger()

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class CannotListenForBrowsers(CannotStart):
    """The console cannot listen on its address."""


class _File(Struct, frozen=True):
    content: bytes
    content_type: str
    tag: str


class ConsoleServer:
    """The server. Ready once `set_ready` was called."""

    def __init__(self, listen: str, tls: SSLContext | None, sources: Sources) -> None:
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._tls, self._sources = tls, sources
        self._files = {path.name: _read(path) for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}
        self._runner: web.AppRunner | None = None
        self._streams: Counter[str] = Counter()
        self._requests = 0
        self._ready = False
        self._stopping = asyncio.Event()
        self.port = 0
        """The listening port, once started."""
        STREAMS.read_from(lambda: {(): float(self._streams.total())})

    @property
    def watched(self) -> bool:
        """Whether a page is open in any browser."""
        return self._streams.total() > 0

    def set_ready(self) -> None:
        """Report readiness from now on."""
        self._ready = True

    async def start(self) -> None:
        """Starts listening. Raises CannotListenForBrowsers."""
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_QUESTION)
        app.router.add_get("/", self._page)
        app.router.add_get("/static/{name}", self._file)
        app.router.add_get("/api/session", self._session)
        app.router.add_get("/api/events", self._events)
        app.router.add_post("/api/whatif", self._what_if)
        app.router.add_get(READY_PATH, self._readiness)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_SECONDS)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls).start()
        except OSError as error:
            raise CannotListenForBrowsers(
                f"the console cannot listen on {self._host}:{self._port}: {error}; choose another address"
            ) from error
        self.port = self._runner.addresses[0][1]
        _log.info("console_started", port=self.port, tls=self._tls is not None)

    async def stop(self) -> None:
        """Ends the streams, then closes."""
        self._ready = False
        self._stopping.set()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        STREAMS.read_from(None)

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Headers of every response, and limits of every request."""
        if self._requests >= _MAX_REQUESTS:
            return _refusal(503, "too many requests at once: try again")
        self._requests += 1
        try:
            if not self._sources.access.needs_token and not _is_for_loopback(request.host):
                # Without authentication, another site must not reach the console by a name that resolves to loopback.
                return _refusal(421, "without authentication the console answers at localhost and 127.0.0.1 only")
            response = await handler(request)
        except web.HTTPException as error:
            response = _refusal(error.status, error.reason)
        finally:
            self._requests -= 1
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        return self._static(request, "index.html")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        return self._static(request, request.match_info["name"])

    def _static(self, request: web.Request, name: str) -> web.StreamResponse:
        file = self._files.get(name)
        if file is None:
            return _refusal(404, "there is no such file")
        headers = {"Cache-Control": "no-cache", "ETag": file.tag}
        if request.headers.get("If-None-Match") == file.tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=file.content, content_type=file.content_type, charset="utf-8", headers=headers)

    async def _readiness(self, _: web.Request) -> web.StreamResponse:
        text = "ok\n" if self._ready else "the state of the cluster is not complete yet\n"
        return web.Response(status=200 if self._ready else 503, text=text)

    async def _session(self, request: web.Request) -> web.StreamResponse:
        """Who reads; 401 asks for a token."""
        try:
            user = await self._sources.access.user(_token(request))
        except NotAuthenticated as error:
            return _refusal(401, str(error))
        except NotReviewed as error:
            return _refusal(503, str(error))
        return _json({"user": user.username, "token": self._sources.access.needs_token})

    async def _what_if(self, request: web.Request) -> web.StreamResponse:
        """Answers a question about manifests; see `muster.console.forecast.Question`."""
        sources = self._sources
        if request.content_type != "application/json" or request.headers.get("Sec-Fetch-Site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            return _refusal(415, "a question is JSON, from a page of the console")
        if sources.forecast is None:
            return _refusal(501, "the console has no service forecast: set --forecast (forecast.enabled in the chart)")
        try:
            user = await sources.access.user(_token(request))
            with sources.forecast.turn(user.username):
                return _json(await self._answer(user, await _body(request), sources.forecast))
        except NotAuthenticated as error:
            return _refusal(401, str(error))
        except NotAllowed as error:
            return _refusal(403, str(error))
        except BadQuestion as error:
            return _refusal(400, str(error))
        except (NotReviewed, NoForecast) as error:
            return _refusal(503, str(error))

    async def _answer(self, user: User, body: bytes, forecast: ForecastClient) -> dict[str, Any]:
        """Raises NotAllowed, BadQuestion, NotReviewed and NoForecast."""
        access = self._sources.access
        asked = await forecast.read(body)
        namespaces = None if await access.sees_all(user) else await self._readable(user, asked)
        check_allowed(asked, namespaces)
        answer = await forecast.what_if(asked)
        if namespaces is not None:  # those of gangs that the answer names
            namespaces |= await access.readable(user, named_namespaces(answer))
        return answer_page(answer, asked, namespaces)

    async def _readable(self, user: User, asked: Asked) -> frozenset[str]:
        """Raises BadQuestion and NotReviewed."""
        if len(asked.namespaces) > MAX_NAMESPACES:
            raise BadQuestion(
                f"the manifests have objects of {len(asked.namespaces)} namespaces: at most {MAX_NAMESPACES}"
            )
        return await self._sources.access.readable(user, asked.namespaces)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        requested = _requested(request)
        if requested is None:
            feeds = ", ".join(sorted(_FEEDS))
            return _refusal(400, f"the feeds are {feeds}; names have at most {_MAX_PARAMETER} characters")
        stream = EventStream(self._sources, _token(request), requested)
        try:
            user = await stream.authenticate()
        except NotAuthenticated as error:
            return _refusal(401, str(error))
        except NotReviewed as error:
            return _refusal(503, str(error))
        name = user.username
        if self._streams.total() >= MAX_STREAMS or self._streams[name] >= MAX_STREAMS_OF_USER:
            REJECTED_STREAMS.add()
            return _refusal(429, "too many pages are open: close some, and try again")
        self._streams[name] += 1
        try:
            return await self._send(request, stream)
        finally:
            self._streams[name] -= 1
            if not self._streams[name]:
                del self._streams[name]

    async def _send(self, request: web.Request, stream: EventStream) -> web.StreamResponse:
        headers = {**_HEADERS, "Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers | {"X-Accel-Buffering": "no"})
        await response.prepare(request)
        sending = asyncio.create_task(_write_all(response, stream))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except (ConnectionError, TimeoutError):
            pass  # the browser has left, or does not read
        finally:
            for task in (sending, stopping):
                task.cancel()
            await asyncio.wait([sending, stopping])
        return response


async def _write_all(response: web.StreamResponse, stream: EventStream) -> None:
    async for event in stream.events():
        async with asyncio.timeout(_WRITE_SECONDS):
            await response.write(event)
        EVENT_BYTES.add(len(event))


async def _body(request: web.Request) -> bytes:
    """Raises HTTPRequestTimeout, and HTTPRequestEntityTooLarge."""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout from None


def _requested(request: web.Request) -> Requested | None:
    """What the page asks for; None: a parameter is invalid."""
    query = request.query
    feeds = tuple(dict.fromkeys(name for name in query.get("feeds", "").split(",") if name))
    names = [query.get(key, "") for key in ("gang", "node", "namespace")]
    if not _FEEDS.issuperset(feeds) or any(len(name) > _MAX_PARAMETER for name in names):
        return None
    return Requested(feeds, "overview" in query, *names)


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _is_for_loopback(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.strip("[]").lower() in _LOOPBACK_HOSTS


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')


def _json(content: dict[str, object]) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(body=msgspec.json.encode(content), content_type="application/json", headers=headers)


def _refusal(status: int, text: str) -> web.Response:
    headers = {"Cache-Control": "no-store", **_HEADERS}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode({"error": text})
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)
