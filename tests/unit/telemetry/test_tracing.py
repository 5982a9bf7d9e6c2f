"""Names of spans, and that tracing costs nothing while it is off."""

import subprocess
import sys

import pytest
from opentelemetry import trace

from muster.telemetry import tracing

NAME = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_name_is_the_same_after_reading_and_writing() -> None:
    context = tracing.from_traceparent(NAME)
    assert context is not None
    assert context.is_remote
    assert tracing.to_traceparent(context) == NAME


@pytest.mark.parametrize(
    "text",
    [
        "",
        "junk",
        NAME[:-1],
        NAME + "-more",  # version 00 has four parts
        "ff" + NAME[2:],
        NAME.upper(),
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        " " + NAME,
    ],
)
def test_what_is_no_name_names_nothing(text: str) -> None:
    assert tracing.from_traceparent(text) is None
    assert trace.get_current_span(tracing.child_context(text)) is trace.INVALID_SPAN


def test_names_of_later_versions_are_read_as_far_as_they_are_known() -> None:
    context = tracing.from_traceparent("01" + NAME[2:] + "-what-may-come")
    assert context is not None
    assert tracing.to_traceparent(context) == NAME


def test_while_it_is_off_nothing_is_named_or_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    shutdown = tracing.configure_tracing("test", "test-0")
    assert not tracing.enabled()
    assert tracing.new_traceparent() == ""
    assert tracing.new_traceparent(NAME) == ""
    assert tracing.record_span("x", 1, 2, parent=NAME) == ""
    with tracing.tracer().start_as_current_span("x") as span:
        assert not span.is_recording()
        assert tracing.current_traceparent() == ""
    shutdown()


def test_while_it_is_off_a_callers_trace_is_still_carried_on() -> None:
    with tracing.tracer().start_as_current_span("x", context=tracing.child_context(NAME)):
        assert tracing.current_traceparent() == NAME


def test_while_it_is_off_neither_sdk_nor_exporter_is_imported() -> None:
    program = (
        "import sys\n"
        "from muster.telemetry import tracing\n"
        "import muster.rpc.server, muster.rpc.subscription\n"
        "tracing.configure_tracing('test', 'test-0')()\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env={})
    assert answer.stdout.strip() == "[]"
