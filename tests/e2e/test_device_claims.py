"""Gangs whose pods claim devices: allocated whole, each device once, and given back."""

import pytest

from builders.e2e.devices import (
    claims_of,
    devices_of,
    gpus,
    tainted_by_rule,
    with_claims,
    with_extended_resource,
    with_named_claim,
)
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUR = Cards(CardKind.GPU, 4)
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


async def test_every_member_gets_devices_of_its_own(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, 4, cards=FOUR)
    a = await with_claims(world, gang("a").of(4), gpus(world, 2, LARGE))
    await world.create(a)
    await world.bound(a)
    found = await devices_of(world, a)
    names = [device for devices in found.values() for device in devices]
    assert len(set(names)) == len(names) == 8
    on = world.bound_pods(a)
    assert all(device.startswith(f"{on[pod]}/") for pod, devices in found.items() for device in devices)


async def test_a_claim_is_allocated_reserved_and_protected(world: World) -> None:
    """Also on an API server without controllers."""
    await world.nodes(4, cards=FOUR)
    a = await with_named_claim(world, gang("a").of(1), gpus(world, 2, LARGE))
    await world.create(a)
    await world.bound(a)
    [claim] = await claims_of(world, a)
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert [each["name"] for each in claim["status"]["reservedFor"]] == list(world.bound_pods(a))
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 2


async def test_a_claim_that_a_gang_shares_is_allocated_once_on_one_node(world: World) -> None:
    """Also on an API server without controllers."""
    await world.nodes(2, 8, 4, cards=FOUR)
    a = await with_named_claim(world, gang("a").of(6), gpus(world, 3))
    await world.create(a)
    await world.bound(a)
    assert len(set(world.bound_pods(a).values())) == 1
    [claim] = await claims_of(world, a)
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 3
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == sorted(world.bound_pods(a))
    [terms] = claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert terms["matchFields"][0]["values"] == [next(iter(world.bound_pods(a).values()))]


async def test_gangs_share_a_claim_on_the_node_of_the_first_one(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, 8, cards=FOUR)
    a = await with_named_claim(world, gang("a").of(2), gpus(world, 4))
    await world.create(a)
    await world.bound(a)
    spec = {"resourceClaims": [{"name": "devices", "resourceClaimName": a.name}]}
    b = world.here(gang("b").of(2).with_spec(**spec))
    await world.create(b)
    await world.bound(b)
    assert len({*world.bound_pods(a).values(), *world.bound_pods(b).values()}) == 1
    [claim] = await claims_of(world, a)
    assert len(claim["status"]["reservedFor"]) == 4
    await world.delete(a)
    await world.delete(b)


async def test_the_claim_of_a_pod_group_is_reserved_for_the_group(world: World) -> None:
    """Also on an API server without controllers."""
    await world.nodes(8, 2, cards=FOUR)
    entry = {"name": "devices", "resourceClaimName": "a"}
    workload = gang("a").of(4).declared_by("native").declaring(resourceClaims=[entry])
    a = await with_named_claim(world, workload, gpus(world, 2))
    await world.create(a)
    await world.bound(a)
    assert len(set(world.bound_pods(a).values())) == 1
    [claim] = await claims_of(world, a)
    [user] = claim["status"]["reservedFor"]
    assert (user["apiGroup"], user["resource"], user["name"]) == ("scheduling.k8s.io", "podgroups", "a")


async def test_a_pod_group_has_one_claim_from_its_template(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, 2, cards=FOUR)
    entry = {"name": "devices", "resourceClaimTemplateName": "a"}
    workload = gang("a").of(4).declared_by("native").declaring(resourceClaims=[entry])
    a = await with_claims(world, workload, gpus(world, 3))
    await world.create(a)
    await world.bound(a)
    [claim] = await claims_of(world, a)
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["a"]
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 3
    await world.delete(a)


async def test_a_gang_without_enough_devices_holds_none_and_starts_with_more(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    a = await with_claims(world, gang("a").of(2), gpus(world, 3))
    await world.create(a)
    await world.waits(a, "enough free devices")
    assert await devices_of(world, a) == {}
    b = await with_claims(world, gang("b").of(2), gpus(world, 2))
    await world.create(b)
    await world.bound(b)
    await world.nodes(4, 4, cards=FOUR)
    await world.bound(a)


async def test_devices_of_ended_pods_are_used_again(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=FOUR)
    first = await with_claims(world, gang("first").of(2), gpus(world, 2))
    await world.create(first)
    await world.bound(first)
    second = await with_claims(world, gang("second").of(2), gpus(world, 2))
    await world.create(second)
    await world.waits(second)
    await world.end_pods(first)
    await world.bound(second)
    await world.delete(first)


async def test_two_gangs_for_the_same_devices_start_one_after_the_other(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, 8, cards=FOUR)
    a, b = [await with_claims(world, gang(name).of(2), gpus(world, 3)) for name in ("a", "b")]
    await world.create(a, b)
    started = await world.one_bound(a, b)
    other = b if started.name == a.name else a
    await world.waits(other)
    assert (await devices_of(world, started)).keys() == world.bound_pods(started).keys()
    await world.delete(started)
    await world.bound(other)


async def test_a_gang_of_higher_priority_preempts_for_devices(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=FOUR)
    low = await with_claims(world, gang("low").of(2), gpus(world, 2))
    await world.create(low)
    await world.bound(low)
    high = await with_claims(world, gang("high").of(2).with_priority(1000), gpus(world, 2))
    await world.create(high)
    await world.bound(high)
    assert len({device for devices in (await devices_of(world, high)).values() for device in devices}) == 4


async def test_devices_on_one_board_are_chosen_by_an_attribute(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    same = [{"matchAttribute": f"{DRIVER}/productName", "requests": ["r0"]}]
    a = await with_claims(world, gang("a").of(1), gpus(world, 4), constraints=same)
    await world.create(a)
    await world.bound(a)
    assert [len(devices) for devices in (await devices_of(world, a)).values()] == [4]


async def test_devices_that_a_rule_taints_are_used_when_it_is_removed(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    [node, _] = await world.nodes(4, 4, cards=FOUR)
    async with tainted_by_rule(world, node, "broken"):
        a = await with_claims(world, gang("a").of(2), gpus(world, 3))
        await world.create(a)
        await world.waits(a, "enough free devices")
    await world.bound(a)
    assert node in world.bound_pods(a).values()


async def test_pods_with_an_extended_resource_get_devices_and_give_them_back(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, 4, cards=FOUR)
    a = await with_extended_resource(world, gang("a").of(4), 2)
    await world.create(a)
    await world.bound(a)
    found = await devices_of(world, a)
    names = [device for devices in found.values() for device in devices]
    assert len(set(names)) == len(names) == 8
    on = world.bound_pods(a)
    assert all(device.startswith(f"{on[pod]}/") for pod, devices in found.items() for device in devices)
    owners = {each["metadata"]["name"]: each["metadata"]["ownerReferences"][0] for each in await claims_of(world, a)}
    for name in on:
        pod = await world.cluster.call("GET", f"/api/v1/namespaces/{a.namespace}/pods/{name}")
        assert owners[pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]]["name"] == name
    await world.running(a)
    b = await with_extended_resource(world, gang("b").of(2), 4)
    await world.create(b)
    await world.waits(b)
    await world.end_pods(a)
    await world.bound(b)


async def test_claims_and_extended_resources_share_no_device(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(8, cards=FOUR)
    a = await with_extended_resource(world, gang("a").of(1), 3)
    await world.create(a)
    await world.bound(a)
    b = await with_claims(world, gang("b").of(1), gpus(world, 2))
    await world.create(b)
    await world.waits(b, "devices")
    await world.delete(a)
    await world.bound(b)
    c = await with_extended_resource(world, gang("c").of(1), 3)
    await world.create(c)
    await world.waits(c)
    d = await with_extended_resource(world, gang("d").of(1), 2)
    await world.create(d)
    await world.bound(d)


async def test_an_expression_that_fails_is_quoted_in_the_reason(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    a = await with_claims(world, gang("a").of(1), gpus(world, 1, f"device.attributes['{DRIVER}'].index == 9"))
    await world.create(a)
    await world.waits(a, "enough free devices")


async def test_pods_whose_template_is_missing_wait_for_it(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    a = gang("a").of(2).with_spec(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "none"}])
    await world.create(a)
    await world.waits(a, 'ResourceClaim "gpu" to be created from ResourceClaimTemplate "none"')
