"""Events by controllers of the API server."""

import uuid
from dataclasses import dataclass

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.store import Object, Record, Store


@dataclass(frozen=True)
class ControllerEvent:
    """Type, reason, message and source of an event."""

    type: str
    reason: str
    message: str
    component: str


def record_event(store: Store, record: Record, event: ControllerEvent) -> None:
    """Store a new event about the object."""
    metadata, now = record.metadata, now_text()
    body: Object = {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata["namespace"],
            "uid": str(uuid.uuid4()),
            "creationTimestamp": now,
        },
        "involvedObject": {
            "kind": record.object["kind"],
            "apiVersion": record.object["apiVersion"],
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": event.component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    store.put("events", f"{metadata['namespace']}/{body['metadata']['name']}", body)
