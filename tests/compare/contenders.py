"""The schedulers that are compared, each with its own scheduler name and its own declaration of a gang."""

import asyncio
import sys
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Final

from builders.gangs.manifests import Workload
from interop.control_plane import ControlPlane
from interop.controllers import VOLCANO, Controller
from interop.kube_scheduler import SCHEDULER_NAME, KubeScheduler
from interop.running_controller import RunningController, installed, module_version, register
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests
from muster.localcluster.stack import ETCD, SERVICES, Stack
from muster.localcluster.stack_options import StackOptions

RACK: Final = "rack"
"""Label of the racks of nodes."""
_REQUESTS_PER_SECOND: Final = 5000
_GATES: Final = (
    "GenericWorkload=true",
    "TopologyAwareWorkloadScheduling=true",
    "PodGroupPreemptionPolicy=true",
    "CompositePodGroup=true",
    "SchedulerPopFromBackoffQ=false",
)

JSON = dict[str, Any]


class Contender(ABC):
    """One scheduler on one control plane. It is started and stopped any number of times."""

    name: ClassVar[str]
    dialect: ClassVar[Any]
    scheduler_name: ClassVar[str]
    settings: ClassVar[str]
    """How it is set up, for the page."""

    def __init__(self, plane: ControlPlane, session: KubeSession) -> None:
        self.plane, self.session = plane, session

    @abstractmethod
    async def prepare(self, racks: list[str]) -> None:
        """Create what it needs once; `racks`: values of the label of racks."""

    @abstractmethod
    async def start(self) -> None:
        """Start it; may return before it is ready."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop it."""

    @abstractmethod
    async def kill(self) -> None:
        """Send SIGKILL to all of its processes that write to the API server."""

    @abstractmethod
    def pids(self) -> dict[str, int]:
        """Its processes, while it runs."""

    async def close(self) -> None:
        """Stop what `prepare` started."""
        await self.stop()

    def gang(self, gang: Workload, *, in_rack: bool = False) -> Workload:
        """The gang in the scheduler's own words; `in_rack`: all pods in one rack."""
        declared = gang.declared_by(self.dialect).with_spec(schedulerName=self.scheduler_name)
        return declared.declaring(**self._in_rack()) if in_rack else declared

    @abstractmethod
    def _in_rack(self) -> JSON:
        """Fields of the PodGroup's spec that keep the pods in one rack."""


class Muster(Contender):
    """All services, each one process."""

    name = "Muster"
    dialect = "native"
    scheduler_name = "muster"
    settings = "defaults; five services with their own etcd; gangs are declared by PodGroups of Kubernetes"

    def __init__(self, plane: ControlPlane, session: KubeSession) -> None:
        super().__init__(plane, session)
        self._stack = Stack(
            StackOptions(
                directory=plane.directory / "muster",
                kubeconfig=plane.kubeconfig,
                kubelets=False,
                log_level="warning",
            )
        )

    async def prepare(self, racks: list[str]) -> None:
        await self._stack.start([ETCD])

    async def start(self) -> None:
        await self._stack.start(SERVICES)

    async def stop(self) -> None:
        for name in SERVICES[::-1]:
            await self._stack.stop_one(name)

    async def close(self) -> None:
        await self._stack.stop()

    async def kill(self) -> None:
        await asyncio.gather(*(self._stack.kill(name) for name in SERVICES))

    def pids(self) -> dict[str, int]:
        return {name: self._stack.children[name].pid for name in SERVICES}

    def _in_rack(self) -> JSON:
        return _native_rack()


class NativeGangs(Contender):
    """kube-scheduler with the feature gates of gangs."""

    name = "kube-scheduler"
    dialect = "native"
    scheduler_name = SCHEDULER_NAME
    settings = (
        f"default plugins; feature gates `{'`, `'.join(_GATES)}`; {_REQUESTS_PER_SECOND:,} requests a second;"
        " gangs are declared by PodGroups of Kubernetes"
    )

    def __init__(self, plane: ControlPlane, session: KubeSession) -> None:
        super().__init__(plane, session)
        self._scheduler = KubeScheduler(
            plane.directory / "kube-scheduler",
            plane.kubeconfig,
            requests_per_second=_REQUESTS_PER_SECOND,
            gates=_GATES,
        )

    async def prepare(self, racks: list[str]) -> None:
        pass

    async def start(self) -> None:
        # With gangs of 1,000 it may not answer /readyz for a minute, while it schedules.
        await self._scheduler.launch()

    async def stop(self) -> None:
        await self._scheduler.stop()

    async def kill(self) -> None:
        await self._scheduler.child.kill()

    def pids(self) -> dict[str, int]:
        return {"kube-scheduler": self._scheduler.child.pid}

    def _in_rack(self) -> JSON:
        return _native_rack()


class VolcanoScheduler(Contender):
    """Volcano's scheduler, without its controllers and webhooks."""

    name = "Volcano"
    dialect = "volcano"
    scheduler_name = "volcano"
    settings = (
        "actions `enqueue, allocate, preempt, backfill`, the plugins of its chart and `network-topology-aware`;"
        f" {_REQUESTS_PER_SECOND:,} requests a second; queues `root` and `default` with status Open; racks are"
        " HyperNodes"
    )
    _version = "scheduling.volcano.sh/v1beta1"
    _running: RunningController | None = None

    async def prepare(self, racks: list[str]) -> None:
        await register(VOLCANO, self.session)
        queues = [
            {"apiVersion": self._version, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
            for name in ("root", "default")
        ]
        await apply_manifests(self.session, map(Manifest, queues))
        for name in ("root", "default"):
            path = f"/apis/{self._version}/queues/{name}/status"
            body = b'{"status":{"state":"Open"}}'
            answer = await self.session.request(
                "PATCH", path, body=body, content_type="application/merge-patch+json", timeout_seconds=30
            )
            assert answer.status == 200, answer.body
        await apply_manifests(self.session, [Manifest(_hyper_node(rack)) for rack in racks])

    async def start(self) -> None:
        if self._running is None:
            self._running = await installed(_VOLCANO_SCHEDULER, self.session, self.plane)
        await self._running.start()

    async def stop(self) -> None:
        if self._running is not None:
            await self._running.stop(self.session)

    async def kill(self) -> None:
        assert self._running is not None
        await self._running.kill()

    def pids(self) -> dict[str, int]:
        assert self._running is not None
        return {"volcano-scheduler": self._running.pid}

    def _in_rack(self) -> JSON:
        return {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


_VOLCANO_SCHEDULER: Final = Controller(
    "volcano-scheduler",
    "volcano.sh/volcano",
    "",
    arguments=lambda place: [
        f"--kubeconfig={place.kubeconfig}",
        *("--scheduler-name=volcano", f"--scheduler-conf={place.configuration}", "--cache-dumper=false"),
        *("--leader-elect=false", f"--kube-api-qps={_REQUESTS_PER_SECOND}", f"--kube-api-burst={_REQUESTS_PER_SECOND}"),
        *("--enable-healthz", f"--healthz-address=127.0.0.1:{place.health_port}", "--listen-address=127.0.0.1:0"),
    ],
    # As in installer/helm/chart/volcano/config/volcano-scheduler.conf, and the action that preempts.
    configuration=lambda place: {
        "actions": "enqueue, allocate, preempt, backfill",
        "tiers": [
            {"plugins": [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}]},
            {
                "plugins": [
                    {"name": "overcommit"},
                    {"name": "drf", "enablePreemptable": False},
                    {"name": "predicates"},
                    {"name": "proportion"},
                    {"name": "nodeorder"},
                    {"name": "binpack"},
                    {"name": "network-topology-aware"},
                ]
            },
        ],
    },
    ready_path="/healthz",
)

CONTENDERS: Final[tuple[type[Contender], ...]] = (Muster, NativeGangs, VolcanoScheduler)


async def versions() -> dict[str, str]:
    """Versions of all contenders, by name."""
    kubernetes = (Path(sys.prefix) / "tools" / ".kube-scheduler.built").read_text().strip()
    return {
        "kube-apiserver, kube-controller-manager, kube-scheduler": kubernetes,
        "Volcano": await module_version(_VOLCANO_SCHEDULER),
    }


def _native_rack() -> JSON:
    return {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def _hyper_node(rack: str) -> JSON:
    members = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: rack}}}}]
    spec = {"tier": 1, "members": members}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": rack}, "spec": spec}
