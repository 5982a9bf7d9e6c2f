"""Events of lifecycle: one object for the same thing about the same object, with a count of how often it was told."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Any, Final

from muster.gangs.facts import ObjectReference
from muster.kube.paths import object_path
from muster.lifecycle.calls import Calls

_CONTROLLER: Final = "muster-lifecycle"
_NOTE_BYTES: Final = 1024  # what the API takes
_WORD_CHARACTERS: Final = 128
_NAME_CHARACTERS: Final = 253


class EventLog:
    """Tells users what happened, on the object where they look."""

    def __init__(self, calls: Calls, instance: str) -> None:
        self._calls, self._instance = calls, instance[:_WORD_CHARACTERS]

    async def tell(self, about: ObjectReference, reason: str, note: str, *, action: str, warning: bool = True) -> None:
        """Write it, or count it if it has been told before. Raises KubeUnreachable and ApiStatusError."""
        note = _cut(note)
        now = _micro_time(time.time())
        name = _name(about, reason, note)
        content = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace},
            "eventTime": now,
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "action": action,
            "note": note,
            "regarding": {
                "apiVersion": about.api_version,
                "kind": about.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "reportingController": _CONTROLLER,
            "reportingInstance": self._instance,
        }
        if await self._calls.create(object_path("events.k8s.io/v1", "events", about.namespace), content) is None:
            await self._count(object_path("events.k8s.io/v1", "events", about.namespace, name), now)

    async def _count(self, path: str, now: str) -> None:
        told = await self._calls.get(path)
        if told is not None:
            series = {"count": _count_of(told) + 1, "lastObservedTime": now}
            await self._calls.patch(path, {"series": series})


def _count_of(event: dict[str, Any]) -> int:
    series = event.get("series")
    count = series.get("count") if isinstance(series, dict) else None
    return count if isinstance(count, int) and count > 0 else 1


def _name(about: ObjectReference, reason: str, note: str) -> str:
    digest = hashlib.blake2b("\0".join((about.uid, reason, note)).encode(), digest_size=8).hexdigest()
    return f"{about.name[: _NAME_CHARACTERS - 17].rstrip('-.')}.{digest}"


def _cut(note: str) -> str:
    encoded = note.encode()
    return note if len(encoded) <= _NOTE_BYTES else encoded[: _NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _micro_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
