"""Volume controller: binds claims and volumes, and reclaims volumes of deleted claims.

A claim with WaitForFirstConsumer is not bound to an existing volume: the scheduler that selects the consumer's node has
to reserve the volume for the claim.
"""

from typing import Any, Final

from muster.gangs.quantity import BadQuantity, parse_quantity
from muster.localcluster.apiserver.claim_events import waits_for_consumer, waits_for_provisioner
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.controller_events import ControllerEvent, record_event
from muster.localcluster.apiserver.provisioner import SELECTED_NODE, Provisioner
from muster.localcluster.apiserver.storage_kinds import CLAIMS, CLASSES, DELAYED, VOLUMES
from muster.localcluster.apiserver.store import Change, Collection, Object, Record
from muster.localcluster.apiserver.work_queue import WorkQueue

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


class VolumeController:
    """Reconciles claims and volumes."""

    def __init__(self, cluster: Cluster) -> None:
        self._store = cluster.store
        self._provisioner = Provisioner(cluster, self._enqueue)
        self._last_events: dict[str, ControllerEvent] = {}
        """Uid of an unbound claim -> last event about it."""
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(self._reconcile)

    async def run(self) -> None:
        try:
            await self._queue.run()
        finally:
            self._provisioner.stop()

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == CLAIMS:
            name = (change.record.object.get("spec") or {}).get("volumeName")
            if change.type != "DELETED":
                self._enqueue(change.record.key)
                return
            self._last_events.pop(change.record.metadata["uid"], None)
            if name:
                self._queue.add((VOLUMES, name))
        elif collection.name == VOLUMES and change.type != "DELETED":
            self._queue.add((VOLUMES, change.record.key))
            if not _reference(change.record.object):
                self._enqueue_pending_claims()
        elif collection.name == CLASSES:
            self._enqueue_pending_claims()

    def _enqueue(self, claim: str) -> None:
        self._queue.add((CLAIMS, claim))

    def _enqueue_pending_claims(self) -> None:
        for record in self._store.collection(CLAIMS).records.values():
            if not _is_bound(record.object):
                self._enqueue(record.key)

    def _reconcile(self, item: tuple[str, str]) -> None:
        collection, key = item
        record = self._store.get(collection, key)
        if record is None or "deletionTimestamp" in record.metadata:
            return
        if collection == CLAIMS:
            self._reconcile_claim(record)
        else:
            self._reconcile_volume(record)

    def _reconcile_claim(self, claim: Record) -> None:
        if _is_bound(claim.object):
            self._last_events.pop(claim.metadata["uid"], None)
            return
        name = claim.object["spec"].get("volumeName")
        if name:
            volume = self._store.get(VOLUMES, name)
            if volume is not None and _is_available_to(volume.object, claim):
                self._bind(claim, volume)
            return
        volume = self._reserved_for(claim) or self._best_for(claim)
        if volume is not None:
            self._bind(claim, volume)
        elif (storage_class := self._class_of(claim)) is not None:
            self._report_pending(claim, storage_class)
            self._provisioner.provision(claim, storage_class)

    def _report_pending(self, claim: Record, storage_class: Object) -> None:
        """Store an event about a pending claim, unless it repeats the last one."""
        selected = (claim.metadata.get("annotations") or {}).get(SELECTED_NODE)
        if storage_class["volumeBindingMode"] == DELAYED and not selected:
            event = waits_for_consumer()
        elif storage_class["provisioner"] != _NO_PROVISIONER:
            event = waits_for_provisioner(storage_class["provisioner"])
        else:
            return
        if self._last_events.get(claim.metadata["uid"]) != event:
            self._last_events[claim.metadata["uid"]] = event
            record_event(self._store, claim, event)

    def _class_of(self, claim: Record) -> Object | None:
        record = self._store.get(CLASSES, claim.object["spec"].get("storageClassName") or "")
        return None if record is None else record.object

    def _reserved_for(self, claim: Record) -> Record | None:
        """A volume whose claimRef names the claim."""
        volumes = self._store.collection(VOLUMES).records.values()
        return next(
            (each for each in volumes if _reference(each.object) and _is_available_to(each.object, claim)), None
        )

    def _best_for(self, claim: Record) -> Record | None:
        """The smallest available volume that satisfies the claim."""
        storage_class = self._class_of(claim)
        if storage_class is not None and storage_class["volumeBindingMode"] == DELAYED:
            return None
        volumes = self._store.collection(VOLUMES).records.values()
        fitting = [each for each in volumes if not _reference(each.object) and _satisfies(each.object, claim.object)]
        return min(fitting, key=lambda each: (_bytes(each.object["spec"].get("capacity")), each.key), default=None)

    def _bind(self, claim: Record, volume: Record) -> None:
        """Set the references in both directions, then both statuses in separate writes, as in real clusters."""
        own_reference = _reference(volume.object)
        reference = {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "namespace": claim.metadata["namespace"],
            "name": claim.metadata["name"],
            "uid": claim.metadata["uid"],
        }
        annotations = {} if own_reference else {_BOUND_BY_CONTROLLER: "yes"}
        spec = volume.object["spec"]
        self._change(VOLUMES, volume, annotations, {**spec, "claimRef": reference}, {"phase": "Bound"})
        claim_spec = {**claim.object["spec"], "volumeName": volume.key}
        self._change(CLAIMS, claim, {_BIND_COMPLETED: "yes", _BOUND_BY_CONTROLLER: "yes"}, claim_spec)
        status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["capacity"]}
        self._change(CLAIMS, self._store.collection(CLAIMS).records[claim.key], {}, claim_spec, status)

    def _reconcile_volume(self, volume: Record) -> None:
        reference, spec = _reference(volume.object), volume.object["spec"]
        phase = (volume.object.get("status") or {}).get("phase")
        if not reference:
            if phase != "Available":
                self._change(VOLUMES, volume, {}, spec, {"phase": "Available"})
            return
        claim = self._store.get(CLAIMS, f"{reference.get('namespace')}/{reference.get('name')}")
        if claim is not None and reference.get("uid") in (None, "", claim.metadata["uid"]):
            self._enqueue(claim.key)
        elif reference.get("uid") and spec["persistentVolumeReclaimPolicy"] == "Delete":
            self._store.remove(VOLUMES, volume.key)
        elif reference.get("uid") and phase != "Released":
            self._change(VOLUMES, volume, {}, spec, {"phase": "Released"})

    def _change(
        self, collection: str, record: Record, annotations: Object, spec: Object, status: Object | None = None
    ) -> None:
        metadata = dict(record.metadata)
        if annotations:
            metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        changed = {**record.object, "metadata": metadata, "spec": spec}
        if status is not None:
            changed["status"] = status
        self._store.put(collection, record.key, changed)


def _is_bound(claim: Object) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def _reference(volume: Object) -> Object:
    """Key of the claim that a volume references; empty: none."""
    return (volume.get("spec") or {}).get("claimRef") or {}


def _is_available_to(volume: Object, claim: Record) -> bool:
    """Whether the volume is reserved for no other claim."""
    reference, metadata = _reference(volume), claim.metadata
    if not reference:
        return True
    named = (reference.get("namespace"), reference.get("name")) == (metadata["namespace"], metadata["name"])
    return named and reference.get("uid") in (None, "", metadata["uid"])


def _satisfies(volume: Object, claim: Object) -> bool:
    volume_spec, claim_spec = volume["spec"], claim["spec"]
    return (
        (volume_spec.get("storageClassName") or "") == (claim_spec.get("storageClassName") or "")
        and volume_spec.get("volumeMode") == claim_spec.get("volumeMode")
        and set(claim_spec.get("accessModes") or ()) <= set(volume_spec.get("accessModes") or ())
        and _bytes(volume_spec.get("capacity")) >= _bytes((claim_spec.get("resources") or {}).get("requests"))
    )


def _bytes(amounts: Any) -> int:
    """Capacity of a volume or request of a claim; 0 if it is no quantity."""
    try:
        return parse_quantity(str((amounts or {}).get("storage", "0")))
    except BadQuantity:
        return 0
