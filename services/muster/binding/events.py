"""Records events through events.k8s.io/v1, which old and new kubectl show with count and age."""

import asyncio
import time
from typing import Any, Final

import structlog

from muster.binding.event_series import (
    COUNT_INTERVAL_SECONDS,
    EventKey,
    ObjectRateLimiter,
    Regarding,
    Series,
    SeriesCache,
)
from muster.binding.pipeline import Flow, Job, Pipeline, WriteType
from muster.binding.request_bodies import MERGE_PATCH, encode
from muster.binding.retry_policy import DONE, WriteOutcome, retryable, status_text, unreachable_outcome
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.write_call import WriteCall
from muster.kube.paths import events_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.kube.timestamps import micro_timestamp

CONTROLLER: Final = "muster"
_MAX_NOTE_BYTES: Final = 1024  # the API's limit
_MAX_WORD_CHARACTERS: Final = 128
_MAX_NAME_CHARACTERS: Final = 253
_CLUSTER_SCOPED_NAMESPACE: Final = "default"  # namespace of events regarding nodes and other cluster-scoped objects
_MAX_COUNT_ATTEMPTS: Final = 20
_EXPIRE_SECONDS: Final = 60.0

_log = structlog.get_logger()


class EventRecorder:
    """Creates event objects for new events, raises the count of repeated ones, and suppresses floods.

    A series has a timer at most, until it fires (I11).
    """

    def __init__(self, session: KubeSession, pipeline: Pipeline, instance: str) -> None:
        self.session = session
        self.instance = instance[:_MAX_WORD_CHARACTERS]
        self.series_cache = SeriesCache()
        self._rate_limiter = ObjectRateLimiter()
        self._loop = asyncio.get_running_loop()
        self._counts = pipeline.open(WriteType.EVENT)
        self._timers: dict[Series, asyncio.TimerHandle] = {}
        self._names = 0

    def record(self, event: pb.Event, call: WriteCall, flow: Flow) -> None:
        """Write an event, and report its outcome to the call."""
        key = _event_key(event)
        now = time.time()
        series = self.series_cache.find(key, now)
        if series is not None:
            series.count += 1
            series.last_seen = now
            self._schedule_count(series, now)
            call.written()
        elif self._admit(key.regarding, now):
            series = Series(key, self._name(key.regarding.name), now)
            self.series_cache.add(series)
            flow.add([_WriteEvent(self, series, call)])
        else:
            call.suppressed()

    async def expire(self) -> None:
        """Forget ended series and full buckets once a minute, until cancelled."""
        while True:
            await asyncio.sleep(_EXPIRE_SECONDS)
            now = time.time()
            self.series_cache.expire(now)
            self._rate_limiter.expire(now)

    def flush(self) -> None:
        """Write all scheduled counts now; the caller drains the pipeline next."""
        for series, timer in list(self._timers.items()):
            timer.cancel()
            self._write_count(series)

    def stop(self) -> None:
        """Give up the counts that are not in flight."""
        self._counts.close("the service is stopping")

    def _schedule_count(self, series: Series, now: float) -> None:
        if not series.count_due:
            series.count_due = True
            pause = max(0.0, series.last_written + COUNT_INTERVAL_SECONDS - now)
            self._timers[series] = self._loop.call_later(pause, self._write_count, series)

    def _write_count(self, series: Series) -> None:
        self._timers.pop(series, None)
        self._counts.add([_WriteCount(self, series)])

    def _admit(self, regarding: Regarding, now: float) -> bool:
        admitted = self._rate_limiter.take(regarding, now)
        suppressed = self._rate_limiter.suppressed(regarding)
        fields = {"kind": regarding.kind, "object": f"{regarding.namespace}/{regarding.name}", "uid": regarding.uid}
        if admitted and suppressed:
            _log.warning("event_suppression_ended", suppressed=suppressed, **fields)
            self._rate_limiter.reset_suppressed(regarding)
        elif suppressed == 1:
            _log.warning("event_suppression_started", **fields)
        return admitted

    def _name(self, object_name: str) -> str:
        self._names += 1
        suffix = f".{time.time_ns():x}{self._names & 0xFFFF:04x}"
        return object_name[: _MAX_NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix

    def body(self, series: Series) -> bytes:
        """The event object as JSON."""
        event = series.event
        content: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace_of(event.regarding)},
            "eventTime": micro_timestamp(series.first_seen),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": {
                "apiVersion": event.regarding.api_version,
                "kind": event.regarding.kind,
                "namespace": event.regarding.namespace,
                "name": event.regarding.name,
                "uid": event.regarding.uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
        }
        if series.count > 1:
            content["series"] = self.series(series)
        return encode(content)

    def series(self, series: Series) -> dict[str, Any]:
        """The `series` field: number and time of occurrences."""
        return {"count": series.count, "lastObservedTime": micro_timestamp(series.last_seen)}


class _WriteEvent(Job):
    """Creates the object of a new event."""

    __slots__ = ("_call", "_recorder", "_series")

    def __init__(self, recorder: EventRecorder, series: Series, call: WriteCall) -> None:
        super().__init__()
        self._recorder, self._series, self._call = recorder, series, call

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            response = await create(self._recorder, self._series, timeout_seconds)
        except KubeUnreachable as error:
            return unreachable_outcome(error)
        if response.status < 300 or response.status == 409:  # 409: an earlier attempt succeeded without an answer
            self._call.written()
            return DONE
        retry = retryable(response)
        if retry is not None:
            return retry
        if _namespace_is_gone(response):
            self._recorder.series_cache.forget(self._series)
            self._call.gone()
            return DONE
        self.give_up(status_text(response))
        return DONE

    def give_up(self, reason: str) -> None:
        event = self._series.event
        self._recorder.series_cache.forget(self._series)
        regarding = f"{event.regarding.kind} {event.regarding.namespace}/{event.regarding.name}"
        _log.warning("event_write_failed", reason=event.reason, message=reason, note=event.note)
        self._call.failure(f"event {event.reason} about {regarding}: {reason}")


class _WriteCount(Job):
    """Writes the count of an event object; creates the object again if it has expired."""

    __slots__ = ("_recorder", "_series")

    def __init__(self, recorder: EventRecorder, series: Series) -> None:
        super().__init__()
        self._recorder, self._series = recorder, series

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        recorder, series = self._recorder, self._series
        series.count_due = False
        count, series.last_written = series.count, time.time()
        try:
            response = await recorder.session.request(
                "PATCH",
                events_path(namespace_of(series.event.regarding), series.name),
                body=encode({"series": recorder.series(series)}),
                content_type=MERGE_PATCH,
                timeout_seconds=timeout_seconds,
            )
            if response.status == 404:
                response = await create(recorder, series, timeout_seconds)
        except KubeUnreachable as error:
            return self._retry(unreachable_outcome(error))
        if response.status < 300:
            series.written_count = count
            return DONE
        retry = retryable(response)
        if retry is not None:
            return self._retry(retry)
        if not _namespace_is_gone(response):
            self.give_up(status_text(response))
        return DONE

    def _retry(self, outcome: WriteOutcome) -> WriteOutcome:
        if self.attempts < _MAX_COUNT_ATTEMPTS:
            return outcome
        self.give_up(f"{self.attempts} attempts failed")
        return DONE

    def give_up(self, reason: str) -> None:
        event = self._series.event
        missing = self._series.count - self._series.written_count
        _log.warning("event_count_write_failed", reason=event.reason, note=event.note, missing=missing, message=reason)


async def create(recorder: EventRecorder, series: Series, timeout_seconds: float) -> Response:
    """Create the event object. Raises KubeUnreachable."""
    return await recorder.session.request(
        "POST",
        events_path(namespace_of(series.event.regarding)),
        body=recorder.body(series),
        timeout_seconds=timeout_seconds,
    )


def namespace_of(regarding: Regarding) -> str:
    """Namespace of the events that regard an object."""
    return regarding.namespace or _CLUSTER_SCOPED_NAMESPACE


def _event_key(event: pb.Event) -> EventKey:
    regarding = event.regarding
    return EventKey(
        Regarding(regarding.api_version, regarding.kind, regarding.namespace, regarding.name, regarding.uid),
        event.type,
        event.reason[:_MAX_WORD_CHARACTERS],
        event.action[:_MAX_WORD_CHARACTERS],
        _cut(event.note, _MAX_NOTE_BYTES),
    )


def _cut(text: str, max_bytes: int) -> str:
    encoded = text.encode()
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode(errors="ignore")


def _namespace_is_gone(response: Response) -> bool:
    """The namespace does not exist, or is being deleted and accepts no new objects."""
    return response.status == 404 or (response.status == 403 and b"being terminated" in response.body)
