"""kube-scheduler and Muster allocate devices of the same pools at the same time, on a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from builders.e2e.cluster import Cluster
from builders.e2e.device_allocations import DeviceAllocations, followed_allocations
from builders.e2e.devices import claims_of, gpus, with_claims
from builders.e2e.faults import Requests
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang, plain
from builders.wait import eventually
from interop.control_plane import NotBuilt
from interop.kube_scheduler import SCHEDULER_NAME, KubeScheduler, running_kube_scheduler
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards
from muster.localcluster.kubelets.pod_types import RUN_SECONDS

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALLOCATIONS = Requests("PUT", "/resourceclaims/[^/]+/status")
EIGHT = Cards(CardKind.GPU, 8)
ONE = Cards(CardKind.GPU, 1)
SHORT = {RUN_SECONDS: "0.5"}
LONG_SECONDS = 100.0


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def kube_scheduler(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KubeScheduler]:
    """kube-scheduler with its default configuration."""
    if not cluster.api_server.is_real:
        pytest.skip("kube-scheduler needs a real API server: make test-kubernetes")
    cluster.api_server.needs_controllers()
    directory = tmp_path_factory.mktemp("kube-scheduler")
    try:
        async with running_kube_scheduler(directory, cluster.stack.kubeconfig) as scheduler:
            yield scheduler
    except NotBuilt as missing:
        pytest.skip(str(missing))


async def of_kube_scheduler(world: World, workload: Workload, *selectors: str) -> Workload:
    """The workload with a device for each pod, scheduled by kube-scheduler."""
    return await with_claims(world, workload.with_spec(schedulerName=SCHEDULER_NAME), gpus(world, 1, *selectors))


async def all_run(world: World, allocations: DeviceAllocations, *workloads: Workload) -> list[str]:
    """Create all workloads at once, and wait until all their pods have run; returns the overlaps that were seen."""
    overlaps: list[str] = []
    size = sum(each.size for each in workloads)

    def all_ended() -> bool:
        overlaps.extend(each for each in allocations.overlaps if each not in overlaps)
        pods = [pod for (namespace, _), pod in world.cluster.pods.items() if namespace == world.name]
        return len(pods) == size and all(pod["status"].get("phase") == "Succeeded" for pod in pods)

    await asyncio.gather(*map(world.create, workloads))
    await world.cluster.until(all_ended, f"all {size} pods have run", seconds=LONG_SECONDS)
    return overlaps


async def test_each_takes_no_device_that_the_other_has_i3(world: World) -> None:
    """Both have more pods than there are free devices."""
    await world.nodes(32, 32, 32, 32, cards=EIGHT)
    async with followed_allocations(world) as allocations:
        first = await of_kube_scheduler(world, plain("first").of(22))
        await world.create(first)
        await world.bound(first)
        gangs = [await with_claims(world, gang(f"g{number}").of(4), gpus(world)) for number in range(4)]
        await world.create(*gangs)
        await bound_in_all(world, 8, *gangs)
        await world.delete_pods(first, 0, 1, 2, 3, 4, 5)
        await bound_in_all(world, 16, *gangs)
        last = await of_kube_scheduler(world, plain("last").of(4))
        await world.create(last)
        await world.unschedulable(last, "cannot allocate all claims", reason="Unschedulable")
        devices = [device for each in allocations.devices.values() for device in each]
        assert len(devices) == len(set(devices)) == 32
        await world.end_pods(gangs[0])
        await world.bound(last)
        assert allocations.overlaps == []
        for each in (first, last, *gangs):
            await world.delete(each)

        async def none_left() -> bool:
            return await claims_of(world, last) == []

        await eventually(none_left, "kube-controller-manager deletes the claims of deleted pods")


async def test_both_allocate_from_one_pool_at_the_same_time_i3(world: World) -> None:
    """Their requests select different devices, and each device is used several times."""
    await world.nodes(32, 32, 32, 32, cards=EIGHT)
    index = f"device.attributes['{DRIVER}'].index"
    gangs = [gang(f"g{number}").of(4).marked(SHORT) for number in range(12)]
    gangs = [await with_claims(world, each, gpus(world, 1, f"{index} % 2 == 0")) for each in gangs]
    pods = await of_kube_scheduler(world, plain("p").of(48).marked(SHORT), f"{index} % 2 == 1")
    async with followed_allocations(world) as allocations:
        assert await all_run(world, allocations, pods, *gangs) == []
        await world.cluster.until(lambda: not allocations.devices, "kube-controller-manager deallocates all claims")
    after = await with_claims(world, gang("after").of(32), gpus(world))
    await world.create(after)
    await world.bound(after)


async def test_devices_that_both_allocate_are_used_one_after_the_other(world: World) -> None:
    """The API server does not reject the second allocation of a device, and kube-scheduler does not look for it:
    docs/dra.md. Nodes prepare a device for one claim at a time, and all pods run.
    """
    await world.nodes(32, 32, 32, 32, cards=EIGHT)
    gangs = [gang(f"g{number}").of(4).marked(SHORT) for number in range(12)]
    gangs = [await with_claims(world, each, gpus(world)) for each in gangs]
    pods = await of_kube_scheduler(world, plain("p").of(48).marked(SHORT))
    async with followed_allocations(world) as allocations:
        await all_run(world, allocations, pods, *gangs)
        await world.cluster.until(lambda: not allocations.devices, "kube-controller-manager deallocates all claims")
    after = await with_claims(world, gang("after").of(32), gpus(world))
    await world.create(after)
    await world.bound(after)


async def test_the_device_webhook_lets_no_device_be_in_two_allocated_claims_i3(guarded_world: World) -> None:
    """The same with the webhook: whoever writes second is rejected, and allocates other devices."""
    world = guarded_world
    await world.nodes(32, 32, 32, 32, cards=EIGHT)
    gangs = [gang(f"g{number}").of(4).marked(SHORT) for number in range(12)]
    gangs = [await with_claims(world, each, gpus(world)) for each in gangs]
    pods = await of_kube_scheduler(world, plain("p").of(48).marked(SHORT))
    async with followed_allocations(world) as allocations:
        await all_run(world, allocations, pods, *gangs)
        assert allocations.twice == []
        await world.cluster.until(lambda: not allocations.devices, "kube-controller-manager deallocates all claims")


@pytest.mark.parametrize("retried", [False, True])
async def test_a_gang_whose_device_kube_scheduler_got_is_placed_anew_i3(world: World, retried: bool) -> None:
    """kube-scheduler allocates the device while Muster writes its own choice, or before Muster's bind is retried."""
    await world.nodes(4, 4, cards=ONE)
    a = await with_claims(world, gang("a").of(1), gpus(world))
    p = await of_kube_scheduler(world, plain("p").of(1))
    async with followed_allocations(world) as allocations:
        with world.cluster.faults.hold(ALLOCATIONS) as held:
            await world.create(a)
            await held.until(1)
            [reserved] = {each.reserved_node for each in (await world.cluster.explain(world.here(a).id)).members}
            await world.create(p.with_spec(nodeSelector={"kubernetes.io/hostname": reserved}))
            await world.bound(p)
            if retried:
                await world.cluster.stack.kill("binding")
                held.drop()
                await world.cluster.stack.start()
        await world.bound(a)
        assert allocations.overlaps == []
    assert len({*world.bound_pods(a).values(), *world.bound_pods(p).values()}) == 2


async def bound_in_all(world: World, count: int, *workloads: Workload) -> None:
    """Wait until so many of their pods are bound."""
    await world.cluster.until(lambda: world.per_node(*workloads).total() == count, f"{count} pods are bound")
