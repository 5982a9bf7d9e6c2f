"""Looks around a claim: may its volume be used on a node, and what was last said about it."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.binding.request_bodies import events_path, node_path, volume_path
from muster.binding.retry_policy import Verdict, repeatable, said
from muster.gangs.node_filters import term_matches
from muster.gangs.quoting import quoted
from muster.kube.node_facts import node_facts
from muster.kube.objects import BadObject, decode_node
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession
from muster.kube.volume_facts import decode_volume, volume_facts

_SHOWN_CHARACTERS: Final = 300


async def why_unusable(session: KubeSession, volume: str, node: str, timeout_seconds: float) -> str | Verdict:
    """Why the volume cannot be used on the node; empty if it can. Raises KubeUnreachable."""
    found = await session.request("GET", volume_path(volume), timeout_seconds=timeout_seconds)
    if found.status != 200:
        return _unread(found)
    where = await session.request("GET", node_path(node), timeout_seconds=timeout_seconds)
    if where.status != 200:
        return _unread(where)
    try:
        facts, at = volume_facts(decode_volume(found.body)), node_facts(decode_node(where.body))
    except BadObject as error:
        return str(error)
    if all(any(term_matches(term, at) for term in demand) for demand in facts.demands):
        return ""
    return f"its volume {quoted(volume)} cannot be used on node {quoted(node)}"


async def last_word(session: KubeSession, namespace: str, uid: str, timeout_seconds: float) -> str:
    """What the newest warning about an object says, for the end of a sentence; where there is none, the newest event;
    empty if there is none of these to be had.

    Warnings come first, because the controller of volumes tells after each of them what the claim waits for again.
    """
    query = {"fieldSelector": f"regarding.uid={uid}"}
    try:
        response = await session.request("GET", events_path(namespace), query=query, timeout_seconds=timeout_seconds)
        events = _events.decode(response.body).items if response.status == 200 else None
    except (KubeUnreachable, msgspec.DecodeError, UnicodeDecodeError):
        return ""
    if not events:
        return ""
    newest = max(events, key=lambda event: (event.is_warning, event.seen))
    kind = "warning" if newest.is_warning else "event"
    return f"; its newest {kind}: {newest.reason}: {newest.note.strip()}"[:_SHOWN_CHARACTERS]


def _unread(response: Response) -> str | Verdict:
    return repeatable(response) or said(response)


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
        """It tells of something that went wrong."""
        return self.type == "Warning"

    @property
    def seen(self) -> str:
        """When it was last seen; texts that are compared to the second."""
        last = self.series.last_observed_time if self.series is not None else None
        made = self.metadata.get("creationTimestamp")
        return str(last or self.deprecated_last_timestamp or self.event_time or made or "")[:19]


class _Events(Struct, frozen=True):
    items: list[_Event] | None = None


_events: Final = msgspec.json.Decoder(_Events)
