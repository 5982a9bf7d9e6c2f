"""Draws a recorded trace as SVG in Jaeger's layout, for docs/tracing.md.

tools/trace_picture.py TRACE.json PICTURE.svg, where TRACE.json is the output of `muster trace GANG --output json`.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LABELS, RIGHT, TOP, ROW = 940, 350, 70, 66, 22
_COLOURS = {"coordinator": "#1b6ca8", "placement": "#8a5a9e", "binding": "#588157", "cluster-state": "#b5852b"}
_ERROR = "#c0392b"
_TICKS = 5

Span = dict[str, Any]


def picture(trace: dict[str, Any]) -> str:
    """The SVG text."""
    spans: list[Span] = trace["spans"]
    rows = list(_in_order(spans))
    begin, end = min(span["start_ns"] for span in spans), max(span["end_ns"] for span in spans)
    scale = (WIDTH - LABELS - RIGHT) / (end - begin)
    height = TOP + ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_heading(rows[0][1], len(spans), sorted({_service(span) for span in spans})),
        *_axis(end - begin, scale, height),
    ]
    for number, (depth, span) in enumerate(rows):
        parts += _row(TOP + ROW * number, depth, span, begin, scale)
    return "\n".join([*parts, "</svg>", ""])


def _in_order(spans: list[Span]) -> Iterator[tuple[int, Span]]:
    """Depth and span, parents before children, ordered by start."""
    ids = {span["span_id"] for span in spans}
    children: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span["start_ns"], -span["end_ns"])):
        parent = span.get("parent_id", "")
        children[parent if parent in ids else ""].append(span)

    def descend(parent: str, depth: int) -> Iterator[tuple[int, Span]]:
        for span in children[parent]:
            yield depth, span
            yield from descend(span["span_id"], depth + 1)

    return descend("", 0)


def _heading(root: Span, spans: int, services: list[str]) -> Iterator[str]:
    gang = root.get("attributes", {}).get("muster.gang", root["name"])
    yield f'<text x="12" y="24" font-size="15">{escape(gang)}: {_elapsed(root)}, {spans} spans</text>'
    x = WIDTH - RIGHT - 115 * len(services)
    for service in services:
        yield f'<rect x="{x}" y="14" width="10" height="10" fill="{_COLOURS.get(service, "#777")}"/>'
        yield f'<text x="{x + 15}" y="23">{escape(service)}</text>'
        x += 115


def _axis(whole_nanos: int, scale: float, height: int) -> Iterator[str]:
    for tick in range(_TICKS):
        nanos = whole_nanos * tick / (_TICKS - 1)
        x = LABELS + nanos * scale
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 8}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{TOP - 13}" text-anchor="middle" fill="#666">{_duration(nanos)}</text>'


def _row(y: int, depth: int, span: Span, begin: int, scale: float) -> Iterator[str]:
    colour = _ERROR if span.get("error") else _COLOURS.get(_service(span), "#777")
    x, width = LABELS + (span["start_ns"] - begin) * scale, max(2.0, (span["end_ns"] - span["start_ns"]) * scale)
    middle = y + ROW / 2
    yield f'<text x="{12 + 16 * depth}" y="{middle + 4}">{escape(_label(span))}</text>'
    yield f'<rect x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}" rx="2" fill="{colour}"/>'
    for event in span.get("events", ()):
        at = LABELS + (event["at_ns"] - begin) * scale
        yield f'<circle cx="{at:.1f}" cy="{middle}" r="3" fill="white" stroke="{colour}"/>'
    yield f'<text x="{x + width + 5:.1f}" y="{middle + 4}" fill="#666">{_elapsed(span)}</text>'


def _label(span: Span) -> str:
    """Name of the span: without the package for calls, with the pod for pods."""
    name, attributes = span["name"].rpartition("/")[2], span.get("attributes", {})
    if pod := attributes.get("k8s.pod.name"):
        return f"{name} {pod} (attempts: {attributes['muster.attempts']})"
    return f"{name}, call" if "server.address" in attributes else str(name)


def _service(span: Span) -> str:
    return str(span["service"]).removeprefix("muster-")


def _elapsed(span: Span) -> str:
    return _duration(span["end_ns"] - span["start_ns"])


def _duration(nanos: float) -> str:
    return f"{nanos / 1e6:.3g} ms" if nanos < 1e9 else f"{nanos / 1e9:.3g} s"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(picture(json.loads(source.read_text())))
