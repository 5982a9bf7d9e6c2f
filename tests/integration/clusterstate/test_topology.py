"""Topology trees with an API server: subscribers see the trees of ConfigMaps and node labels."""

from contextlib import aclosing
from typing import Any

import pytest

from builders.clusterstate.history import node_object, topology_map_object
from builders.clusterstate.mirror import mirroring
from builders.clusterstate.service import replica, watching
from builders.kube.calls import KubeCalls
from muster.config.settings import KubeSettings
from muster.coordinator.cluster_watch import watch_cluster
from muster.coordinator.core.events import Snapshot
from muster.gangs.facts import Severity
from muster.kube.informer import InformerOptions
from muster.rpc.channel import open_channel

QUICK = InformerOptions(retry_seconds=(0.01, 0.1), unavailable_seconds=(0.02, 0.1))
RACKS: Any = {"r0": {"a": {}}, "r1": {"b": {}}}
LABEL = "sakkara.topology"


@pytest.fixture
async def kube(kube: KubeCalls) -> KubeCalls:
    for node in ("a", "b"):
        await kube.create("Node", node_object(node))
    return kube


def topology(map_name: str, tree: Any, /, **data: Any) -> dict[str, Any]:
    made = topology_map_object(map_name, tree, **data)
    del made["metadata"]["uid"]
    return made


async def test_a_config_maps_life(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        assert list(mirror.trees) == ["flat"]
        created = await kube.create("ConfigMap", topology("m", RACKS), "default")
        await mirror.until(lambda: list(mirror.trees) == ["default-tree"])
        assert mirror.changed["configmaps"] == int(created["metadata"]["resourceVersion"])
        assert mirror.trees["default-tree"].leaves == (("a", 0), ("b", 1))
        assert mirror.trees["default-tree"].default

        await kube.patch("ConfigMap", "m", {"data": {"tree": '{"r": {"a": {}, "b": {}}}'}}, "default")
        await mirror.until(lambda: len(mirror.trees["default-tree"].domains) == 1)

        await kube.patch("ConfigMap", "m", {"metadata": {"labels": {LABEL: None}}}, "default")
        await mirror.until(lambda: list(mirror.trees) == ["flat"])
        await kube.patch("ConfigMap", "m", {"metadata": {"labels": {LABEL: "yes"}}}, "default")
        await mirror.until(lambda: list(mirror.trees) == ["default-tree"])
        await kube.delete("ConfigMap", "m", "default")
        await mirror.until(lambda: list(mirror.trees) == ["flat"])


async def test_p35_an_invalid_tree_keeps_its_last_valid_version(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", topology("m", RACKS), "default")
    async with watching(config) as mirror:
        assert mirror.trees["default-tree"].problems == ()
        await kube.patch("ConfigMap", "m", {"data": {"tree": '{"r0": {"a": {}}, "r1": {"a": {}}}'}}, "default")
        await mirror.until(lambda: mirror.trees["default-tree"].problems)
        tree = mirror.trees["default-tree"]
        assert tree.leaves == (("a", 0), ("b", 1))
        (problem,) = tree.problems
        assert problem.severity is Severity.BLOCKING
        assert '"r0/a"' in problem.message and '"r1/a"' in problem.message
        await kube.patch("ConfigMap", "m", {"data": {"tree": '{"r0": {"a": {}, "b": {}}}'}}, "default")
        await mirror.until(lambda: not mirror.trees["default-tree"].problems)


async def test_p34_nodes_that_come_late_are_seen_to_be_in_the_tree(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", topology("m", {"r0": {"a": {}, "b": {}, "c": {}}}), "default")
    async with watching(config) as mirror:
        (problem,) = mirror.trees["default-tree"].problems
        assert problem.message.startswith('node "c" of the tree is not in the cluster')
        await kube.create("Node", node_object("c"))
        await mirror.until(lambda: not mirror.trees["default-tree"].problems)
        await kube.create("Node", node_object("d"))
        await mirror.until(lambda: mirror.trees["default-tree"].problems)
        assert 'node "d" of the cluster is not in the tree' in mirror.trees["default-tree"].problems[0].message


async def test_only_those_with_the_label_in_the_namespace_of_the_settings_count(
    config: KubeSettings, kube: KubeCalls
) -> None:
    elsewhere = topology("elsewhere", RACKS, name="elsewhere")
    unmarked = topology("unmarked", RACKS, name="unmarked")
    del unmarked["metadata"]["labels"], elsewhere["metadata"]["namespace"], unmarked["metadata"]["namespace"]
    here = topology("here", RACKS, name="here")
    del here["metadata"]["namespace"]
    await kube.create("ConfigMap", elsewhere, "default")
    await kube.create("ConfigMap", unmarked, "ml")
    async with watching(config, topology_namespace="ml") as mirror:
        assert list(mirror.trees) == ["flat"]
        await kube.create("ConfigMap", here, "ml")
        await mirror.until(lambda: list(mirror.trees) == ["here"])


async def test_a_label_on_a_node_makes_racks(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        await kube.patch("Node", "a", {"metadata": {"labels": {"sakkara.topology.rack": "r0"}}})
        await mirror.until(lambda: list(mirror.trees) == ["labels"])
        (problem,) = mirror.trees["labels"].problems
        assert problem.message.startswith('node "b" of the cluster is not in the tree because a label is missing')
        await kube.patch("Node", "b", {"metadata": {"labels": {"sakkara.topology.rack": "r1"}}})
        await mirror.until(lambda: not mirror.trees["labels"].problems)


async def test_a_tree_that_a_node_changes_is_waited_for_by_solves(config: KubeSettings, kube: KubeCalls) -> None:
    async with replica(config) as (_, port), mirroring(port) as mirror:
        await mirror.until(lambda: list(mirror.trees) == ["flat"])
        node = await kube.patch("Node", "a", {"metadata": {"labels": {"sakkara.topology.rack": "r0"}}})
        await mirror.until(lambda: list(mirror.trees) == ["labels"])
        revision = int(node["metadata"]["resourceVersion"])
        assert mirror.changed["topologytrees"] == revision
        async with open_channel(f"127.0.0.1:{port}") as channel, aclosing(watch_cluster(channel, "late")) as events:
            snapshot = await anext(events)
        assert isinstance(snapshot, Snapshot)
        assert snapshot.batch.changed["topologytrees"] == revision


async def test_settings_make_a_tree_by_labels_and_choose_the_default(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", topology("m", RACKS), "default")
    levels = ("zone=topology.kubernetes.io/zone", "rack=example.com/rack")
    async with watching(config, topology_levels=levels, default_tree="labels") as mirror:
        assert {name: tree.default for name, tree in mirror.trees.items()} == {"default-tree": False, "labels": True}
        assert [level.name for level in mirror.trees["labels"].levels] == ["zone", "rack", "node"]


async def test_without_permission_config_maps_are_skipped(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", topology("m", RACKS), "default")
    maps = "/api/v1/namespaces/default/configmaps"
    await kube.fault(method="GET", path_prefix=maps, status=403, count=3)
    async with watching(config) as mirror:
        assert list(mirror.trees) == ["flat"]
        await mirror.until(lambda: list(mirror.trees) == ["default-tree"])  # once it may be read


async def test_a_large_tree_arrives_whole(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        racks: Any = {f"rack-{rack}": {f"node-{rack}-{node}": {} for node in range(40)} for rack in range(400)}
        await kube.create("ConfigMap", topology("m", racks), "default")
        await mirror.until(lambda: "default-tree" in mirror.trees)
        assert len(mirror.trees["default-tree"].leaves) == 16_000
