"""CompositePodGroups: as many of their groups start together as they need, and their conditions report progress."""

from typing import Any, Final

import pytest
import pytest_asyncio

from builders.e2e.world import World
from builders.gangs.dialects import DeclaredGang
from builders.gangs.manifests import Workload, gang
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

JSON = dict[str, Any]

VERSION = "v1alpha3"
TYPE = "CompositePodGroupInitiallyScheduled"
REFERENCE: Final = {"workloadName": "server", "templateName": "part"}
BASIC: JSON = {"basic": {}}
KEY = "example.com/rack"


@pytest.fixture(autouse=True)
def served(world: World) -> None:
    """The API server has CompositePodGroups."""
    world.cluster.api_server.needs_native()
    if VERSION not in world.cluster.api_server.native_versions:
        pytest.skip(f"this API server does not serve scheduling.k8s.io/{VERSION}")


def at_least(count: int) -> JSON:
    """A policy with which so many groups start together."""
    return {"gang": {"minGroupCount": count}}


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def workload(world: World, served: None) -> None:
    """The Workload that PodGroups in CompositePodGroups have to name."""
    template = {"name": REFERENCE["templateName"], "schedulingPolicy": {"gang": {"minCount": 2}}}
    metadata = {"name": REFERENCE["workloadName"], "namespace": world.name}
    body = {"apiVersion": f"scheduling.k8s.io/{VERSION}", "kind": "Workload", "metadata": metadata}
    await world.declare(
        DeclaredGang(f"native/{world.name}/workload", ({**body, "spec": {"podGroupTemplates": [template]}},), "")
    )


async def composite(world: World, name: str, policy: JSON, parent: str = "", **spec: Any) -> None:
    """Create a CompositePodGroup."""
    above = {"parentCompositePodGroupName": parent} if parent else {}
    body = {
        "apiVersion": f"scheduling.k8s.io/{VERSION}",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": world.name},
        "spec": {"schedulingPolicy": policy, "workloadRef": REFERENCE, **above, **spec},
    }
    await world.declare(DeclaredGang(f"native/{world.name}/{name}", (body,), ""))


def part(name: str, parent: str, size: int = 2) -> Workload:
    """A PodGroup in a CompositePodGroup, with its pods."""
    native = gang(name).of(size).declared_by("native").of_version(VERSION)
    return native.declaring(parentCompositePodGroupName=parent, workloadRef=REFERENCE)


async def says(world: World, name: str, status: str, reason: str, *words: str) -> None:
    """Wait until the condition of a CompositePodGroup has this status and reason, and a message with the words."""
    path = f"/apis/scheduling.k8s.io/{VERSION}/namespaces/{world.name}/compositepodgroups/{name}"
    last: list[JSON] = []

    async def found() -> bool:
        conditions = (await world.cluster.call("GET", path)).get("status", {}).get("conditions") or ()
        last[:] = [dict(each) for each in conditions if each["type"] == TYPE]
        return any(
            (each["status"], each["reason"]) == (status, reason) and all(word in each["message"] for word in words)
            for each in last
        )

    await eventually(found, lambda: f"{path} is {status}, {reason}: {last}", seconds=WAIT_SECONDS)


async def test_two_of_three_groups_start_together_and_the_third_when_it_fits(world: World) -> None:
    await world.nodes(1, 1, 1)
    await composite(world, "server", at_least(2))
    parts = [part(f"part-{number}", "server") for number in range(3)]
    await world.create(*parts)
    for each in parts:
        await world.waits(each)
    await says(world, "server", "False", "Unschedulable", "0 of 2 groups that it needs are scheduled")
    await world.nodes(1)
    await world.cluster.until(lambda: _whole(world, parts) == 2, "two groups run whole")
    await says(world, "server", "True", "Scheduled")
    await world.nodes(1, 1)
    await world.bound(*parts)


async def test_groups_of_a_basic_one_start_on_their_own_in_its_domain(world: World) -> None:
    here: dict[str, Any] = {KEY: f"{world.name}-a"}
    there: dict[str, Any] = {KEY: f"{world.name}-b"}
    await world.nodes(1, 1, 1, 1, **here)
    await composite(world, "any", BASIC, schedulingConstraints={"topology": [{"key": KEY}]})
    first, second, third = (part(f"part-{number}", "any") for number in range(3))
    await world.create(first, second)
    await world.bound(first, second)
    await world.nodes(1, 1, **there)
    await world.create(third)
    await world.waits(third)
    await world.nodes(1, 1, **here)
    await world.bound(third)
    assert _rack(world, third) == here[KEY]


async def test_a_basic_one_in_a_gang_counts_with_its_first_group(world: World) -> None:
    await world.nodes(1, 1, 1)
    await composite(world, "server", at_least(2))
    await composite(world, "any", BASIC, parent="server")
    needed, *others = part("needed", "server"), part("one", "any"), part("other", "any")
    await world.create(needed, *others)
    for each in (needed, *others):
        await world.waits(each)
    await world.nodes(1)
    await world.bound(needed)
    await world.cluster.until(lambda: _whole(world, others) == 1, "one group of the basic one runs whole")
    for name in ("any", "server"):
        await says(world, name, "True", "Scheduled")
    await world.nodes(1, 1)
    await world.bound(*others)


async def test_a_cycle_is_invalid_and_named(world: World) -> None:
    await world.nodes(1, 1)
    await composite(world, "server", at_least(1), parent="other")
    await composite(world, "other", at_least(1), parent="server")
    one = part("one", "server")
    await world.create(one)
    await world.waits(one, 'form a cycle: "server" below "other" below "server"')
    await says(world, "server", "False", "Invalid", "form a cycle")


def _whole(world: World, parts: list[Workload]) -> int:
    """Number of groups with all pods bound; no group may have a part of them after a start."""
    return sum(len(world.bound_pods(each)) == each.size for each in parts)


def _rack(world: World, workload: Workload) -> str:
    """The only rack of a group's pods."""
    [rack] = {
        world.cluster.nodes[node]["metadata"]["labels"].get(KEY, "") for node in world.bound_pods(workload).values()
    }
    return str(rack)
