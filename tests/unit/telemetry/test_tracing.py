"""Traceparents, and tracing while it is off."""

import subprocess
import sys

import pytest
from opentelemetry import trace

from muster.telemetry import tracing

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_traceparent_round_trip() -> None:
    context = tracing.from_traceparent(TRACEPARENT)
    assert context is not None
    assert context.is_remote
    assert tracing.to_traceparent(context) == TRACEPARENT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "junk",
        TRACEPARENT[:-1],
        TRACEPARENT + "-more",  # version 00 has four parts
        "ff" + TRACEPARENT[2:],
        TRACEPARENT.upper(),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        " " + TRACEPARENT,
    ],
)
def test_malformed_traceparent_is_no_span(text: str) -> None:
    assert tracing.from_traceparent(text) is None
    assert trace.get_current_span(tracing.child_context(text)) is trace.INVALID_SPAN


def test_traceparents_of_later_versions_are_accepted() -> None:
    context = tracing.from_traceparent("01" + TRACEPARENT[2:] + "-what-may-come")
    assert context is not None
    assert tracing.to_traceparent(context) == TRACEPARENT


def test_nothing_is_assigned_or_recorded_while_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    shutdown = tracing.configure_tracing("test", "test-0")
    assert not tracing.enabled()
    assert tracing.new_traceparent() == ""
    assert tracing.new_traceparent(TRACEPARENT) == ""
    assert tracing.record_span("x", 1, 2, parent=TRACEPARENT) == ""
    with tracing.tracer().start_as_current_span("x") as span:
        assert not span.is_recording()
        assert tracing.current_traceparent() == ""
    shutdown()


def test_context_of_the_client_is_propagated_while_off() -> None:
    with tracing.tracer().start_as_current_span("x", context=tracing.child_context(TRACEPARENT)):
        assert tracing.current_traceparent() == TRACEPARENT


def test_sdk_and_exporter_are_not_imported_while_off() -> None:
    program = (
        "import sys\n"
        "from muster.telemetry import tracing\n"
        "import muster.rpc.server, muster.rpc.subscription\n"
        "tracing.configure_tracing('test', 'test-0')()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert answer.stdout.strip() == "[]"
