"""Native PodGroups: gangs start whole, in one domain of a label, and conditions report progress."""

from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRST = {"v1alpha2": "PodGroupScheduled"}
DISRUPTED = "DisruptionTarget"
WHOLE: dict[str, Any] = {"v1alpha2": "PodGroup"}


@pytest.fixture(autouse=True)
def version(world: World) -> str:
    """The newest served version of the API."""
    world.cluster.api_server.needs_native()
    return world.cluster.api_server.native_versions[0]


def first(version: str) -> str:
    """The condition that reports the start."""
    return FIRST.get(version, "PodGroupInitiallyScheduled")


def native(name: str, size: int, cpu: int = 1) -> Workload:
    return gang(name).of(size).asking(cpu=cpu).declared_by("native")


async def condition(world: World, workload: Workload, name: str, status: str) -> dict[str, Any]:
    """The condition of its PodGroup, as soon as it has this status."""
    here = world.here(workload)
    path = f"/apis/scheduling.k8s.io/{here.version}/namespaces/{here.namespace}/podgroups/{here.name}"

    async def found() -> list[dict[str, Any]]:
        conditions = (await world.cluster.call("GET", path)).get("status", {}).get("conditions", ())
        return [dict(each) for each in conditions if each["type"] == name and each["status"] == status]

    conditions: list[dict[str, Any]] = await eventually(
        found, f"condition {name}={status} of {path}", seconds=WAIT_SECONDS
    )
    return conditions[0]


async def test_a_gang_waits_for_its_pod_group_and_for_capacity(world: World, version: str) -> None:
    await world.nodes(3)
    four = native("four", 4)
    await world.add_pods(four)
    await world.waits(four, 'PodGroup "', "does not exist yet")
    await world.define(four)
    reported = await condition(world, four, first(version), "False")
    assert (reported["reason"], bool(reported["message"])) == ("Unschedulable", True)
    await world.nodes(1)
    await world.bound(four)
    reported = await condition(world, four, first(version), "True")
    assert reported["reason"] == "Scheduled"


async def test_a_gang_whose_pods_have_ended_is_called_ended_and_was_scheduled(world: World, version: str) -> None:
    await world.nodes(2)
    two = native("two", 2)
    await world.create(two)
    await world.bound(two)
    await world.end_pods(two, 0, 1)
    await world.phase(two, "ended")
    reported = await condition(world, two, first(version), "True")
    assert reported["reason"] == "Scheduled"


async def test_v1alpha2_pod_groups_get_status_in_their_own_format(world: World) -> None:
    if "v1alpha2" not in world.cluster.api_server.native_versions:
        pytest.skip("this API server does not serve v1alpha2 any more")
    await world.nodes(2)
    two = native("two", 2).of_version("v1alpha2").declaring(disruptionMode="PodGroup")
    await world.create(two)
    await world.bound(two)
    reported = await condition(world, two, "PodGroupScheduled", "True")
    assert reported["reason"] == "Scheduled"


async def test_a_topology_key_puts_all_pods_where_a_label_has_one_value(world: World) -> None:
    key = f"example.com/{world.name}"
    left: Any = {key: "r0"}
    right: Any = {key: "r1"}
    await world.nodes(2, 1, **left)
    await world.nodes(3, **right)
    await world.nodes(8)
    four = native("four", 4).declaring(schedulingConstraints={"topology": [{"key": key}]})
    await world.create(four)
    await world.waits(four)
    more = await world.nodes(1, **right)
    await world.bound(four)
    nodes = set(world.bound_pods(four).values())
    assert set(more) <= nodes
    assert {world.cluster.nodes[node]["metadata"]["labels"].get(key) for node in nodes} == {"r1"}


async def test_pods_of_a_basic_group_start_one_by_one(world: World) -> None:
    await world.nodes(2)
    three = native("three", 3).needing(1).declaring(schedulingPolicy={"basic": {}})
    await world.create(three)
    await world.bound(three, count=2)
    await world.nodes(1)
    await world.bound(three)


async def test_a_gang_with_group_disruption_is_evicted_whole_and_restarts(world: World, version: str) -> None:
    await world.nodes(6)
    low = native("low", 6).needing(4).declaring(disruptionMode=WHOLE.get(version, {"all": {}}))
    await world.create(low)
    await condition(world, low, first(version), "True")
    high = native("high", 2).with_priority(100)
    await world.create(high)
    reported = await condition(world, low, DISRUPTED, "True")
    assert reported["reason"] == "PreemptionByScheduler"
    assert reported["message"].endswith(f"{world.name}/high")
    await world.bound(high)
    await world.cluster.until(lambda: world.bound_pods(low) == {}, "all pods of the gang are evicted")
    await world.add_pods(low)
    await world.delete(high)
    await world.bound(low)
    await condition(world, low, DISRUPTED, "False")
    assert (await condition(world, low, first(version), "True"))["reason"] == "Scheduled"
