"""HTTP server for Prometheus: GET /metrics, nothing else, in bounded memory.

It runs on the service's event loop, so that all samples of a scrape are of one moment. It has no TLS: NetworkPolicies
restrict access, and no metric is secret.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter, process_time
from typing import Final

import structlog
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from muster.config.settings import CannotStart
from muster.telemetry.memory import used_bytes
from muster.telemetry.metrics import CALL_BUCKETS, REGISTRY, expose_build, histogram, sampled
from muster.telemetry.tracing import span_counts

PATH: Final = "/metrics"

_HEAD_BYTES: Final = 16 * 1024
_EXCHANGE_SECONDS: Final = 10.0
"""Prometheus' default scrape timeout."""
_CONNECTIONS: Final = 16
"""Scrapers are few; idle connections must not exhaust the service's file descriptors."""
_LAG_INTERVAL_SECONDS: Final = 0.05
"""A step that holds the loop for the 100 ms that I12 allows is seen with at least half of its duration."""
_LONGEST_PERIOD_SECONDS: Final = 60.0
_PLAIN: Final = "text/plain; charset=utf-8"

SPANS: Final = sampled(
    "muster_spans_total",
    "Spans of traces by outcome: sent, dropped (the queue was full) or failed (the collector did not accept them).",
    ("outcome",),
    monotonic=True,
)
EVENT_LOOP_LAG: Final = histogram(
    "muster_event_loop_lag_seconds",
    "Delay of a timer beyond its time, measured 20 times a second: how busy the event loop is.",
    CALL_BUCKETS,
)
MAX_EVENT_LOOP_LAG: Final = sampled(
    "muster_event_loop_lag_max_seconds",
    "Longest of these delays in the last one to two minutes: the longest hold of the event loop, less up to 50 ms.",
)
MAX_EVENT_LOOP_HOLD: Final = sampled(
    "muster_event_loop_hold_max_seconds",
    "The same, but of each delay only the processor time that the service used meanwhile; the rest of the delay is "
    "waiting for a processor.",
)
USED_MEMORY: Final = sampled(
    "muster_memory_used_bytes",
    "Memory in use. If resident memory grows and this does not, free memory between objects does. Exact with the "
    "image's allocator, jemalloc; with Python's own an estimate by the number of its blocks.",
)
USED_MEMORY.read_from(lambda: {(): used_bytes()})

_log = structlog.get_logger(__name__)


class CannotServeMetrics(CannotStart):
    """The address for metrics is in use, or not an address of this machine."""


@asynccontextmanager
async def serving_metrics(listen: str, service: str) -> AsyncIterator[int]:
    """Serve on "HOST:PORT", port 0 for any free one, while the block runs. Raises CannotServeMetrics."""
    expose_build(service)
    host, _, port = listen.rpartition(":")
    exchanges = _Exchanges()
    try:
        server = await asyncio.start_server(exchanges.answer, host.strip("[]"), int(port), limit=_HEAD_BYTES)
    except OSError as error:
        raise CannotServeMetrics(f"metrics cannot be served on {listen!r}: {error}; choose another address") from error
    taken: int = server.sockets[0].getsockname()[1]
    _log.info("metrics_server_started", listen=listen, port=taken)
    measuring = asyncio.create_task(_measure_lag())
    try:
        yield taken
    finally:
        measuring.cancel()
        server.close()
        exchanges.end()


async def _measure_lag() -> None:
    """Measure by how much the event loop delays a timer."""
    longest_lag, longest_hold = _Longest(perf_counter()), _Longest(perf_counter())
    MAX_EVENT_LOOP_LAG.read_from(lambda: {(): longest_lag.value})
    MAX_EVENT_LOOP_HOLD.read_from(lambda: {(): longest_hold.value})
    while True:
        started, used_before = perf_counter(), process_time()
        await asyncio.sleep(_LAG_INTERVAL_SECONDS)
        ended = perf_counter()
        lag = max(0.0, ended - started - _LAG_INTERVAL_SECONDS)
        EVENT_LOOP_LAG.observe(lag)
        longest_lag.add(lag, ended)
        longest_hold.add(min(lag, process_time() - used_before), ended)


class _Longest:
    """The longest delay of this period and the one before."""

    def __init__(self, now: float) -> None:
        self._began = now
        self._current = self._previous = 0.0

    @property
    def value(self) -> float:
        return max(self._current, self._previous)

    def add(self, lag: float, now: float) -> None:
        if now - self._began >= _LONGEST_PERIOD_SECONDS:
            self._began, self._previous, self._current = now, self._current, 0.0
        self._current = max(self._current, lag)


def _spans() -> dict[tuple[str, ...], float]:
    counts = span_counts()
    if counts is None:
        return {}
    return {("sent",): counts.sent, ("dropped",): counts.dropped, ("failed",): counts.failed}


SPANS.read_from(_spans)


class _Exchanges:
    """Answers one request per connection, on a limited number of connections."""

    def __init__(self) -> None:
        self._open: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            async with asyncio.timeout(_EXCHANGE_SECONDS):
                if len(self._open) > _CONNECTIONS:
                    writer.write(_refusal("503 Service Unavailable", f"{_CONNECTIONS} requests are running: try again"))
                else:
                    writer.write(await _answered(reader))
                await writer.drain()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            pass  # the scraper is slow or has disconnected
        finally:
            self._open.discard(writer)
            writer.close()

    def end(self) -> None:
        """Close all connections."""
        for writer in self._open:
            writer.transport.abort()


async def _answered(reader: asyncio.StreamReader) -> bytes:
    """Read a request, and return its response."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return _refusal("431 Request Header Fields Too Large", f"request heads are limited to {_HEAD_BYTES} bytes")
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return _refusal("400 Bad Request", "not an HTTP/1.1 request")
    method, target, _ = words
    if target.partition("?")[0] != PATH:
        return _refusal("404 Not Found", f"only {PATH} is served here")
    if method not in ("GET", "HEAD"):
        return _refusal("405 Method Not Allowed", f"use GET {PATH}")
    try:
        encode, content_type = _encoder(_accepted(lines))
        body = encode(REGISTRY)
    except Exception as error:  # a broken metric must neither be exposed nor break more than this response
        _log.error("metrics_collection_failed", exc_info=error)
        return _refusal("500 Internal Server Error", f"a metric cannot be read: {type(error).__name__}; see the log")
    head_only = method == "HEAD"
    return _response("200 OK", content_type, body, head_only=head_only)


def _accepted(lines: list[str]) -> str:
    """The value of the Accept header; only one of the two formats has exemplars."""
    for line in lines:
        name, _, value = line.partition(":")
        if name.lower() == "accept" and value.strip().isprintable():  # parts of it are echoed in Content-Type
            return value.strip()
    return ""


def _encoder(accepted: str) -> tuple[Callable[[Collector], bytes], str]:
    try:
        return choose_encoder(accepted)
    except TypeError:  # a version that is not a number
        return choose_encoder("")


def _refusal(status: str, text: str) -> bytes:
    return _response(status, _PLAIN, f"{text}\n".encode())


def _response(status: str, content_type: str, body: bytes, *, head_only: bool = False) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    if status.startswith("405"):
        head += "Allow: GET, HEAD\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + (b"" if head_only else body)
