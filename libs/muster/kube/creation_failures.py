"""Failures of controllers to create pods, as their events report them: whatever admission refuses a pod.

Controllers of Kubernetes record them with reason FailedCreate, others with reasons such as FailedCreatePod and
FailedToCreateWorkerPod. The message names the pod, whose generated name differs from attempt to attempt: it is left
out, so that equal failures have equal texts.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.gangs.quoting import printable
from muster.kube.objects import UNREADABLE
from muster.kube.timestamps import BadTimestamp, parse_timestamp

MAX_CHARACTERS: Final = 500
"""Of the text of a failure."""

_READ_CHARACTERS: Final = 4 * MAX_CHARACTERS
_NAME_CHARACTERS: Final = 128
_REASON: Final = re.compile(r"Failed(To)?Create([A-Za-z]*Pod)?")
_REASONS_OF_KINDS: Final = {"QueueJob": frozenset({"ExceededQuota", "Rejected", "Conflict"})}
"""Other reasons, by the kind of the controller."""
_CREATING: Final = re.compile(
    r"(\(combined from similar events\): )?"
    r"(Error creating: |create Pod \S+ in StatefulSet \S+ failed error: )?"
    r'(pods "[^"]*" is forbidden: )?'
)
_GENERATED: Final = r"-(?:[0-9]+-)?[bcdfghjklmnpqrstvwxz2456789]{5}\b"
"""The end of a generated name: with the letters and digits that the API server uses."""


class CreationFailure(Struct, frozen=True, gc=False):
    """The last failure of a controller to create a pod, by its uid. `text`: "Kind name: why", one line; `name` is the
    controller's.
    """

    controller: str
    seen_seconds: int
    text: str
    name: str = ""

    @property
    def found_by_name(self) -> "CreationFailure":
        """The failure, saying that nothing but its name makes this the controller of a gang."""
        before, _, why = self.text.partition(": ")
        return replace(self, text=shortened(f"{before}, by its name: {why}"))


class EventPage(Struct, frozen=True):
    """Failures from one page of a list of events, and where the next page begins; empty: it was the last."""

    failures: tuple[CreationFailure, ...]
    continue_token: str = ""


class UnreadableEvents(ValueError):
    """A response is not a list of events."""


class _Reference(Struct, frozen=True, gc=False):
    kind: str | None = None
    name: str | None = None
    uid: str | None = None


class _Series(Struct, frozen=True, gc=False, rename="camel"):
    last_observed_time: str | None = None


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    creation_timestamp: str | None = None


class _Event(Struct, frozen=True, gc=False, rename="camel"):
    metadata: _Metadata = _Metadata()
    involved_object: _Reference = _Reference()
    reason: str | None = None
    message: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _Series | None = None

    @property
    def seen_seconds(self) -> int:
        """When it was seen last."""
        series = self.series.last_observed_time if self.series is not None else None
        times = (self.last_timestamp, series, self.event_time, self.metadata.creation_timestamp)
        return max(_seconds(each) for each in times)


class _ListMetadata(Struct, frozen=True, gc=False):
    continue_token: str | None = msgspec.field(default=None, name="continue")


class _Events(Struct, frozen=True):
    items: tuple[_Event, ...] | None = None
    metadata: _ListMetadata = _ListMetadata()


_decoder: Final = msgspec.json.Decoder(_Events)


def events_query(limit: int, continue_token: str = "") -> Mapping[str, str]:
    """Parameters that select events that may be failures; their reasons differ by controller."""
    query = {"fieldSelector": "type=Warning,involvedObject.kind!=Pod", "limit": str(limit)}
    return {**query, "continue": continue_token} if continue_token else query


def read_events(body: bytes) -> EventPage:
    """The failures in a list of events. Raises UnreadableEvents."""
    try:
        listed = _decoder.decode(body)
    except UNREADABLE as error:
        raise UnreadableEvents(str(error)) from error
    found = [failure for each in listed.items or () if (failure := _failure(each)) is not None]
    return EventPage(tuple(found), listed.metadata.continue_token or "")


def _failure(event: _Event) -> CreationFailure | None:
    about = event.involved_object
    if not about.uid or not event.message or not _says_failure(event.reason or "", about.kind or ""):
        return None
    kind, name = (printable((each or "")[:_NAME_CHARACTERS]) for each in (about.kind, about.name))
    why = _why(event.message[:_READ_CHARACTERS], (about.name or "")[:_NAME_CHARACTERS])
    return CreationFailure(about.uid, event.seen_seconds, shortened(f"{kind} {name}: {why}"), name)


def shortened(text: str) -> str:
    """The text, of MAX_CHARACTERS at most."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def _says_failure(reason: str, kind: str) -> bool:
    return _REASON.fullmatch(reason) is not None or reason in _REASONS_OF_KINDS.get(kind, ())


def _why(message: str, controller: str) -> str:
    """The first line of the message without names of pods that were not created."""
    line = next(iter(message.strip().splitlines()), "")
    line = line[found.end() :] if (found := _CREATING.match(line)) is not None else line
    if controller:
        line = re.sub(rf"\b{re.escape(controller)}{_GENERATED}", f"{controller}-*", line)
    return printable(line)


def _seconds(text: str | None) -> int:
    try:
        return parse_timestamp(text) if text else 0
    except BadTimestamp:
        return 0
