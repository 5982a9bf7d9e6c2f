"""Checks whether a claim's volume is usable on a node, and finds the newest event about a claim."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.binding.retry_policy import WriteOutcome, retryable, status_text
from muster.gangs.node_filters import term_matches
from muster.gangs.quoting import quoted
from muster.kube.node_facts import node_facts
from muster.kube.objects import UNREADABLE, BadObject, decode_node
from muster.kube.paths import events_path, node_path, volume_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.kube.volume_facts import decode_volume, volume_facts

_MAX_CHARACTERS: Final = 300


async def unusable_reason(session: KubeSession, volume: str, node: str, timeout_seconds: float) -> str | WriteOutcome:
    """The reason why the node cannot use the volume; empty if it can. Raises KubeUnreachable."""
    volume_response = await session.request("GET", volume_path(volume), timeout_seconds=timeout_seconds)
    if volume_response.status != 200:
        return _unread(volume_response)
    node_response = await session.request("GET", node_path(node), timeout_seconds=timeout_seconds)
    if node_response.status != 200:
        return _unread(node_response)
    try:
        of_volume = volume_facts(decode_volume(volume_response.body))
        of_node = node_facts(decode_node(node_response.body))
    except BadObject as error:
        return str(error)
    if all(any(term_matches(term, of_node) for term in terms) for terms in of_volume.demands):
        return ""
    return f"its volume {quoted(volume)} cannot be used on node {quoted(node)}"


async def newest_event_text(session: KubeSession, namespace: str, uid: str, timeout_seconds: float) -> str:
    """The newest warning about an object, or else its newest event, as the end of a sentence; empty without events.

    Warnings come first because the volume controller records a normal event after each of them.
    """
    query = {"fieldSelector": f"regarding.uid={uid}"}
    try:
        response = await session.request("GET", events_path(namespace), query=query, timeout_seconds=timeout_seconds)
        events = _events.decode(response.body).items if response.status == 200 else None
    except (KubeUnreachable, *UNREADABLE):
        return ""
    if not events:
        return ""
    newest = max(events, key=lambda event: (event.is_warning, event.seen))
    kind = "warning" if newest.is_warning else "event"
    return f"; its newest {kind}: {newest.reason}: {newest.note.strip()}"[:_MAX_CHARACTERS]


def _unread(response: Response) -> str | WriteOutcome:
    return retryable(response) or status_text(response)


class _Series(Struct, rename="camel", frozen=True):
    last_observed_time: str | None = None


class _Event(Struct, rename="camel", frozen=True):
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None
    series: _Series | None = None
    metadata: dict[str, Any] = {}

    @property
    def is_warning(self) -> bool:
        return self.type == "Warning"

    @property
    def seen(self) -> str:
        """Time of the last occurrence, as text that compares to the second."""
        last = self.series.last_observed_time if self.series is not None else None
        created = self.metadata.get("creationTimestamp")
        return str(last or self.deprecated_last_timestamp or self.event_time or created or "")[:19]


class _Events(Struct, frozen=True):
    items: list[_Event] | None = None


_events: Final = msgspec.json.Decoder(_Events)
