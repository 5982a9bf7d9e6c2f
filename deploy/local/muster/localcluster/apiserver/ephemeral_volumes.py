"""Ephemeral volume controller: creates claims from the templates in pods, owned by the pods."""

from collections.abc import Iterable
from typing import Final

import structlog

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.routing import Call, Target
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.storage_kinds import CLAIMS
from muster.localcluster.apiserver.store import Change, Collection, Object
from muster.localcluster.apiserver.work_queue import WorkQueue
from muster.localcluster.apiserver.write import Writer

_log: Final = structlog.get_logger(__name__)


class EphemeralVolumes:
    """Creates the claims; the garbage collector deletes them with their pods."""

    def __init__(self, cluster: Cluster, writer: Writer) -> None:
        self._cluster, self._writer = cluster, writer
        self._queue: WorkQueue[str] = WorkQueue(self._make_claims)

    async def run(self) -> None:
        await self._queue.run()

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == "pods" and change.type == "ADDED" and any(True for _ in _templates(change.record.object)):
            self._queue.add(change.record.key)

    def _make_claims(self, key: str) -> None:
        record = self._cluster.store.get("pods", key)
        if record is None or "deletionTimestamp" in record.metadata:
            return
        kind = self._cluster.kinds.storing(CLAIMS)
        assert kind is not None
        for volume, template in _templates(record.object):
            claim = _claim(record.metadata, volume, template)
            if self._cluster.store.get(CLAIMS, f"{record.metadata['namespace']}/{claim['metadata']['name']}") is None:
                try:
                    self._writer.create_object(Call("POST", Target(kind, record.metadata["namespace"]), {}), claim)
                except StatusError as error:
                    _log.warning("claim_rejected", pod=key, volume=volume, error=error.message)


def _templates(pod: Object) -> Iterable[tuple[str, Object]]:
    """Names of ephemeral volumes and their claim templates."""
    for volume in pod["spec"].get("volumes") or ():
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            yield volume["name"], template


def _claim(pod: Object, volume: str, template: Object) -> Object:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    described = template.get("metadata") or {}
    metadata: Object = {name: dict(described[name]) for name in ("labels", "annotations") if name in described}
    metadata |= {"name": f"{pod['name']}-{volume}", "namespace": pod["namespace"]}
    metadata["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    spec = dict(template.get("spec") or {})
    return {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": metadata, "spec": spec}
