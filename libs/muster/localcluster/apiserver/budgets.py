"""Keeps the status of disruption budgets in step with the pods that they cover."""

import asyncio
from typing import Final

from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.eviction import BUDGETS, budget_status
from muster.localcluster.apiserver.store import Change, Collection, in_namespace

_PAUSE_SECONDS: Final = 0.1  # pods change in bursts


class BudgetKeeper:
    """Recounts the budgets of a namespace after its pods changed."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stale: set[str] = set()
        self._wake = asyncio.Event()

    def note(self, collection: Collection, change: Change) -> None:
        if collection.name == BUDGETS or (
            collection.name == "pods" and self._cluster.store.collection(BUDGETS).records
        ):
            self._stale.add(change.record.metadata["namespace"])
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            stale, self._stale = self._stale, set()
            for namespace in stale:
                self._recount(namespace)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _recount(self, namespace: str) -> None:
        store = self._cluster.store
        pods = in_namespace(store.collection("pods").records.values(), namespace)
        for budget in in_namespace(store.collection(BUDGETS).records.values(), namespace):
            former = budget.object.get("status") or {}
            status = budget_status(budget.object, pods)
            if any(former.get(name) != value for name, value in status.items()):
                store.put(BUDGETS, budget.key, {**budget.object, "metadata": dict(budget.metadata), "status": status})
