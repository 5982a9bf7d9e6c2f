"""Gangs with inter-pod rules, host ports and volumes: placed accordingly, or pending with the reason."""

from collections import Counter
from typing import Any

import pytest

from builders.e2e.world import World
from builders.gangs.manifests import gang, plain
from builders.kube.inter_pod_rules import HOST, affinity, labelled, spread, term

pytestmark = pytest.mark.asyncio(loop_scope="session")

RACK = "example.com/rack"


def in_rack(rack: str) -> dict[str, Any]:
    return {RACK: rack}


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}, **fields}


async def test_p27_pods_with_anti_affinity_get_one_node_each(world: World) -> None:
    await world.nodes(4, 4, 4)
    apart = affinity(away=[term(labelled(job="a"), HOST)])
    a = gang("a").of(4).labelled(job="a").with_spec(affinity=apart)
    await world.create(a)
    await world.waits(a)
    await world.nodes(4)
    await world.bound(a)
    assert set(world.per_node(a).values()) == {1}


async def test_required_anti_affinity_also_repels_other_pods(world: World) -> None:
    nodes = await world.nodes(4, 4)
    alone = affinity(away=[term(labelled(team="x"), HOST)])
    loner = plain("loner").with_spec(affinity=alone)
    await world.create(loner)
    await world.bound(loner)
    [taken] = world.bound_pods(loner).values()
    a = gang("a").of(3).labelled(team="x")
    await world.create(a)
    await world.bound(a)
    assert world.per_node(a) == Counter({node: 3 for node in nodes if node != taken})


async def test_p28_topology_spread_distributes_members_over_zones(world: World) -> None:
    zones = [await world.nodes(8, **in_rack(zone)) for zone in ("a", "b")]
    a = gang("a").of(5).labelled(job="a")
    await world.create(a.with_spec(topologySpreadConstraints=[spread(labelled(job="a"), RACK)]))
    await world.bound(a)
    assert sorted(sum(world.per_node(a)[node] for node in zone) for zone in zones) == [2, 3]


async def test_p29_required_affinity_places_members_near_the_pod(world: World) -> None:
    await world.nodes(8, **in_rack("r0"))
    [other] = await world.nodes(8, **in_rack("r1"))
    near = affinity(near=[term(labelled(app="store"), RACK)])
    a = gang("a").of(4).with_spec(affinity=near)
    await world.create(a)
    await world.waits(a)
    store = plain("store").labelled(app="store").on_nodes(**in_rack("r1"))
    await world.create(store)
    await world.bound(store, a)
    assert world.per_node(a) == {other: 4}


async def test_p30_a_host_port_is_used_once_per_node(world: World) -> None:
    await world.nodes(4, 4)
    serving = [container(ports=[{"containerPort": 80, "hostPort": 8080}])]
    a = gang("a").of(3).with_spec(containers=serving)
    await world.create(a)
    await world.waits(a, "port")
    await world.nodes(4)
    await world.bound(a)
    assert set(world.per_node(a).values()) == {1}


async def test_a_gang_waits_for_a_claim_and_starts_when_it_is_bound(world: World) -> None:
    world.cluster.api_server.needs_controllers()
    await world.nodes(4)
    shared = [{"name": "data", "persistentVolumeClaim": {"claimName": "a-0-data"}}]
    a = gang("a").of(2).with_spec(volumes=shared)
    await world.create(a)
    await world.waits(a, 'PersistentVolumeClaim "a-0-data" does not exist')
    [claim] = world.here(a.with_claims(await world.storage_class(at_once=True))).claims(0)
    await world.cluster.apply(claim)
    await world.bound(a)
