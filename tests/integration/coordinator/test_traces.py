"""Traces of gangs over terms: each gang's whole start is one span, told once."""

import asyncio

import pytest

from builders.otlp import Collector, collecting, trace_of
from muster.coordinator.core.events import Phase, PhaseChanged, Record, RecordState
from muster.coordinator.core.model import Gang, Group
from muster.coordinator.traces import GangTraces
from muster.telemetry.tracing import configure_tracing

GANG = "x/ns/a"
ROOT = f"00-{'ab' * 16}-{'cd' * 8}-01"


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
    gang = Gang(GANG, Group(GANG), record=record, permitted=not unpermitted)
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
        traces = GangTraces([(record, ROOT)])
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
