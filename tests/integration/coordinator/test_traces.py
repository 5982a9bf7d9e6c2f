"""Traces of gangs across terms: each gang's whole start is one span, exported once."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from builders.telemetry.collector import Collector, attributes_of, collecting, trace_of
from muster.coordinator.core.effects import Phase, PhaseChanged
from muster.coordinator.core.events import Record, RecordState
from muster.coordinator.core.gang.gang import Gang, Group
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
    """A gang that continued from its record."""
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
    """Spans exported when a term begins with this record and these changes; `known`: the gang continued from it."""
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


async def test_a_running_gang_is_not_traced_again_in_a_new_term(monkeypatch: pytest.MonkeyPatch) -> None:
    began = PhaseChanged(GANG, None, Phase.SATISFIED)
    collector = await spans_of(monkeypatch, RecordState.SATISFIED, began, known=True)
    assert collector.spans == []


async def test_i11_traces_of_records_without_a_gang_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with collecting() as (_, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        shutdown = configure_tracing("coordinator", "test")
        _, record = permitted(RecordState.BINDING)
        traces = recovered(record, ROOT)
        traces.keep({GANG})
        assert traces.root_of(GANG) == ROOT
        traces.keep(())
        assert traces.root_of(GANG) == ""
        await asyncio.to_thread(shutdown)


async def test_a_running_gang_without_a_trace_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    began = PhaseChanged(GANG, None, Phase.SATISFIED)
    collector = await spans_of(monkeypatch, RecordState.SATISFIED, began, known=False)
    assert collector.spans == []


async def test_a_recovered_gang_continues_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (PhaseChanged(GANG, None, Phase.BINDING), PhaseChanged(GANG, Phase.BINDING, Phase.SATISFIED))
    collector = await spans_of(monkeypatch, RecordState.BINDING, *changes, known=True)
    assert trace_of(collector.named("gang")) == ROOT[3:-3]
    assert collector.named("gang").start_time_unix_nano == 1_700_000_000_000 * 1_000_000


async def test_a_gang_that_holds_and_waits_continues_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = (PhaseChanged(GANG, None, Phase.WAITING), PhaseChanged(GANG, Phase.WAITING, Phase.SATISFIED))
    collector = await spans_of(monkeypatch, RecordState.UNPERMITTED, *changes, known=True)
    assert trace_of(collector.named("gang")) == ROOT[3:-3]
    assert collector.named("gang").start_time_unix_nano == 1_700_000_000_000 * 1_000_000


async def test_a_recreated_gang_has_its_own_trace(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Tracing that is on until `ended`, which returns the exported spans."""

    def __init__(self, running: Collector) -> None:
        self._running, self._shutdown = running, configure_tracing("coordinator", "test")

    async def ended(self) -> Collector:
        await asyncio.to_thread(self._shutdown)
        return self._running


def walk(traces: GangTraces, gang: Gang, *phases: Phase | None) -> None:
    """The gang passes through these phases."""
    for before, after in pairwise(phases):
        traces.follow(PhaseChanged(gang.id, before, after), gang)


async def test_a_start_across_two_terms_is_one_span(collector: Traced) -> None:
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


async def test_a_repeated_phase_has_its_own_span(collector: Traced) -> None:
    gang, record = permitted(RecordState.BINDING)
    traces = recovered(record, ROOT)
    walk(traces, gang, None, Phase.BINDING, Phase.REPAIRING, Phase.BINDING, Phase.SATISFIED)
    spans = [span for span in (await collector.ended()).spans if span.name == "gang.binding"]
    assert len({span.span_id for span in spans}) == 2


async def test_only_a_setback_has_a_reason(collector: Traced) -> None:
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


async def test_victims_and_preemptor_are_linked(collector: Traced) -> None:
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


async def test_unsampled_trace_ids_are_not_shown_to_users(collector: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    _, record = permitted(RecordState.BINDING)
    traces = recovered(record, ROOT[:-2] + "00")
    assert traces.trace_id(GANG) == "ab" * 16
    assert traces.sampled_trace_id(GANG) == ""
    assert recovered(record, ROOT).sampled_trace_id(GANG) == "ab" * 16


def linked(span: Span) -> list[str]:
    return [f"{link.trace_id.hex()}-{link.span_id.hex()}" for link in span.links]
