"""Events about unbound PersistentVolumeClaims, by the volume controller and the provisioner."""

import uuid
from dataclasses import dataclass
from typing import Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.store import Object, Record, Store

CONTROLLER: Final = "persistentvolume-controller"


@dataclass(frozen=True)
class ClaimEvent:
    """Type, reason, message and source of an event."""

    type: str
    reason: str
    message: str
    component: str


def waits_for_consumer() -> ClaimEvent:
    """No node is selected, or the provisioner has rejected the selected one."""
    return ClaimEvent("Normal", "WaitForFirstConsumer", "waiting for first consumer to be scheduled", CONTROLLER)


def waits_for_provisioner(provisioner: str) -> ClaimEvent:
    """The provisioner has to create the volume."""
    message = f"waiting for a volume to be created by the provisioner {provisioner!r}, or manually"
    return ClaimEvent("Normal", "ExternalProvisioning", message, CONTROLLER)


def record_event(store: Store, claim: Record, event: ClaimEvent) -> None:
    """Store a new event about the claim."""
    metadata, now = claim.metadata, now_text()
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
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
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
