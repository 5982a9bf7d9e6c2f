"""Rows of a trace: child spans under their parents, many siblings of one name summarised as one row."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.cli.format import duration
from muster.cli.trace_file import Span

_MAX_SIBLINGS = 6  # of one name; more are summarised
_MAX_EVENTS = 5
_MAX_DETAIL_CHARACTERS = 60
_MAX_VALUE_CHARACTERS = 24
_MAX_REASON_CHARACTERS = 120
_INSTRUMENTATION_PREFIXES = ("rpc.", "server.", "network.", "otel.", "thread.", "net.", "k8s.")
_SERVICE_PREFIX = "muster-"


@dataclass(frozen=True)
class Row:
    """One line of the tree."""

    guide: str
    label: str
    start_ns: int
    end_ns: int | None
    """None for an event, which takes no time."""
    service: str = ""
    took_seconds: float = 0.0
    detail: str = ""
    error: bool = False
    orphan: bool = False
    minor: bool = False


def rows_of(spans: list[Span], *, everything: bool) -> Iterator[Row]:
    """Rows from the top. Spans whose parent is missing are roots."""
    ids = {span.span_id for span in spans}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_ns):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    for root in children[""]:
        yield from _rows([root], "", "", children, everything, orphan=bool(root.parent_id))


def _rows(
    siblings: list[Span],
    guide: str,
    below: str,
    children: Mapping[str, list[Span]],
    everything: bool,
    *,
    orphan: bool = False,
) -> Iterator[Row]:
    """One span with its events and children, or one summary row of several siblings."""
    if len(siblings) > 1:
        yield _summary(siblings, guide)
        return
    span = siblings[0]
    yield Row(
        guide=guide,
        label=_short(span.name),
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        service=span.service.removeprefix(_SERVICE_PREFIX),
        took_seconds=span.seconds,
        detail=span.message or _reason(span) or _detail(span.attributes, everything=everything),
        error=span.error,
        orphan=orphan,
    )
    groups = _groups(children.get(span.span_id, []), everything)
    events = list(_events(span, everything))
    for number, event in enumerate(events):
        last = number == len(events) - 1 and not groups
        yield Row(f"{below}{'└' if last else '├'}╴", event.label, event.start_ns, None, detail=event.detail, minor=True)
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        yield from _rows(
            group, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}", children, everything
        )


def _groups(siblings: list[Span], everything: bool) -> list[list[Span]]:
    """Siblings in order, each alone or, if more than six have one name, with all of that name that did not fail."""
    named: dict[str, list[Span]] = defaultdict(list)
    for span in siblings:
        named[span.name].append(span)
    groups, merged = [], set()
    for span in siblings:
        if everything or span.error or len(named[span.name]) <= _MAX_SIBLINGS:
            groups.append([span])
        elif span.name not in merged:
            merged.add(span.name)
            groups.append([sibling for sibling in named[span.name] if not sibling.error])
    return groups


def _summary(siblings: list[Span], guide: str) -> Row:
    took = sorted(span.seconds for span in siblings)
    start, end = min(span.start_ns for span in siblings), max(span.end_ns for span in siblings)
    return Row(
        guide=guide,
        label=f"{len(siblings)} x {_short(siblings[0].name)}",
        start_ns=start,
        end_ns=end,
        service=siblings[0].service.removeprefix(_SERVICE_PREFIX),
        took_seconds=(end - start) / 1e9,
        detail=f"median {duration(statistics.median(took))}, longest {duration(took[-1])}",
    )


def _events(span: Span, everything: bool) -> Iterator[Row]:
    shown = span.events if everything or len(span.events) <= _MAX_EVENTS else span.events[: _MAX_EVENTS - 1]
    for event in shown:
        yield Row("", event.name, event.at_ns, None, detail=_detail(event.attributes, everything=everything))
    if (more := len(span.events) - len(shown)) > 0:
        yield Row("", f"and {more} more events", span.events[len(shown)].at_ns, None)


def _short(name: str) -> str:
    """Method of a call: "Solve" for "muster.placement.v1.PlacementService/Solve"."""
    return name.rpartition("/")[2]


def _is_shown(key: str, value: Any) -> bool:
    hidden = key.startswith(_INSTRUMENTATION_PREFIXES) or key == "muster.gang"
    return not hidden and len(str(value)) <= _MAX_VALUE_CHARACTERS


def _reason(span: Span) -> str:
    """Reason of a gang's setback; "" if the span is none."""
    text = str(span.attributes.get("muster.gang.reason", ""))
    return text if len(text) <= _MAX_REASON_CHARACTERS else text[: _MAX_REASON_CHARACTERS - 1] + "…"


def _detail(attributes: Mapping[str, Any], *, everything: bool) -> str:
    """Attributes on one line, without those of the instrumentation and long ones unless `everything`."""
    shown = [
        f"{key.removeprefix('muster.')}={value}"
        for key, value in attributes.items()
        if everything or _is_shown(key, value)
    ]
    text = " ".join(shown)
    return text if everything or len(text) <= _MAX_DETAIL_CHARACTERS else text[: _MAX_DETAIL_CHARACTERS - 1] + "…"
