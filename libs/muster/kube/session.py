"""HTTP client of the API server: bytes in, bytes out, over pooled connections, with current credentials.

Responses are returned whatever their status; callers decide what to retry. Only a 401 is handled here: credentials are
reloaded, and the rejected request is sent once more.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from time import perf_counter
from typing import Final, Literal

import aiohttp
import structlog
from yarl import URL

from muster.config.settings import KubeSettings
from muster.kube.client_config import BadKubeconfig, ClientConfig, ClientConfigSource, client_config_source
from muster.kube.metrics import NO_RESPONSE, REQUEST_SECONDS, REQUESTS
from muster.kube.responses import ApiStatusError, KubeUnreachable, Response, ResponseTooLong

__all__ = ["ApiStatusError", "BadKubeconfig", "KubeSession", "KubeUnreachable", "Response", "ResponseTooLong"]

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_CREDENTIALS_SECONDS: Final = 60.0  # maximum age of a token read from a file
_REFRESH_PAUSE_SECONDS: Final = 5.0  # between reloads after a 401: a revoked account must not run plugins in a loop
_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 75.0  # API servers close connections that are idle for 90 s; a new one costs a TLS handshake
MAX_BODY_BYTES: Final = 64 * 1024 * 1024
_MAX_LINE_BYTES: Final = 32 * 1024 * 1024
"""The API server takes objects of 3 MiB; in JSON each character may take 6 bytes."""
_READ_BUFFER_BYTES: Final = 256 * 1024

_log = structlog.get_logger()


class _TooManyBytes(aiohttp.ClientError):
    """A response exceeds the limits of memory."""


class _Transport:
    """Connections to one server with one set of certificates. Closed when retired and unused."""

    def __init__(self, config: ClientConfig, connections: int) -> None:
        """Raises BadKubeconfig."""
        self.stamp = config.transport_stamp
        self.server = config.server
        self.options: dict[str, str] = {}
        if config.proxy:
            self.options["proxy"] = config.proxy
        if config.tls_server_name:
            self.options["server_hostname"] = config.tls_server_name
        context = config.ssl_context()
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections, keepalive_timeout=_IDLE_SECONDS, ssl=context if context is not None else True
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compression would cost both sides more time than it saves on a cluster's network.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muster"},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self._users = 0
        self._retired = False

    def check_open(self, path: str) -> None:
        """Raises KubeUnreachable after `close`, as for a broken connection."""
        if self.http.closed:
            raise KubeUnreachable(self.server + path, "the session is closed")

    def __enter__(self) -> "_Transport":
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1

    async def close_if_unused(self) -> None:
        if self._retired and self._users == 0:
            await self.http.close()

    async def retire(self) -> None:
        self._retired = True
        await self.close_if_unused()


class KubeSession:
    """Sends requests to one API server. Create it with `connect`."""

    @classmethod
    async def connect(cls, settings: KubeSettings, *, connections: int = 64) -> "KubeSession":
        """Load the client configuration; sends nothing yet. Raises BadKubeconfig.

        `connections` limits concurrent requests, streams included; others are queued.
        """
        source = client_config_source(settings)
        return cls(source, await source.load(force=False), connections)

    def __init__(self, source: ClientConfigSource, config: ClientConfig, connections: int) -> None:
        """Call `connect` instead."""
        self._config_source = source
        self._connections = connections
        self._refreshing = asyncio.Lock()
        self._transport = _Transport(config, connections)
        self._use(config)
        self._rejected_at = float("-inf")
        self._generation = 0

    @property
    def server(self) -> str:
        """URL of the API server, for logs."""
        return self._transport.server

    async def close(self) -> None:
        """Abort requests in flight, and close all connections."""
        await self._transport.http.close()

    async def request(
        self,
        method: Method,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> Response:
        """Send a request, and return the response. Raises KubeUnreachable, after `timeout_seconds` at the latest, and
        its subclass ResponseTooLong if the response has more than `max_bytes`.

        `path` must be quoted, e.g. "/api/v1/namespaces/default/pods/a"; `query` must not.
        """
        if asyncio.get_running_loop().time() >= self._stale_at:
            await self._reload()
        response, generation = await self._send(method, path, query, body, content_type, timeout_seconds, max_bytes)
        if response.status == 401 and await self._refresh(generation):
            response, _ = await self._send(method, path, query, body, content_type, timeout_seconds, max_bytes)
        return response

    async def _send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        timeout_seconds: float,
        max_bytes: int,
    ) -> tuple[Response, int]:
        transport, generation = self._transport, self._generation
        transport.check_open(path)
        url = _url(transport.server, path, query)
        headers = self._headers if body is None else {**self._headers, "Content-Type": content_type}
        began, code = perf_counter(), NO_RESPONSE
        try:
            with transport:
                async with transport.http.request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=timeout_seconds),
                    **transport.options,  # type: ignore[arg-type]
                ) as answer:
                    content = await _read_body(answer, max_bytes)
                    code = str(answer.status)
                    return Response(answer.status, answer.headers, content), generation
        except _TooManyBytes as error:
            raise ResponseTooLong(transport.server + path, error) from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise KubeUnreachable(transport.server + path, error) from error
        finally:
            REQUESTS.labels(code, method).add()
            REQUEST_SECONDS.labels(method).observe(perf_counter() - began)
            if transport is not self._transport:
                await transport.close_if_unused()

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, read_timeout_seconds: float
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        r"""Open a stream. Yields its status and an iterator of its lines without the trailing \n.

        Opening and iterating raise KubeUnreachable, also when nothing is received for `read_timeout_seconds`.
        """
        if asyncio.get_running_loop().time() >= self._stale_at:
            await self._reload()
        for attempt in itertools.count():
            transport, generation = self._transport, self._generation
            where = transport.server + path
            transport.check_open(path)
            try:
                with transport:
                    try:
                        answer = await transport.http.request(
                            "GET",
                            _url(transport.server, path, query),
                            headers=self._headers,
                            allow_redirects=False,
                            timeout=aiohttp.ClientTimeout(
                                total=None, sock_connect=_CONNECT_SECONDS, sock_read=read_timeout_seconds
                            ),
                            **transport.options,  # type: ignore[arg-type]
                        )
                    except (aiohttp.ClientError, OSError, TimeoutError) as error:
                        raise KubeUnreachable(where, error) from error
                    try:
                        if answer.status == 401 and attempt == 0 and await self._refresh(generation):
                            continue
                        yield answer.status, _lines(answer, where)
                        return
                    finally:
                        answer.close()
            finally:
                if transport is not self._transport:
                    await transport.close_if_unused()

    # -- credentials

    def _use(self, config: ClientConfig) -> None:
        self._headers = {"Authorization": config.authorization} if config.authorization else {}
        self._stale_at = asyncio.get_running_loop().time() + _CREDENTIALS_SECONDS

    async def _reload(self) -> None:
        """Reload tokens that may have been rotated. The old ones are used until they are rejected."""
        if self._refreshing.locked():
            return
        async with self._refreshing:
            await self._load(force=False)

    async def _refresh(self, generation: int) -> bool:
        """Reload credentials after those of a generation were rejected. True if there are new ones."""
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if generation == self._generation and now - self._rejected_at >= _REFRESH_PAUSE_SECONDS:
                self._rejected_at = now
                await self._load(force=True)
            return generation != self._generation

    async def _load(self, *, force: bool) -> None:
        before = self._headers, self._transport
        try:
            config = await self._config_source.load(force=force)
            if config.transport_stamp != self._transport.stamp:
                old, self._transport = self._transport, _Transport(config, self._connections)
                await old.retire()
            self._use(config)
        except BadKubeconfig as error:
            _log.warning("credentials_reload_failed", error=str(error), server=self.server)
            self._stale_at = asyncio.get_running_loop().time() + _CREDENTIALS_SECONDS
            return
        if before != (self._headers, self._transport):
            self._generation += 1
            _log.info("credentials_changed", server=self.server)


def _url(server: str, path: str, query: Mapping[str, str] | None) -> URL:
    url = URL(server + path, encoded=True)
    return url if query is None else url.with_query(query)


async def _read_body(answer: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    length = answer.content_length
    if length is not None and length <= max_bytes:
        return await answer.read()
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise _TooManyBytes(f"the response has more than {max_bytes} bytes")
    return b"".join(parts)


async def _lines(answer: aiohttp.ClientResponse, where: str) -> AsyncIterator[bytes]:
    parts: list[bytes] = []  # of the current line
    size = 0
    try:
        async for chunk in answer.content.iter_any():
            first, *others = chunk.split(b"\n")
            parts.append(first)
            size += len(first)
            if size > _MAX_LINE_BYTES:
                raise _TooManyBytes(f"a line has more than {_MAX_LINE_BYTES} bytes")
            if others:
                yield b"".join(parts)
                for line in others[:-1]:
                    yield line
                parts, size = [others[-1]], len(others[-1])
    except _TooManyBytes as error:
        raise ResponseTooLong(where, error) from error
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise KubeUnreachable(where, error) from error
    if size:
        yield b"".join(parts)
