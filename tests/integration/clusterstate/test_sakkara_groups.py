"""Sakkara's group ConfigMaps with an API server: subscribers see the gangs that they define."""

from typing import Any

from builders.clusterstate.history import pod_object
from builders.clusterstate.mirror import Mirror
from builders.clusterstate.service import watching
from builders.kube.calls import KubeCalls
from muster.config.settings import KubeSettings

LABEL = "sakkara.group"
GROUP = "sakkara/ml/train"
KIND = "configmaps/sakkara.group"


def config_map(name: str, /, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {LABEL: ""}}, "data": data}


async def sees(mirror: Mirror, *, size: int, gang: str = GROUP) -> None:
    await mirror.until(lambda: gang in mirror.gangs and mirror.gangs[gang].minimum == size)


async def test_a_groups_life(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        await kube.create("Pod", pod_object("w-0", labels={"sakkara.group.name": "train"}))
        await mirror.until(lambda: "ml/w-0" in mirror.names and GROUP in mirror.gangs)
        assert mirror.gangs[GROUP].blocked
        created = await kube.create("ConfigMap", config_map("of-train", name="train", size="3"))
        await sees(mirror, size=3)
        assert mirror.changed[KIND] == int(created["metadata"]["resourceVersion"])
        assert not mirror.gangs[GROUP].blocked

        await kube.patch("ConfigMap", "of-train", {"data": {"size": "4"}})
        await sees(mirror, size=4)
        await kube.patch("ConfigMap", "of-train", {"data": {"name": "other"}})
        await sees(mirror, size=4, gang="sakkara/ml/other")
        await mirror.until(lambda: mirror.gangs[GROUP].blocked)
        await kube.patch("ConfigMap", "of-train", {"metadata": {"labels": {LABEL: None}}})
        await mirror.until(lambda: "sakkara/ml/other" not in mirror.gangs)


async def test_writes_to_a_groups_status_change_no_fact(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", config_map("train", size="3"))
    async with watching(config) as mirror:
        await sees(mirror, size=3)
        before = mirror.gangs[GROUP], mirror.changed.get(KIND, 0)
        await kube.patch("ConfigMap", "train", {"data": {"status": "Bound", "placement": "{}", "rank": "[(w-0,0)]"}})
        written = await kube.patch(
            "ConfigMap", "train", {"metadata": {"annotations": {"note": "of nobody's interest"}}}
        )
        last = int(written["metadata"]["resourceVersion"])
        await mirror.until(lambda: mirror.through.get(KIND, 0) >= last)
        assert (mirror.gangs[GROUP], mirror.changed.get(KIND, 0)) == before


async def test_trees_and_groups_do_not_count_for_one_another(config: KubeSettings, kube: KubeCalls) -> None:
    both = {LABEL: "", "sakkara.topology": ""}
    tree = {"name": "both", "size": "2", "tree": '{"r0": {"a": {}}}'}
    async with watching(config, topology_namespace="ml") as mirror:
        await kube.create("ConfigMap", {"metadata": {"name": "both", "labels": both}, "data": tree})
        await sees(mirror, size=2, gang="sakkara/ml/both")
        await mirror.until(lambda: "both" in mirror.trees)
        await kube.patch("ConfigMap", "both", {"metadata": {"labels": {LABEL: None}}})
        await mirror.until(lambda: "sakkara/ml/both" not in mirror.gangs)
        assert "both" in mirror.trees


async def test_without_permission_config_maps_are_skipped(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("ConfigMap", config_map("train", size="3"))
    await kube.create("Pod", pod_object("w-0", labels={"sakkara.group.name": "train"}))
    await kube.fault(method="GET", path_prefix="/api/v1/configmaps", status=403, count=3)
    async with watching(config) as mirror:
        assert mirror.gangs[GROUP].blocked
        await sees(mirror, size=3)  # once they may be read
