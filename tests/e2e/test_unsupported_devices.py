"""Binding conditions and consumable capacity: reasons name the feature, and claims that others allocated are used."""

from typing import Any

import pytest

from builders.e2e.devices import (
    API,
    claims_of,
    device,
    device_class,
    first_of,
    gpus,
    publish,
    request,
    results_of,
    with_claims,
    with_named_claim,
)
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

CARDS = "card.example.com"
ONE = Cards(CardKind.GPU, 1)
FEATURES = {
    "binding conditions": {"bindsToNode": True, "bindingConditions": ["attached"], "bindingFailureConditions": ["no"]},
    "consumable capacity": {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}},
    },
}
SHARE = {"capacity": {"requests": {"memory": "1Gi"}}}


async def allocate(world: World, workload: Workload, **of_result: Any) -> dict[str, Any]:
    """Allocate the claim of a workload as another scheduler; returns it."""
    [claim] = await claims_of(world, workload)
    [node] = [name for name, each in world.cluster.nodes.items() if each["metadata"]["name"].startswith(world.name)]
    result = {"request": "r0", "driver": DRIVER, "pool": node, "device": "gpu-0", **of_result}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    where = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    claim["status"] = {"allocation": {"devices": {"results": [result]}, "nodeSelector": where}}
    return await put_status(world, claim)


async def put_status(world: World, claim: dict[str, Any]) -> dict[str, Any]:
    metadata = claim["metadata"]
    path = f"/apis/{API}/namespaces/{metadata['namespace']}/resourceclaims/{metadata['name']}/status"
    return await world.cluster.call("PUT", path, claim)


@pytest.mark.parametrize("feature", FEATURES)
async def test_devices_with_a_feature_are_named_and_others_are_used(world: World, feature: str) -> None:
    world.cluster.api_server.needs_controllers()
    [node] = await world.nodes(4)
    await publish(world, node, {**device("odd"), **FEATURES[feature]}, device("plain"), owner=node, driver=CARDS)
    cards = await device_class(world, "card", f"device.driver == '{CARDS}'")
    a = await with_claims(world, gang("a").of(1), request(cards, 1))
    await world.create(a)
    await world.bound(a)
    assert [each["device"] for each in await results_of(world, a)] == ["plain"]
    b = await with_claims(world, gang("b").of(1), request(cards, 1))
    await world.create(b)
    named = f"devices with {feature} are not supported, such as {CARDS}/{node}/odd"
    await world.unschedulable(b, named, reason="Unschedulable")
    [found] = (await world.cluster.explain(world.here(b).id)).claimed_devices[0].requests
    assert (found.unsupported, list(found.unsupported_features)) == (1, [feature])
    assert f"1 with features that are not supported ({feature})" in found.summary


@pytest.mark.parametrize("from_template", [True, False])
@pytest.mark.parametrize("alternative", [True, False])
async def test_a_request_of_capacity_is_named(world: World, from_template: bool, alternative: bool) -> None:
    if from_template:
        world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=ONE)
    wanted = first_of(gpus(world, 1, **SHARE), gpus(world)) if alternative else gpus(world, 1, **SHARE)
    with_claim = with_claims if from_template else with_named_claim
    a = await with_claim(world, gang("a").of(1), wanted)
    await world.create(a)
    path = "r0/s0" if alternative else "r0"
    await world.unschedulable(a, f"is not supported: request {path}: consumable capacity", reason="PodBlocked")


async def test_a_share_that_another_scheduler_allocated_is_used(world: World) -> None:
    await world.nodes(4, cards=ONE)
    a = await with_named_claim(world, gang("a").of(2), gpus(world, 1, **SHARE))
    share = {"shareID": "8c0d4d7e-6d36-4b51-a1ff-1fb5a0a9a5b1", "consumedCapacity": {"memory": "1Gi"}}
    await allocate(world, a, **share)
    await world.create(a)
    await world.bound(a)
    [result] = await results_of(world, a)
    assert {key: result[key] for key in share} == share
    [claim] = await claims_of(world, a)
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == sorted(world.bound_pods(a))


async def test_pods_wait_for_the_binding_conditions_of_their_claim(world: World) -> None:
    await world.nodes(4, cards=ONE)
    a = await with_named_claim(world, gang("a").of(2), gpus(world))
    claim = await allocate(world, a, bindingConditions=["attached"], bindingFailureConditions=["broken"])
    await world.create(a)
    await world.unschedulable(a, 'the binding condition "attached" of device', "is not true", reason="PodBlocked")
    result = claim["status"]["allocation"]["devices"]["results"][0]
    named = {key: result[key] for key in ("driver", "pool", "device")}
    condition = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    for name, message in (("broken", 'the binding failure condition "broken" of device'), ("attached", "")):
        claim["status"]["devices"] = [{**named, "conditions": [{**condition, "type": name}]}]
        claim = await put_status(world, claim)
        if message:
            await world.unschedulable(a, message, "is true", reason="PodBlocked")
    await world.bound(a)
