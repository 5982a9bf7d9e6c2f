"""Records Kubernetes events: one Event object per distinct event, with a count of its repetitions."""

import hashlib
import time
from datetime import UTC, datetime
from typing import Any, Final

from muster.gangs.facts import ObjectReference
from muster.kube.paths import object_path
from muster.lifecycle.object_client import ObjectClient

_CONTROLLER: Final = "muster-lifecycle"
_MAX_NOTE_BYTES: Final = 1024  # limit of the API
_MAX_INSTANCE_LENGTH: Final = 128
_MAX_NAME_LENGTH: Final = 253


class EventRecorder:
    """Records events about objects."""

    def __init__(self, client: ObjectClient, instance: str) -> None:
        self._client, self._instance = client, instance[:_MAX_INSTANCE_LENGTH]

    async def record(
        self, about: ObjectReference, reason: str, note: str, *, action: str, warning: bool = True
    ) -> None:
        """Creates the event, or increments its count if it exists. Raises KubeUnreachable and ApiStatusError."""
        note = _truncated(note)
        now = _micro_time(time.time())
        name = _name(about, reason, note)
        namespace = about.namespace or "default"  # as for all events of cluster-scoped objects
        content = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
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
        if await self._client.create(object_path("events.k8s.io/v1", "events", namespace), content) is None:
            await self._count(object_path("events.k8s.io/v1", "events", namespace, name), now)

    async def _count(self, path: str, now: str) -> None:
        event = await self._client.get(path)
        if event is not None:
            series = {"count": _count_of(event) + 1, "lastObservedTime": now}
            await self._client.patch(path, {"series": series})


def _count_of(event: dict[str, Any]) -> int:
    series = event.get("series")
    count = series.get("count") if isinstance(series, dict) else None
    return count if isinstance(count, int) and count > 0 else 1


def _name(about: ObjectReference, reason: str, note: str) -> str:
    digest = hashlib.blake2b("\0".join((about.uid, reason, note)).encode(), digest_size=8).hexdigest()
    return f"{about.name[: _MAX_NAME_LENGTH - 17].rstrip('-.')}.{digest}"


def _truncated(note: str) -> str:
    encoded = note.encode()
    return note if len(encoded) <= _MAX_NOTE_BYTES else encoded[: _MAX_NOTE_BYTES - 3].decode(errors="ignore") + "…"


def _micro_time(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
