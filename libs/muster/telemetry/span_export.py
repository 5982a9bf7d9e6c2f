"""Exports spans: a bounded queue, a thread that sends batches, and counts of lost spans.

OpenTelemetry's own batch processor may delay the end of a process by half a minute, and logs every failed attempt. Here
shutdown takes one or two attempts, and losses are logged once a minute.
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

LOSS_LOG_SECONDS: Final = 60.0
"""Least time between two log lines about lost spans."""
_EXPORTER_LOGGER: Final = "opentelemetry.exporter.otlp"
_LOGGERS: Final = (f"{_EXPORTER_LOGGER}.proto.grpc.exporter", f"{_EXPORTER_LOGGER}.proto.http.trace_exporter")


@dataclass(slots=True)
class SpanCounts:
    """Spans of this process by outcome, since its start."""

    sent: int = 0
    dropped: int = 0
    """The queue was full."""
    failed: int = 0
    """The collector did not accept them."""

    @property
    def lost(self) -> int:
        return self.dropped + self.failed


class SpanQueue(SpanProcessor):
    """Queues ended spans without blocking, and sends them from a thread."""

    def __init__(self, exporter: SpanExporter, settings: OtlpSettings) -> None:
        self.counts = SpanCounts()
        self._exporter, self._settings = exporter, settings
        self._max, self._batch = settings.queue_spans, min(settings.batch_spans, settings.queue_spans)
        self._queue: deque[ReadableSpan] = deque()
        self._nonempty, self._full, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._failures = _LastError()
        self._logged_at, self._logged_lost = -LOSS_LOG_SECONDS, 0
        self._thread = threading.Thread(target=self._send_all, name="spans", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        context = span.context
        if context is None or not context.trace_flags.sampled:
            return
        queued = len(self._queue)
        if queued >= self._max or self._closing.is_set():
            self.counts.dropped += 1
            return
        self._queue.append(span)
        if not self._nonempty.is_set():
            self._nonempty.set()
        if queued + 1 >= self._batch and not self._full.is_set():
            self._full.set()

    def shutdown(self) -> None:
        """Send queued spans; stops at the first failure."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._full.set()
        self._nonempty.set()
        self._thread.join(self._settings.target.timeout_seconds * 1.5)
        self._exporter.shutdown()
        self._thread.join(self._settings.target.timeout_seconds)
        self.counts.dropped += len(self._queue)
        self._log_losses(final=True)
        self._failures.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Does not wait: queued spans are sent soon anyway."""
        return not self._queue

    def _send_all(self) -> None:
        while True:
            self._nonempty.wait()
            self._full.wait(self._settings.export_interval_seconds)
            self._full.clear()
            self._nonempty.clear()
            while self._queue:
                if not self._send() and self._closing.is_set():
                    break
            self._log_losses()
            if self._closing.is_set():
                return

    def _send(self) -> bool:
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), self._batch))]
        try:
            sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # an exporter error must not end the thread
            self._failures.last, sent = f"{type(error).__name__}: {error}", False
        if sent:
            self.counts.sent += len(batch)
        else:
            self.counts.failed += len(batch)
        return sent

    def _log_losses(self, *, final: bool = False) -> None:
        now, lost = time.monotonic(), self.counts.lost
        if lost == self._logged_lost or (now - self._logged_at < LOSS_LOG_SECONDS and not final):
            return
        structlog.get_logger().warning(
            "spans_lost",
            spans=lost - self._logged_lost,
            since_start=lost,
            dropped_because_full=self.counts.dropped,
            rejected_by_collector=self.counts.failed,
            collector=self._settings.target.endpoint,
            reason=self._failures.last or None,
        )
        self._logged_at, self._logged_lost = now, lost


class _LastError(logging.Filter):
    """Captures the exporter's last error, which it only logs, and suppresses its log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""
        for name in _LOGGERS:
            logging.getLogger(name).filters.insert(0, self)  # before its filter of repeated lines

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.last = record.getMessage()[:300]
        return False

    def close(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def create_exporter(target: Target) -> SpanExporter:
    """An exporter to a collector."""
    return _grpc_exporter(target) if target.protocol == "grpc" else _http_exporter(target)


def _grpc_exporter(target: Target) -> SpanExporter:
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


def _http_exporter(target: Target) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from requests import Session

    class SessionWithOwnCa(Session):
        """Overrides requests' preference of REQUESTS_CA_BUNDLE over the given file."""

        def merge_environment_settings(self, *of_request: Any) -> Any:
            return super().merge_environment_settings(*of_request) | {"verify": self.verify}

    return OTLPSpanExporter(
        endpoint=target.endpoint,
        session=SessionWithOwnCa() if target.ca_file else None,
        certificate_file=str(target.ca_file) if target.ca_file else None,
        client_key_file=str(target.key_file) if target.key_file else None,
        client_certificate_file=str(target.certificate_file) if target.certificate_file else None,
        headers=dict(target.headers),
        timeout=target.timeout_seconds,
        compression=Compression.Gzip if target.compression == "gzip" else Compression.NoCompression,
    )
