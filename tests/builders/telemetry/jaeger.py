"""A real Jaeger, as `make tools` builds it: receives spans by OTLP, and returns traces by the API of its UI."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from builders.wait import eventually
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import http_ready, wait_until_ready

PROGRAM = Path(sys.prefix) / "tools" / "jaeger"
_START_SECONDS = 60.0
_AGAIN_SECONDS = 0.1
_UNUSED = (
    "--admin.http.host-port",
    "--collector.grpc-server.host-port",
    "--collector.http-server.host-port",
    "--http-server.host-port",
    "--processor.jaeger-binary.server-host-port",
    "--processor.jaeger-compact.server-host-port",
    "--processor.zipkin-compact.server-host-port",
    "--query.grpc-server.host-port",
)


class JaegerSpan(msgspec.Struct, frozen=True):
    """A span as Jaeger returns it; times are in microseconds."""

    span_id: str
    name: str
    parent: str
    """Id of the parent span; "" for a root."""
    links: tuple[str, ...]
    """TRACE-SPAN of linked spans."""
    service: str
    resource: dict[str, Any]
    tags: dict[str, Any]
    events: tuple[dict[str, Any], ...]
    start: int
    duration: int
    warnings: tuple[str, ...]


class Jaeger:
    """A running Jaeger with in-memory storage."""

    def __init__(self, directory: Path) -> None:
        self.grpc, self.http, self.query = (f"127.0.0.1:{free_port()}" for _ in range(3))
        argv = [str(PROGRAM), "--memory.max-traces", "1000", "--log-level", "error"]
        argv += ["--collector.otlp.grpc.host-port", self.grpc, "--collector.otlp.http.host-port", self.http]
        argv += ["--query.http-server.host-port", self.query]
        argv += [part for flag in _UNUSED for part in (flag, f"127.0.0.1:{free_port()}")]
        environment = {"SPAN_STORAGE_TYPE": "memory"}
        self.child = Child("jaeger", argv, directory / "jaeger.log", environment=environment)

    async def get(self, path: str, **query: str) -> Any:
        """GET from its API."""
        async with (
            aiohttp.ClientSession(f"http://{self.query}") as session,
            session.get(path, params=query) as response,
        ):
            return msgspec.json.decode(await response.read())

    async def trace(self, trace_id: str) -> list[JaegerSpan]:
        """All spans of a trace that have arrived."""
        return [span for each in (await self.get(f"/api/traces/{trace_id}"))["data"] or () for span in _spans(each)]

    async def trace_when(
        self, trace_id: str, condition: Callable[[list[JaegerSpan]], bool], seconds: float = 30
    ) -> list[JaegerSpan]:
        """Wait until the condition holds for a trace; spans arrive some time after they end."""
        spans: list[JaegerSpan] = []

        async def arrived() -> bool:
            nonlocal spans
            spans = await self.trace(trace_id)
            return condition(spans)

        def found() -> str:
            return f"trace {trace_id} has only {[span.name for span in spans]}"

        await eventually(arrived, found, seconds=seconds, every_seconds=_AGAIN_SECONDS)
        return spans


@asynccontextmanager
async def running_jaeger(directory: Path) -> AsyncIterator[Jaeger]:
    """A Jaeger that is ready."""
    jaeger = Jaeger(directory)
    await jaeger.child.start()
    try:
        async with asyncio.timeout(_START_SECONDS):
            await wait_until_ready(jaeger.child, http_ready(jaeger.query, "/api/services"))
        yield jaeger
    finally:
        await jaeger.child.stop(5)


def _spans(trace: Any) -> list[JaegerSpan]:
    processes = trace["processes"]
    return [
        JaegerSpan(
            span_id=span["spanID"],
            name=span["operationName"],
            parent=next((ref["spanID"] for ref in span["references"] if ref["refType"] == "CHILD_OF"), ""),
            links=tuple(
                f"{ref['traceID']}-{ref['spanID']}" for ref in span["references"] if ref["refType"] != "CHILD_OF"
            ),
            service=processes[span["processID"]]["serviceName"],
            resource=_tags(processes[span["processID"]]["tags"]),
            tags=_tags(span["tags"]),
            events=tuple(_tags(log["fields"]) for log in span["logs"]),
            start=span["startTime"],
            duration=span["duration"],
            warnings=tuple(span["warnings"] or ()),
        )
        for span in trace["spans"]
    ]


def _tags(tags: Any) -> dict[str, Any]:
    return {tag["key"]: tag["value"] for tag in tags}
