"""Quota reserved for PodGroups, with Jobs, kubelets, and crashes of lifecycle."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster, real_kubeconfig, running_cluster
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain
from builders.wait import WAIT_SECONDS, eventually

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """A Muster whose API server calls lifecycle's webhook for new pods."""
    directory = tmp_path_factory.mktemp("guarded")
    async with running_cluster(directory, kubeconfig=real_kubeconfig(request.config), quota=True) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="session")
async def world(guarded: Cluster) -> AsyncIterator[World]:
    guarded.api_server.needs_controllers()
    await guarded.begin()
    world = World(guarded)
    yield world
    await guarded.stack.start()
    await world.clear()
    await guarded.invariants.check()


def group(name: str, size: int, **total: str) -> Workload:
    return gang(name).of(size).declared_by("kube-batch").declaring(totalResources=total)


async def quota(world: World, namespace: str, **hard: str) -> str:
    """Create a ResourceQuota and wait until it counts; returns its path."""
    await world.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team", "namespace": namespace}}
    await world.cluster.apply({**body, "spec": {"hard": hard}})
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/team"
    await found(world, path, lambda quota: "used" in quota.get("status", {}))
    return path


async def found(world: World, path: str, holds: Callable[[Any], bool]) -> Any:
    """The object, as soon as the condition holds."""
    seen: Any = None

    async def as_wanted() -> bool:
        nonlocal seen
        seen = await world.cluster.call("GET", path)
        return holds(seen)

    await eventually(as_wanted, lambda: f"{path} is {seen}", seconds=WAIT_SECONDS)
    return seen


async def wait_for_reason(world: World, workload: Workload, reason: str) -> str:
    """The message of its condition, as soon as it has the reason."""
    namespace = world.here(workload).namespace
    path = f"/apis/scheduling.incubator.k8s.io/v1alpha1/namespaces/{namespace}/podgroups/{workload.name}"
    seen = await found(world, path, lambda each: _condition(each).get("reason") == reason)
    return str(_condition(seen)["message"])


def _condition(pod_group: Any) -> Any:
    conditions = pod_group.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "QuotaReserved"), {})


def pods_of_job(world: World, name: str) -> int:
    return sum(pod.startswith(f"{name}-") for _, pod in world.cluster.pods)


async def test_reserved_quota_survives_a_greedy_job_and_a_lifecycle_crash(world: World) -> None:
    await world.nodes(16)
    train, greedy = group("train", 6, cpu="6"), plain("greedy")
    await quota(world, world.here(train).namespace, **{"requests.cpu": "8"})
    await world.define(train)
    await wait_for_reason(world, train, "QuotaReserved")
    await world.cluster.stack.kill("lifecycle")
    await world.cluster.stack.start()
    await world.create_job(greedy, "greedy", 8)
    await world.cluster.until(lambda: pods_of_job(world, "greedy") == 2, "two pods fit beside what is reserved")
    await world.create_job(train, "train", 6)
    await world.all_members_bound(train, 6)
    assert pods_of_job(world, "greedy") == 2


async def test_a_group_waits_with_the_reason_until_the_quota_is_raised(world: World) -> None:
    await world.nodes(16)
    late, other = group("late", 3, cpu="4").gated("example.com/not-yet"), plain("other").of(1)
    path = await quota(world, world.here(late).namespace, cpu="4")
    await world.add_pods(other)
    await world.add_pods(late)
    await world.define(late)
    lacking = "does not fit: exceeded quota: team, requested: cpu=1, used: cpu=4, limited: cpu=4"
    assert lacking in await wait_for_reason(world, late, "QuotaExceeded")
    await world.ungate(late, 0, 1, 2)
    await world.waits(late, "quota is not reserved for it yet", "exceeded quota: team")
    assert "exceeded quota: team" in await world.cluster.muster("explain", world.here(late).id)
    await world.cluster.merge(path, {"spec": {"hard": {"cpu": "5"}}})
    await wait_for_reason(world, late, "QuotaReserved")
    await world.bound(late)


@pytest.mark.timeout(300)
async def test_quota_returned_by_a_group_goes_to_a_waiting_one(world: World) -> None:
    await world.nodes(16)
    first, second = group("first", 3, cpu="3"), group("second", 2, cpu="2")
    await quota(world, world.here(first).namespace, cpu="4")
    await world.create(first)
    await world.bound(first)
    await world.define(second)
    await wait_for_reason(world, second, "QuotaExceeded")
    await world.create_job(second, "second", 2)
    await world.end_pods(first, 0)
    await wait_for_reason(world, second, "QuotaReserved")
    # a pod that was admitted and then rejected by the API server, as on a busy machine, counts for 90 s
    await world.all_members_bound(second, 2, seconds=150)
