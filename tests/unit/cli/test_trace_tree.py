"""Rows of the tree that `muster trace` prints."""

from muster.cli.trace_file import Span, SpanEvent
from muster.cli.trace_tree import rows_of

MS = 1_000_000


def span(number: int, name: str, parent: int = 0, **fields: object) -> Span:
    values = {"start_ns": number * MS, "end_ns": (number + 2) * MS, "service": "coordinator", **fields}
    parent_id = str(parent) if parent else ""
    return Span(trace_id="t", span_id=str(number), parent_id=parent_id, name=name, **values)  # type: ignore[arg-type]


def drawn(spans: list[Span], *, everything: bool = False) -> list[str]:
    return [row.guide + row.label for row in rows_of(spans, everything=everything)]


def test_children_are_below_their_parents_by_start() -> None:
    spans = [span(1, "gang"), span(5, "binding", 1), span(2, "solving", 1), span(3, "Solve", 2), span(6, "Bind", 5)]
    assert drawn(spans) == ["gang", "├─ solving", "│  └─ Solve", "└─ binding", "   └─ Bind"]


def test_a_span_without_its_parent_is_a_marked_root() -> None:
    rows = list(rows_of([span(2, "solving", 99), span(1, "gang")], everything=False))
    assert [(row.label, row.orphan) for row in rows] == [("gang", False), ("solving", True)]


def test_many_siblings_are_summarised_except_failed_ones() -> None:
    binds = [span(number, "bind pod", 1) for number in range(10, 18)]
    failed = span(30, "bind pod", 1, error=True, message="409 Conflict")
    rows = list(rows_of([span(1, "gang"), *binds, failed], everything=False))
    assert [row.label for row in rows] == ["gang", "8 x bind pod", "bind pod"]
    assert rows[1].detail == "median 2.00 ms, longest 2.00 ms"
    assert rows[2].detail == "409 Conflict"
    assert len(drawn([span(1, "gang"), *binds, failed], everything=True)) == 10


def test_a_failed_span_leaves_the_summary_of_its_siblings() -> None:
    spans = [span(1, "gang"), *(span(number, "bind pod", 1, error=True) for number in range(10, 20))]
    assert drawn(spans) == ["gang", *["├─ bind pod"] * 9, "└─ bind pod"]


def test_events_are_below_their_span() -> None:
    events = tuple(SpanEvent("bound", number * MS, {"pod": f"p{number}"}) for number in range(9))
    spans = [span(1, "Bind", events=events), span(2, "write", 1)]
    assert drawn(spans) == ["Bind", *["├╴bound"] * 4, "├╴and 5 more events", "└─ write"]
    assert drawn(spans, everything=True) == ["Bind", *["├╴bound"] * 9, "└─ write"]


def test_instrumentation_attributes_are_left_out() -> None:
    [row] = rows_of([span(1, "Solve", attributes={"rpc.system": "grpc", "muster.pods": 8})], everything=False)
    assert row.detail == "pods=8"


def test_a_setback_shows_a_long_reason() -> None:
    why = "gang ml/a cannot start: 8 pods wanted, 3 fit: 5 of 9 nodes short of cpu"
    attributes = {"muster.gang.reason": why, "muster.gang.next_phase": "queued"}
    [row] = rows_of([span(1, "gang.solving", attributes=attributes)], everything=False)
    assert row.detail == why
