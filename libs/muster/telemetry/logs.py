"""Structured logs on stderr: one line per event, with its trace."""

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import msgspec
import structlog
from opentelemetry import trace
from structlog.typing import Processor

_FIRST_KEYS = ("timestamp", "level", "event")
_LIBRARY_LEVEL = logging.WARNING  # the least level of lines of libraries


def configure_logs(service: str, level: str = "info", format: Literal["json", "console"] = "json") -> None:  # noqa: A002
    """Write the logs of this process, libraries included, to stderr. `level`: debug, info, warning or error.

    Applies to existing loggers too. Call before the first line is written: a logger caches its configuration with its
    first line, so that lines below the level cost next to nothing.
    """
    number = getattr(logging, level.upper())
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's core logs every lost connection
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Service(service),
        _add_trace,
    ]
    render = _json_renderers() if format == "json" else _console_renderers()
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    library_handler = logging.StreamHandler(sys.stderr)
    library_handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        )
    )
    logging.basicConfig(handlers=[library_handler], level=max(number, _LIBRARY_LEVEL), force=True)


class _Service:
    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", self._service)
        return event


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(context.trace_id))
        event.setdefault("span_id", trace.format_span_id(context.span_id))
    return event


def _json_renderers() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_to_json)]


def _console_renderers() -> list[Processor]:
    return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]


def _to_json(event: Any, **_options: Any) -> str:
    event = {key: event[key] for key in _FIRST_KEYS if key in event} | event
    try:
        return msgspec.json.encode(event, enc_hook=repr).decode()
    except (TypeError, ValueError):  # keys that are not strings, text that is not Unicode: never lose a line
        return msgspec.json.encode({str(key): _plain(value) for key, value in event.items()}).decode()


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | None) else ascii(value).strip("'")
