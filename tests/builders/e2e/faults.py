"""Fault injection between the services and the API server, at exact moments.

with faults.hold(BINDS, let_pass=3) as held:      # the fourth bind and all after it wait
    await held.until(1)
    ...
    held.drop()                                   # their connections break; or held.release()
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import yaml
from aiohttp import web

from builders.e2e.denials import Refusals
from builders.wait import latency
from muster.kube.session import KubeSession, KubeUnreachable

_FORWARD_SECONDS = 60.0
_LARGEST_BODY_BYTES = 2**26


@dataclass(frozen=True)
class Requests:
    """The requests that a fault applies to: a method, or several with "|" between them (any if empty), a pattern that
    the path ends with, and a part of the body.
    """

    method: str
    path: str
    part: bytes = b""

    def match(self, request: web.Request, body: bytes) -> bool:
        if (self.method and request.method not in self.method.split("|")) or self.part not in body:
            return False
        return re.search(self.path + "$", request.path) is not None


BINDS = Requests("POST", "/binding")
EVICTIONS = Requests("POST", "/eviction")
WRITES_OF_STATUS = Requests("PATCH", "/status")
EVERYTHING = Requests("", "")


@dataclass(frozen=True)
class Seen:
    """A request that was executed."""

    path: str
    body: bytes
    status: int


class Held:
    """Requests that are held, all but the first `let_pass`."""

    def __init__(self, let_pass: int = 0) -> None:
        self.paths: list[str] = []
        self._let_pass = let_pass
        self._in_flight = 0  # of those that pass
        self._verdict: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._changed = asyncio.Event()

    async def until(self, count: int, *, seconds: float = 30) -> None:
        """Wait until `count` requests are held and all that were let pass are executed."""
        async with asyncio.timeout(seconds):
            while len(self.paths) < count or self._in_flight:
                self._changed.clear()
                await self._changed.wait()

    def let_pass(self) -> bool:
        """Whether a request that arrives is one of the first, which are not held. Execute it within `executing`."""
        self._let_pass -= 1
        return self._let_pass >= 0

    @contextlib.contextmanager
    def executing(self) -> Iterator[None]:
        """One of the first requests is executed in the block."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._changed.set()

    def release(self) -> None:
        """Release the held requests and all later ones."""
        self._decide(True)

    def drop(self) -> None:
        """Break the connections of the held requests, which never reach the API server; later ones pass."""
        self._decide(False)

    async def passes(self, path: str) -> bool:
        """Wait for release or drop."""
        if self._verdict.done():
            return True
        self.paths.append(path)
        self._changed.set()
        return await asyncio.shield(self._verdict)

    def _decide(self, verdict: bool) -> None:
        if not self._verdict.done():
            self._verdict.set_result(verdict)


Forward = Callable[[], Awaitable[web.StreamResponse]]
Act = Callable[[web.Request, Forward], Awaitable[web.StreamResponse]]


class Fault:
    """A fault of some requests: of the first `times` of them."""

    def __init__(self, requests: Requests, act: Act, *, times: float = float("inf")) -> None:
        self.requests, self.act = requests, act
        self._left = times
        self._strikes = 0
        self._struck = asyncio.Event()

    def takes(self, request: web.Request, body: bytes) -> bool:
        """Whether the fault applies to this request."""
        if self._left <= 0 or not self.requests.match(request, body):
            return False
        self._left -= 1
        self._strikes += 1
        self._struck.set()
        return True

    async def struck(self, count: int, *, seconds: float = 30) -> None:
        """Wait until the fault has been applied `count` times."""
        async with asyncio.timeout(seconds):
            while self._strikes < count:
                self._struck.clear()
                await self._struck.wait()


class _Broken(Exception):
    """Signals that the connection is to be broken."""


class Faults:
    """Forwards every request to the API server, except for injected faults."""

    def __init__(self, upstream: KubeSession) -> None:
        self._upstream = upstream
        self.identities: Mapping[str, KubeSession] = {}
        """Sessions by Authorization header; requests without a known one are rejected. None: all requests use the
        upstream's credentials.
        """
        self.refusals = Refusals()
        self._rules: list[Fault] = []
        self._watches: set[asyncio.Task[None]] = set()
        self._lag: Callable[[str], float] | None = None
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self, port: int, kubeconfig: Path | None = None) -> None:
        """Listen, and write a kubeconfig for clients without credentials."""
        self._port = port
        await self._listen()
        if kubeconfig is not None:
            kubeconfig.write_text(yaml.safe_dump(_kubeconfig(f"http://127.0.0.1:{port}")))  # noqa: ASYNC240 (small)

    async def _listen(self) -> None:
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Break all connections and stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        for session in self.identities.values():
            await session.close()

    @contextlib.asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Refuse connections in the block, as an API server that is down."""
        self.break_watches()
        await self.stop()
        try:
            yield
        finally:
            await self._listen()

    @contextlib.contextmanager
    def hold(self, requests: Requests, *, let_pass: int = 0, carried_out: bool = False) -> Iterator[Held]:
        """Hold requests after the first `let_pass`, or (`carried_out`) their responses, until released or dropped; the
        end of the block releases them.
        """
        held = Held(let_pass)

        async def act(request: web.Request, forward: Forward) -> web.StreamResponse:
            if held.let_pass():
                with held.executing():
                    return await forward()
            answer = await forward() if carried_out else None
            if not await held.passes(request.path):
                raise _Broken
            return await forward() if answer is None else answer

        with self._rule(Fault(requests, act)):
            try:
                yield held
            finally:
                held.release()

    @contextlib.contextmanager
    def refuse(
        self, requests: Requests, status: int, *, times: float = float("inf"), headers: Mapping[str, str] | None = None
    ) -> Iterator[Fault]:
        """Answer requests with a status instead of executing them."""
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": "made to fail"}

        async def act(request: web.Request, forward: Forward) -> web.StreamResponse:
            return web.json_response(body, status=status, headers=headers)

        with self._rule(Fault(requests, act, times=times)) as rule:
            yield rule

    @contextlib.contextmanager
    def delay(self, requests: Requests, seconds: float) -> Iterator[Fault]:
        """Execute requests late."""

        async def act(request: web.Request, forward: Forward) -> web.StreamResponse:
            await latency(seconds)
            return await forward()

        with self._rule(Fault(requests, act)) as rule:
            yield rule

    @contextlib.contextmanager
    def cut(self, requests: Requests, *, times: float = float("inf"), carried_out: bool = False) -> Iterator[Fault]:
        """Break connections, before the request or (`carried_out`) before its response."""

        async def act(request: web.Request, forward: Forward) -> web.StreamResponse:
            if carried_out:
                await forward()
            raise _Broken

        with self._rule(Fault(requests, act, times=times)) as rule:
            yield rule

    @contextlib.contextmanager
    def seen(self, requests: Requests) -> Iterator[list[Seen]]:
        """Execute requests, and record them with their responses. Set other faults for them before."""
        kept: list[Seen] = []

        async def act(request: web.Request, forward: Forward) -> web.StreamResponse:
            body = await request.read()
            answer = await forward()
            kept.append(Seen(request.path, body, answer.status))
            return answer

        with self._rule(Fault(requests, act)):
            yield kept

    def break_watches(self) -> None:
        """Break all open watches."""
        for watch in list(self._watches):
            watch.cancel()

    @contextlib.contextmanager
    def lagging(self, lag: Callable[[str], float]) -> Iterator[None]:
        """Deliver events of watches late by the seconds that `lag` returns for their path: those of one watch in their
        order, those of different watches not. All watches break at the beginning and at the end.
        """
        self._lag = lag
        self.break_watches()
        try:
            yield
        finally:
            self._lag = None
            self.break_watches()

    @contextlib.contextmanager
    def _rule(self, rule: Fault) -> Iterator[Fault]:
        self._rules.append(rule)
        try:
            yield rule
        finally:
            self._rules.remove(rule)

    # -- forwarding

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        watching = "watch" in request.query
        shown = request.headers.get("Authorization", "")
        upstream = self.identities.get(shown) if self.identities else self._upstream
        if upstream is None:
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        forward = partial(self._forward_watch if watching else self._forward, request, upstream)
        try:
            body = b"" if watching else await request.read()
            for rule in self._rules:
                if rule.takes(request, body):
                    return await rule.act(request, forward)
            return await forward()
        except (_Broken, KubeUnreachable, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)

    async def _forward(self, request: web.Request, upstream: KubeSession) -> web.StreamResponse:
        answer = await upstream.request(
            request.method,  # type: ignore[arg-type]
            request.rel_url.raw_path,
            query=dict(request.query),
            body=await request.read() or None,
            content_type=request.headers.get("Content-Type", "application/json"),
            timeout_seconds=_FORWARD_SECONDS,
        )
        self.refusals.note(answer.status, answer.body)
        kept = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
        return web.Response(status=answer.status, body=answer.body, headers=kept)

    async def _forward_watch(self, request: web.Request, upstream: KubeSession) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        path, query = request.rel_url.raw_path, dict(request.query)

        async def pump() -> None:
            async with upstream.stream(path, query, read_timeout_seconds=3600) as (status, lines):
                response.set_status(status)
                await response.prepare(request)
                async with _writer(response, self._lag, path) as write:
                    async for line in lines:
                        self.refusals.note(status, line)
                        await write(line + b"\n")

        task = asyncio.create_task(pump())
        self._watches.add(task)
        try:
            await task
        except asyncio.CancelledError:
            task.cancel()
            raise _Broken from None
        finally:
            self._watches.discard(task)
        return response


@contextlib.asynccontextmanager
async def _writer(
    response: web.StreamResponse, lag: Callable[[str], float] | None, path: str
) -> AsyncIterator[Callable[[bytes], Awaitable[None]]]:
    """Writes to a response, at once, or each as many seconds later as `lag` says when it is written, in their order."""
    if lag is None:
        yield response.write
        return
    clock, waiting = asyncio.get_running_loop().time, asyncio.Queue[tuple[float, bytes]]()

    async def deliver() -> None:
        while True:
            due, line = await waiting.get()
            await latency(max(0.0, due - clock()))
            await response.write(line)

    async def write(line: bytes) -> None:
        waiting.put_nowait((clock() + lag(path), line))

    delivering = asyncio.create_task(deliver())
    try:
        yield write
    finally:
        delivering.cancel()
        await asyncio.wait([delivering])


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "nobody"}}],
        "current-context": "local",
    }
