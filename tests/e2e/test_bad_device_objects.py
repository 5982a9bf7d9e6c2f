"""Bad selectors, and device objects that change or vanish while a gang waits or starts."""

import pytest

from builders.e2e.devices import (
    API,
    claims_of,
    device,
    device_class,
    devices_of,
    gpus,
    publish,
    request,
    results_of,
    with_claims,
    with_named_claim,
    withdraw,
)
from builders.e2e.faults import Requests
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import eventually
from muster.localcluster.kubelets.devices.cards import CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUR = Cards(CardKind.GPU, 4)
CARDS = "card.example.com"
EIGHT = "[0,1,2,3,4,5,6,7]"
COSTLY = "device.driver != ''"
for level in range(5):  # above Muster's limit, and below that of kube-apiserver
    COSTLY = f"{EIGHT}.all(x{level}, {COSTLY})"
CLAIMS = Requests("PATCH", "/resourceclaims/[^/]+")


async def claiming(world: World, workload: Workload, count: int) -> Workload:
    """The workload, whose pods claim cards of the test's own driver."""
    cards = await device_class(world, "card", f"device.driver == '{CARDS}'")
    return await with_claims(world, workload, request(cards, count))


async def test_a_selector_of_huge_cost_is_quoted_and_delays_nobody(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, 4, cards=FOUR)
    a = await with_claims(world, gang("a").of(2), gpus(world, 1, COSTLY))
    await world.create(a)
    await world.unschedulable(a, "request r0", f'"{EIGHT}.all(', "costs more than 50000 units", reason="PodBlocked")
    b = await with_claims(world, gang("b").of(2), gpus(world, 2))
    await world.create(b)
    await world.bound(b)


async def test_the_largest_pool_is_used(world: World) -> None:
    """4,096 devices in 32 slices, of which one is missing at first."""
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)

    async def slices(*numbers: int) -> None:
        for number in numbers:
            devices = [device(f"card-{number}-{index}") for index in range(128)]
            await publish(world, node, *devices, owner=node, driver=CARDS, number=number, count=32)

    await slices(*range(31))
    a = await claiming(world, gang("a").of(4), 32)
    await world.create(a)
    await world.waits(a, "wants 32 per pod, 0 are free")
    [found] = (await world.cluster.explain(world.here(a).id)).claimed_devices[0].requests
    assert (found.devices, found.unusable) == (31 * 128, 31 * 128)
    assert f'pool "{node}" is incomplete: 31 of 32 ResourceSlices exist' in found.summary
    await slices(31)
    await world.bound(a)
    assert len({each["device"] for each in await results_of(world, a)}) == 4 * 32


async def test_slices_of_a_lower_generation_do_not_count(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)
    newest = await publish(world, node, device("new"), owner=node, driver=CARDS, generation=5)
    a = await claiming(world, gang("a").of(2), 1)
    await world.create(a)
    await world.waits(a, "enough free devices")
    await publish(world, node, *(device(f"old-{index}") for index in range(4)), owner=node, driver=CARDS, generation=4)
    b = await claiming(world, gang("b").of(1), 1)
    await world.create(b)
    await world.bound(b)
    assert [each["device"] for each in await results_of(world, b)] == ["new"]
    await world.waits(a, "enough free devices")
    await withdraw(world, newest)
    await world.bound(a)


async def test_a_driver_vanishes_while_a_gang_waits_and_returns(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)
    name = await publish(world, node, device("card"), owner=node, driver=CARDS)
    a = await claiming(world, gang("a").of(1), 2)
    await world.create(a)
    await world.waits(a, "wants 2, 1 is free")
    await withdraw(world, name)

    async def has_none() -> bool:
        [found] = (await world.cluster.explain(world.here(a).id)).claimed_devices[0].requests
        return not found.devices

    await eventually(has_none, "the explanation counts no devices")
    await publish(world, node, device("card-0"), device("card-1"), owner=node, driver=CARDS)
    await world.bound(a)


async def test_a_driver_vanishes_while_claims_are_written(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(8)
    name = await publish(world, node, *(device(f"card-{index}") for index in range(3)), owner=node, driver=CARDS)
    a = await claiming(world, gang("a").of(1), 2)
    with world.cluster.faults.hold(CLAIMS) as held:
        await world.create(a)
        await held.until(1)
        await withdraw(world, name)
        held.release()
    await world.bound(a)
    taken = {each["device"] for each in await results_of(world, a)}
    await publish(world, node, *(device(f"card-{index}") for index in range(3)), owner=node, driver=CARDS)
    b = await claiming(world, gang("b").of(1), 1)
    await world.create(b)
    await world.bound(b)
    assert len({each["device"] for each in await results_of(world, b)} - taken) == 1


async def test_a_claim_is_deleted_between_permit_and_bind(world: World) -> None:
    await world.nodes(4, cards=FOUR)
    a = await with_named_claim(world, gang("a").of(1), gpus(world, 2))
    with world.cluster.faults.hold(CLAIMS) as held:
        await world.create(a)
        await held.until(1)
        [claim] = await claims_of(world, a)
        path = f"/apis/{API}/namespaces/{claim['metadata']['namespace']}/resourceclaims/{claim['metadata']['name']}"
        await world.cluster.call("DELETE", path)
        held.release()
    await world.unschedulable(a, f'ResourceClaim "{claim["metadata"]["name"]}" does not exist', reason="PodBlocked")
    metadata = {key: claim["metadata"][key] for key in ("name", "namespace")}
    await world.cluster.apply({"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": claim["spec"]})
    await world.bound(a)
    [anew] = await claims_of(world, a)
    assert anew["metadata"]["uid"] != claim["metadata"]["uid"]
    assert len(anew["status"]["allocation"]["devices"]["results"]) == 2


async def test_a_template_that_is_replaced_changes_only_later_pods(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, 8, cards=FOUR)
    a = await with_claims(world, gang("a").of(4), gpus(world, 1))
    await world.define(a)
    await world.add_pods(a, 0, 1)

    async def two_claims() -> bool:
        return len(await claims_of(world, a)) == 2

    await eventually(two_claims, "two claims are created from the template")
    path = f"/apis/{API}/namespaces/{world.here(a).namespace}/resourceclaimtemplates/{a.name}"
    await world.cluster.call("DELETE", path)
    await with_claims(world, a, gpus(world, 2))
    await world.add_pods(a, 2, 3)
    await world.bound(a)
    assert sorted(len(found) for found in (await devices_of(world, a)).values()) == [1, 1, 2, 2]
