"""Removes the finalizer of terminating PodGroups of scheduling.k8s.io once all their pods have ended or are gone."""

from typing import Final

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import drop_finalizer
from muster.localcluster.apiserver.pod_groups import COLLECTION, PROTECTION
from muster.localcluster.apiserver.store import Change, Collection, Record, in_namespace, key_of
from muster.localcluster.apiserver.work_queue import WorkQueue

_PODS: Final = "pods"
_ENDED: Final = ("Succeeded", "Failed")


class PodGroupProtection:
    """Reconciles a terminating PodGroup whenever one of its pods changes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._terminating: set[str] = set()
        self._queue: WorkQueue[str] = WorkQueue(self._reconcile)

    async def run(self) -> None:
        await self._queue.run()

    def note(self, collection: Collection, change: Change) -> None:
        key = change.record.key
        if collection.name == COLLECTION:
            if change.type == "DELETED":
                self._terminating.discard(key)
            elif "deletionTimestamp" in change.record.metadata:
                self._terminating.add(key)
                self._queue.add(key)
        elif (
            collection.name == _PODS and self._terminating and (group := _group_of(change.record)) in self._terminating
        ):
            self._queue.add(group)

    def _reconcile(self, key: str) -> None:
        record = self._cluster.store.get(COLLECTION, key)
        if record is None or "deletionTimestamp" not in record.metadata:
            return
        if PROTECTION in (record.metadata.get("finalizers") or ()) and not self._is_used(record):
            drop_finalizer(self._cluster.store, COLLECTION, record, PROTECTION)

    def _is_used(self, record: Record) -> bool:
        pods = in_namespace(self._cluster.store.collection(_PODS).records.values(), record.metadata["namespace"])
        return any(_group_of(pod) == record.key and not _has_ended(pod) for pod in pods)


def _group_of(pod: Record) -> str:
    """Key of the pod's PodGroup; empty if it has none."""
    name = (pod.object["spec"].get("schedulingGroup") or {}).get("podGroupName")
    return key_of(pod.metadata["namespace"], name) if name else ""


def _has_ended(pod: Record) -> bool:
    return (pod.object.get("status") or {}).get("phase") in _ENDED
