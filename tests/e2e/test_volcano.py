"""Jobs of Volcano without Volcano's scheduler: their PodGroups are admitted, and their pods start as gangs.

The test plays Volcano's Job controller: it creates a Job's pods once the phase of its PodGroup is Inqueue.
"""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.manifests import plain
from builders.gangs.volcano_jobs import JOB_KIND, JOB_VERSION, group_name, pod_group_of, pods_of, volcano_job
from builders.wait import WAIT_SECONDS, eventually
from muster.kube.timestamps import parse_timestamp

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]
GROUP_VERSION = "scheduling.volcano.sh/v1beta1"


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def jobs(cluster: Cluster) -> AsyncIterator[None]:
    """The cluster has Volcano's Jobs."""
    await cluster.apply(JOB_KIND)
    yield
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{JOB_KIND['metadata']['name']}"
    await cluster.try_call("DELETE", path)

    async def is_gone() -> bool:
        return (await cluster.try_call("GET", path)).status == 404

    await eventually(is_gone, "the kind of Jobs is removed")


class Job:
    """A Job, as stored, and its gang."""

    def __init__(self, world: World, stored: JSON) -> None:
        self.world, self.stored = world, stored
        self.gang = f"kube-batch/{world.name}/{group_name(stored)}"
        self.path = f"/apis/{GROUP_VERSION}/namespaces/{world.name}/podgroups/{group_name(stored)}"

    async def reaches(self, **fields: Any) -> None:
        """Waits until the status of its PodGroup has these fields."""
        found: JSON = {}

        async def as_wanted() -> bool:
            nonlocal found
            found = (await self.world.cluster.call("GET", self.path)).get("status", {})
            return {name: found.get(name) for name in fields} == fields

        await eventually(as_wanted, lambda: f"the status of {self.gang} is {found}", seconds=WAIT_SECONDS)

    async def create_pods(self) -> None:
        await self.world.declare(DeclaredGang(self.gang, tuple(pods_of(self.stored)), ""))

    async def end(self) -> None:
        """Lets all pods succeed."""
        for pod in pods_of(self.stored):
            path = f"/api/v1/namespaces/{self.world.name}/pods/{pod['metadata']['name']}/status"
            await self.world.cluster.merge(path, {"status": {"phase": "Succeeded"}})

    def bound(self) -> int:
        found = self.world.cluster.gangs.get(self.gang)
        return found.bound if found is not None else 0


async def create_job(world: World, name: str, topology: JSON | None = None, **tasks: int) -> Job:
    """Creates a Job and its PodGroup."""
    manifest = volcano_job(name, world.name, "muster", {LABEL: world.name}, **tasks)
    await world.declare(DeclaredGang(f"none/{world.name}/{name}", (manifest,), ""))
    world.cluster.invariants.forget(f"none/{world.name}/{name}")
    path = f"/apis/{JOB_VERSION}/namespaces/{world.name}/jobs/{name}"
    job = Job(world, await world.cluster.call("GET", path))
    group = pod_group_of(job.stored)
    if topology is not None:
        group["spec"]["networkTopology"] = topology
    await world.declare(DeclaredGang(job.gang, (group,), ""))
    return job


async def until(world: World, holds: Callable[[], bool], what: str) -> None:
    await world.cluster.until(holds, what)


async def test_a_job_is_admitted_without_pods_starts_whole_and_completes(world: World) -> None:
    await world.nodes(4)
    job = await create_job(world, "lm", master=1, worker=2)
    await job.reaches(phase="Inqueue")
    await job.create_pods()
    await until(world, lambda: job.bound() == 3, "all pods are bound")
    first = next(record for record in world.cluster.records.history[job.gang] if record.seats)
    assert sum(len(seat.pods) for seat in first.seats) == 3
    await job.reaches(phase="Running")
    explained = await world.cluster.muster("explain", job.gang)
    assert "declared by  volcano" in explained
    assert 'minTaskMember: {"master":1,"worker":2}' in explained
    await job.end()
    await job.reaches(phase="Completed", succeeded=3)


async def test_of_two_jobs_that_fit_only_one_at_a_time_the_second_starts_after_the_first(world: World) -> None:
    await world.nodes(4)
    one, other = await create_job(world, "one", worker=3), await create_job(world, "other", worker=3)
    for job in (one, other):
        await job.reaches(phase="Inqueue")
        await job.create_pods()
    await until(world, lambda: sorted((one.bound(), other.bound())) == [0, 3], "one of them starts whole")
    first, second = (one, other) if one.bound() else (other, one)
    await first.reaches(phase="Running")
    assert second.bound() == 0
    await first.end()
    await until(world, lambda: second.bound() == 3, "the other one starts whole")
    await second.reaches(phase="Running")
    await first.reaches(phase="Completed")


async def test_a_pod_group_of_kube_batch_with_the_same_name_is_ignored_with_a_warning(world: World) -> None:
    await world.nodes(4)
    job = await create_job(world, "lm", worker=2)
    rival = pod_group_of(job.stored) | {"apiVersion": "scheduling.incubator.k8s.io/v1alpha1", "spec": {"minMember": 3}}

    def older_is_used() -> bool:
        found = world.cluster.gangs.get(job.gang)
        return found is not None and found.dialect == "volcano" and found.minimum == 2

    await until(world, older_is_used, "Volcano's PodGroup is read")
    group = await world.cluster.call("GET", job.path)
    created = parse_timestamp(group["metadata"]["creationTimestamp"])

    async def is_later() -> bool:
        return time.time() >= created + 1

    await eventually(is_later, lambda: "ages are whole seconds", seconds=WAIT_SECONDS)
    await world.declare(DeclaredGang(job.gang, (rival,), ""))
    await job.create_pods()
    await until(world, lambda: job.bound() == 2, "it starts with the minimum of Volcano's PodGroup")
    assert older_is_used()


def hyper_node(world: World, name: str, tier: int, kind: str, *members: str) -> JSON:
    listed = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": f"{world.name}-{name}"},
        "spec": {"tier": tier, "members": listed},
    }


async def test_a_job_with_a_highest_tier_waits_for_hyper_nodes_and_starts_within_one(world: World) -> None:
    a, b, c = await world.nodes(2, 2, 4)
    await world.bind_by_hand(plain("thief").asking(cpu=1), {0: c})
    job = await create_job(world, "lm", {"mode": "hard", "highestTierAllowed": 1}, worker=4)
    await job.reaches(phase="Inqueue")
    await job.create_pods()

    def waits() -> bool:
        found = world.cluster.gangs.get(job.gang)
        return found is not None and "there is no HyperNode" in found.reason

    await until(world, waits, "the gang waits for HyperNodes")
    made = [
        hyper_node(world, "near", 1, "Node", a, b),
        hyper_node(world, "far", 1, "Node", c),
        hyper_node(world, "all", 2, "HyperNode", f"{world.name}-near", f"{world.name}-far"),
    ]
    await world.cluster.apply(*made)

    def nodes() -> list[str]:
        pods = [pod for (namespace, _), pod in world.cluster.pods.items() if namespace == world.name]
        workers = [pod["spec"] for pod in pods if pod["metadata"]["name"].startswith("lm-")]
        return [spec["nodeName"] for spec in workers if "nodeName" in spec]

    await until(world, lambda: len(nodes()) == 4, "the gang starts")
    assert set(nodes()) == {a, b}
    for each in made:
        path = f"/apis/topology.volcano.sh/v1alpha1/hypernodes/{each['metadata']['name']}"
        await world.cluster.try_call("DELETE", path)
