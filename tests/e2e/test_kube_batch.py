"""kube-batch's PodGroups and batch annotations: what starts, what waits and says why, what the API tells of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from builders.e2e.cluster import WAIT_SECONDS
from builders.e2e.world import Scene
from builders.gangs.workloads import Workload, gang, plain
from builders.wait import eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESTART = [{"event": "Unschedulable", "action": "Restart"}]
JOB_SECONDS = 120.0
"""A real Job controller makes three failed pods anew after 40 s."""


def group(name: str, size: int) -> Workload:
    return gang(name).of(size).declared_by("kube-batch")


def task(name: str, size: int) -> Workload:
    return gang(name).of(size).declared_by("batch")


async def status(scene: Scene, workload: Workload, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status of its PodGroup, as soon as it is so."""
    namespace = scene.here(workload).namespace
    path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{workload.name}"
    found: dict[str, Any] = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await scene.cluster.call("GET", path)).get("status", {})
        return holds(found)

    await eventually(as_wanted, lambda: f"the status of {workload.name} is {found}", seconds=WAIT_SECONDS)
    return found


async def counts(scene: Scene, workload: Workload, **expected: int) -> None:
    """Wait until the PodGroup says so."""
    await status(scene, workload, lambda told: {name: told.get(name) for name in expected} == expected)


async def test_pods_wait_for_their_pod_group_and_start_whole_with_counts(scene: Scene) -> None:
    await scene.nodes(4)
    a = group("a", 4)
    await scene.add_pods(a)
    await scene.waits(a, 'PodGroup "', "does not exist yet")
    event = await scene.event(a, "does not exist yet: create it")
    assert event["reason"] == "Unschedulable"
    await scene.define(a)
    await scene.bound(a)
    await counts(scene, a, admitted=4, running=4, succeeded=0, failed=0)
    await scene.end_pods(a, 0, 1)
    await counts(scene, a, admitted=4, running=2, succeeded=2, failed=0)
    explained = await scene.cluster.muster("explain", scene.here(a).id)
    assert f"minMember: 4 (PodGroup {scene.name}/a)" in explained


async def test_fewer_pods_than_the_minimum_are_unschedulable(scene: Scene) -> None:
    await scene.nodes(4)
    a = group("a", 3)
    await scene.create(a, only=(0, 1))
    await scene.waits(a, "2 of 3 members")
    event = await scene.event(a, "2 of 3 members")
    assert event["reason"] == "Unschedulable"
    await scene.add_pods(a, 2)
    await scene.bound(a)


async def test_pods_of_any_kind_and_controller_are_one_group(scene: Scene) -> None:
    scene.cluster.api_server.needs_controllers()
    await scene.nodes(4)
    mixed = group("mixed", 2).asking_each({"cpu": "1"}, {"cpu": "500m"}).needing(4)
    await scene.create(mixed)
    await scene.waits(mixed, "2 of 4 members")
    scene.cluster.invariants.excuse(scene.here(mixed).id)  # they do not know what a Job calls its pods
    await scene.create_job(mixed, "workers", 2)
    await scene.all_members_bound(mixed, 4)
    await counts(scene, mixed, admitted=4, running=4)


async def test_pods_that_succeeded_count_when_those_that_are_left_cannot_reach_the_minimum(scene: Scene) -> None:
    await scene.nodes(3)
    a = group("a", 4).needing(3)
    await scene.create(a, only=(0, 1, 2))
    await scene.bound(a, count=3)
    await scene.end_pods(a, 0, 1)
    await counts(scene, a, running=1, succeeded=2)
    await scene.add_pods(a, 3)
    await scene.bound(a)


async def test_a_group_that_lost_too_many_pods_is_restarted_whole_and_starts_again(scene: Scene) -> None:
    scene.cluster.api_server.needs_controllers()
    await scene.nodes(3)
    a = group("a", 1).needing(3).declaring(policy=RESTART)
    await scene.define(a)
    await scene.create_job(a, "workers", 3)
    await scene.all_members_bound(a, 3)
    await counts(scene, a, running=3)
    namespace = scene.here(a).namespace
    first = {pod["metadata"]["uid"] for key, pod in scene.cluster.pods.items() if key[0] == namespace}
    victim = next(key for key in scene.cluster.pods if key[0] == namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{victim[1]}"
    await scene.cluster.call("DELETE", path)

    def all_anew() -> bool:
        pods = [pod for key, pod in scene.cluster.pods.items() if key[0] == namespace]
        return len(pods) == 3 and all(
            pod["metadata"]["uid"] not in first and pod["status"].get("phase") == "Running" for pod in pods
        )

    await scene.cluster.until(all_anew, "all three pods are new and run", seconds=JOB_SECONDS)
    event = await scene.event(a, "fewer than 3 of its pods ran: all")
    assert event["reason"] == "Restarted"
    await counts(scene, a, running=3)


async def test_a_task_of_100_takes_none_of_99_gpus_and_one_of_99_behind_it_starts(scene: Scene) -> None:
    await scene.nodes(*[32] * 9, gpus=11)
    large, fits = (task(name, size).asking(cpu="1m", gpu=1) for name, size in (("large", 100), ("fits", 99)))
    await scene.create(large)
    await scene.waits(large, "nvidia.com/gpu")
    await scene.create(fits)
    await scene.bound(fits)
    assert scene.bound_pods(large) == {}
    await scene.waits(large, "nvidia.com/gpu")


async def test_batch_and_ordinary_pods_never_bind_into_the_same_room_i3(scene: Scene) -> None:
    await scene.nodes(4, 4)
    batch, ordinary = task("batch", 6), plain("ordinary").of(6)
    await asyncio.gather(scene.create(batch), scene.create(ordinary))

    def settled() -> bool:
        taken = len(scene.bound_pods(batch)), len(scene.bound_pods(ordinary))
        return taken in ((6, 2), (0, 6))

    await scene.cluster.until(settled, "the room is divided")


async def test_a_number_of_pods_that_makes_no_sense_is_quoted_on_the_pods(scene: Scene) -> None:
    await scene.nodes(4)
    a = task("a", 2).needing("five")
    await scene.create(a)
    await scene.waits(a, '"five", which is not a whole number')
    await scene.event(a, "scheduling.k8s.io/group-pod-num", '"five"')
