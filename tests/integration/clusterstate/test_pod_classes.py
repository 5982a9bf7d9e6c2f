"""Pod classes with an API server: subscribers see the effects of namespaces, claims and volumes."""

from typing import Any

import pytest

from builders.clusterstate.history import node_object, pod_object
from builders.clusterstate.mirror import Mirror
from builders.clusterstate.service import watching
from builders.kube.calls import KubeCalls
from builders.kube.inter_pod_rules import affinity, labelled, term
from builders.kube.storage import in_zones, using, zone_term
from muster.config.settings import KubeSettings
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass

SELECTED = "volume.kubernetes.io/selected-node"
HOST = "kubernetes.io/hostname"


def storage_class(**more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "fast"},
        "provisioner": "simulated.muster.dev",
        "volumeBindingMode": "WaitForFirstConsumer",
        **more,
    }


def claim(name: str = "c", **spec: Any) -> dict[str, Any]:
    resources = {"requests": {"storage": "1Gi"}}
    content = {"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": "fast", **spec}
    return {"metadata": {"name": name}, "spec": content}


def class_of(mirror: Mirror, pod: str) -> PodClass:
    return mirror.classes[mirror.names[pod].class_id]


def one_of(key: str, *values: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((NodeRequirement(key, NodeOperator.IN, values),)),)


async def test_a_claim_that_waits_for_its_first_consumer(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        await kube.create("Node", node_object("n"))
        await kube.create("Pod", pod_object("a", volumes=using("c")))
        await mirror.until(lambda: "ml/a" in mirror.names)
        assert mirror.names["ml/a"].problem == 'PersistentVolumeClaim "c" does not exist'
        await kube.create("StorageClass", storage_class(allowedTopologies=in_zones("z")))
        await kube.create("PersistentVolumeClaim", claim())
        await mirror.until(lambda: mirror.names["ml/a"].claims == ("c",))
        assert mirror.names["ml/a"].problem == ""
        assert class_of(mirror, "ml/a").volumes == (one_of("topology.kubernetes.io/zone", "z"),)
        await kube.patch("PersistentVolumeClaim", "c", {"metadata": {"annotations": {SELECTED: "n"}}})
        await mirror.until(lambda: not mirror.names["ml/a"].claims and not mirror.names["ml/a"].problem)
        assert class_of(mirror, "ml/a").volumes == (one_of(HOST, "n"),)


async def test_a_claim_of_a_volume_that_was_made_by_hand(config: KubeSettings, kube: KubeCalls) -> None:
    volume = {
        "metadata": {"name": "v"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "by-hand",
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [zone_term("z")]}},
        },
    }
    async with watching(config) as mirror:
        await kube.create("Pod", pod_object("a", volumes=using("c")))
        await kube.create("PersistentVolumeClaim", claim(storageClassName="by-hand", volumeName="v"))
        await mirror.until(lambda: mirror.names and "to be bound" in mirror.names["ml/a"].problem)
        await kube.create("PersistentVolume", volume)
        await mirror.until(lambda: not mirror.names["ml/a"].problem)
        assert class_of(mirror, "ml/a").volumes == (one_of("topology.kubernetes.io/zone", "z"),)


async def test_an_ephemeral_volume(config: KubeSettings, kube: KubeCalls) -> None:
    async with watching(config) as mirror:
        await kube.create("StorageClass", storage_class())
        template = {"volumeClaimTemplate": {"spec": claim()["spec"]}}
        await kube.create("Pod", pod_object("a", volumes=[{"name": "scratch", "ephemeral": template}]))
        await mirror.until(lambda: mirror.names and mirror.names["ml/a"].claims == ("a-scratch",))
        assert mirror.names["ml/a"].problem == ""


async def test_selectors_by_labels_of_namespaces(config: KubeSettings, kube: KubeCalls) -> None:
    await kube.create("Namespace", {"metadata": {"name": "prod", "labels": {"tier": "live"}}})
    await kube.create("Pod", pod_object("db", labels={"app": "db"}, namespace="prod"), "prod")
    await kube.create("Pod", pod_object("db", labels={"app": "db"}))
    away = affinity(away=[term(labelled(app="db"), namespaceSelector=labelled(tier="live"))])
    await kube.create("Pod", pod_object("a", affinity=away))
    async with watching(config) as mirror:
        (avoided,) = class_of(mirror, "ml/a").required_pod_anti_affinity

        def selected(pod: str) -> bool:
            return mirror.selection.selects(avoided.selector, mirror.names[pod].label_set)

        assert (selected("prod/db"), selected("ml/db")) == (True, False)
        await kube.patch("Namespace", "ml", {"metadata": {"labels": {"tier": "live"}}})
        await mirror.until(lambda: selected("ml/db"))
        assert class_of(mirror, "prod/db") == class_of(mirror, "ml/db")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/api/v1/persistentvolumeclaims", "persistentvolumeclaims"),
        ("/api/v1/persistentvolumes", "persistentvolumes"),
        ("/apis/storage.k8s.io", "storageclasses.storage.k8s.io"),
        ("/api/v1/namespaces", "namespaces"),
    ],
)
async def test_without_permission_dependent_pods_say_so(
    config: KubeSettings, kube: KubeCalls, path: str, kind: str
) -> None:
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast"}
    await kube.create("PersistentVolume", {"metadata": {"name": "v"}, "spec": {**volume, "local": {"path": "/disk"}}})
    await kube.create("PersistentVolumeClaim", claim("c", volumeName="v"))
    await kube.create("PersistentVolumeClaim", claim("d"))
    await kube.create("StorageClass", storage_class())
    away = affinity(away=[term(labelled(app="db"), namespaceSelector=labelled(tier="live"))])
    await kube.create("Pod", pod_object("a", volumes=using("c", "d"), affinity=away))
    async with watching(config) as mirror:
        await mirror.until(lambda: not mirror.names["ml/a"].problem)
    await kube.fault(method="GET", path_prefix=path, status=403, count=1000)
    async with watching(config) as mirror:
        await mirror.until(lambda: f"no right to list and watch {kind}" in mirror.names["ml/a"].problem)
        await kube.end_faults()
        await mirror.until(lambda: not mirror.names["ml/a"].problem)
        assert mirror.snapshots == 1
