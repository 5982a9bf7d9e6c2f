"""Gangs whose pods mind other pods, ports and volumes: placed as they ask for, or told what they wait for."""

from collections import Counter
from typing import Any

import pytest

from builders.e2e.world import Scene
from builders.gangs.workloads import gang, plain
from builders.kube.inter_pod_rules import HOST, affinity, labelled, spread, term

pytestmark = pytest.mark.asyncio(loop_scope="session")

RACK = "example.com/rack"


def in_rack(rack: str) -> dict[str, Any]:
    return {RACK: rack}


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": "1"}}, **fields}


async def test_p27_pods_that_keep_away_from_one_another_get_a_node_each(scene: Scene) -> None:
    await scene.nodes(4, 4, 4)
    apart = affinity(away=[term(labelled(job="a"), HOST)])
    a = gang("a").of(4).labelled(job="a").with_spec(affinity=apart)
    await scene.create(a)
    await scene.waits(a)
    await scene.nodes(4)
    await scene.bound(a)
    assert set(scene.per_node(a).values()) == {1}


async def test_others_keep_away_from_pods_that_want_to_be_alone(scene: Scene) -> None:
    nodes = await scene.nodes(4, 4)
    alone = affinity(away=[term(labelled(team="x"), HOST)])
    loner = plain("loner").with_spec(affinity=alone)
    await scene.create(loner)
    await scene.bound(loner)
    [taken] = scene.bound_pods(loner).values()
    a = gang("a").of(3).labelled(team="x")
    await scene.create(a)
    await scene.bound(a)
    assert scene.per_node(a) == Counter({node: 3 for node in nodes if node != taken})


async def test_p28_members_are_spread_over_zones(scene: Scene) -> None:
    zones = [await scene.nodes(8, **in_rack(zone)) for zone in ("a", "b")]
    a = gang("a").of(5).labelled(job="a")
    await scene.create(a.with_spec(topologySpreadConstraints=[spread(labelled(job="a"), RACK)]))
    await scene.bound(a)
    assert sorted(sum(scene.per_node(a)[node] for node in zone) for zone in zones) == [2, 3]


async def test_p29_members_go_where_the_pod_runs_that_they_want_near(scene: Scene) -> None:
    await scene.nodes(8, **in_rack("r0"))
    [other] = await scene.nodes(8, **in_rack("r1"))
    near = affinity(near=[term(labelled(app="store"), RACK)])
    a = gang("a").of(4).with_spec(affinity=near)
    await scene.create(a)
    await scene.waits(a)
    store = plain("store").labelled(app="store").on_nodes(**in_rack("r1"))
    await scene.create(store)
    await scene.bound(store, a)
    assert scene.per_node(a) == {other: 4}


async def test_p30_a_port_of_the_host_is_there_once_per_node(scene: Scene) -> None:
    await scene.nodes(4, 4)
    serving = [container(ports=[{"containerPort": 80, "hostPort": 8080}])]
    a = gang("a").of(3).with_spec(containers=serving)
    await scene.create(a)
    await scene.waits(a, "port")
    await scene.nodes(4)
    await scene.bound(a)
    assert set(scene.per_node(a).values()) == {1}


async def test_a_gang_waits_for_a_claim_and_starts_when_it_is_bound(scene: Scene) -> None:
    scene.cluster.api_server.needs_volumes()
    await scene.nodes(4)
    shared = [{"name": "data", "persistentVolumeClaim": {"claimName": "a-0-data"}}]
    a = gang("a").of(2).with_spec(volumes=shared)
    await scene.create(a)
    await scene.waits(a, 'PersistentVolumeClaim "a-0-data" does not exist')
    [claim] = scene.here(a.with_claims(await scene.storage_class(at_once=True))).claims(0)
    await scene.cluster.apply(claim)
    await scene.bound(a)


async def test_resource_claims_are_said_to_be_not_supported(scene: Scene) -> None:
    await scene.nodes(4)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    a = gang("a").of(2).with_spec(resourceClaims=claims)
    await scene.create(a)
    await scene.waits(a, "uses resource claims (DRA), which Muster does not support yet")
