"""Pods with WaitForFirstConsumer volumes: the node of each claim is selected, then its volume is awaited."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from builders.binding.service import SECONDS, Object, Rig, in_order, results_of, rig
from builders.e2e.faults import Requests
from builders.wait import eventually
from muster.binding.v1 import binding_pb2 as pb

BOUND, FAILED = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_FAILED
WITHHELD = pb.BindResult.OUTCOME_WITHHELD
SELECTED = "volume.kubernetes.io/selected-node"
SELECTIONS = Requests("PATCH", "/persistentvolumeclaims/[^/]+")
READS_OF_CLAIMS = Requests("GET", "/persistentvolumeclaims/[^/]+")
WATCHES_OF_CLAIMS = Requests("GET", "/api/v1/persistentvolumeclaims")
NODES = ("node-0", "node-1", "node-2", "node-3")


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=8) as found:
        for name in NODES:
            labels = {"kubernetes.io/hostname": name, "zone": f"zone-{int(name[-1]) // 2}"}
            await found.kube.create("Node", {"metadata": {"name": name, "labels": labels}})
        yield found


async def storage_class(muster: Rig, name: str = "fast", **parameters: str) -> None:
    """A class with WaitForFirstConsumer binding."""
    body = {"provisioner": "simulated.muster.dev", "volumeBindingMode": "WaitForFirstConsumer"}
    await muster.kube.create("StorageClass", {"metadata": {"name": name}, "parameters": parameters, **body})


async def claims(muster: Rig, *names: str, of_class: str = "fast", **metadata: Any) -> list[Object]:
    spec = {
        "storageClassName": of_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    made = [{"metadata": {"name": name, **metadata}, "spec": spec} for name in names]
    return list(await asyncio.gather(*(muster.kube.create("PersistentVolumeClaim", each) for each in made)))


async def pods_with(muster: Rig, **claims_of: list[str]) -> list[Object]:
    """Create pods by name with their claims."""
    made = []
    for name, used in claims_of.items():
        volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": each}} for i, each in enumerate(used)]
        made += await muster.pods(name, volumes=volumes)
    return made


async def gang(muster: Rig, size: int, **metadata: Any) -> list[Object]:
    """Create pods with one claim each."""
    names = [f"data-{number}" for number in range(size)]
    await claims(muster, *names, **metadata)
    return await pods_with(muster, **{f"trainer-{number}": [name] for number, name in enumerate(names)})


async def claim(muster: Rig, name: str) -> Object:
    return await muster.get(f"/api/v1/namespaces/ml/persistentvolumeclaims/{name}")


async def selected(muster: Rig, name: str) -> str:
    return str((await claim(muster, name))["metadata"].get("annotations", {}).get(SELECTED, ""))


# -- results by state of the claim


async def test_pods_are_bound_once_their_volumes_exist_on_their_nodes(muster: Rig) -> None:
    await storage_class(muster)
    pods = await gang(muster, 12)
    nodes = [NODES[number % 4] for number in range(12)]
    results = await muster.bind(pods, nodes)
    assert [(result.outcome, result.message) for result in results] == [(BOUND, "")] * 12
    assert await muster.nodes_of(pods) == nodes
    for number, node in enumerate(nodes):
        found = await claim(muster, f"data-{number}")
        volume = await muster.get(f"/api/v1/persistentvolumes/{found['spec']['volumeName']}")
        [term] = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == [node]


async def test_pod_waits_for_its_own_claims_only(muster: Rig) -> None:
    await storage_class(muster)
    await storage_class(muster, "slow", seconds="3600")
    await claims(muster, "quick")
    await claims(muster, "late", of_class="slow")
    pods = await pods_with(muster, none=[], one=["quick"], both=["quick", "late"])
    call = muster.bind_call(pods)
    early: list[pb.BindResult] = []
    while len(early) < 2:
        early += (await call.read()).results
    assert {result.uid for result in early} == {pod["metadata"]["uid"] for pod in pods[:2]}
    assert await muster.nodes_of(pods) == ["node-0", "node-0", ""]
    assert await selected(muster, "late") == "node-0"
    call.cancel()


async def test_with_volumes_first_no_pod_is_bound_before_all_volumes_exist(muster: Rig) -> None:
    await storage_class(muster)
    await storage_class(muster, "slow", seconds="3600")
    await claims(muster, "quick")
    await claims(muster, "late", of_class="slow")
    pods = await pods_with(muster, none=[], one=["quick"], other=["late"])
    call = asyncio.create_task(results_of(muster.bind_call(pods, volumes_first=True)))

    async def quick_is_bound() -> bool:
        return bool((await claim(muster, "quick"))["spec"].get("volumeName"))

    await eventually(quick_is_bound)
    assert await muster.nodes_of(pods) == ["", "", ""]
    call.cancel()


async def test_with_volumes_first_all_pods_are_bound_once_all_volumes_exist(muster: Rig) -> None:
    await storage_class(muster)
    await claims(muster, "a", "b")
    pods = await pods_with(muster, none=[], one=["a"], other=["b"])
    results = await results_of(muster.bind_call(pods, volumes_first=True))
    assert [result.outcome for result in results] == [BOUND] * 3


async def test_with_volumes_first_a_claim_that_fails_withholds_all_pods(muster: Rig) -> None:
    await storage_class(muster)
    await claims(muster, "good")
    pods = await pods_with(muster, none=[], one=["good"], bad=["absent"])
    results = {result.uid: result for result in await results_of(muster.bind_call(pods, volumes_first=True))}
    outcomes = [results[pod["metadata"]["uid"]].outcome for pod in pods]
    assert outcomes == [WITHHELD, WITHHELD, FAILED]
    assert "claims of pod ml/bad are ready" in results[pods[0]["metadata"]["uid"]].message
    assert await muster.nodes_of(pods) == ["", "", ""]


async def test_nodes_of_all_claims_are_selected_before_waiting_for_any(muster: Rig) -> None:
    await storage_class(muster, seconds="3600")
    pods = await gang(muster, 40)
    with muster.faults.seen(SELECTIONS) as selections:
        call = asyncio.create_task(results_of(muster.bind_call(pods, "node-1")))
        await eventually(lambda: len(selections) == 40)
        call.cancel()
    assert {each.status for each in selections} == {200}


async def test_bound_claim_is_not_patched(muster: Rig) -> None:
    await storage_class(muster)
    pods = await gang(muster, 1)
    assert (await muster.bind(pods, "node-1"))[0].outcome == BOUND
    (again,) = await pods_with(muster, again=["data-0"])
    with muster.faults.seen(SELECTIONS) as selections:
        (result,) = await muster.bind([again], "node-1")
    assert (result.outcome, selections) == (BOUND, [])


async def test_volume_unusable_on_the_node_fails_the_pod(muster: Rig) -> None:
    """The volume was provisioned for another pod, of this request or of an earlier one."""
    await storage_class(muster, topologyKey="zone")
    await claims(muster, "shared")
    pods = await pods_with(muster, first=["shared"], near=["shared"], far=["shared"])
    results = await muster.bind(pods, ["node-0", "node-1", "node-2"])
    assert [result.outcome for result in results] == [BOUND, BOUND, FAILED]
    assert results[2].message.startswith('PersistentVolumeClaim "shared": its volume "pvc-')
    assert results[2].message.endswith('cannot be used on node "node-2"')
    (result,) = await muster.bind(pods[2:], "node-3")
    assert result.outcome == FAILED
    (result,) = await muster.bind(pods[2:], "node-1")
    assert result.outcome == BOUND


async def test_node_selected_by_another_scheduler_is_kept(muster: Rig) -> None:
    await storage_class(muster, seconds="3600")
    pods = await gang(muster, 1, annotations={SELECTED: "node-3"})
    (result,) = await muster.bind(pods, "node-1")
    assert (result.outcome, result.message) == (
        FAILED,
        'PersistentVolumeClaim "data-0" already waits for a volume on node "node-3" '
        "(volume.kubernetes.io/selected-node); "
        'until that annotation is removed no volume can be created on node "node-1"',
    )
    assert await selected(muster, "data-0") == "node-3"


async def test_provisioner_removes_the_selected_node(muster: Rig) -> None:
    """The pod fails with the provisioner's warning, and another node can be selected."""
    await storage_class(muster, refusedNodes="node-1")
    pods = await gang(muster, 2)
    results = await muster.bind(pods, ["node-1", "node-2"])
    assert [result.outcome for result in results] == [FAILED, BOUND]
    assert results[0].message == (
        'no volume can be created for PersistentVolumeClaim "data-0" on node "node-1": '
        "volume.kubernetes.io/selected-node was removed; its newest warning: ProvisioningFailed: failed to provision "
        "volume with StorageClass \"fast\": node 'node-1' has no free storage"
    )
    assert await selected(muster, "data-0") == ""
    assert await muster.nodes_of(pods) == ["", "node-2"]
    assert (await muster.bind(pods[:1], "node-2"))[0].outcome == BOUND


async def test_volume_is_not_provisioned_by_the_deadline(muster: Rig) -> None:
    """The failure quotes the newest event; the selected node stays, and the request can be repeated."""
    await storage_class(muster, failure="quota is used up")
    pods = await gang(muster, 1)
    (result,) = in_order(pods, await results_of(muster.bind_call(pods, "node-1", timeout=2)))
    assert result.outcome == FAILED
    assert result.message.startswith('PersistentVolumeClaim "data-0" has no volume on node "node-1" yet')
    assert result.message.endswith("quota is used up")
    assert await selected(muster, "data-0") == "node-1"


async def test_pod_with_several_failing_claims_fails_once(muster: Rig) -> None:
    await storage_class(muster, refusedNodes="node-0")
    await claims(muster, "data-0", finalizers=["example.com/wait"])
    await muster.kube.delete("PersistentVolumeClaim", "data-0")
    await claims(muster, "data-1")
    pods = await pods_with(muster, trainer=["data-0", "data-1", "data-2"], worker=["data-2"])
    trainer, worker = await muster.bind(pods)
    assert (trainer.outcome, trainer.message) == (FAILED, 'PersistentVolumeClaim "data-0" is being deleted')
    assert (worker.outcome, worker.message[-9:]) == (FAILED, "not found")


async def test_claim_deleted_during_the_wait_fails_the_pod(muster: Rig) -> None:
    await storage_class(muster, seconds="3600")
    pods = await gang(muster, 1)
    with muster.faults.seen(SELECTIONS) as selections, muster.faults.seen(READS_OF_CLAIMS) as looks:
        call = asyncio.create_task(muster.bind(pods))
        await eventually(lambda: len(selections) == 1 and len(looks) >= 1)
        await muster.kube.delete("PersistentVolumeClaim", "data-0")
        (result,) = await call
    assert result.outcome == FAILED
    assert "not found" in result.message


# -- retries


@pytest.mark.parametrize("status", [409, 429, 500, 503])
async def test_i6_retryable_answers_are_retried(muster: Rig, status: int) -> None:
    await storage_class(muster)
    pods = await gang(muster, 6)
    with muster.faults.refuse(SELECTIONS, status, times=8, headers={"Retry-After": "0"}):
        results = await muster.bind(pods)
    assert {result.outcome for result in results} == {BOUND}


@pytest.mark.parametrize("carried_out", [False, True])
async def test_i4_connection_breaks_before_or_after_the_selection(muster: Rig, carried_out: bool) -> None:
    await storage_class(muster)
    pods = await gang(muster, 6)
    with muster.faults.cut(SELECTIONS, times=8, carried_out=carried_out):
        results = await muster.bind(pods, "node-2")
    assert {result.outcome for result in results} == {BOUND}
    assert await muster.nodes_of(pods) == ["node-2"] * 6


async def test_concurrent_change_of_a_claim_is_kept(muster: Rig) -> None:
    await storage_class(muster)
    pods = await gang(muster, 1)
    with muster.faults.hold(SELECTIONS) as held:
        call = asyncio.create_task(muster.bind(pods, "node-1"))
        await held.until(1)
        await muster.kube.patch("PersistentVolumeClaim", "data-0", {"metadata": {"labels": {"a": "b"}}})
        held.release()
        (result,) = await call
    assert result.outcome == BOUND
    assert (await claim(muster, "data-0"))["metadata"]["labels"] == {"a": "b"}


async def test_concurrent_selection_by_another_scheduler_wins(muster: Rig) -> None:
    await storage_class(muster, seconds="3600")
    pods = await gang(muster, 1)
    with muster.faults.hold(SELECTIONS) as held:
        call = asyncio.create_task(muster.bind(pods, "node-1"))
        await held.until(1)
        theirs = {"metadata": {"annotations": {SELECTED: "node-3"}}}
        await muster.kube.patch("PersistentVolumeClaim", "data-0", theirs)
        held.release()
        (result,) = await call
    assert result.outcome == FAILED
    assert await selected(muster, "data-0") == "node-3"


async def test_claims_are_polled_without_the_right_to_watch(muster: Rig) -> None:
    await storage_class(muster, seconds="0.2")
    pods = await gang(muster, 3)
    with muster.faults.refuse(WATCHES_OF_CLAIMS, 403):
        results = await muster.bind(pods)
    assert {result.outcome for result in results} == {BOUND}


async def test_broken_watch_misses_no_update(muster: Rig) -> None:
    await storage_class(muster, seconds="4.5")
    pods = await gang(muster, 3)
    with muster.faults.seen(SELECTIONS) as selections, muster.faults.seen(READS_OF_CLAIMS) as looks:
        call = asyncio.create_task(muster.bind(pods))
        await eventually(lambda: len(selections) == 3)
        muster.faults.break_watches()
        results = await call
    assert {result.outcome for result in results} == {BOUND}
    assert len(looks) <= 2 * 3, "each is polled once at most, if its wait began before the watch"


async def test_forbidden_patch_is_reported(muster: Rig) -> None:
    await storage_class(muster)
    pods = await gang(muster, 1)
    with muster.faults.refuse(SELECTIONS, 403):
        (result,) = await muster.bind(pods)
    assert (result.outcome, result.message) == (FAILED, 'PersistentVolumeClaim "data-0": 403: made to fail')


# -- repeated calls and earlier leaders


async def test_repeated_request_continues_the_wait(muster: Rig) -> None:
    await storage_class(muster, seconds="1")
    pods = await gang(muster, 3)
    with muster.faults.seen(SELECTIONS) as selections:
        first = asyncio.create_task(results_of(muster.bind_call(pods)))
        await eventually(lambda: len(selections) == 3)
        first.cancel()
        results = await muster.bind(pods, epoch=6)
        assert {result.outcome for result in results} == {BOUND}
        assert len(selections) == 3


async def test_update_between_the_read_and_the_watch_is_not_missed(muster: Rig) -> None:
    await storage_class(muster, seconds="0.5")
    pods = await gang(muster, 1)
    with muster.faults.seen(SELECTIONS) as selections:
        first = asyncio.create_task(results_of(muster.bind_call(pods)))
        await eventually(lambda: bool(selections))
        first.cancel()
    with muster.faults.hold(READS_OF_CLAIMS, carried_out=True) as held:
        again = asyncio.create_task(muster.bind(pods, timeout=300))
        await held.until(1)
        assert (await claim(muster, "data-0"))["status"]["phase"] == "Pending"

        async def claim_bound() -> bool:
            return bool((await claim(muster, "data-0"))["status"]["phase"] == "Bound")

        await eventually(claim_bound, seconds=SECONDS)
        async with asyncio.timeout(SECONDS):
            held.release()
            (result,) = await again
    assert result.outcome == BOUND


async def test_i4_earlier_leader_selects_no_more_nodes(muster: Rig) -> None:
    await storage_class(muster)
    pods = await gang(muster, 20)
    with muster.faults.hold(SELECTIONS) as held:
        call = asyncio.create_task(muster.bind(pods, epoch=6))
        await held.until(8)
        await muster.write(epoch=7)
        held.release()
        results = await call
    assert {result.outcome for result in results} == {FAILED}
    assert all("epoch 6 is superseded" in result.message for result in results)
    assert len(held.paths) == 8
    assert [await selected(muster, f"data-{number}") for number in range(20)].count("") == 12
    assert await muster.nodes_of(pods) == [""] * 20


async def test_invalid_claim_name_is_rejected(muster: Rig) -> None:
    pods = await pods_with(muster, trainer=[])
    pods[0]["spec"]["volumes"] = [{"persistentVolumeClaim": {"claimName": "../secrets/a"}}]
    with pytest.raises(grpc.aio.AioRpcError, match=r"'../secrets/a'") as refused:
        await muster.bind(pods)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
