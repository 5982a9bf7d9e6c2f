"""What is told about claims that have no volume yet, by the volume controller and by who makes volumes."""

import uuid
from dataclasses import dataclass
from typing import Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.store import Object, Record, Store

CONTROLLER: Final = "persistentvolume-controller"


@dataclass(frozen=True)
class Told:
    """An event but for what it is about."""

    type: str
    reason: str
    message: str
    component: str


def waits_for_consumer() -> Told:
    """Nobody has selected a node, or whoever makes volumes took the selection back."""
    return Told("Normal", "WaitForFirstConsumer", "the first pod that uses it has no node yet", CONTROLLER)


def waits_for_provisioner(provisioner: str) -> Told:
    """It is somebody else's turn to make the volume."""
    message = f"a volume is to be made by the provisioner {provisioner!r}, or by hand"
    return Told("Normal", "ExternalProvisioning", message, CONTROLLER)


def tell(store: Store, claim: Record, told: Told) -> None:
    """Write it as a new event."""
    metadata, now = claim.metadata, now_text()
    event: Object = {
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
        "type": told.type,
        "reason": told.reason,
        "message": told.message,
        "source": {"component": told.component},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    store.put("events", f"{metadata['namespace']}/{event['metadata']['name']}", event)
