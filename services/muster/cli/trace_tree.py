"""Spans in the order and shape in which people read them: children under parents, many alike as one row."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muster.cli.format import duration
from muster.cli.trace_file import Span

_ALIKE = 6  # siblings of one name that are shown singly; more become one row
_EVENTS = 5
_DETAIL_CHARACTERS = 60
_VALUE_CHARACTERS = 24
_REASON_CHARACTERS = 120
_PLUMBING = ("rpc.", "server.", "network.", "otel.", "thread.", "net.", "k8s.")
_OUR_PREFIX = "muster-"  # of service names, so that they are known among others'


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
    """Rows, top down. Spans whose parent is not there are roots."""
    ids = {span.span_id for span in spans}
    children: dict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_ns):
        children[span.parent_id if span.parent_id in ids else ""].append(span)
    for root in children[""]:
        yield from _rows([root], "", "", children, everything, orphan=bool(root.parent_id))


def _rows(
    alike: list[Span],
    guide: str,
    below: str,
    children: Mapping[str, list[Span]],
    everything: bool,
    *,
    orphan: bool = False,
) -> Iterator[Row]:
    """One span, or several alike as one row, and what is under them."""
    if len(alike) > 1:
        yield _summary(alike, guide)
        return
    span = alike[0]
    yield Row(
        guide=guide,
        label=_short(span.name),
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        service=span.service.removeprefix(_OUR_PREFIX),
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
    """Siblings one by one; of a name that many have, those that did not fail together, where the first stands."""
    named: dict[str, list[Span]] = defaultdict(list)
    for span in siblings:
        named[span.name].append(span)
    groups, merged = [], set()
    for span in siblings:
        if everything or span.error or len(named[span.name]) <= _ALIKE:
            groups.append([span])
        elif span.name not in merged:
            merged.add(span.name)
            groups.append([sibling for sibling in named[span.name] if not sibling.error])
    return groups


def _summary(alike: list[Span], guide: str) -> Row:
    took = sorted(span.seconds for span in alike)
    start, end = min(span.start_ns for span in alike), max(span.end_ns for span in alike)
    return Row(
        guide=guide,
        label=f"{len(alike)} x {_short(alike[0].name)}",
        start_ns=start,
        end_ns=end,
        service=alike[0].service.removeprefix(_OUR_PREFIX),
        took_seconds=(end - start) / 1e9,
        detail=f"median {duration(statistics.median(took))}, longest {duration(took[-1])}",
    )


def _events(span: Span, everything: bool) -> Iterator[Row]:
    shown = span.events if everything or len(span.events) <= _EVENTS else span.events[: _EVENTS - 1]
    for event in shown:
        yield Row("", event.name, event.at_ns, None, detail=_detail(event.attributes, everything=everything))
    if (more := len(span.events) - len(shown)) > 0:
        yield Row("", f"and {more} more events", span.events[len(shown)].at_ns, None)


def _short(name: str) -> str:
    """Calls by their method: "muster.placement.v1.PlacementService/Solve" is "Solve"."""
    return name.rpartition("/")[2]


def _says_something(key: str, value: Any) -> bool:
    plumbing = key.startswith(_PLUMBING) or key == "muster.gang"
    return not plumbing and len(str(value)) <= _VALUE_CHARACTERS


def _reason(span: Span) -> str:
    """Why a phase of a gang was a setback; "" if it was none."""
    text = str(span.attributes.get("muster.gang.reason", ""))
    return text if len(text) <= _REASON_CHARACTERS else text[: _REASON_CHARACTERS - 1] + "…"


def _detail(attributes: Mapping[str, Any], *, everything: bool) -> str:
    """Attributes on one line; the plumbing's and what is too long are left out unless everything is wanted."""
    chosen = [
        f"{key.removeprefix('muster.')}={value}"
        for key, value in attributes.items()
        if everything or _says_something(key, value)
    ]
    text = " ".join(chosen)
    return text if everything or len(text) <= _DETAIL_CHARACTERS else text[: _DETAIL_CHARACTERS - 1] + "…"
