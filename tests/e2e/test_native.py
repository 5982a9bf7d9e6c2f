"""PodGroups of Kubernetes itself: gangs start whole, in one domain of a label, and the conditions say how it goes."""

from typing import Any

import pytest

from builders.e2e.cluster import WAIT_SECONDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

FIRST = {"v1alpha2": "PodGroupScheduled"}
DISRUPTED = "DisruptionTarget"
WHOLE: dict[str, Any] = {"v1alpha2": "PodGroup"}


@pytest.fixture(autouse=True)
def version(scene: Scene) -> str:
    """The newest version of the API that there is."""
    scene.cluster.api_server.needs_native()
    return scene.cluster.api_server.native_versions[0]


def first(version: str) -> str:
    """The condition that says whether it has started."""
    return FIRST.get(version, "PodGroupInitiallyScheduled")


def native(name: str, size: int, cpu: int = 1) -> Workload:
    return gang(name).of(size).asking(cpu=cpu).declared_by("native")


async def condition(scene: Scene, workload: Workload, name: str, status: str) -> dict[str, Any]:
    """The condition of its PodGroup, as soon as it has this status."""
    here = scene.here(workload)
    path = f"/apis/scheduling.k8s.io/{here.version}/namespaces/{here.namespace}/podgroups/{here.name}"

    async def found() -> list[dict[str, Any]]:
        conditions = (await scene.cluster.call("GET", path)).get("status", {}).get("conditions", ())
        return [dict(each) for each in conditions if each["type"] == name and each["status"] == status]

    conditions: list[dict[str, Any]] = await eventually(
        found, f"condition {name}={status} of {path}", seconds=WAIT_SECONDS
    )
    return conditions[0]


async def test_a_gang_waits_for_its_pod_group_and_for_room_and_starts_whole(scene: Scene, version: str) -> None:
    await scene.nodes(3)
    four = native("four", 4)
    await scene.add_pods(four)
    await scene.waits(four, 'PodGroup "', "does not exist yet")
    await scene.define(four)
    told = await condition(scene, four, first(version), "False")
    assert (told["reason"], bool(told["message"])) == ("Unschedulable", True)
    await scene.nodes(1)
    await scene.bound(four)
    told = await condition(scene, four, first(version), "True")
    assert told["reason"] == "Scheduled"


async def test_its_first_version_is_told_in_its_own_words(scene: Scene) -> None:
    if "v1alpha2" not in scene.cluster.api_server.native_versions:
        pytest.skip("this API server does not serve v1alpha2 any more")
    await scene.nodes(2)
    two = native("two", 2).of_version("v1alpha2").declaring(disruptionMode="PodGroup")
    await scene.create(two)
    await scene.bound(two)
    told = await condition(scene, two, "PodGroupScheduled", "True")
    assert told["reason"] == "Scheduled"


async def test_a_topology_key_puts_all_pods_where_a_label_has_one_value(scene: Scene) -> None:
    key = f"example.com/{scene.name}"
    left: Any = {key: "r0"}
    right: Any = {key: "r1"}
    await scene.nodes(2, 1, **left)
    await scene.nodes(3, **right)
    await scene.nodes(8)
    four = native("four", 4).declaring(schedulingConstraints={"topology": [{"key": key}]})
    await scene.create(four)
    await scene.waits(four)
    more = await scene.nodes(1, **right)
    await scene.bound(four)
    nodes = set(scene.bound_pods(four).values())
    assert set(more) <= nodes
    assert {scene.cluster.nodes[node]["metadata"]["labels"].get(key) for node in nodes} == {"r1"}


async def test_pods_of_a_basic_group_start_one_by_one(scene: Scene) -> None:
    await scene.nodes(2)
    three = native("three", 3).needing(1).declaring(schedulingPolicy={"basic": {}})
    await scene.create(three)
    await scene.bound(three, count=2)
    await scene.nodes(1)
    await scene.bound(three)


async def test_one_that_is_disrupted_whole_goes_whole_and_starts_again_when_there_is_room(
    scene: Scene, version: str
) -> None:
    await scene.nodes(6)
    low = native("low", 6).needing(4).declaring(disruptionMode=WHOLE.get(version, {"all": {}}))
    await scene.create(low)
    await condition(scene, low, first(version), "True")
    high = native("high", 2).with_priority(100)
    await scene.create(high)
    told = await condition(scene, low, DISRUPTED, "True")
    assert told["reason"] == "PreemptionByScheduler"
    assert told["message"].endswith(f"{scene.name}/high")
    await scene.bound(high)
    assert scene.bound_pods(low) == {}
    await scene.add_pods(low)
    await scene.delete(high)
    await scene.bound(low)
    await condition(scene, low, DISRUPTED, "False")
    assert (await condition(scene, low, first(version), "True"))["reason"] == "Scheduled"
