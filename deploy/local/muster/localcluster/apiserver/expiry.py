"""Expiry of old events and of pods on deleted nodes."""

import asyncio
import time
from typing import Final

from muster.localcluster.apiserver.clock import now_text, parse_time
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.store import Record

_EVENTS: Final = "events"
_PODS: Final = "pods"
_SWEEPS_PER_TTL: Final = 60


class ExpiryController:
    """Deletes expired events and orphaned pods periodically."""

    def __init__(self, cluster: Cluster, deleter: Deleter) -> None:
        self._cluster, self._deleter = cluster, deleter
        self._orphans: set[str] = set()  # uids of pods whose node was missing at the last sweep

    async def run(self) -> None:
        await asyncio.gather(self._sweep_events(), self._sweep_pods())

    async def _sweep_events(self) -> None:
        ttl = self._cluster.timing.event_ttl_seconds
        while True:
            await asyncio.sleep(ttl / _SWEEPS_PER_TTL)
            oldest = time.time() - ttl
            for record in list(self._cluster.store.collection(_EVENTS).records.values()):
                if _last_seen(record) < oldest:
                    self._cluster.store.remove(_EVENTS, record.key)

    async def _sweep_pods(self) -> None:
        pause = self._cluster.timing.orphaned_pod_seconds / 2
        while True:
            await asyncio.sleep(pause)
            nodes = self._cluster.store.collection("nodes").records
            missing: set[str] = set()
            for record in list(self._cluster.store.collection(_PODS).records.values()):
                node = record.object["spec"].get("nodeName")
                if not node or node in nodes:
                    continue
                uid = record.metadata["uid"]
                if uid in self._orphans:
                    self._remove(record)
                else:
                    missing.add(uid)
            self._orphans = missing

    def _remove(self, record: Record) -> None:
        kind = self._cluster.kinds.storing(_PODS)
        assert kind is not None
        status = record.object.get("status") or {}
        if status.get("phase") not in ("Succeeded", "Failed"):
            reason = {
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now_text(),
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
            }
            conditions = [each for each in status.get("conditions") or () if each.get("type") != reason["type"]]
            failed = {**status, "phase": "Failed", "conditions": [*conditions, reason]}
            changed = {**record.object, "metadata": dict(record.metadata), "status": failed}
            record = self._cluster.store.put(_PODS, record.key, changed)
        self._deleter.delete_record(kind, record, {"gracePeriodSeconds": 0})


def _last_seen(record: Record) -> float:
    event = record.object
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        record.metadata.get("creationTimestamp"),
    )
    return max((seconds for text in times if (seconds := parse_time(text)) is not None), default=0.0)
