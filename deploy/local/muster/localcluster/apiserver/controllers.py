"""Controllers inside the API server, which read its changes directly."""

import asyncio
from typing import Protocol

from muster.localcluster.apiserver.admission import Admission
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.custom_kinds import Definitions
from muster.localcluster.apiserver.delete import Deleter
from muster.localcluster.apiserver.devices.claim_controller import ResourceClaimController
from muster.localcluster.apiserver.disruption_budgets import DisruptionController
from muster.localcluster.apiserver.ephemeral_volumes import EphemeralVolumes
from muster.localcluster.apiserver.expiry import ExpiryController
from muster.localcluster.apiserver.garbage_collector import GarbageCollector
from muster.localcluster.apiserver.job_controller import JobController
from muster.localcluster.apiserver.namespace_controller import NamespaceCleaner
from muster.localcluster.apiserver.node_lifecycle import NodeLifecycle
from muster.localcluster.apiserver.pod_group_protection import PodGroupProtection
from muster.localcluster.apiserver.resource_quotas import ResourceQuotaController
from muster.localcluster.apiserver.volume_controller import VolumeController
from muster.localcluster.apiserver.write import Writer


class _Controller(Protocol):
    async def run(self) -> None: ...


class Controllers:
    """All controllers, started and stopped together."""

    def __init__(self, cluster: Cluster, writer: Writer, deleter: Deleter, admission: Admission) -> None:
        garbage = GarbageCollector(cluster, deleter)
        namespaces = NamespaceCleaner(cluster, deleter)
        nodes = NodeLifecycle(cluster)
        budgets, quotas = DisruptionController(cluster), ResourceQuotaController(cluster)
        jobs, pod_groups = JobController(cluster, writer, admission, deleter), PodGroupProtection(cluster)
        ephemeral, volumes = EphemeralVolumes(cluster, writer), VolumeController(cluster)
        claims = ResourceClaimController(cluster, writer, deleter)
        sweeper = ExpiryController(cluster, deleter)
        controllers = (garbage, namespaces, nodes, budgets, quotas, jobs, pod_groups, ephemeral, volumes, claims)
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
