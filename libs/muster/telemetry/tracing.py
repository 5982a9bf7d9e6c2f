"""Traces: OpenTelemetry spans, exported by OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set; otherwise they cost nothing.

Between processes and in etcd a span is identified by its W3C traceparent, a string; "" is no span. A traceparent can be
assigned before its span is recorded (`new_traceparent`), so that children, also of a later process, can refer to a
parent that has not ended. All times are nanoseconds since 1970 UTC.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from muster.gangs.byte_cache import cached_by_number
from muster.telemetry.otlp import BadTracing, OtlpSettings, read_otlp

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from muster.telemetry.span_export import SpanCounts

Attribute = str | bool | int | float

_SCOPE: Final = "muster"
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_CONTEXT: Final = Context()


class PreassignedIds:
    """Generates ids, or returns those assigned to the next span of the current thread."""

    def __init__(self) -> None:
        self._thread_local = threading.local()

    @property
    def assigned(self) -> SpanContext | None:
        """Context assigned to the next span of this thread."""
        return getattr(self._thread_local, "assigned", None)

    def assign(self, context: SpanContext | None) -> None:
        """Assign a context to the next span of this thread; None: it gets new ids."""
        self._thread_local.assigned = context

    def generate_trace_id(self) -> int:
        assigned = self.assigned
        return assigned.trace_id if assigned else int.from_bytes(os.urandom(16)) or 1

    def generate_span_id(self) -> int:
        assigned = self.assigned
        return assigned.span_id if assigned else int.from_bytes(os.urandom(8)) or 1

    def is_trace_id_random(self) -> bool:
        return True


class _Tracing:
    """State of tracing in this process."""

    provider: "TracerProvider | None" = None
    tracer: Tracer = trace.NoOpTracer()
    counts: "SpanCounts | None" = None
    ids: PreassignedIds = PreassignedIds()


def configure_tracing(service: str, instance: str) -> Callable[[], None]:
    """Enable tracing if the environment has an OTLP endpoint. Returns the function that flushes and disables it.

    `service` is e.g. "coordinator", `instance` identifies the replica. Call the result at the end of the process.
    Raises BadTracing.
    """
    settings = read_otlp(os.environ)
    if settings is None:
        return lambda: None
    try:
        return _begin(settings, service, instance)
    except (ValueError, OSError) as error:  # of the SDK: span limits, invalid certificates
        raise BadTracing(f"invalid tracing settings in the environment: {error}") from error


def _begin(settings: OtlpSettings, service: str, instance: str) -> Callable[[], None]:
    # Imported here: it takes a quarter of a second, which processes without tracing save.
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from muster.telemetry.sampling import PreassignedSampler, sampler_by_name
    from muster.telemetry.span_export import SpanQueue, create_exporter

    attributes = {
        "service.name": f"muster-{service}",
        "service.namespace": "muster",
        "service.version": version("muster"),
        "service.instance.id": instance,
    }
    provider = TracerProvider(
        sampler=PreassignedSampler(_Tracing.ids, sampler_by_name(settings.sampler, settings.ratio)),
        resource=Resource.create({**attributes, **dict(settings.resource)}),
        id_generator=_Tracing.ids,  # type: ignore[arg-type]  # has all of IdGenerator's methods; its class is slow to import
        shutdown_on_exit=False,
    )
    queue = SpanQueue(create_exporter(settings.target), settings)
    provider.add_span_processor(queue)
    _Tracing.provider, _Tracing.counts = provider, queue.counts
    _Tracing.tracer = provider.get_tracer(_SCOPE, version("muster"))

    def shutdown() -> None:
        if _Tracing.provider is provider:
            _Tracing.provider, _Tracing.tracer = None, trace.NoOpTracer()
        provider.shutdown()

    return shutdown


def enabled() -> bool:
    """Whether spans are recorded."""
    return _Tracing.provider is not None


def span_counts() -> "SpanCounts | None":
    """Spans of this process by outcome; None if tracing was never enabled."""
    return _Tracing.counts


def tracer() -> Tracer:
    """The tracer, for `start_as_current_span(...)`. Call this at each use: it changes when tracing is enabled."""
    return _Tracing.tracer


# -- traceparents


def to_traceparent(context: SpanContext) -> str:
    """The traceparent of a span; "" if the context is not valid."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


@cached_by_number(1024)  # many spans share a few parents
def from_traceparent(traceparent: str) -> SpanContext | None:
    """The remote span context of a traceparent; None if it is malformed."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    context = SpanContext(
        int(match[2], 16), int(match[3], 16), is_remote=True, trace_flags=TraceFlags(int(match[4], 16))
    )
    return context if context.is_valid else None


def child_context(traceparent: str) -> Context:
    """Context for `start_as_current_span(context=...)` of a child of that span; a root span if it is malformed."""
    parent = from_traceparent(traceparent)
    return _NO_CONTEXT if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), _NO_CONTEXT)


def is_sampled(traceparent: str) -> bool:
    """Whether the trace of that span is sampled."""
    context = from_traceparent(traceparent)
    return context is not None and context.trace_flags.sampled


def current_traceparent() -> str:
    """Traceparent of the current span; "" outside of any."""
    return to_traceparent(trace.get_current_span().get_span_context())


def new_traceparent(parent: str = "") -> str:
    """Traceparent for a span to be recorded later, a child of `parent` or a new root; "" while tracing is off."""
    if _Tracing.provider is None:
        return ""
    above = from_traceparent(parent)
    if above is not None:
        flags = above.trace_flags
    else:
        above = SpanContext(_Tracing.ids.generate_trace_id(), 1, is_remote=False)
        decision = _Tracing.provider.sampler.should_sample(None, above.trace_id, "").decision
        sampled = decision is decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return to_traceparent(SpanContext(above.trace_id, _Tracing.ids.generate_span_id(), False, flags))


def links_to(traceparents: Iterable[str]) -> list[Link]:
    """Links to those spans; malformed traceparents are skipped."""
    return [Link(context) for each in traceparents if (context := from_traceparent(each)) is not None]


@contextmanager
def linked_span(
    name: str, traceparents: Sequence[str], attributes: Mapping[str, Attribute] | None = None
) -> Iterator[str]:
    """A span for work on behalf of several traces: a child in the first sampled one, with links to the others. Yields
    its traceparent; "" if none is sampled.
    """
    kept = [each for each in traceparents if is_sampled(each)] if enabled() else []
    if not kept:
        token = attach(child_context(next(iter(traceparents), "")))
        try:
            yield ""
        finally:
            detach(token)
        return
    with tracer().start_as_current_span(
        name, child_context(kept[0]), attributes=attributes, links=links_to(kept[1:]), record_exception=False
    ):
        yield current_traceparent()


# -- spans with given times


def record_span(
    name: str,
    start_unix_nanos: int,
    end_unix_nanos: int,
    *,
    parent: str = "",
    traceparent: str = "",
    attributes: Mapping[str, Attribute] | None = None,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Iterable[str] = (),
    error: str = "",
    error_type: str = "",
) -> str:
    """Record an ended span. Returns its traceparent; "" while tracing is off.

    `parent` and `links` are traceparents of other spans; `traceparent` is its own if preassigned; `error` is the reason
    of its failure, and `error_type` a word of low cardinality.
    """
    if _Tracing.provider is None:
        return ""
    own = from_traceparent(traceparent)
    _Tracing.ids.assign(own)
    try:
        span = _Tracing.tracer.start_span(
            name, child_context(parent), kind, attributes, links_to(links), start_unix_nanos, record_exception=False
        )
    finally:
        _Tracing.ids.assign(None)
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
        if error_type:
            span.set_attribute("error.type", error_type)
    span.end(end_unix_nanos)
    return traceparent if own else to_traceparent(span.get_span_context())
