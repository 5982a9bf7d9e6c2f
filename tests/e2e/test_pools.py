"""Two node pools, each with services of its own, as the chart installs them: neither waits for the other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from builders.deploy.helm import rendered
from builders.gangs.manifests import Workload, gang
from builders.kube.nodes import Machine, make_nodes
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.manifests import Manifest, apply_manifests
from muster.localcluster.stack import Stack
from muster.localcluster.stack_options import StackOptions

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]

POOL = "muster.dev/pool"
VALUES = "pools: [{name: train, schedulerNames: [muster-train]}]"
CALL_SECONDS = 30.0


def environment(component: str) -> dict[str, str]:
    """Scheduler names and nodes of a pool, as the chart gives them to its cluster-state, as environment variables."""
    deployments = {each["metadata"]["name"]: each for each in rendered(VALUES) if each["kind"] == "Deployment"}
    [container] = deployments[f"muster-{component}"]["spec"]["template"]["spec"]["containers"]
    given = dict(argument.partition("=")[::2] for argument in container["args"] if "=" in argument)
    names = {"--scheduler-names": "SCHEDULER_NAMES", "--node-selector": "NODE_SELECTOR"}
    return {f"MUSTER_CLUSTER_STATE_{variable}": given[option] for option, variable in names.items()}


class Pools:
    """An API server with the services of two pools: `train`, and `other` for the nodes of no pool."""

    def __init__(self, other: Stack, train: Stack, session: KubeSession) -> None:
        self.other, self.train, self.session = other, train, session

    async def node(self, name: str, **labels: str) -> None:
        """Create a node with 8 CPUs."""
        await make_nodes(self.session, Machine(name, {"cpu": "8", "memory": "64Gi", "pods": "110"}, labels))

    async def start(self, name: str, size: int, *, train: bool) -> Workload:
        """Create a gang of pods with one CPU each."""
        workload = gang(name).of(size).with_spec(schedulerName="muster-train" if train else "muster")
        await apply_manifests(self.session, map(Manifest, workload.pods()))
        return workload

    async def end(self, workload: Workload) -> None:
        for number in range(workload.size):
            path = f"/api/v1/namespaces/default/pods/{workload.pod_name(number)}"
            await self.session.request("DELETE", path, query={"gracePeriodSeconds": "0"}, timeout_seconds=CALL_SECONDS)

    async def nodes_of(self, workload: Workload) -> set[str]:
        """Wait until all pods of the gang have a node; returns the nodes."""
        found: list[str] = []

        async def bound() -> bool:
            found[:] = [pod["spec"].get("nodeName", "") for pod in await self._pods(workload)]
            return all(found)

        await eventually(bound, f"{workload.name} is bound")
        return set(found)

    async def does_not_fit(self, workload: Workload) -> None:
        """Wait until the pods of the gang are unschedulable."""

        async def unschedulable() -> bool:
            conditions = [each for pod in await self._pods(workload) for each in pod["status"].get("conditions", ())]
            return any(each.get("reason") == "Unschedulable" for each in conditions)

        await eventually(unschedulable, f"{workload.name} is unschedulable")

    async def _pods(self, workload: Workload) -> list[JSON]:
        paths = [f"/api/v1/namespaces/default/pods/{workload.pod_name(number)}" for number in range(workload.size)]
        answers = [await self.session.request("GET", path, timeout_seconds=CALL_SECONDS) for path in paths]
        return [msgspec.json.decode(answer.body) for answer in answers]


@asynccontextmanager
async def two_pools(directory: Path) -> AsyncIterator[Pools]:
    common: JSON = {"kubelets": False, "durable": False, "log_level": "warning"}
    other = Stack(
        StackOptions(directory / "other", service_environment=environment("cluster-state"), **common),
    )
    train = Stack(
        StackOptions(
            directory / "train",
            kubeconfig=other.kubeconfig,
            service_environment=environment("cluster-state-train"),
            **common,
        )
    )
    session = None
    try:
        await other.start()
        await train.start()
        session = await KubeSession.connect(KubeSettings(kubeconfig=other.kubeconfig))
        yield Pools(other, train, session)
    finally:
        if session is not None:
            await session.close()
        await train.stop()
        await other.stop()


async def test_gangs_of_a_pool_do_not_wait_for_the_services_of_another(tmp_path: Path) -> None:
    async with two_pools(tmp_path) as pools:
        await pools.node("here")
        await pools.node("there", **{POOL: "train"})
        a, b = await pools.start("a", 4, train=False), await pools.start("b", 4, train=True)
        assert (await pools.nodes_of(a), await pools.nodes_of(b)) == ({"here"}, {"there"})
        for name in ("coordinator", "cluster-state", "placement", "binding"):
            await pools.other.kill(name)
        assert await pools.nodes_of(await pools.start("c", 4, train=True)) == {"there"}
        await pools.other.start()
        await pools.train.kill("coordinator")
        d, e = await pools.start("d", 4, train=False), await pools.start("e", 4, train=True)
        assert await pools.nodes_of(d) == {"here"}
        await pools.end(b)
        await pools.train.start()
        assert await pools.nodes_of(e) == {"there"}


async def test_a_node_moves_to_another_pool(tmp_path: Path) -> None:
    async with two_pools(tmp_path) as pools:
        await pools.node("moved")
        a = await pools.start("a", 2, train=True)
        await pools.does_not_fit(a)
        patch = msgspec.json.encode({"metadata": {"labels": {POOL: "train"}}})
        await pools.session.request(
            "PATCH",
            "/api/v1/nodes/moved",
            body=patch,
            content_type="application/merge-patch+json",
            timeout_seconds=CALL_SECONDS,
        )
        assert await pools.nodes_of(a) == {"moved"}
        await pools.does_not_fit(await pools.start("b", 1, train=False))
