"""The trace file of a local cluster: one JSON line a span, read without an index.

Two files share the limit: the current one and, with the suffix `.1`, the previous one. A trace is found by a backward
search for its id in the memory-mapped files, which takes milliseconds for 64 MB. The local cluster writes the file;
`muster trace` reads it.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec


class SpanEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Event within a span."""

    name: str
    at_ns: int
    attributes: dict[str, Any] = {}


class Span(msgspec.Struct, frozen=True, omit_defaults=True):
    """One span; times are nanoseconds since 1970 UTC."""

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
    """Trace ids of linked spans."""

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Span)


def encode_span(span: Span) -> bytes:
    """One line, with its newline."""
    return _ENCODER.encode(span) + b"\n"


def decode_span(line: bytes) -> Span | None:
    """The span of a line; None for a line that a crash truncated."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def previous_file(path: Path) -> Path:
    """The older of the two files that share the limit."""
    return path.with_name(path.name + ".1")


def spans_of_trace(path: Path, trace_id: str) -> list[Span]:
    """All spans of a trace that the files still have, by start."""
    needle = b'"trace_id":' + msgspec.json.encode(trace_id)
    spans = [
        span for file in (path, previous_file(path)) for span in _matching(file, needle) if span.trace_id == trace_id
    ]
    unique = {span.span_id: span for span in spans}  # an exporter that retries may send a span twice
    return sorted(unique.values(), key=lambda span: (span.start_ns, span.end_ns, span.span_id))


def newest_trace_with(path: Path, key: str, value: str) -> str | None:
    """Trace id of the most recently written span with that attribute."""
    needle = msgspec.json.encode(key) + b":" + msgspec.json.encode(value)
    for file in (path, previous_file(path)):
        for span in _matching(file, needle):
            if span.attributes.get(key) == value:
                return span.trace_id
    return None


def values_of(path: Path, key: str) -> list[str]:
    """All values of an attribute in the files, newest first."""
    needle = msgspec.json.encode(key) + b":"
    found = (span.attributes.get(key) for file in (path, previous_file(path)) for span in _matching(file, needle))
    return list(dict.fromkeys(value for value in found if isinstance(value, str)))


def _matching(path: Path, needle: bytes) -> Iterator[Span]:
    """Spans of the lines that contain the needle, newest first."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            end = len(view)
            while (at := view.rfind(needle, 0, end)) >= 0:
                start = view.rfind(b"\n", 0, at) + 1
                stop = view.find(b"\n", at)
                span = decode_span(view[start : stop if stop >= 0 else len(view)])
                if span is not None:
                    yield span
                end = start
    except (FileNotFoundError, ValueError):  # no file yet, or an empty one, which cannot be mapped
        return
