"""Simulated volume provisioner for storage classes with the provisioner "simulated.muster.dev".

Parameters of such a storage class, all optional:

    seconds        time to create a volume
    topologyKey    volumes are accessible from nodes with the selected node's value of this label, by default
                   kubernetes.io/hostname; without a selected node, from all nodes
    refusedNodes   comma-separated nodes without storage: a selection of one is reset
    failure        error for every volume; it is reported as an event, and the selection stays
"""

import asyncio
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Final

from muster.localcluster.apiserver.clock import now_text
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.controller_events import ControllerEvent, record_event
from muster.localcluster.apiserver.storage_kinds import CLAIMS, DELAYED, VOLUMES
from muster.localcluster.apiserver.store import Object, Record

PROVISIONER: Final = "simulated.muster.dev"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"

_PROVISIONED_BY: Final = "volume.kubernetes.io/storage-provisioner"
_HOSTNAME: Final = "kubernetes.io/hostname"


class _Progress(Enum):
    RUNNING = 1
    READY = 2
    FAILED = 3


class _ProvisioningError(Exception):
    """The volume cannot be created; `reselect`: another node may work."""

    def __init__(self, message: str, *, reselect: bool) -> None:
        super().__init__(message)
        self.reselect = reselect


class Provisioner:
    """Creates volumes, each after its delay."""

    def __init__(self, cluster: Cluster, enqueue: Callable[[str], None]) -> None:
        """`enqueue` is called with the key of a claim that should be reconciled."""
        self._store = cluster.store
        self._enqueue = enqueue
        self._tasks: dict[tuple[str, str], _Progress] = {}  # by claim uid and node
        self._timers: set[asyncio.TimerHandle] = set()

    def stop(self) -> None:
        """Cancel all creations."""
        for timer in self._timers:
            timer.cancel()

    def provision(self, claim: Record, storage_class: Object) -> None:
        """Create the volume of an unbound claim when its delay is over."""
        if storage_class["provisioner"] != PROVISIONER:
            return
        annotations = claim.metadata.get("annotations") or {}
        node = annotations.get(SELECTED_NODE, "")
        if storage_class["volumeBindingMode"] == DELAYED and not node:
            return
        if annotations.get(_PROVISIONED_BY) != PROVISIONER:
            self._annotate(claim, {**annotations, _PROVISIONED_BY: PROVISIONER})
            return  # called again after this change
        task = claim.metadata["uid"], node
        match self._tasks.get(task):
            case None:
                self._begin(task, claim.key, float(_parameters(storage_class).get("seconds", "0")))
            case _Progress.READY:
                self._finish(task, claim, storage_class)

    def _begin(self, task: tuple[str, str], key: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()

        def end() -> None:
            self._timers.discard(timer)
            self._tasks[task] = _Progress.READY
            self._enqueue(key)

        self._tasks[task] = _Progress.RUNNING
        timer = loop.call_later(seconds, end)
        self._timers.add(timer)

    def _finish(self, task: tuple[str, str], claim: Record, storage_class: Object) -> None:
        try:
            self._create_volume(claim, task[1], storage_class)
        except _ProvisioningError as error:
            self._report(claim, f'failed to provision volume with StorageClass "{_name(storage_class)}": {error}')
            if not error.reselect:
                self._tasks[task] = _Progress.FAILED
                return
            annotations = claim.metadata.get("annotations") or {}
            self._annotate(claim, {key: value for key, value in annotations.items() if key != SELECTED_NODE})
        del self._tasks[task]

    def _create_volume(self, claim: Record, node: str, storage_class: Object) -> None:
        """Create the volume with a claimRef to this claim. Raises _Refused."""
        parameters, spec = _parameters(storage_class), claim.object["spec"]
        if "failure" in parameters:
            raise _ProvisioningError(parameters["failure"], reselect=False)
        if node and node in parameters.get("refusedNodes", "").split(","):
            raise _ProvisioningError(f"node {node!r} has no free storage", reselect=True)
        volume_spec: Object = {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": claim.metadata["namespace"],
                "name": claim.metadata["name"],
                "uid": claim.metadata["uid"],
            },
            "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
            "storageClassName": _name(storage_class),
            "volumeMode": spec["volumeMode"],
            "csi": {"driver": PROVISIONER, "volumeHandle": f"pvc-{claim.metadata['uid']}"},
        }
        if node:
            volume_spec["nodeAffinity"] = self._affinity(node, parameters.get("topologyKey", _HOSTNAME))
        name = f"pvc-{claim.metadata['uid']}"
        metadata: Object = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": now_text()}
        metadata["annotations"] = {"pv.kubernetes.io/provisioned-by": PROVISIONER}
        volume = {"kind": "PersistentVolume", "apiVersion": "v1", "metadata": metadata, "spec": volume_spec}
        self._store.put(VOLUMES, name, {**volume, "status": {"phase": "Pending"}})

    def _affinity(self, node: str, key: str) -> Object:
        record = self._store.get("nodes", node)
        if record is None:
            raise _ProvisioningError(f"node {node!r} does not exist", reselect=True)
        value = (record.metadata.get("labels") or {}).get(key)
        if value is None:
            raise _ProvisioningError(f"node {node!r} has no label {key!r}", reselect=True)
        requirement = {"key": key, "operator": "In", "values": [value]}
        return {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}

    def _report(self, claim: Record, message: str) -> None:
        record_event(self._store, claim, ControllerEvent("Warning", "ProvisioningFailed", message, PROVISIONER))

    def _annotate(self, claim: Record, annotations: Object) -> None:
        metadata = {**claim.metadata, "annotations": annotations}
        self._store.put(CLAIMS, claim.key, {**claim.object, "metadata": metadata})


def _parameters(storage_class: Object) -> Object:
    return storage_class.get("parameters") or {}


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])
