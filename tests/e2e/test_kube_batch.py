"""kube-batch's PodGroups and batch annotations: starts, pending reasons, and status in the API."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")

RESTART = [{"event": "Unschedulable", "action": "Restart"}]
JOB_SECONDS = 120.0
"""A real Job controller recreates three failed pods after 40 s."""


def group(name: str, size: int) -> Workload:
    return gang(name).of(size).declared_by("kube-batch")


def task(name: str, size: int) -> Workload:
    return gang(name).of(size).declared_by("batch")


async def status(world: World, workload: Workload, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The status of its PodGroup, as soon as the condition holds."""
    namespace = world.here(workload).namespace
    path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{workload.name}"
    found: dict[str, Any] = {}

    async def as_wanted() -> bool:
        nonlocal found
        found = (await world.cluster.call("GET", path)).get("status", {})
        return holds(found)

    await eventually(as_wanted, lambda: f"the status of {workload.name} is {found}", seconds=WAIT_SECONDS)
    return found


async def counts(world: World, workload: Workload, **expected: int) -> None:
    """Wait until the PodGroup has this status."""
    await status(world, workload, lambda current: {name: current.get(name) for name in expected} == expected)


async def test_a_gang_waits_for_its_pod_group_and_reports_counts(world: World) -> None:
    await world.nodes(4)
    a = group("a", 4)
    await world.add_pods(a)
    await world.waits(a, 'PodGroup "', "does not exist yet")
    event = await world.event(a, "does not exist yet: create it")
    assert event["reason"] == "Unschedulable"
    await world.define(a)
    await world.bound(a)
    await counts(world, a, admitted=4, running=4, succeeded=0, failed=0)
    await world.end_pods(a, 0, 1)
    await counts(world, a, admitted=4, running=2, succeeded=2, failed=0)
    explained = await world.cluster.muster("explain", world.here(a).id)
    assert f"minMember: 4 (PodGroup {world.name}/a)" in explained


async def test_fewer_pods_than_the_minimum_are_unschedulable(world: World) -> None:
    await world.nodes(4)
    a = group("a", 3)
    await world.create(a, only=(0, 1))
    await world.waits(a, "2 of 3 members")
    event = await world.event(a, "2 of 3 members")
    assert event["reason"] == "Unschedulable"
    await world.add_pods(a, 2)
    await world.bound(a)


async def test_pods_of_different_controllers_form_one_group(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4)
    mixed = group("mixed", 2).asking_each({"cpu": "1"}, {"cpu": "500m"}).needing(4)
    await world.create(mixed)
    await world.waits(mixed, "2 of 4 members")
    world.cluster.invariants.excuse(world.here(mixed).id)  # they do not know the names of a Job's pods
    await world.create_job(mixed, "workers", 2)
    await world.all_members_bound(mixed, 4)
    await counts(world, mixed, admitted=4, running=4)


async def test_succeeded_pods_count_when_the_rest_is_below_the_minimum(world: World) -> None:
    await world.nodes(3)
    a = group("a", 4).needing(3)
    await world.create(a, only=(0, 1, 2))
    await world.bound(a, count=3)
    await world.end_pods(a, 0, 1)
    await counts(world, a, running=1, succeeded=2)
    await world.add_pods(a, 3)
    await world.bound(a)


async def test_a_group_below_its_minimum_is_restarted_whole(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(3)
    a = group("a", 1).needing(3).declaring(policy=RESTART)
    await world.define(a)
    await world.create_job(a, "workers", 3)
    await world.all_members_bound(a, 3)
    await counts(world, a, running=3)
    namespace = world.here(a).namespace
    first = {pod["metadata"]["uid"] for key, pod in world.cluster.pods.items() if key[0] == namespace}
    victim = next(key for key in world.cluster.pods if key[0] == namespace)
    path = f"/api/v1/namespaces/{namespace}/pods/{victim[1]}"
    await world.cluster.call("DELETE", path)

    def all_anew() -> bool:
        pods = [pod for key, pod in world.cluster.pods.items() if key[0] == namespace]
        return len(pods) == 3 and all(
            pod["metadata"]["uid"] not in first and pod["status"].get("phase") == "Running" for pod in pods
        )

    await world.cluster.until(all_anew, "all three pods are new and run", seconds=JOB_SECONDS)
    event = await world.event(a, "fewer than 3 of its pods were running: all")
    assert event["reason"] == "Restarted"
    await counts(world, a, running=3)


async def test_a_task_of_100_takes_none_of_99_gpus_and_the_next_of_99_starts(world: World) -> None:
    await world.nodes(*[32] * 9, gpus=11)
    large, fits = (task(name, size).asking(cpu="1m", gpu=1) for name, size in (("large", 100), ("fits", 99)))
    await world.create(large)
    await world.waits(large, "nvidia.com/gpu")
    await world.create(fits)
    await world.bound(fits)
    assert world.bound_pods(large) == {}
    await world.waits(large, "nvidia.com/gpu")


async def test_batch_and_plain_pods_never_share_a_reservation_i3(world: World) -> None:
    await world.nodes(4, 4)
    batch, ordinary = task("batch", 6), plain("ordinary").of(6)
    await asyncio.gather(world.create(batch), world.create(ordinary))

    def settled() -> bool:
        taken = len(world.bound_pods(batch)), len(world.bound_pods(ordinary))
        return taken in ((6, 2), (0, 6))

    await world.cluster.until(settled, "the room is divided")


async def test_an_invalid_number_of_pods_is_quoted_on_the_pods(world: World) -> None:
    await world.nodes(4)
    a = task("a", 2).needing("five")
    await world.create(a)
    await world.waits(a, '"five", which is not a whole number')
    await world.event(a, "scheduling.k8s.io/group-pod-num", '"five"')
