"""The controllers that a cluster cannot do without, inside the API server: they look at its changes directly."""

import asyncio
from typing import Protocol

from muster.localcluster.apiserver.admission import Admission
from muster.localcluster.apiserver.budgets import BudgetKeeper
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.definitions import Definitions
from muster.localcluster.apiserver.deleting import Deleter
from muster.localcluster.apiserver.ephemeral_volumes import EphemeralVolumes
from muster.localcluster.apiserver.garbage import GarbageCollector
from muster.localcluster.apiserver.jobs import JobController
from muster.localcluster.apiserver.namespaces import NamespaceCleaner
from muster.localcluster.apiserver.node_lifecycle import NodeLifecycle
from muster.localcluster.apiserver.pod_group_protection import PodGroupProtection
from muster.localcluster.apiserver.quotas import QuotaKeeper
from muster.localcluster.apiserver.sweeping import Sweeper
from muster.localcluster.apiserver.volumes import VolumeController
from muster.localcluster.apiserver.writing import Writer


class _Controller(Protocol):
    async def run(self) -> None: ...


class Controllers:
    """All of them, started and stopped together."""

    def __init__(self, cluster: Cluster, writer: Writer, deleter: Deleter, admission: Admission) -> None:
        garbage = GarbageCollector(cluster, deleter)
        namespaces = NamespaceCleaner(cluster, deleter)
        nodes = NodeLifecycle(cluster)
        budgets, quotas = BudgetKeeper(cluster), QuotaKeeper(cluster)
        jobs, pod_groups = JobController(cluster, writer, admission, deleter), PodGroupProtection(cluster)
        ephemeral, volumes = EphemeralVolumes(cluster, writer), VolumeController(cluster)
        sweeper = Sweeper(cluster, deleter)
        controllers = (garbage, namespaces, nodes, budgets, quotas, jobs, pod_groups, ephemeral, volumes)
        for listener in (Definitions(cluster), *controllers):
            cluster.store.listen(listener.note)
        self._controllers: list[_Controller] = [*controllers, sweeper]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(each.run(), name=type(each).__name__) for each in self._controllers]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
