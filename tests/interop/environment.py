"""A real control plane with Muster and the controllers, for all scenarios of a run."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import Final

from builders.e2e.cluster import Cluster, running_cluster
from interop.control_plane import ControlPlane, running_control_plane
from interop.controllers import KUBE_CONTROLLER_MANAGER, SCHEDULER_NAMES, closure
from interop.results import Outcome, Result
from interop.running_controller import installed, kube_controller_manager
from interop.sandbox import Sandbox
from interop.scenarios import WARM_UP
from interop.scenarios.rivals import HIGH
from interop.scenarios.scenario import Scenario
from interop.spark.drivers import SparkDrivers
from interop.starts import Starts
from interop.workload_kind import WorkloadKind

_PRIORITY_CLASS: Final = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": HIGH},
    "value": 1000,
}
_GATES: Final = ("WorkloadWithJob=true",)
"""The Job controller creates a native PodGroup for every Job, whether or not the Job asks for one."""
_SETTINGS: Final = {
    "MUSTER_CLUSTER_STATE_KUEUE_WORKLOADS": "true",
    "MUSTER_CLUSTER_STATE_SCHEDULER_NAMES": ",".join(SCHEDULER_NAMES),
    "MUSTER_LIFECYCLE_SCHEDULER_NAMES": ",".join(SCHEDULER_NAMES),
    # Short, so that a gang that runs with fewer pods than its minimum is repaired while a scenario waits.
    "MUSTER_COORDINATOR_REPAIR_TIMEOUT_SECONDS": "10",
    "MUSTER_COORDINATOR_GROWTH_HOLD_OFF_SECONDS": "3",
}


class Environment:
    """Runs scenarios one after another, each in a namespace and on nodes of its own."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, size: int) -> None:
        self._plane, self.cluster, self._size = plane, cluster, size
        self._controllers = {KUBE_CONTROLLER_MANAGER.name: kube_controller_manager(plane)}

    async def use(self, kind: WorkloadKind) -> None:
        """Start the controller of a kind and those that it needs, and stop all others."""
        if kind.controller in self._controllers:
            return
        needed = closure(KUBE_CONTROLLER_MANAGER.name, kind.controller)
        await self.stop(keeping={each.name for each in needed})
        for each in needed:
            if each.name not in self._controllers:
                self._controllers[each.name] = await installed(each, self.cluster.session, self._plane)
        # The garbage collector learns of new kinds every 30 s: scenarios should not measure that.
        await self.run(kind, WARM_UP)

    async def stop(self, *, keeping: Collection[str] = (KUBE_CONTROLLER_MANAGER.name,)) -> None:
        """Stop controllers and remove their webhooks, the last one first. The control plane stops its own."""
        for name in reversed([each for each in self._controllers if each not in keeping]):
            await self._controllers.pop(name).stop(self.cluster.session)

    async def run(self, kind: WorkloadKind, scenario: Scenario) -> Result:
        """Run one scenario; every process runs when it starts."""
        began = time.monotonic()
        starts = Starts(whole_within_seconds=scenario.whole_within_seconds)
        box = Sandbox(self.cluster, kind, self._controllers, starts, self._size)
        problems: list[str] = []
        try:
            await self.cluster.begin()
            for controller in self._controllers.values():
                await controller.start()
            await box.open()
            await scenario.run(box)
        except Exception as error:
            problems.append(f"{error or repr(error)}\n{await box.workloads()}")
        problems += starts.violations()
        seconds = time.monotonic() - began
        try:
            await self.cluster.begin()
            await box.close()
            await self.cluster.invariants.check()
        except Exception as error:
            problems.append(f"afterwards: {error or repr(error)}")
        outcome = Outcome.FAILS if problems else Outcome.WORKS
        return Result(
            kind.controller, kind.name, scenario.name, outcome, round(seconds, 1), "\n".join(problems), box.remark
        )


@contextlib.asynccontextmanager
async def running_environment(directory: Path, size: int) -> AsyncIterator[Environment]:
    """The control plane and Muster, without other controllers. Gangs have `size` pods."""
    async with running_control_plane(directory / "control-plane", _GATES) as plane:
        muster = running_cluster(directory / "muster", kubeconfig=plane.kubeconfig, service_environment=_SETTINGS)
        async with muster as cluster:
            await cluster.apply(_PRIORITY_CLASS)
            drivers = asyncio.create_task(SparkDrivers(cluster).run())
            environment = Environment(plane, cluster, size)
            try:
                yield environment
            finally:
                await environment.stop()
                drivers.cancel()
