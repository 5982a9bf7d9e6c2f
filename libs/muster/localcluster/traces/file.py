"""The trace file: spans are added at the end, the oldest half goes when it is full, reading needs no index.

Two files share the room: the current one and, beside it with `.1` at the end, the one before. Traces are found by
searching the mapped files for their id from the end backwards, which takes milliseconds for 64 MB.
"""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from muster.localcluster.traces.span import Span, decode_span, encode_span

LIMIT_BYTES = 64 * 2**20
"""Both files together: about 150,000 spans."""


class TraceWriter:
    """Adds spans to the file. One writer at a time."""

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._path, self._half = path, limit_bytes // 2
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def add(self, spans: Iterable[Span]) -> None:
        """Write spans; readers see them at once."""
        self._file.write(b"".join(map(encode_span, spans)))
        self._file.flush()
        if self._file.tell() >= self._half:
            self._file.close()
            self._path.replace(_older(self._path))
            self._file = self._path.open("ab")

    def close(self) -> None:
        self._file.close()


def spans_of_trace(path: Path, trace_id: str) -> list[Span]:
    """All spans of a trace that are still kept, by start."""
    needle = b'"trace_id":' + msgspec.json.encode(trace_id)
    spans = [span for file in (path, _older(path)) for span in _matching(file, needle) if span.trace_id == trace_id]
    unique = {span.span_id: span for span in spans}  # an exporter that retries may send one twice
    return sorted(unique.values(), key=lambda span: (span.start_ns, span.end_ns, span.span_id))


def newest_trace_with(path: Path, key: str, value: str) -> str | None:
    """Id of the trace whose span was written last of those with that attribute."""
    needle = msgspec.json.encode(key) + b":" + msgspec.json.encode(value)
    for file in (path, _older(path)):
        for span in _matching(file, needle):
            if span.attributes.get(key) == value:
                return span.trace_id
    return None


def values_of(path: Path, key: str) -> list[str]:
    """All values that an attribute has in the file, the newest first: for suggestions."""
    needle = msgspec.json.encode(key) + b":"
    found = (span.attributes.get(key) for file in (path, _older(path)) for span in _matching(file, needle))
    return list(dict.fromkeys(value for value in found if isinstance(value, str)))


def _matching(path: Path, needle: bytes) -> Iterator[Span]:
    """Spans of the lines that contain the needle, the newest first."""
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


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")
