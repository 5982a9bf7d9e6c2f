"""Pods with claims for volumes that exist already: the chosen volume is reserved, then the claim awaited."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.binding.service import Object, Rig, rig
from builders.e2e.faults import Requests
from muster.binding.v1 import binding_pb2 as pb

BOUND, FAILED = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_FAILED
WITHHELD = pb.BindResult.OUTCOME_WITHHELD
RESERVATIONS = Requests("PATCH", "/persistentvolumes/[^/]+")
THEIRS = {"namespace": "others", "name": "theirs", "uid": "none"}


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    """Two nodes, the volumes "v0" to "v3" on the first one, and the claims "c0" to "c3"."""
    async with rig(tmp_path, requests_in_flight=8) as found:
        for name in ("node-0", "node-1"):
            await found.kube.create("Node", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        provisioner = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        await found.kube.create("StorageClass", {"metadata": {"name": "local"}, **provisioner})
        for number in range(4):
            await found.kube.create("PersistentVolume", volume(f"v{number}"))
            await found.kube.create("PersistentVolumeClaim", claim(f"c{number}"))
        yield found


def volume(name: str) -> Object:
    requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0"]}
    spec = {
        "storageClassName": "local",
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
    }
    return {"metadata": {"name": name}, "spec": spec}


def claim(name: str) -> Object:
    spec: Object = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": name}, "spec": {**spec, "resources": {"requests": {"storage": "1Gi"}}}}


async def pods(muster: Rig, *names: str) -> list[Object]:
    """Pods with one of the claims each."""
    made = []
    for name in names:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        made += await muster.pods(f"pod-{name}", volumes=volumes)
    return made


async def bind(
    muster: Rig, members: list[Object], *volumes: str, node: str = "node-0", **more: Any
) -> list[pb.BindResult]:
    """Bind the pods, with these volumes for their claims."""
    chosen = {
        member["metadata"]["uid"]: {f"c{number}": name}
        for number, (member, name) in enumerate(zip(members, volumes, strict=True))
    }
    return await muster.bind(members, [node] * len(members), volumes=chosen, **more)


async def read(muster: Rig, name: str) -> Object:
    return await muster.get(f"/api/v1/persistentvolumes/{name}")


async def change(muster: Rig, name: str, spec: Object) -> None:
    await muster.kube.patch("PersistentVolume", name, {"spec": spec})


async def test_each_claim_gets_the_chosen_volume(muster: Rig) -> None:
    members = await pods(muster, "c0", "c1")
    results = await bind(muster, members, "v2", "v1", volumes_first=True)
    assert [(result.outcome, result.message) for result in results] == [(BOUND, "")] * 2
    for number, name in enumerate(("v2", "v1")):
        found = await muster.get(f"/api/v1/namespaces/ml/persistentvolumeclaims/c{number}")
        assert (found["spec"]["volumeName"], found["status"]["phase"]) == (name, "Bound")
        assert "volume.kubernetes.io/selected-node" not in found["metadata"].get("annotations", {})
        annotations = (await read(muster, name))["metadata"]["annotations"]
        assert annotations["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_repeated_calls_reserve_nothing_twice(muster: Rig) -> None:
    members = await pods(muster, "c0")
    with muster.faults.seen(RESERVATIONS) as requests:
        for _ in range(2):
            [result] = await bind(muster, members, "v0")
            assert result.outcome == BOUND
    assert len(requests) == 1


async def test_a_volume_that_others_have_fails_the_pod_and_withholds_the_others(muster: Rig) -> None:
    members = await pods(muster, "c0", "c1")
    await change(muster, "v0", {"claimRef": THEIRS})
    first, second = await bind(muster, members, "v0", "v1", volumes_first=True)
    assert (first.outcome, second.outcome) == (FAILED, WITHHELD)
    assert first.message.endswith("was taken by claim others/theirs")
    assert (await read(muster, "v0"))["spec"]["claimRef"]["name"] == "theirs"


async def test_a_missing_volume_fails_the_pod(muster: Rig) -> None:
    [result] = await bind(muster, await pods(muster, "c0"), "v9")
    assert (result.outcome, result.message) == (
        FAILED,
        'PersistentVolume "v9", which was chosen for PersistentVolumeClaim "c0", does not exist',
    )


async def test_a_claim_that_is_bound_elsewhere_is_checked_against_the_node(muster: Rig) -> None:
    await muster.kube.patch("PersistentVolumeClaim", "c0", {"spec": {"volumeName": "v3"}})
    [member] = await pods(muster, "c0")
    [there] = await bind(muster, [member], "v0", node="node-1")
    assert there.outcome == FAILED
    assert 'its volume "v3" cannot be used on node "node-1"' in there.message
    [here] = await bind(muster, [member], "v0")
    assert here.outcome == BOUND
    assert "claimRef" not in (await read(muster, "v0"))["spec"]


async def test_a_volume_whose_claim_is_not_bound_in_time_is_given_back(muster: Rig) -> None:
    """The claim names a volume that does not exist, so that it is never bound."""
    stuck = claim("c9")
    await muster.kube.create("PersistentVolumeClaim", {**stuck, "spec": {**stuck["spec"], "volumeName": "v9"}})
    [member] = await pods(muster, "c9")
    with muster.faults.seen(RESERVATIONS) as requests:
        [result] = await muster.bind([member], volumes={member["metadata"]["uid"]: {"c9": "v0"}}, timeout=3)
    assert (result.outcome, len(requests)) == (FAILED, 2)
    assert not (await read(muster, "v0"))["spec"].get("claimRef")
