"""Events: written through events.k8s.io/v1, which kubectl describe, new and old, shows with its count or age."""

import asyncio
import time
from typing import Any, Final

import structlog

from muster.binding.event_series import COUNT_SECONDS, About, Allowances, Occurrence, Series, SeriesBook
from muster.binding.pipeline import Flow, Job, Pipeline, Urgency
from muster.binding.request_bodies import MERGE, encode, events_path, micro_timestamp
from muster.binding.retry_policy import DONE, Verdict, no_answer, repeatable, said
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.write_call import WriteCall
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession

CONTROLLER: Final = "muster"
_NOTE_BYTES: Final = 1024  # what the API takes
_WORD_CHARACTERS: Final = 128
_NAME_CHARACTERS: Final = 253
_CLUSTER_SCOPED_NAMESPACE: Final = "default"  # where kubectl looks for events about nodes and the like
_MOST_COUNT_ATTEMPTS: Final = 20

_log = structlog.get_logger()


class EventRecorder:
    """Turns events of Write calls into objects, counts, or nothing."""

    def __init__(self, session: KubeSession, pipeline: Pipeline, instance: str) -> None:
        self.session = session
        self.instance = instance[:_WORD_CHARACTERS]
        self.book = SeriesBook()
        self._allowances = Allowances()
        self._loop = asyncio.get_running_loop()
        self._counts = pipeline.open(Urgency.EVENT)
        self._timers: dict[Series, asyncio.TimerHandle] = {}
        self._made = 0

    def record(self, event: pb.Event, call: WriteCall, flow: Flow) -> None:
        """Have it written. The call expects to be told what came of it."""
        occurrence = _occurrence(event)
        now = time.time()
        series = self.book.find(occurrence, now)
        if series is not None:
            series.count += 1
            series.last_seen = now
            self._have_counted(series, now)
            call.written()
        elif self._may_have_another(occurrence.about, now):
            series = Series(occurrence, self._name(occurrence.about.name), now)
            self.book.begin(series)
            flow.add([_WriteEvent(self, series, call)])
        else:
            call.suppressed()

    def flush(self) -> None:
        """Have the counts written that wait for their time; the pipeline is drained next."""
        for series, timer in list(self._timers.items()):
            timer.cancel()
            self._write_count(series)

    def stop(self) -> None:
        """Give up the counts that are not under way."""
        self._counts.close("the service stops")

    def _have_counted(self, series: Series, now: float) -> None:
        if not series.count_due:
            series.count_due = True
            pause = max(0.0, series.last_written + COUNT_SECONDS - now)
            self._timers[series] = self._loop.call_later(pause, self._write_count, series)

    def _write_count(self, series: Series) -> None:
        self._timers.pop(series, None)
        self._counts.add([_WriteCount(self, series)])

    def _may_have_another(self, about: About, now: float) -> bool:
        may = self._allowances.take(about, now)
        left_out = self._allowances.left_out(about)
        where = {"kind": about.kind, "object": f"{about.namespace}/{about.name}", "uid": about.uid}
        if may and left_out:
            _log.warning("events were left out: too many about one object", left_out=left_out, **where)
            self._allowances.forgive(about)
        elif left_out == 1:
            _log.warning("events are left out from now on: too many about one object", **where)
        return may

    def _name(self, of: str) -> str:
        self._made += 1
        suffix = f".{time.time_ns():x}{self._made & 0xFFFF:04x}"
        return of[: _NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix

    def body(self, series: Series) -> bytes:
        """The whole event."""
        event = series.event
        content: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": namespace_of(event.about)},
            "eventTime": micro_timestamp(series.first_seen),
            "type": event.type,
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": {
                "apiVersion": event.about.api_version,
                "kind": event.about.kind,
                "namespace": event.about.namespace,
                "name": event.about.name,
                "uid": event.about.uid,
            },
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
        }
        if series.count > 1:
            content["series"] = self.series(series)
        return encode(content)

    def series(self, series: Series) -> dict[str, Any]:
        """How often and how lately it happened."""
        return {"count": series.count, "lastObservedTime": micro_timestamp(series.last_seen)}


class _WriteEvent(Job):
    """Creates an event object."""

    __slots__ = ("_call", "_recorder", "_series")

    def __init__(self, recorder: EventRecorder, series: Series, call: WriteCall) -> None:
        super().__init__()
        self._recorder, self._series, self._call = recorder, series, call

    async def attempt(self, timeout_seconds: float) -> Verdict:
        try:
            response = await create(self._recorder, self._series, timeout_seconds)
        except KubeUnreachable as error:
            return no_answer(error)
        if response.status < 300 or response.status == 409:  # an earlier try of ours got through
            self._call.written()
            return DONE
        again = repeatable(response)
        if again is not None:
            return again
        if _namespace_is_gone(response):
            self._recorder.book.forget(self._series)
            self._call.gone()
            return DONE
        self.give_up(said(response))
        return DONE

    def give_up(self, why: str) -> None:
        event = self._series.event
        self._recorder.book.forget(self._series)
        what = f"event {event.reason} about {event.about.kind} {event.about.namespace}/{event.about.name}: {why}"
        _log.warning("event not written", reason=event.reason, message=why, note=event.note)
        self._call.failure(what)


class _WriteCount(Job):
    """Brings the count of an event object up to date; creates it anew if it has expired."""

    __slots__ = ("_recorder", "_series")

    def __init__(self, recorder: EventRecorder, series: Series) -> None:
        super().__init__()
        self._recorder, self._series = recorder, series

    async def attempt(self, timeout_seconds: float) -> Verdict:
        recorder, series = self._recorder, self._series
        series.count_due = False
        count, series.last_written = series.count, time.time()
        try:
            response = await recorder.session.request(
                "PATCH",
                events_path(namespace_of(series.event.about), series.name),
                body=encode({"series": recorder.series(series)}),
                content_type=MERGE,
                timeout_seconds=timeout_seconds,
            )
            if response.status == 404:
                response = await create(recorder, series, timeout_seconds)
        except KubeUnreachable as error:
            return self._again(no_answer(error))
        if response.status < 300:
            series.written_count = count
            return DONE
        again = repeatable(response)
        if again is not None:
            return self._again(again)
        if not _namespace_is_gone(response):
            self.give_up(said(response))
        return DONE

    def _again(self, verdict: Verdict) -> Verdict:
        if self.attempts < _MOST_COUNT_ATTEMPTS:
            return verdict
        self.give_up("tried often enough")
        return DONE

    def give_up(self, why: str) -> None:
        event = self._series.event
        missing = self._series.count - self._series.written_count
        _log.warning(
            "count of an event not written", reason=event.reason, note=event.note, missing=missing, message=why
        )


async def create(recorder: EventRecorder, series: Series, timeout_seconds: float) -> Response:
    """Raises KubeUnreachable."""
    return await recorder.session.request(
        "POST",
        events_path(namespace_of(series.event.about)),
        body=recorder.body(series),
        timeout_seconds=timeout_seconds,
    )


def namespace_of(about: About) -> str:
    """Where events about the object are kept."""
    return about.namespace or _CLUSTER_SCOPED_NAMESPACE


def _occurrence(event: pb.Event) -> Occurrence:
    about = event.regarding
    return Occurrence(
        About(about.api_version, about.kind, about.namespace, about.name, about.uid),
        event.type,
        event.reason[:_WORD_CHARACTERS],
        event.action[:_WORD_CHARACTERS],
        _cut(event.note, _NOTE_BYTES),
    )


def _cut(text: str, most_bytes: int) -> str:
    encoded = text.encode()
    return text if len(encoded) <= most_bytes else encoded[:most_bytes].decode(errors="ignore")


def _namespace_is_gone(response: Response) -> bool:
    """It does not exist, or is being deleted and takes nothing new."""
    return response.status == 404 or (response.status == 403 and b"being terminated" in response.body)
