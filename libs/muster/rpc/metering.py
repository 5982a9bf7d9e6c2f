"""Metrics of calls, on both sides, named as OpenTelemetry's conventions are named in Prometheus."""

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final

import grpc
from grpc import aio

from muster.rpc.errors import outcome_of
from muster.rpc.methods import is_plumbing, is_subscription
from muster.telemetry.metrics import CALL_BUCKETS, gauge, histogram

_LABELS: Final = ("rpc_service", "rpc_method", "rpc_grpc_status_code")

SERVED: Final = histogram(
    "rpc_server_duration_seconds",
    "How long calls took that this process answered, by gRPC's number of the status; streams that only end with one "
    "side (Watch) are not among them.",
    CALL_BUCKETS,
    _LABELS,
)
MADE: Final = histogram(
    "rpc_client_duration_seconds",
    "How long calls took that this process made, to the end of the answer, by gRPC's number of the status; streams "
    "that only end with one side (Watch) are not among them.",
    CALL_BUCKETS,
    _LABELS,
)
SUBSCRIBERS: Final = gauge(
    "muster_subscribers", "Streams of news (Watch) that are open here now.", ("rpc_service", "rpc_method")
)

_Behavior = Callable[[Any, Any], Coroutine[Any, Any, Any]]


def counted(method: str, behavior: _Behavior, traceparent: str) -> _Behavior:
    """The same answers, timed. Methods are those that are served, so there are few."""
    labels = _names(method)

    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        began, code = perf_counter(), grpc.StatusCode.UNKNOWN.value[0]
        try:
            answer = await behavior(request, context)
            code = 0
        except aio.AbortError:
            code = _number(context.code())
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED.value[0]
            raise
        finally:
            SERVED.labels(*labels, str(code)).observe(perf_counter() - began, traceparent)
        return answer

    return call


def counted_subscription(method: str, behavior: _Behavior) -> _Behavior:
    """The same stream, counted while it is open."""
    gauge = SUBSCRIBERS.labels(*_names(method))

    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        gauge.inc()
        try:
            return await behavior(request, context)
        finally:
            gauge.dec()

    return call


def count_call(call: Any, details: aio.ClientCallDetails) -> None:
    """Time a call that was just begun, until it has ended."""
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    if is_plumbing(method) or is_subscription(method):
        return
    traceparent = next((str(value) for key, value in details.metadata or () if key == "traceparent"), "")
    began = perf_counter()

    def ended(call: Any) -> None:
        number = str(outcome_of(call)[0].value[0])
        MADE.labels(*_names(method), number).observe(perf_counter() - began, traceparent)

    call.add_done_callback(ended)


def _number(code: Any) -> int:
    return int(code.value[0]) if isinstance(code, grpc.StatusCode) else int(code)


def _names(method: str) -> tuple[str, str]:
    service, _, name = method.removeprefix("/").rpartition("/")
    return service, name
