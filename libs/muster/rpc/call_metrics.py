"""Client and server metrics of calls, by OpenTelemetry's semantic conventions for RPC."""

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any, Final

import grpc
from grpc import aio

from muster.rpc.call_spans import is_infrastructure, is_subscription
from muster.rpc.errors import outcome_of
from muster.telemetry.metrics import CALL_BUCKETS, histogram, sampled

_LABELS: Final = ("rpc_system_name", "rpc_method", "rpc_response_status_code")
_SYSTEM: Final = "grpc"

SERVED: Final = histogram(
    "rpc_server_call_duration_seconds",
    "Duration of calls that this process served, without subscriptions (Watch).",
    CALL_BUCKETS,
    _LABELS,
)
MADE: Final = histogram(
    "rpc_client_call_duration_seconds",
    "Duration of calls that this process made, up to the end of the response, without subscriptions (Watch).",
    CALL_BUCKETS,
    _LABELS,
)
SUBSCRIBERS: Final = sampled("muster_subscribers", "Open subscriptions (Watch streams).", ("rpc_method",))

_NAMES: Final = {code.value[0]: code.name for code in grpc.StatusCode}
_open: Final[dict[tuple[str, ...], float]] = {}
"""Subscriptions by method."""
SUBSCRIBERS.read_from(lambda: _open)

_Behavior = Callable[[Any, Any], Coroutine[Any, Any, Any]]


def counted(method: str, behavior: _Behavior, traceparent: str) -> _Behavior:
    """The behavior with its duration observed. Labels stay few, because only served methods get here."""
    name = method.removeprefix("/")

    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        began, status = perf_counter(), grpc.StatusCode.UNKNOWN.name
        try:
            answer = await behavior(request, context)
            status = grpc.StatusCode.OK.name
        except aio.AbortError:
            status = _name(context.code())
            raise
        except asyncio.CancelledError:
            status = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            SERVED.labels(_SYSTEM, name, status).observe(perf_counter() - began, traceparent)
        return answer

    return call


def counted_subscription(method: str, behavior: _Behavior) -> _Behavior:
    """The behavior, counted while the stream is open."""
    labels = (method.removeprefix("/"),)
    _open.setdefault(labels, 0)

    async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        _open[labels] += 1
        try:
            return await behavior(request, context)
        finally:
            _open[labels] -= 1

    return call


def count_call(call: Any, details: aio.ClientCallDetails) -> None:
    """Observe the duration of a call that has just started."""
    method = details.method.decode() if isinstance(details.method, bytes) else details.method
    if is_infrastructure(method) or is_subscription(method):
        return
    traceparent = next((str(value) for key, value in details.metadata or () if key == "traceparent"), "")
    name, began = method.removeprefix("/"), perf_counter()

    def ended(call: Any) -> None:
        MADE.labels(_SYSTEM, name, outcome_of(call)[0].name).observe(perf_counter() - began, traceparent)

    call.add_done_callback(ended)


def _name(code: Any) -> str:
    """GRPC gives a server its own status as a number or as a StatusCode."""
    return code.name if isinstance(code, grpc.StatusCode) else _NAMES.get(code, grpc.StatusCode.UNKNOWN.name)
