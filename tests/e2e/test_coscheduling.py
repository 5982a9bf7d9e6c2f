"""Status of the coscheduling plugin's PodGroups, from the first pod to the last."""

from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def status(world: World, workload: Workload, **fields: Any) -> dict[str, Any]:
    """The status of its PodGroup, as soon as it has these fields."""
    namespace = world.here(workload).namespace
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{workload.name}"
    found: dict[str, Any] = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await world.cluster.call("GET", path)).get("status", {})
        return fields.items() <= found.items()

    await eventually(as_wanted, lambda: f"the status of {workload.name} is {found}, not {fields}", seconds=WAIT_SECONDS)
    return found


async def test_pod_group_phases_follow_the_gang(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(3).declared_by("coscheduling")
    await world.create(a, only=(0, 1))
    await status(world, a, phase="Pending")
    await world.add_pods(a, 2)
    waiting = await status(world, a, phase="PreScheduling", scheduled=0, running=0)
    await world.nodes(1)
    await world.bound(a)
    running = await status(world, a, phase="Running", scheduled=3, running=3)
    assert running["scheduleStartTime"] == waiting["scheduleStartTime"]
    await world.end_pods(a, 0, 1, 2)
    await status(world, a, phase="Finished", succeeded=3, running=0)


async def test_the_status_catches_up_after_a_lifecycle_outage(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(2).declared_by("coscheduling")
    await world.cluster.stack.stop_one("lifecycle")
    await world.create(a)
    await world.bound(a)
    await world.cluster.stack.start(["lifecycle"])
    await status(world, a, phase="Running", scheduled=2, running=2)


async def test_a_finished_gang_without_its_pod_group_is_not_listed(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(2).declared_by("coscheduling")
    await world.create(a)
    await world.bound(a)
    await world.end_pods(a, 0, 1)
    await status(world, a, phase="Finished")
    gang_id = world.here(a).id
    await eventually(lambda: gang_id in world.cluster.gangs, f"{gang_id} is listed", seconds=WAIT_SECONDS)
    await world.undefine(a)
    await eventually(lambda: gang_id not in world.cluster.gangs, f"{gang_id} is not listed", seconds=WAIT_SECONDS)


async def test_a_pod_group_without_pods_has_ended_until_it_starts_whole_again(world: World) -> None:
    await world.nodes(2)
    a = gang("a").of(2).declared_by("coscheduling")
    await world.create(a)
    await world.bound(a)
    await world.delete_pods(a, 0, 1)
    await world.phase(a, "ended")
    await status(world, a, phase="Pending", scheduled=0, running=0)
    await world.add_pods(a, 0)
    await world.waits(a, "1 of 2 members exist")
    await world.add_pods(a, 1)
    await world.bound(a)
    await world.satisfied(a)
