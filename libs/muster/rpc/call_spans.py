"""Spans of calls, on both sides, named and described by OpenTelemetry's conventions for RPC.

A caller's span shows what the server's cannot: the way there and back, and calls that no server answered. Streams of
answers may go on while their caller dies, and its span would be missing between the server's and what is above: they
have one only if they failed, beside the server's.
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
_SERVERS_FAULT: Final = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Statuses that make an error of a server's span; others tell of the caller's request. For the caller each is one."""


def is_infrastructure(method: str) -> bool:
    """A method of gRPC's health or reflection service: neither traced, measured nor logged."""
    return method.startswith(_INFRASTRUCTURE)


def is_subscription(method: str) -> bool:
    """A stream that lasts until one side closes it; our contracts call them Watch, as gRPC's health service does."""
    return method.endswith("/Watch")


def serving(method: str, traceparent: str) -> AbstractContextManager[Span | None]:
    """The span of a call that is answered here, for `with`; None while tracing is off."""
    if not tracing.enabled():
        return nullcontext()
    return tracing.tracer().start_as_current_span(
        method.removeprefix("/"),
        context=tracing.child_context(traceparent),
        kind=SpanKind.SERVER,
        attributes=_described(method),
        record_exception=False,
        set_status_on_exception=False,
    )


def refused(span: Span, code: grpc.StatusCode, message: str) -> None:
    """The call that the span is of was answered with this status."""
    span.set_attribute("rpc.response.status_code", code.name)
    if code in _SERVERS_FAULT:
        _failed(span, code, message)


def calling(method: str, address: str) -> Span | None:
    """A span for a call to `address`, which belongs to a trace that is kept; None if it does not. `ends` ends it."""
    if not _is_told(method):
        return None
    return tracing.tracer().start_span(
        method.removeprefix("/"), kind=SpanKind.CLIENT, attributes=_described(method) | _server(address)
    )


def streaming(method: str, address: str) -> Callable[[Any], None] | None:
    """For `add_done_callback` of a call to `address` that is answered by a stream; None if its trace is not kept."""
    if not _is_told(method):
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
                attributes=_described(method) | _server(address) | {"rpc.response.status_code": code.name},
                error=message or code.name,
                error_type=code.name,
            )

    return end


def of_gang(root: str) -> tuple[tuple[str, str], ...] | None:
    """Metadata of a call for one gang: the span that the whole of it hangs below. `gangs_span` reads it."""
    return ((_GANG, root),) if root else None


def gangs_span(metadata: Iterable[tuple[str, Any]] | None) -> str:
    """Traceparent of the gang's own span; "" if the caller does not say."""
    return next((value for key, value in metadata or () if key == _GANG and isinstance(value, str)), "")


def ends(span: Span | None) -> Callable[[Any], None] | None:
    """For `add_done_callback` of a call; None if there is nothing to end."""
    if span is None:
        return None

    def end(call: Any) -> None:
        code, message = outcome_of(call)
        span.set_attribute("rpc.response.status_code", code.name)
        if code is not grpc.StatusCode.OK:
            _failed(span, code, message)
        span.end()

    return end


def _failed(span: Span, code: grpc.StatusCode, message: str) -> None:
    span.set_attribute("error.type", code.name)
    span.set_status(Status(StatusCode.ERROR, message))


def _is_told(method: str) -> bool:
    """A call that is made now is of a trace that is kept."""
    if not tracing.enabled() or is_infrastructure(method) or is_subscription(method):
        return False
    return trace.get_current_span().get_span_context().trace_flags.sampled


def _server(address: str) -> dict[str, tracing.Attribute]:
    host, _, port = address.rpartition("/")[2].rpartition(":")
    return {"server.address": host, "server.port": int(port)} if port.isdecimal() else {"server.address": host}


def _described(method: str) -> dict[str, tracing.Attribute]:
    return {"rpc.system.name": "grpc", "rpc.method": method.removeprefix("/")}
