"""The one way to talk to the API server: bytes in, bytes out, over few kept connections, with current credentials.

Answers are returned whatever their status; it is for callers to know what may be repeated. Only a 401 is dealt with
here: credentials are loaded anew and the request, which was not carried out, is sent once more.
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
from muster.kube.metrics import NO_ANSWER, REQUEST_SECONDS, REQUESTS
from muster.kube.responses import ApiStatusError, KubeUnreachable, Response

__all__ = ["ApiStatusError", "BadKubeconfig", "KubeSession", "KubeUnreachable", "Response"]

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

_CREDENTIALS_SECONDS: Final = 60.0  # how old a token that was read from a file may be
_REFRESH_PAUSE_SECONDS: Final = 5.0  # between loads because of a 401: a revoked account must not run plugins in a spin
_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 75.0  # API servers close connections that are idle for 90 s; a new one costs a TLS handshake
_LONGEST_BODY_BYTES: Final = 256 * 1024 * 1024
_LONGEST_LINE_BYTES: Final = 64 * 1024 * 1024
_READ_BUFFER_BYTES: Final = 256 * 1024

_log = structlog.get_logger()


class _AnswerTooLong(aiohttp.ClientError):
    """More bytes than anybody has asked for."""


class _Transport:
    """Connections to one server with one set of certificates. Closed when retired and no longer used."""

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
            # Compressed answers would cost both sides more time than a cluster's network saves.
            headers={"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "muster"},
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self._users = 0
        self._retired = False

    def check_open(self, path: str) -> None:
        """Raises KubeUnreachable after `close`: for callers that is like any connection that breaks."""
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
    """Requests to one API server. Make one with `connect`, close it with `close`."""

    @classmethod
    async def connect(cls, settings: KubeSettings, *, connections: int = 64) -> "KubeSession":
        """Find the API server and the credentials; nothing is sent yet. Raises BadKubeconfig.

        `connections` bounds how many requests, streams included, are under way at once; others wait for their turn.
        """
        source = client_config_source(settings)
        return cls(source, await source.load(anew=False), connections)

    def __init__(self, source: ClientConfigSource, config: ClientConfig, connections: int) -> None:
        """Use `connect`."""
        self._config_source = source
        self._connections = connections
        self._refreshing = asyncio.Lock()
        self._transport = _Transport(config, connections)
        self._take(config)
        self._refused_at = float("-inf")
        self._generation = 0

    @property
    def server(self) -> str:
        """URL of the API server, for logs."""
        return self._transport.server

    async def close(self) -> None:
        """Break off what is under way and close all connections."""
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
    ) -> Response:
        """Send a request and return the answer. Raises KubeUnreachable, after `timeout_seconds` at the latest.

        `path` is quoted already, e.g. "/api/v1/namespaces/default/pods/a"; `query` is not.
        """
        if asyncio.get_running_loop().time() >= self._stale_at:
            await self._reload()
        response, generation = await self._send(method, path, query, body, content_type, timeout_seconds)
        if response.status == 401 and await self._refresh(generation):
            response, _ = await self._send(method, path, query, body, content_type, timeout_seconds)
        return response

    async def _send(
        self,
        method: Method,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        timeout_seconds: float,
    ) -> tuple[Response, int]:
        transport, generation = self._transport, self._generation
        transport.check_open(path)
        url = _url(transport.server, path, query)
        headers = self._headers if body is None else {**self._headers, "Content-Type": content_type}
        began, code = perf_counter(), NO_ANSWER
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
                    whole = await _whole(answer)
                    code = str(answer.status)
                    return Response(answer.status, answer.headers, whole), generation
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
        r"""Open a stream: its status, and its lines as they come, without the \n at their ends.

        Opening it and iterating raise KubeUnreachable, also when nothing comes for `read_timeout_seconds`.
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

    def _take(self, config: ClientConfig) -> None:
        self._headers = {"Authorization": config.authorization} if config.authorization else {}
        self._stale_at = asyncio.get_running_loop().time() + _CREDENTIALS_SECONDS

    async def _reload(self) -> None:
        """Read tokens again that may have been replaced. The old ones do until they are refused."""
        if self._refreshing.locked():
            return
        async with self._refreshing:
            await self._load(anew=False)

    async def _refresh(self, generation: int) -> bool:
        """The credentials of that generation were refused. True if there are others now."""
        async with self._refreshing:
            now = asyncio.get_running_loop().time()
            if generation == self._generation and now - self._refused_at >= _REFRESH_PAUSE_SECONDS:
                self._refused_at = now
                await self._load(anew=True)
            return generation != self._generation

    async def _load(self, *, anew: bool) -> None:
        before = self._headers, self._transport
        try:
            config = await self._config_source.load(anew=anew)
            if config.transport_stamp != self._transport.stamp:
                old, self._transport = self._transport, _Transport(config, self._connections)
                await old.retire()
            self._take(config)
        except BadKubeconfig as error:
            _log.warning("credentials could not be loaded anew", error=str(error), server=self.server)
            self._stale_at = asyncio.get_running_loop().time() + _CREDENTIALS_SECONDS
            return
        if before != (self._headers, self._transport):
            self._generation += 1
            _log.info("credentials changed", server=self.server)


def _url(server: str, path: str, query: Mapping[str, str] | None) -> URL:
    url = URL(server + path, encoded=True)
    return url if query is None else url.with_query(query)


async def _whole(answer: aiohttp.ClientResponse) -> bytes:
    length = answer.content_length
    if length is not None and length <= _LONGEST_BODY_BYTES:
        return await answer.read()
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > _LONGEST_BODY_BYTES:
            raise _AnswerTooLong(f"the answer has more than {_LONGEST_BODY_BYTES} bytes")
    return b"".join(parts)


async def _lines(answer: aiohttp.ClientResponse, where: str) -> AsyncIterator[bytes]:
    parts: list[bytes] = []  # of the line that has not ended yet
    size = 0
    try:
        async for chunk in answer.content.iter_any():
            first, *others = chunk.split(b"\n")
            parts.append(first)
            size += len(first)
            if size > _LONGEST_LINE_BYTES:
                raise _AnswerTooLong(f"a line has more than {_LONGEST_LINE_BYTES} bytes")
            if others:
                yield b"".join(parts)
                for line in others[:-1]:
                    yield line
                parts, size = [others[-1]], len(others[-1])
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise KubeUnreachable(where, error) from error
    if size:
        yield b"".join(parts)
