"""Format and content of log lines."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import trace

from muster.telemetry import tracing
from muster.telemetry.logs import configure_logs


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Restores the configuration, which is global to the process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers.clear()  # so that configuring does not close what belongs to pytest
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_event_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("coordinator")
    structlog.get_logger().info("permitted", gang="koordinator/ml/train-7", pods=8, note="two\nlines")
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "permitted",
        "level": "info",
        "service": "coordinator",
        "gang": "koordinator/ml/train-7",
        "pods": 8,
        "note": "two\nlines",
    }


def test_lines_below_the_level_are_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test", "warning")
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_existing_loggers_are_configured_too(capsys: pytest.CaptureFixture[str]) -> None:
    logger = structlog.get_logger()
    configure_logs("test", "warning")
    logger.info("quiet")
    logger.warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_line_below_the_level_creates_no_logger() -> None:
    configure_logs("test", "warning")
    logger = structlog.get_logger()
    logger.info("first")
    assert logger.info == logger.info
    assert logger.bind() is logger.bind()


def test_line_has_the_ids_of_the_current_span(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test")
    parent = tracing.from_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    assert parent is not None
    with trace.use_span(trace.NonRecordingSpan(parent)):
        structlog.get_logger().info("inside")
        structlog.get_logger().info("its own word counts", trace_id="abc")
    structlog.get_logger().info("outside")
    inside, own, outside = lines(capsys)
    assert (inside["trace_id"], inside["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert own["trace_id"] == "abc"
    assert "trace_id" not in outside


def test_traceback_is_in_the_line_of_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test")
    try:
        raise KeyError("node-7")
    except KeyError:
        structlog.get_logger().exception("broken")
    (line,) = lines(capsys)
    assert line["level"] == "error"
    assert line["exception"].endswith("KeyError: 'node-7'")


def test_values_unknown_to_json_are_written_as_repr(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test")
    structlog.get_logger().info("odd", value=object, error=ValueError("x"))
    (line,) = lines(capsys)
    assert line["value"] == "<class 'object'>"
    assert line["error"] == "ValueError('x')"


@pytest.mark.parametrize("value", ["\ud800", {("a", 1): 2}, float("nan")])
def test_any_value_can_be_written(capsys: pytest.CaptureFixture[str], value: object) -> None:
    configure_logs("test")
    structlog.get_logger().info("odd", value=value, gang="a")
    (line,) = lines(capsys)
    assert (line["event"], line["gang"]) == ("odd", "a")
    assert "value" in line


def test_warnings_of_libraries_have_the_same_format(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test", "debug")
    logging.getLogger("aiohttp.client").info("chatter")
    logging.getLogger("aiohttp.client").warning("retry %d", 3)
    (line,) = lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("retry 3", "warning", "aiohttp.client")
    assert line["service"] == "test"


def test_console_format(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("test", format="console")
    structlog.get_logger().info("permitted", gang="a")
    written = capsys.readouterr().err
    assert "permitted" in written
    assert "gang=a" in written
    assert not written.startswith("{")
