"""The schedulers that are compared, each with its own scheduler name and its own declaration of a gang."""

import asyncio
import dataclasses
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


class _OfControllers(Contender):
    """A scheduler whose programs are built from their Go modules."""

    crds: ClassVar[Controller]
    """Whose CRDs are registered."""
    programs: ClassVar[tuple[Controller, ...]]

    def __init__(self, plane: ControlPlane, session: KubeSession) -> None:
        super().__init__(plane, session)
        self._running: list[RunningController] = []

    async def prepare(self, racks: list[str]) -> None:
        await register(self.crds, self.session)
        await apply_manifests(self.session, map(Manifest, self._objects(racks)))
        for each in self.programs:
            self._running.append(await installed(each, self.session, self.plane))
        await self.stop()

    @abstractmethod
    def _objects(self, racks: list[str]) -> list[JSON]:
        """Objects that it needs in the cluster."""

    async def start(self) -> None:
        await asyncio.gather(*(each.start() for each in self._running))

    async def stop(self) -> None:
        for each in self._running:
            await each.stop(self.session)

    async def kill(self) -> None:
        await asyncio.gather(*(each.kill() for each in self._running))

    def pids(self) -> dict[str, int]:
        return {of.name: each.pid for of, each in zip(self.programs, self._running, strict=True)}


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


class VolcanoScheduler(_OfControllers):
    """Volcano's scheduler, without its controllers and webhooks."""

    name = "Volcano"
    dialect = "volcano"
    scheduler_name = "volcano"
    settings = (
        "actions `enqueue, allocate, preempt, backfill`, the plugins of its chart and `network-topology-aware`;"
        f" {_REQUESTS_PER_SECOND:,} requests a second; queues `root` and `default` with status Open; racks are"
        " HyperNodes"
    )
    crds = VOLCANO
    programs = (_VOLCANO_SCHEDULER,)
    _queues = ("root", "default")
    _version = "scheduling.volcano.sh/v1beta1"

    async def prepare(self, racks: list[str]) -> None:
        await super().prepare(racks)
        for name in self._queues:
            path = f"/apis/{self._version}/queues/{name}/status"
            body = b'{"status":{"state":"Open"}}'
            answer = await self.session.request(
                "PATCH", path, body=body, content_type="application/merge-patch+json", timeout_seconds=30
            )
            assert answer.status == 200, answer.body

    def _objects(self, racks: list[str]) -> list[JSON]:
        queues = [
            {"apiVersion": self._version, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
            for name in self._queues
        ]
        return [*queues, *map(_hyper_node, racks)]

    def _in_rack(self) -> JSON:
        return {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}


_KAI_MODULE: Final = "github.com/NVIDIA/KAI-scheduler"
_KAI_SCHEDULER: Final = Controller(
    "kai-scheduler",
    _KAI_MODULE,
    "",
    arguments=lambda place: [
        *(f"--listen-address=127.0.0.1:{place.health_port}", f"--plugin-server-port={place.webhook_port}"),
        *(f"--qps={_REQUESTS_PER_SECOND}", f"--burst={_REQUESTS_PER_SECOND}"),
    ],
    ready_path="/metrics",
)
_KAI_BINDER: Final = Controller(
    "kai-binder",
    _KAI_MODULE,
    "",
    arguments=lambda place: [
        *(f"--metrics-bind-address=127.0.0.1:{place.health_port}", "--health-probe-bind-address=0"),
        *(f"--qps={_REQUESTS_PER_SECOND}", f"--burst={_REQUESTS_PER_SECOND}"),
    ],
    ready_path="/metrics",
)


class Kai(_OfControllers):
    """KAI's scheduler and its binder, without its other controllers and webhooks."""

    name = "KAI"
    dialect = "kai"
    scheduler_name = "kai-scheduler"
    settings = (
        "scheduler and binder with their default configuration (a cycle a second, ten binds at once);"
        f" {_REQUESTS_PER_SECOND:,} requests a second; the queues of its chart; racks are a Topology"
    )
    crds = dataclasses.replace(_KAI_SCHEDULER, crds=("deployments/kai-scheduler/crds/*.yaml",))
    programs = (_KAI_SCHEDULER, _KAI_BINDER)
    _queue = "default-queue"
    _topology = "racks"

    def gang(self, gang: Workload, *, in_rack: bool = False) -> Workload:
        return super().gang(gang, in_rack=in_rack).declaring(queue=self._queue)

    def _objects(self, racks: list[str]) -> list[JSON]:
        return [
            _kai_queue("default-parent-queue"),
            _kai_queue(self._queue, parentQueue="default-parent-queue"),
            {
                "apiVersion": "kai.scheduler/v1alpha1",
                "kind": "Topology",
                "metadata": {"name": self._topology},
                "spec": {"levels": [{"nodeLabel": RACK}]},
            },
        ]

    def _in_rack(self) -> JSON:
        return {"topologyConstraint": {"topology": self._topology, "requiredTopologyLevel": RACK}}


CONTENDERS: Final[tuple[type[Contender], ...]] = (Muster, NativeGangs, VolcanoScheduler, Kai)


async def versions() -> dict[str, str]:
    """Versions of all contenders, by name."""
    kubernetes = (Path(sys.prefix) / "tools" / ".kube-scheduler.built").read_text().strip()
    return {
        "kube-apiserver, kube-controller-manager, kube-scheduler": kubernetes,
        "Volcano": await module_version(_VOLCANO_SCHEDULER),
        "KAI": await module_version(_KAI_SCHEDULER),
    }


def _native_rack() -> JSON:
    return {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def _hyper_node(rack: str) -> JSON:
    members = [{"type": "Node", "selector": {"labelMatch": {"matchLabels": {RACK: rack}}}}]
    spec = {"tier": 1, "members": members}
    return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": {"name": rack}, "spec": spec}


def _kai_queue(name: str, **spec: str) -> JSON:
    """A queue without quota or limit, as its chart creates them."""
    unlimited = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {**spec, "resources": dict.fromkeys(("cpu", "gpu", "memory"), unlimited)},
    }
