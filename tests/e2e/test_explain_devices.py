"""Reasons and explanations of gangs whose ResourceClaims find no devices."""

import pytest

from builders.e2e.devices import class_of, gpus, with_claims, with_extended_resource
from builders.e2e.world import World
from builders.gangs.manifests import gang
from muster.cli.explain import explanation_lines
from muster.localcluster.kubelets.devices.cards import DRIVER, CardKind, Cards

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOUR = Cards(CardKind.GPU, 4)
LAST = f"device.attributes['{DRIVER}'].index == 9"
MISSING = f"device.attributes['{DRIVER}'].speed == 'high'"


async def test_the_explanation_names_who_has_the_devices(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    first = await with_claims(world, gang("first").of(1), gpus(world, 3))
    await world.create(first)
    await world.bound(first)
    second = await with_claims(world, gang("second").of(2), gpus(world, 2))
    await world.create(second)
    await world.waits(second, 'request "r0" of ResourceClaim', "wants 2 per pod, 1 is free, at most 1 on one node")
    await world.unschedulable(
        second, 'request "r0" of ResourceClaim', "wants 2 per pod, 1 is free", reason="Unschedulable"
    )
    answer = await world.cluster.explain(world.here(second).id)
    [claimed] = answer.claimed_devices
    assert claimed.pods == 2
    [request] = claimed.requests
    assert (request.wanted, request.taken, request.free, request.most_free) == (2, 3, 1, 1)
    holder = f"gang {world.here(first).namespace}/first"
    assert [(each.name, each.devices) for each in request.holders] == [(holder, 3)]
    assert any(f"devices that are taken become free: {holder} (3)" in way for way in answer.would_help)
    text = "\n".join(explanation_lines(answer))
    assert request.summary in text.replace("\\[", "[")


async def test_the_explanation_names_who_has_the_devices_of_an_extended_resource(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    first = await with_extended_resource(world, gang("first").of(1), 3)
    await world.create(first)
    await world.bound(first)
    second = await with_extended_resource(world, gang("second").of(2), 2)
    await world.create(second)
    await world.waits(second)
    answer = await world.cluster.explain(world.here(second).id)
    [claimed] = answer.claimed_devices
    assert claimed.pods == 2
    [request] = claimed.requests
    assert (request.extended_resource, request.request) == (f"{world.name}.example.com/gpu", "main")
    assert (request.wanted, request.matching, request.taken, request.free) == (2, 4, 3, 1)
    holder = f"gang {world.here(first).namespace}/first"
    assert [(each.name, each.devices) for each in request.holders] == [(holder, 3)]
    assert any(f"devices that are taken become free: {holder} (3)" in way for way in answer.would_help)
    assert request.summary in "\n".join(explanation_lines(answer)).replace("\\[", "[")


async def test_the_selector_that_excludes_most_is_quoted(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    a = await with_claims(world, gang("a").of(1), gpus(world, 1, LAST))
    await world.create(a)
    await world.waits(a, f'none matches "{LAST}"')
    answer = await world.cluster.explain(world.here(a).id)
    [request] = answer.claimed_devices[0].requests
    assert (request.matching, request.excluding_selector) == (0, LAST)
    assert request.excluded >= 4
    assert any(f'other selectors: "{LAST}" excludes' in way for way in answer.would_help)


async def test_a_selector_that_fails_is_quoted_with_its_error(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    a = await with_claims(world, gang("a").of(1), gpus(world, 1, MISSING))
    await world.create(a)
    await world.waits(a, "speed", "wants 1, 0 are free: ")
    answer = await world.cluster.explain(world.here(a).id)
    [request] = answer.claimed_devices[0].requests
    assert "speed" in request.error
    assert any(f'or of class "{class_of(world)}", do not fail' in way for way in answer.would_help)


async def test_a_constraint_that_no_devices_meet_is_quoted(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4, cards=FOUR)
    same = [{"matchAttribute": f"{DRIVER}/uuid", "requests": ["r0"]}]
    a = await with_claims(world, gang("a").of(1), gpus(world, 2), constraints=same)
    await world.create(a)
    await world.waits(a, "no node has devices for them")
    answer = await world.cluster.explain(world.here(a).id)
    [claimed] = answer.claimed_devices
    assert f'matchAttribute "{DRIVER}/uuid"' in claimed.conflict
    assert any("1 node has devices for a pod" in way for way in answer.would_help)
