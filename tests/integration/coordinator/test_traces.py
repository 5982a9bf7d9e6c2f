"""Traces of gangs over terms: each gang's whole start is one span, told once."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from builders.telemetry.collector import Collector, attributes_of, collecting, trace_of
from muster.coordinator.core.effects import Phase, PhaseChanged
from muster.coordinator.core.events import Record, RecordState
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.gang.group import Group
from muster.coordinator.traces import GangTraces
from muster.gangs.facts import GangFacts
from muster.telemetry.tracing import configure_tracing

GANG = "x/ns/a"
ROOT = f"00-{'ab' * 16}-{'cd' * 8}-01"


def recovered(record: Record, traceparent: str) -> GangTraces:
    """Traces of a term that loaded this record."""
    traces = GangTraces()
    traces.recover([(record, traceparent)])
    return traces


def permitted(state: RecordState) -> tuple[Gang, Record]:
    """A gang that took up its record."""
    unpermitted, at = state is RecordState.UNPERMITTED, 1_700_000_000_000
    record = Record(
        GANG,
        "1",
        state,
        permitted_unix_millis=0 if unpermitted else at,
        waiting_since_unix_millis=at if unpermitted else 0,
    )
    gang = Gang(GANG, Group(GANG))
    gang.restore(record)
    return gang, record


async def spans_of(
    monkeypatch: pytest.MonkeyPatch, state: RecordState, *changes: PhaseChanged, known: bool
) -> Collector:
    """What is told when a term begins with such a record and these changes; `known`: the gang took it up."""
    gang, record = permitted(state)
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        shutdown = configure_tracing("coordinator", "test")
        traces = recovered(record, ROOT)
        for change in changes:
            traces.follow(change, gang if known else Gang(GANG, Group(GANG)))
        await asyncio.to_thread(shutdown)
    return collector


async def test_a_gang_that_runs_when_a_term_begins_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    began = PhaseChanged(GANG, None, Phase.SATISFIED)
    collector = await spans_of(monkeypatch, RecordState.SATISFIED, began, known=True)
    assert collector.spans == []


async def test_a_gang_without_a_trace_that_runs_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    began = PhaseChanged(GANG, None, Phase.SATISFIED)
    collector = await spans_of(monkeypatch, RecordState.SATISFIED, began, known=False)
    assert collector.spans == []


async def test_a_gang_that_is_taken_up_goes_on_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (PhaseChanged(GANG, None, Phase.BINDING), PhaseChanged(GANG, Phase.BINDING, Phase.SATISFIED))
    collector = await spans_of(monkeypatch, RecordState.BINDING, *changes, known=True)
    assert trace_of(collector.named("gang")) == ROOT[3:-3]
    assert collector.named("gang").start_time_unix_nano == 1_700_000_000_000 * 1_000_000


async def test_a_gang_that_waits_with_reservations_goes_on_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (PhaseChanged(GANG, None, Phase.WAITING), PhaseChanged(GANG, Phase.WAITING, Phase.SATISFIED))
    collector = await spans_of(monkeypatch, RecordState.UNPERMITTED, *changes, known=True)
    assert trace_of(collector.named("gang")) == ROOT[3:-3]
    assert collector.named("gang").start_time_unix_nano == 1_700_000_000_000 * 1_000_000


async def test_a_gang_that_is_another_of_that_name_has_a_trace_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (PhaseChanged(GANG, None, Phase.QUEUED), PhaseChanged(GANG, Phase.QUEUED, None))
    collector = await spans_of(monkeypatch, RecordState.BINDING, *changes, known=False)
    assert not trace_of(collector.named("gang")).startswith("ab")


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator["Traced"]:
    async with collecting() as (running, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        traced = Traced(running)
        yield traced
        await traced.ended()


class Traced:
    """Tracing that is on until `ended`, which returns what arrived."""

    def __init__(self, running: Collector) -> None:
        self._running, self._shutdown = running, configure_tracing("coordinator", "test")

    async def ended(self) -> Collector:
        await asyncio.to_thread(self._shutdown)
        return self._running


def walk(traces: GangTraces, gang: Gang, *phases: Phase | None) -> None:
    """The gang goes from each of the phases to the next."""
    for before, after in pairwise(phases):
        traces.follow(PhaseChanged(gang.id, before, after), gang)


async def test_what_one_term_began_and_another_ended_is_one_span_below_which_both_work(collector: Traced) -> None:
    gang, record = permitted(RecordState.BINDING)
    second_gang, _ = permitted(RecordState.BINDING)
    first, second = recovered(record, ROOT), recovered(record, ROOT)
    walk(first, gang, None, Phase.PERMITTED, Phase.BINDING)
    begun = first.phase_of(GANG)
    walk(second, second_gang, None, Phase.BINDING)
    assert second.phase_of(GANG) == begun
    walk(second, second_gang, Phase.BINDING, Phase.SATISFIED)
    span = (await collector.ended()).named("gang.binding")
    assert trace_of(span) == begun[3:-3]
    assert span.start_time_unix_nano == 1_700_000_000_000 * 1_000_000, "it began with the permit"


async def test_a_phase_that_comes_again_has_a_span_of_its_own(collector: Traced) -> None:
    gang, record = permitted(RecordState.BINDING)
    traces = recovered(record, ROOT)
    walk(traces, gang, None, Phase.BINDING, Phase.REPAIRING, Phase.BINDING, Phase.SATISFIED)
    spans = [span for span in (await collector.ended()).spans if span.name == "gang.binding"]
    assert len({span.span_id for span in spans}) == 2


async def test_a_setback_tells_why_and_progress_does_not(collector: Traced) -> None:
    facts = GangFacts(GANG, "x", "ns", "a", minimum=2)
    traces, gang = GangTraces(), Gang(GANG, Group(GANG, not_ready="1 of 2 members exist"), facts=facts)
    walk(traces, gang, None, Phase.QUEUED, Phase.SOLVING, Phase.GATHERING)
    received = await collector.ended()
    on, back = (attributes_of(received.named(name)) for name in ("gang.queued", "gang.solving"))
    assert (on["muster.gang.next_phase"], back["muster.gang.next_phase"]) == ("solving", "gathering")
    assert back["muster.gang.reason"].endswith("is pending: 1 of 2 members exist")
    assert "muster.gang.reason" not in on


async def test_gangs_of_a_group_are_linked_to_each_other(collector: Traced) -> None:
    traces, ids = GangTraces(), ("x/ns/a", "x/ns/b")
    group = Group("x/ns/a")
    gangs = [Gang(id_, group, facts=GangFacts(id_, "x", "ns", id_[-1], group=ids)) for id_ in ids]
    for gang in gangs:
        walk(traces, gang, None, Phase.QUEUED)
    roots = {gang.id: traces.root_of(gang.id) for gang in gangs}
    for gang in gangs:
        walk(traces, gang, Phase.QUEUED, Phase.SATISFIED)
    spans = [span for span in (await collector.ended()).spans if span.name == "gang"]
    links = {attributes_of(span)["muster.gang"]: linked(span) for span in spans}
    assert links == {"x/ns/a": [roots["x/ns/b"][3:-3]], "x/ns/b": [roots["x/ns/a"][3:-3]]}


async def test_who_was_evicted_and_who_for_are_linked_to_each_other(collector: Traced) -> None:
    traces = GangTraces()
    victim, preemptor = (Gang(id_, Group(id_)) for id_ in ("x/ns/victim", "x/ns/urgent"))
    walk(traces, victim, None, Phase.QUEUED, Phase.SATISFIED)
    walk(traces, preemptor, None, Phase.QUEUED)
    victim.eviction.preempted_by = preemptor.id
    walk(traces, victim, Phase.SATISFIED, Phase.GATHERING, Phase.QUEUED)
    walk(traces, preemptor, Phase.QUEUED, Phase.SATISFIED)
    roots = [traces.root_of(gang.id)[3:-3] for gang in (victim, preemptor)]
    spans = (await collector.ended()).spans
    gathering = next(span for span in spans if span.name == "gang.gathering")
    queued = next(span for span in spans if span.name == "gang.queued" and linked(span))
    assert (linked(queued), linked(gathering)) == ([roots[0]], [roots[1]])


async def test_users_are_not_shown_the_id_of_a_trace_that_is_not_sent(
    collector: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, record = permitted(RecordState.BINDING)
    traces = recovered(record, ROOT[:-2] + "00")
    assert traces.trace_id(GANG) == "ab" * 16
    assert traces.sampled_trace_id(GANG) == ""
    assert recovered(record, ROOT).sampled_trace_id(GANG) == "ab" * 16


def linked(span: Span) -> list[str]:
    return [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links]
