"""The coscheduling plugin's PodGroups: how far a group is can be read on it, from its first pod to its last."""

from typing import Any

import pytest

from builders.e2e.cluster import WAIT_SECONDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def status(scene: Scene, workload: Workload, **fields: Any) -> dict[str, Any]:
    """The status of its PodGroup, as soon as it has these fields."""
    namespace = scene.here(workload).namespace
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{workload.name}"
    found: dict[str, Any] = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await scene.cluster.call("GET", path)).get("status", {})
        return fields.items() <= found.items()

    await eventually(as_wanted, lambda: f"the status of {workload.name} is {found}, not {fields}", seconds=WAIT_SECONDS)
    return found


async def test_phases_tell_how_far_a_group_is(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(3).declared_by("coscheduling")
    await scene.create(a, only=(0, 1))
    await status(scene, a, phase="Pending")
    await scene.add_pods(a, 2)
    waiting = await status(scene, a, phase="PreScheduling", scheduled=0, running=0)
    await scene.nodes(1)
    await scene.bound(a)
    running = await status(scene, a, phase="Running", scheduled=3, running=3)
    assert running["scheduleStartTime"] == waiting["scheduleStartTime"]
    await scene.end_pods(a, 0, 1, 2)
    await status(scene, a, phase="Finished", succeeded=3, running=0)


async def test_the_status_follows_also_when_lifecycle_was_away(scene: Scene) -> None:
    await scene.nodes(2)
    a = gang("a").of(2).declared_by("coscheduling")
    await scene.cluster.stack.stop_one("lifecycle")
    await scene.create(a)
    await scene.bound(a)
    await scene.cluster.stack.start(["lifecycle"])
    await status(scene, a, phase="Running", scheduled=2, running=2)
