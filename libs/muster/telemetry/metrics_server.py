"""Tells metrics by HTTP, as Prometheus asks for them: GET /metrics, nothing else, in bounded memory.

It runs in the loop of the service, so that what is read belongs to one moment. It has no TLS: who may reach it is for
the network to say, and nothing told is secret.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Final

import structlog
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from muster.config.settings import CannotStart
from muster.telemetry.metrics import CALL_BUCKETS, REGISTRY, histogram, sampled, tell_build
from muster.telemetry.tracing import span_counts

PATH: Final = "/metrics"

_HEAD_BYTES: Final = 16 * 1024
_EXCHANGE_SECONDS: Final = 10.0
"""Prometheus gives up after ten seconds, too."""
_CONNECTIONS: Final = 16
"""Few ask for metrics; who holds connections open must not take the service's file descriptors."""
_BEAT_SECONDS: Final = 0.5
_PLAIN: Final = "text/plain; charset=utf-8"

SPANS: Final = sampled(
    "muster_spans_total",
    "Spans of traces by what became of them: sent, dropped (too many waited to be sent) or failed (the collector did "
    "not take them).",
    ("outcome",),
    rises=True,
)
LOOP_DELAY: Final = histogram(
    "muster_loop_delay_seconds",
    "How much later than asked for the event loop came back to a task, twice a second: how busy the process is.",
    CALL_BUCKETS,
)

_log = structlog.get_logger(__name__)


class CannotServeMetrics(CannotStart):
    """The address for metrics is taken, or not one of this machine."""


@asynccontextmanager
async def serving_metrics(listen: str, service: str) -> AsyncIterator[int]:
    """Serve on "HOST:PORT", port 0 for any free one, while the block runs. Raises CannotServeMetrics."""
    tell_build(service)
    host, _, port = listen.rpartition(":")
    exchanges = _Exchanges()
    try:
        server = await asyncio.start_server(exchanges.answer, host.strip("[]"), int(port), limit=_HEAD_BYTES)
    except OSError as error:
        raise CannotServeMetrics(f"metrics cannot be served on {listen!r}: {error}; choose another address") from error
    taken: int = server.sockets[0].getsockname()[1]
    _log.info("metrics are served", listen=listen, port=taken)
    watching = asyncio.create_task(_watch_loop())
    try:
        yield taken
    finally:
        watching.cancel()
        server.close()
        exchanges.end()


async def _watch_loop() -> None:
    """Measure how late the loop is: whatever it does for long, others wait for."""
    while True:
        asked = perf_counter()
        await asyncio.sleep(_BEAT_SECONDS)
        LOOP_DELAY.observe(max(0.0, perf_counter() - asked - _BEAT_SECONDS))


def _spans() -> dict[tuple[str, ...], float]:
    counts = span_counts()
    if counts is None:
        return {}
    return {("sent",): counts.sent, ("dropped",): counts.dropped, ("failed",): counts.failed}


SPANS.read_from(_spans)


class _Exchanges:
    """One request and its answer per connection, and a few connections at a time."""

    def __init__(self) -> None:
        self._open: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                if len(self._open) > _CONNECTIONS:
                    writer.write(_refusal("503 Service Unavailable", f"{_CONNECTIONS} others ask at once: try again"))
                else:
                    writer.write(await _answered(reader))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller is slow or has gone: nothing of ours is wrong
        finally:
            self._open.discard(writer)
            writer.close()

    def end(self) -> None:
        """Cut off whoever is still reading."""
        for writer in self._open:
            writer.transport.abort()


async def _answered(reader: asyncio.StreamReader) -> bytes:
    """The answer to the request that comes in."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _refusal("431 Request Header Fields Too Large", f"a request has at most {_HEAD_BYTES} bytes here")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _refusal("400 Bad Request", "this is no request of HTTP/1.1")
    method, target, _ = words
    if target.partition("?")[0] != PATH:
        return _refusal("404 Not Found", f"metrics are at {PATH}, and nothing else is here")
    if method not in ("GET", "HEAD"):
        return _refusal("405 Method Not Allowed", f"metrics can only be asked for, by GET {PATH}")
    try:
        encode, content_type = _form(_accepted(lines))
        body = encode(REGISTRY)
    except Exception as error:  # one wrong figure must neither pass for the truth nor end anything but this answer
        _log.error("metrics cannot be told", exc_info=error)
        return _refusal("500 Internal Server Error", f"a metric cannot be read: {type(error).__name__}; see the log")
    head_only = method == "HEAD"
    return _response("200 OK", content_type, body, head_only=head_only)


def _accepted(lines: list[str]) -> str:
    """What the caller says that it can read; there are two forms, and only one of them has exemplars."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "accept" and value.strip().isprintable():  # parts of it go back to the caller
            return value.strip()
    return ""


def _form(accepted: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accepted)
    except TypeError:  # a version that is no number
        return choose_encoder("")


def _refusal(status: str, text: str) -> bytes:
    return _response(status, _PLAIN, f"{text}\n".encode())


def _response(status: str, content_type: str, body: bytes, *, head_only: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    if status.startswith("405"):
        head += "Allow: GET, HEAD\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (b"" if head_only else body)
