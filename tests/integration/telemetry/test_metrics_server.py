"""Metrics over real HTTP: both formats of Prometheus, and responses to invalid requests."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import pytest

from muster.localcluster.ports import free_port
from muster.telemetry import metrics
from muster.telemetry.metrics_server import CannotServeMetrics, serving_metrics

OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

APPLES = metrics.counter("test_apples_total", "Apples that were picked.", ("colour",))
WALKS = metrics.histogram("test_walk_seconds", "How long a walk took.", (0.1, 1.0))
BASKETS = metrics.sampled("test_baskets", "Baskets that stand there.", ("room",))


@dataclass
class Served:
    address: str
    http: aiohttp.ClientSession

    async def get(self, path: str = "/metrics", accept: str = "*/*") -> tuple[int, str, str]:
        async with self.http.get(f"http://{self.address}{path}", headers={"Accept": accept}) as answer:
            return answer.status, answer.headers["Content-Type"], await answer.text()

    async def say(self, request: bytes) -> bytes:
        """The response to raw bytes."""
        host, port = self.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        try:
            return await reader.read()
        finally:
            writer.close()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    address = f"127.0.0.1:{free_port()}"
    async with serving_metrics(address, "orchard"), aiohttp.ClientSession() as http:
        yield Served(address, http)


async def test_counters_are_exposed(served: Served) -> None:
    APPLES.labels("red").add(3)

    status, content_type, text = await served.get()

    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert "# HELP test_apples_total Apples that were picked." in text
    assert "# TYPE test_apples_total counter" in text
    assert 'test_apples_total{colour="red"} 3.0' in text
    assert 'muster_build_info{service="orchard"' in text
    assert "process_resident_memory_bytes" in text
    assert not re.search(r"^\w+_created\b", text, re.MULTILINE)


async def test_sampled_metrics_are_read_at_scrape_time(served: Served) -> None:
    baskets: dict[tuple[str, ...], float] = {("cellar",): 2.0}
    BASKETS.read_from(lambda: baskets)
    baskets[("attic",)] = 7.0

    _, _, text = await served.get()

    assert 'test_baskets{room="cellar"} 2.0' in text
    assert 'test_baskets{room="attic"} 7.0' in text


async def test_exemplar_has_the_trace_id(served: Served) -> None:
    WALKS.observe(0.5, f"00-{TRACE_ID}-00f067aa0ba902b7-01")
    WALKS.observe(0.05, f"00-{TRACE_ID}-00f067aa0ba902b7-00")

    _, content_type, text = await served.get(accept=OPEN_METRICS)

    assert content_type.startswith("application/openmetrics-text; version=1.0.0")
    lines = [line for line in text.splitlines() if line.startswith("test_walk_seconds_bucket")]
    assert f'# {{trace_id="{TRACE_ID}"}} 0.5' in lines[1], "the trace of the slow one is kept"
    assert "trace_id" not in lines[0], "that of the quick one is not, so there is nothing to look at"
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"hello\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
    ],
    ids=["path", "method", "no HTTP", "TLS", "too long"],
)
async def test_invalid_request_is_rejected_with_a_reason(served: Served, request_bytes: bytes, status: bytes) -> None:
    answer = await served.say(request_bytes)

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert len(answer.partition(b"\r\n\r\n")[2]) > 10


async def test_accept_header_cannot_inject_a_header(served: Served) -> None:
    accept = b"application/openmetrics-text; version=1.0.0\nX-Evil: 1"

    answer = await served.say(b"GET /metrics HTTP/1.1\r\nAccept: " + accept + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"Evil" not in answer


async def test_malformed_version_gets_the_text_format(served: Served) -> None:
    status, content_type, _ = await served.get(accept="application/openmetrics-text;version=new")

    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")


async def test_head_request_has_no_body(served: Served) -> None:
    answer = await served.say(b"HEAD /metrics HTTP/1.1\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body == b""


async def test_idle_connections_only_block_other_scrapes(served: Served) -> None:
    host, port = served.address.split(":")
    idle = [await asyncio.open_connection(host, int(port)) for _ in range(16)]
    for _, writer in idle:
        writer.write(b"GET /metr")
        await writer.drain()
    status, _, text = await served.get()
    assert (status, text) == (503, "16 requests are running: try again\n")

    for reader, writer in idle:
        writer.write(b"ics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    status, _, _ = await served.get()
    assert status == 200


async def test_unreadable_metric_is_an_error_response(served: Served) -> None:
    BASKETS.read_from(lambda: {("cellar",): 1 / len("")})
    try:
        status, _, text = await served.get()
    finally:
        BASKETS.read_from(None)

    assert status == 500
    assert "ZeroDivisionError" in text
    assert (await served.get())[0] == 200


async def test_address_in_use_is_reported(served: Served) -> None:
    with pytest.raises(CannotServeMetrics, match=served.address):
        async with serving_metrics(served.address, "another"):
            pass


async def test_slow_scraper_does_not_delay_shutdown() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with serving_metrics(address, "orchard"):
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(b"GET /metr")
        await writer.drain()
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}/metrics") as answer:
            assert answer.status == 200

    with suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
