"""The manifests of docs/migration.md start as gangs once their scheduler is Muster.

They are read from the page. Volcano's controllers are not available: builders.gangs.volcano_jobs has their objects.
"""

import copy
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from builders.e2e.cluster import Cluster
from builders.e2e.observations import LABEL
from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.volcano_jobs import JOB_KIND, group_name, pod_group_of, pods_of
from muster.coordinator.v1.coordinator_pb2 import Phase

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]

PAGE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
FENCE = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMESPACE = "ml"
"""The namespace in the page's commands."""

ONLY_THE_SCHEDULER = {
    "Koordinator": "koordinator/{}/train",
    "Coscheduling": "coscheduling/{}/mpi",
    "kube-batch": "kube-batch/{}/spark",
    "kube-arbitrator": "kube-arbitrator/{}/QueueJob.solver",
    "Sakkara": "sakkara/{}/ring",
    "Kubernetes' own gangs": "native/{}/encoder",
    "Kueue": "kueue/{}/pair",
    "PodGroups of your own": "kube-batch/{}/bert",
}
"""The gang of each section in which only the scheduler changes; {} is the namespace."""

CONVERTED = {
    "Deployments and Jobs with PodGroups created by Volcano": "batch/{}/sweep",
}
VOLCANO_JOBS = "Volcano Jobs"


def blocks(kind: str) -> dict[str, str]:
    """One fenced block of a kind per section, by its heading."""
    found = {}
    for fence in FENCE.finditer(PAGE):
        if fence["kind"] == kind:
            heading = re.findall(r"^##+ (.+)$", PAGE[: fence.start()], re.MULTILINE)[-1]
            assert heading not in found, f"two blocks of {kind} under {heading}"
            found[heading] = fence["text"]
    return found


DIFFS = blocks("diff")


def side(diff: str, sign: str) -> list[JSON]:
    """The manifests before ("-") or after ("+")."""
    lines = [line[1:] for line in diff.splitlines() if line[:1] in (" ", sign, "")]
    return [each for each in yaml.safe_load_all("\n".join(lines)) if each]


def pod_specs(part: Any) -> list[JSON]:
    """Every pod spec in a manifest."""
    if isinstance(part, list):
        return [spec for each in part for spec in pod_specs(each)]
    if not isinstance(part, dict):
        return []
    return [part] if "containers" in part else pod_specs(list(part.values()))


def at_muster(manifests: list[JSON]) -> list[JSON]:
    """The manifests with another schedulerName and no other change."""
    changed = copy.deepcopy(manifests)
    for spec in pod_specs(changed):
        spec["schedulerName"] = "muster"
    return changed


def on_nodes_of(world: World, manifests: list[JSON]) -> list[JSON]:
    """The manifests in this test's namespace and on its nodes."""
    placed = copy.deepcopy(manifests)
    for each in placed:
        each["metadata"]["namespace"] = world.name
        if each["apiVersion"].startswith("scheduling.k8s.io/"):
            each["apiVersion"] = f"scheduling.k8s.io/{world.cluster.api_server.native_versions[0]}"
    for spec in pod_specs(placed):
        spec |= {"nodeSelector": {LABEL: world.name}, "terminationGracePeriodSeconds": 0}
    return placed


def minimum_of(manifests: list[JSON]) -> int:
    """The minimum, as the last of the marks of all dialects states it."""
    words = r"(?:minMember|minAvailable|minCount|min-available|group-pod-num|pod-group-total-count|size)\W+(\d+)"
    return int(re.findall(words, yaml.safe_dump(manifests, width=1000))[-1])


async def starts_whole(world: World, gang: str, minimum: int) -> None:
    """Wait until it has started, and check that its first permit covered its minimum."""

    def started() -> bool:
        found = world.cluster.gangs.get(gang)
        return found is not None and found.phase == Phase.PHASE_SATISFIED and found.bound >= minimum

    await world.cluster.until(started, f"{gang} has started")
    assert world.cluster.gangs[gang].minimum == minimum
    first = next(record for record in world.cluster.records.history[gang] if record.seats)
    assert sum(len(seat.pods) for seat in first.seats) >= minimum


@pytest.fixture(autouse=True)
def controllers(cluster: Cluster) -> None:
    """Jobs need a controller that creates their pods."""
    cluster.api_server.needs_controllers()


async def test_every_manifest_of_the_page_is_tested() -> None:
    assert set(DIFFS) == {*ONLY_THE_SCHEDULER, *CONVERTED, VOLCANO_JOBS}


@pytest.mark.parametrize("section", ONLY_THE_SCHEDULER)
async def test_a_manifest_starts_with_only_its_scheduler_name_changed(world: World, section: str) -> None:
    after = at_muster(side(DIFFS[section], "-"))
    assert after == side(DIFFS[section], "+")
    if section == "Kubernetes' own gangs":
        world.cluster.api_server.needs_native()
    await world.nodes(4, 4)
    gang = ONLY_THE_SCHEDULER[section].format(world.name)
    await world.declare(DeclaredGang(gang, tuple(on_nodes_of(world, after)), ""))
    await starts_whole(world, gang, minimum_of(after))


@pytest.mark.parametrize("section", CONVERTED)
async def test_a_converted_volcano_manifest_starts_as_a_gang(world: World, section: str) -> None:
    after = side(DIFFS[section], "+")
    await world.nodes(4, 4)
    gang = CONVERTED[section].format(world.name)
    await world.declare(DeclaredGang(gang, tuple(on_nodes_of(world, after)), ""))
    await starts_whole(world, gang, minimum_of(after))


@pytest_asyncio.fixture(loop_scope="session")
async def volcano(cluster: Cluster) -> AsyncIterator[None]:
    """The cluster has Volcano's Jobs."""
    await cluster.apply(JOB_KIND)
    yield
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{JOB_KIND['metadata']['name']}"
    await cluster.try_call("DELETE", path)


async def create_job(world: World, sign: str) -> JSON:
    """Create the page's Volcano Job, before or after the change; returns it as stored."""
    [job] = on_nodes_of(world, side(DIFFS[VOLCANO_JOBS], sign))
    job["spec"]["schedulerName"] = "muster"
    await world.declare(DeclaredGang(f"none/{world.name}/job", (job,), ""))
    path = f"/apis/{job['apiVersion']}/namespaces/{world.name}/jobs/{job['metadata']['name']}"
    return await world.cluster.call("GET", path)


@pytest.mark.usefixtures("volcano")
async def test_pods_of_a_volcano_job_start_as_a_gang_and_end_with_the_job(world: World) -> None:
    await world.nodes(4, 4)
    job = await create_job(world, "+")
    gang = f"kube-batch/{world.name}/{group_name(job)}"
    await world.declare(DeclaredGang(gang, (pod_group_of(job), *pods_of(job)), ""))
    await starts_whole(world, gang, 3)

    world.cluster.invariants.forget(gang)
    path = f"/apis/{job['apiVersion']}/namespaces/{world.name}/jobs/{job['metadata']['name']}"
    await world.cluster.call("DELETE", path, {"propagationPolicy": "Background"})
    await world.cluster.until(lambda: gang not in world.cluster.gangs, "its PodGroup goes with the Job")
