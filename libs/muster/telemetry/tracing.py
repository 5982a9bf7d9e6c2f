"""Traces: OpenTelemetry spans, sent by OTLP when OTEL_EXPORTER_OTLP_ENDPOINT says where to, otherwise costing nothing.

Between processes and in etcd a span is named by its W3C traceparent, a string; "" stands for none. A span may be given
its name before it is recorded (`new_traceparent`), so that children, also those of a later process, can hang below one
whose end is not known yet. All times are nanoseconds since 1970 UTC.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from muster.telemetry.otlp import BadTracing, OtlpSettings, read_otlp

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from muster.telemetry.span_export import SpanCounts

Attribute = str | bool | int | float

_SCOPE: Final = "muster"
_TRACEPARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_CONTEXT: Final = Context()


class GivenIds:
    """Makes ids, or hands out those that the running thread was given for its next span."""

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @property
    def given(self) -> SpanContext | None:
        """Name of the next span of this thread."""
        return getattr(self._of_thread, "given", None)

    def give(self, context: SpanContext | None) -> None:
        """Name the next span of this thread so; None: it gets ids of its own."""
        self._of_thread.given = context

    def generate_trace_id(self) -> int:
        given = self.given
        return given.trace_id if given else int.from_bytes(os.urandom(16)) or 1

    def generate_span_id(self) -> int:
        given = self.given
        return given.span_id if given else int.from_bytes(os.urandom(8)) or 1

    def is_trace_id_random(self) -> bool:
        return True


class _Tracing:
    """What is on, if anything is."""

    provider: "TracerProvider | None" = None
    tracer: Tracer = trace.NoOpTracer()
    counts: "SpanCounts | None" = None
    ids: GivenIds = GivenIds()


def configure_tracing(service: str, instance: str) -> Callable[[], None]:
    """Turn tracing on if the environment names an OTLP endpoint. Returns what flushes and turns it off.

    `service` is e.g. "coordinator", `instance` tells replicas apart. Call the result at the end of the process. Raises
    BadTracing.
    """
    settings = read_otlp(os.environ)
    if settings is None:
        return lambda: None
    try:
        return _begin(settings, service, instance)
    except (ValueError, OSError) as error:  # of the SDK: limits of spans, files that are no certificates
        raise BadTracing(f"traces cannot be sent as the environment says: {error}") from error


def _begin(settings: OtlpSettings, service: str, instance: str) -> Callable[[], None]:
    # Imported here because it takes a quarter of a second that a process without tracing need not spend.
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from muster.telemetry.sampling import AsDecided, sampler_of
    from muster.telemetry.span_export import SpanQueue, exporter_to

    described = {
        "service.name": f"muster-{service}",
        "service.namespace": "muster",
        "service.version": version("muster"),
        "service.instance.id": instance,
    }
    provider = TracerProvider(
        sampler=AsDecided(_Tracing.ids, sampler_of(settings.sampler, settings.ratio)),
        resource=Resource.create({**described, **dict(settings.resource)}),
        id_generator=_Tracing.ids,  # type: ignore[arg-type]  # has all of IdGenerator's methods; its class is slow to import
        shutdown_on_exit=False,
    )
    queue = SpanQueue(exporter_to(settings.target), settings)
    provider.add_span_processor(queue)
    _Tracing.provider, _Tracing.counts = provider, queue.counts
    _Tracing.tracer = provider.get_tracer(_SCOPE, version("muster"))

    def shutdown() -> None:
        if _Tracing.provider is provider:
            _Tracing.provider, _Tracing.tracer = None, trace.NoOpTracer()
        provider.shutdown()

    return shutdown


def enabled() -> bool:
    """Spans go somewhere."""
    return _Tracing.provider is not None


def span_counts() -> "SpanCounts | None":
    """What became of the spans of this process; None if tracing was never on."""
    return _Tracing.counts


def tracer() -> Tracer:
    """What makes spans of the running code: `start_as_current_span(...)`. Ask for it at each use."""
    return _Tracing.tracer


# -- names of spans


def to_traceparent(context: SpanContext) -> str:
    """Name of a span; "" if it is not a valid one."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 0xFF:02x}"


@lru_cache(1024)  # many spans hang below the same few
def from_traceparent(traceparent: str) -> SpanContext | None:
    """The span of that name, as one of another process; None if the text names none."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or match[1] == "ff" or (match[1] == "00" and match[5]):
        return None
    context = SpanContext(
        int(match[2], 16), int(match[3], 16), is_remote=True, trace_flags=TraceFlags(int(match[4], 16))
    )
    return context if context.is_valid else None


def below(traceparent: str) -> Context:
    """Context for `start_as_current_span(context=...)`: a child of that span, or a root if it names none."""
    parent = from_traceparent(traceparent)
    return _NO_CONTEXT if parent is None else trace.set_span_in_context(NonRecordingSpan(parent), _NO_CONTEXT)


def is_kept(traceparent: str) -> bool:
    """The trace of that span is sent: it can be looked up."""
    context = from_traceparent(traceparent)
    return context is not None and context.trace_flags.sampled


def current_traceparent() -> str:
    """Name of the span that the running code is in; "" outside of any."""
    return to_traceparent(trace.get_current_span().get_span_context())


def new_traceparent(parent: str = "") -> str:
    """A name for a span to be recorded later, below `parent` or as the root of a new trace; "" while tracing is off."""
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
    """Links to those spans, without those that name none."""
    return [Link(context) for each in traceparents if (context := from_traceparent(each)) is not None]


@contextmanager
def joint_span(
    name: str, traceparents: Sequence[str], attributes: Mapping[str, Attribute] | None = None
) -> Iterator[str]:
    """A span for what is done for several traces at once: a child in the first, with links to the others. Gives its
    name, to which those may link in turn; "" if none is kept.
    """
    kept = [each for each in traceparents if is_kept(each)] if enabled() else []
    if not kept:
        token = attach(below(next(iter(traceparents), "")))
        try:
            yield ""
        finally:
            detach(token)
        return
    with tracer().start_as_current_span(
        name, below(kept[0]), attributes=attributes, links=links_to(kept[1:]), record_exception=False
    ):
        yield current_traceparent()


# -- spans whose times are known


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
    """Record a span that has ended. Returns its name; "" while tracing is off.

    `parent` names the span above it; `traceparent` is its own name if it was given one; `links` name spans that have to
    do with it; `error` says why it failed, and `error_type` in one word of few.
    """
    if _Tracing.provider is None:
        return ""
    own = from_traceparent(traceparent)
    _Tracing.ids.give(own)
    try:
        span = _Tracing.tracer.start_span(
            name, below(parent), kind, attributes, links_to(links), start_unix_nanos, record_exception=False
        )
    finally:
        _Tracing.ids.give(None)
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
        if error_type:
            span.set_attribute("error.type", error_type)
    span.end(end_unix_nanos)
    return traceparent if own else to_traceparent(span.get_span_context())
