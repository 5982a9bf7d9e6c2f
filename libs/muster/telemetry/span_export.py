"""The way of spans out of the process: a bounded queue, a thread that sends what is in it, and what is lost, counted.

OpenTelemetry's own batching may hold up the end of a process for half a minute, and tells of failed tries in lines of
its own. Here the end takes no longer than a try or two, and what was lost in a minute is one line.
"""

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

import structlog
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from muster.telemetry.otlp import OtlpSettings, Target

TELL_SECONDS: Final = 60.0
"""Losses are told at most so often."""
_EXPORTERS_LOGS: Final = "opentelemetry.exporter.otlp"
_LOGGERS: Final = (f"{_EXPORTERS_LOGS}.proto.grpc.exporter", f"{_EXPORTERS_LOGS}.proto.http.trace_exporter")


@dataclass(slots=True)
class SpanCounts:
    """Spans of this process since it started."""

    sent: int = 0
    dropped: int = 0
    """Because the queue was full."""
    failed: int = 0
    """Because the collector did not take them."""

    @property
    def lost(self) -> int:
        return self.dropped + self.failed


class SpanQueue(SpanProcessor):
    """Takes ended spans without ever waiting, and sends them from a thread of its own."""

    def __init__(self, exporter: SpanExporter, settings: OtlpSettings) -> None:
        self.counts = SpanCounts()
        self._exporter, self._settings = exporter, settings
        self._most, self._batch = settings.queue_spans, min(settings.batch_spans, settings.queue_spans)
        self._queue: deque[ReadableSpan] = deque()
        self._some, self._full, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._failures = _Reasons()
        self._told, self._told_lost = -TELL_SECONDS, 0
        self._thread = threading.Thread(target=self._send_all, name="spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        queued = len(self._queue)
        if queued >= self._most or self._closing.is_set():
            self.counts.dropped += 1
            return
        self._queue.append(span)
        if not self._some.is_set():
            self._some.set()
        if queued + 1 >= self._batch and not self._full.is_set():
            self._full.set()

    def shutdown(self) -> None:
        """Send what is queued, unless the collector does not take it; returns when that is over."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._full.set()
        self._some.set()
        self._thread.join(self._settings.target.timeout_seconds * 1.5)
        self._exporter.shutdown()
        self._thread.join(self._settings.target.timeout_seconds)
        self.counts.dropped += len(self._queue)
        self._tell(final=True)
        self._failures.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """What is queued is sent soon anyway: nothing is waited for."""
        return not self._queue

    def _send_all(self) -> None:
        while True:
            self._some.wait()
            self._full.wait(self._settings.send_after_seconds)
            self._full.clear()
            self._some.clear()
            while self._queue:
                if not self._send() and self._closing.is_set():
                    break
            self._tell()
            if self._closing.is_set():
                return

    def _send(self) -> bool:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch))]
        try:
            sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # an exporter must not end the thread: spans are lost then for as long as it lives
            self._failures.last, sent = f"{type(error).__name__}: {error}", False
        if sent:
            self.counts.sent += len(batch)
        else:
            self.counts.failed += len(batch)
        return sent

    def _tell(self, *, final: bool = False) -> None:
        now, lost = time.monotonic(), self.counts.lost
        if lost == self._told_lost or (now - self._told < TELL_SECONDS and not final):
            return
        structlog.get_logger().warning(
            "spans lost",
            spans=lost - self._told_lost,
            since_start=lost,
            dropped_because_full=self.counts.dropped,
            not_taken_by_collector=self.counts.failed,
            collector=self._settings.target.endpoint,
            reason=self._failures.last or None,
        )
        self._told, self._told_lost = now, lost


class _Reasons(logging.Filter):
    """Keeps why the exporter failed last, of which it tells in logs only, and keeps its lines out of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        for name in _LOGGERS:
            logging.getLogger(name).filters.insert(0, self)  # the exporter's own one passes over what it saw before

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage()[:300]
        return False

    def close(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def exporter_to(target: Target) -> SpanExporter:
    """What sends to that collector."""
    return _by_grpc(target) if target.protocol == "grpc" else _by_http(target)


def _by_grpc(target: Target) -> SpanExporter:
    from grpc import Compression
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=target.endpoint,
        insecure=not target.secure,
        credentials=target.credentials() if target.secure else None,
        headers=target.headers or None,
        timeout=target.timeout_seconds,
        compression=Compression.Gzip if target.compression == "gzip" else Compression.NoCompression,
    )


def _by_http(target: Target) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from requests import Session

    class OwnAuthority(Session):
        """requests prefers the file in REQUESTS_CA_BUNDLE to the one that it is given."""

        def merge_environment_settings(self, *of_request: Any) -> Any:
            return super().merge_environment_settings(*of_request) | {"verify": self.verify}

    return OTLPSpanExporter(
        endpoint=target.endpoint,
        session=OwnAuthority() if target.ca_file else None,
        certificate_file=str(target.ca_file) if target.ca_file else None,
        client_key_file=str(target.key_file) if target.key_file else None,
        client_certificate_file=str(target.certificate_file) if target.certificate_file else None,
        headers=dict(target.headers),
        timeout=target.timeout_seconds,
        compression=Compression.Gzip if target.compression == "gzip" else Compression.NoCompression,
    )
