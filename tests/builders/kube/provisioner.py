"""Provisions volumes on a real API server, like a storage driver's provisioner and the embedded server's own.

The controllers of the cluster do their part: they assign the provisioner to claims, and bind claims to these volumes.
Of the parameters of a storage class it knows `seconds` and `refusedNodes`.
"""

import asyncio
import uuid
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from builders.kube.watch import Change, follow_kind
from builders.wait import latency
from muster.kube.session import ApiStatusError, KubeSession
from muster.localcluster.apiserver.provisioner import PROVISIONER, SELECTED_NODE

JSON = dict[str, Any]
_Method = Literal["GET", "POST", "PATCH", "DELETE"]

_PROVISIONED_BY: Final = "volume.kubernetes.io/storage-provisioner"
_HOSTNAME: Final = "kubernetes.io/hostname"
_CLAIMS: Final = "/api/v1/persistentvolumeclaims"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_CALL_SECONDS: Final = 60.0
_SETTLED: Final = (404, 409)


class Provisioner:
    """Provisions volumes for claims whose storage class has the local cluster's provisioner."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session
        self._tasks = asyncio.TaskGroup()
        self._seen: set[tuple[str, str]] = set()
        """Claims by uid with the selected node."""

    async def run(self) -> None:
        """Run until cancelled."""
        async with self._tasks:
            await follow_kind(self._session, _CLAIMS, self._on_claim, asyncio.Event())

    def _on_claim(self, change: Change, claim: JSON) -> None:
        """Provision a claim once for each selected node."""
        metadata = claim["metadata"]
        annotations = metadata.get("annotations") or {}
        if annotations.get(_PROVISIONED_BY) != PROVISIONER:
            return
        task = metadata["uid"], annotations.get(SELECTED_NODE, "")
        if change == "DELETED":
            self._tasks.create_task(self._request("DELETE", f"{_VOLUMES}/{_volume_name(claim)}"))
        elif not claim["spec"].get("volumeName") and task not in self._seen:
            self._seen.add(task)
            self._tasks.create_task(self._serve(claim, task))

    async def _serve(self, claim: JSON, task: tuple[str, str]) -> None:
        storage_class = await self._request("GET", f"{_CLASSES}/{claim['spec']['storageClassName']}")
        parameters, node = storage_class.get("parameters") or {}, task[1]
        if not storage_class or (not node and storage_class["volumeBindingMode"] != "Immediate"):
            return
        await latency(float(parameters.get("seconds", "0")))  # the provisioning time
        if node not in filter(None, parameters.get("refusedNodes", "").split(",")):
            await self._request("POST", _VOLUMES, _volume(claim, node, storage_class))
            return
        metadata, name = claim["metadata"], storage_class["metadata"]["name"]
        namespace = f"/api/v1/namespaces/{metadata['namespace']}"
        why = f'failed to provision volume with StorageClass "{name}": node {node!r} has no free storage'
        await self._request("POST", f"{namespace}/events", _event(claim, why))
        self._seen.discard(task)
        selects_none = {"metadata": {"annotations": {SELECTED_NODE: None}}}
        await self._request("PATCH", f"{namespace}/persistentvolumeclaims/{metadata['name']}", selects_none)

    async def _request(self, method: _Method, path: str, body: JSON | None = None) -> JSON:
        """The response; None if the object is gone, or was created concurrently."""
        answer = await self._session.request(
            method,
            path,
            body=None if body is None else msgspec.json.encode(body),
            content_type="application/merge-patch+json" if method == "PATCH" else "application/json",
            timeout_seconds=_CALL_SECONDS,
        )
        if answer.status in _SETTLED:
            return {}
        if answer.status >= 300:
            raise ApiStatusError.from_response(answer)
        return dict(msgspec.json.decode(answer.body))


def _volume_name(claim: JSON) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _volume(claim: JSON, node: str, storage_class: JSON) -> JSON:
    """A volume for the claim; usable on the node, or on any node without one."""
    spec: JSON = {
        "accessModes": claim["spec"]["accessModes"],
        "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
        "claimRef": _reference(claim),
        "persistentVolumeReclaimPolicy": storage_class["reclaimPolicy"],
        "storageClassName": storage_class["metadata"]["name"],
        "csi": {"driver": PROVISIONER, "volumeHandle": _volume_name(claim)},
    }
    if node:
        requirement = {"key": _HOSTNAME, "operator": "In", "values": [node]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}
    metadata = {"name": _volume_name(claim), "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


def _event(claim: JSON, message: str) -> JSON:
    """The warning event of a failed provisioning."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"name": f"{claim['metadata']['name']}.{uuid.uuid4().hex[:16]}"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {**metadata, "namespace": claim["metadata"]["namespace"]},
        "involvedObject": _reference(claim),
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": message,
        "source": {"component": PROVISIONER},
        "firstTimestamp": now,
        "lastTimestamp": now,
    }


def _reference(claim: JSON) -> JSON:
    kept = {name: claim["metadata"][name] for name in ("namespace", "name", "uid")}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **kept}
