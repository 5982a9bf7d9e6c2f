"""Client and server spans of calls, by OpenTelemetry's semantic conventions for RPC.

A client span shows what the server's cannot: network time, and calls that no server answered. A response stream may
outlive its client, and then the client span would be missing between the server span and its ancestors: so streams get
a client span only if they fail, as a sibling of the server's.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from time import time_ns
from typing import Any, Final

import grpc
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from muster.rpc.errors import outcome_of
from muster.telemetry import tracing

_INFRASTRUCTURE: Final = ("/grpc.health.", "/grpc.reflection.")
_GANG: Final = "muster-gang-traceparent"
_SERVER_ERRORS: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Statuses that are errors of a server span; the others blame the request. In a client span each is an error."""


def is_infrastructure(method: str) -> bool:
    """A method of gRPC's health or reflection service: neither traced, measured nor logged."""
    return method.startswith(_INFRASTRUCTURE)


def is_subscription(method: str) -> bool:
    """A stream that lasts until one side closes it; our contracts call them Watch, as gRPC's health service does."""
    return method.endswith("/Watch")


def server_span(method: str, traceparent: str) -> AbstractContextManager[Span | None]:
    """Context manager with the server span of a call; None while tracing is off."""
    if not tracing.enabled():
        return nullcontext()
    return tracing.tracer().start_as_current_span(
        method.removeprefix("/"),
        context=tracing.child_context(traceparent),
        kind=SpanKind.SERVER,
        attributes=_attributes(method),
        record_exception=False,
        set_status_on_exception=False,
    )


def set_rejected(span: Span, code: grpc.StatusCode, message: str) -> None:
    """Set the status of a rejected call on its server span."""
    span.set_attribute("rpc.response.status_code", code.name)
    if code in _SERVER_ERRORS:
        _set_failed(span, code, message)


def client_span(method: str, address: str) -> Span | None:
    """The client span of a call to `address`; None if the trace is not sampled. `end_callback` ends it."""
    if not _is_traced(method):
        return None
    return tracing.tracer().start_span(
        method.removeprefix("/"), kind=SpanKind.CLIENT, attributes=_attributes(method) | _server_attributes(address)
    )


def stream_callback(method: str, address: str) -> Callable[[Any], None] | None:
    """Callback for `add_done_callback` of a streaming call to `address`; None if the trace is not sampled."""
    if not _is_traced(method):
        return None
    began, parent = time_ns(), tracing.current_traceparent()

    def end(call: Any) -> None:
        code, message = outcome_of(call)
        if code is not grpc.StatusCode.OK:
            tracing.record_span(
                method.removeprefix("/"),
                began,
                time_ns(),
                parent=parent,
                kind=SpanKind.CLIENT,
                attributes=_attributes(method) | _server_attributes(address) | {"rpc.response.status_code": code.name},
                error=message or code.name,
                error_type=code.name,
            )

    return end


def gang_metadata(root: str) -> tuple[tuple[str, str], ...] | None:
    """Metadata of a call for one gang: the gang's root span, which `gang_traceparent` reads."""
    return ((_GANG, root),) if root else None


def gang_traceparent(metadata: Iterable[tuple[str, Any]] | None) -> str:
    """Traceparent of the gang's root span; "" if the client sent none."""
    return next((value for key, value in metadata or () if key == _GANG and isinstance(value, str)), "")


def end_callback(span: Span | None) -> Callable[[Any], None] | None:
    """Callback for `add_done_callback` that ends the span of a call; None without a span."""
    if span is None:
        return None

    def end(call: Any) -> None:
        code, message = outcome_of(call)
        span.set_attribute("rpc.response.status_code", code.name)
        if code is not grpc.StatusCode.OK:
            _set_failed(span, code, message)
        span.end()

    return end


def _set_failed(span: Span, code: grpc.StatusCode, message: str) -> None:
    span.set_attribute("error.type", code.name)
    span.set_status(Status(StatusCode.ERROR, message))


def _is_traced(method: str) -> bool:
    """The current trace is sampled, and calls of this method get spans."""
    if not tracing.enabled() or is_infrastructure(method) or is_subscription(method):
        return False
    return trace.get_current_span().get_span_context().trace_flags.sampled


def _server_attributes(address: str) -> dict[str, tracing.Attribute]:
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return {"server.address": host, "server.port": int(port)} if port.isdecimal() else {"server.address": host}


def _attributes(method: str) -> dict[str, tracing.Attribute]:
    return {"rpc.system.name": "grpc", "rpc.method": method.removeprefix("/")}
