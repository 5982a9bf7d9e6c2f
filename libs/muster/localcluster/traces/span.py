"""A span as one line of the trace file."""

from typing import Any

import msgspec


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that happened during a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one service did from `start_ns` to `end_ns` (nanoseconds since 1970 UTC)."""

    trace_id: str
    span_id: str
    name: str
    service: str
    start_ns: int
    end_ns: int
    parent_id: str = ""
    instance: str = ""
    error: bool = False
    message: str = ""
    """Description of the status."""
    attributes: dict[str, Any] = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[str, ...] = ()
    """Trace ids that it is linked to."""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


def encode_span(span: Span) -> bytes:
    """One line, with its newline."""
    return _ENCODER.encode(span) + b"\n"


def decode_span(line: bytes) -> Span | None:
    """The span of a line; None for a line that was cut short by a crash."""
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:
        return None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Span)
