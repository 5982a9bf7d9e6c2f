"""Stale allocations of ResourceClaims are removed, unless the claim has changed or its pod is bound."""

import asyncio
from collections.abc import Sequence

import grpc
import pytest
from grpc import aio

from builders.binding.device_claims import (
    CLAIMS,
    OTHER,
    STATUS_WRITES,
    allocate,
    by_uid,
    claim,
    claims,
    devices_of,
    pod_group,
    user,
    users_of,
    wanted,
)
from builders.binding.service import SECONDS, Object, Rig, name_of
from builders.e2e.faults import Requests
from muster.binding.v1 import binding_pb2 as pb

DEALLOCATED = pb.DeallocateResult.OUTCOME_DEALLOCATED
KEPT = pb.DeallocateResult.OUTCOME_KEPT
FAILED = pb.DeallocateResult.OUTCOME_FAILED


def stale(claim: Object, pod: Object) -> pb.StaleClaim:
    """The claim as it is, for its pod."""
    meta = claim["metadata"]
    return pb.StaleClaim(name=meta["name"], uid=meta["uid"], resource_version=meta["resourceVersion"], pod=name_of(pod))


async def deallocate(muster: Rig, *given: pb.StaleClaim, epoch: int = 5) -> Sequence[pb.DeallocateResult]:
    muster.leader = max(muster.leader, epoch)
    request = pb.DeallocateRequest(leader_epoch=epoch, gang="ml/gang", claims=given)
    response: pb.DeallocateResponse = await muster.stub.Deallocate(request, timeout=SECONDS)
    return response.results


async def allocated(muster: Rig, *users: Object) -> tuple[Object, Object]:
    """A pod, and its claim, which is allocated and reserved for it and for others."""
    [pod] = await muster.pods("trainer-0")
    await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-0", users=[user(pod), *users])
    return pod, await claim(muster, "c0")


async def touch(muster: Rig) -> None:
    """Write the claim, so that it has another version."""
    await muster.kube.patch("ResourceClaim", "c0", {"metadata": {"labels": {"touched": "yes"}}})


async def test_a_stale_claim_is_deallocated(muster: Rig) -> None:
    pod, found = await allocated(muster)
    [result] = await deallocate(muster, stale(found, pod))
    assert (result.uid, result.outcome) == (found["metadata"]["uid"], DEALLOCATED)
    assert (await claim(muster, "c0"))["status"] == {}
    [again] = await deallocate(muster, stale(found, pod))
    assert again.outcome == DEALLOCATED


async def test_a_claim_without_reservations_is_deallocated(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-0")
    [result] = await deallocate(muster, stale(await claim(muster, "c0"), pod))
    assert result.outcome == DEALLOCATED
    assert devices_of(await claim(muster, "c0")) == []


async def test_results_have_the_order_of_the_request(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    await claims(muster, "c0", "c1")
    for name, pod in zip(("c0", "c1"), pods, strict=True):
        await allocate(muster, name, f"gpu-{name}", users=[user(pod)])
    given = [stale(await claim(muster, name), pod) for name, pod in zip(("c1", "c0"), reversed(pods), strict=True)]
    results = await deallocate(muster, *given)
    assert [(each.uid, each.outcome) for each in results] == [(each.uid, DEALLOCATED) for each in given]
    assert await deallocate(muster) == []


async def test_a_claim_that_has_changed_is_kept(muster: Rig) -> None:
    pod, found = await allocated(muster)
    await touch(muster)
    [result] = await deallocate(muster, stale(found, pod))
    assert result.outcome == KEPT
    assert result.message.startswith("it has changed: its resource version is ")
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_a_claim_that_changes_meanwhile_is_kept(muster: Rig) -> None:
    pod, found = await allocated(muster)
    with muster.faults.hold(STATUS_WRITES) as held:
        call = asyncio.create_task(deallocate(muster, stale(found, pod)))
        await held.until(1)
        await touch(muster)
    [result] = await call
    assert result.outcome == KEPT
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_a_claim_of_a_bound_pod_is_kept(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    made = await claims(muster, "c0")
    await muster.bind([pod], devices=by_uid([pod], [wanted(made[0], "gpu-0")]))
    [result] = await deallocate(muster, stale(await claim(muster, "c0"), pod))
    assert (result.outcome, result.message) == (KEPT, 'its pod "trainer-0" is bound to node-0')
    assert users_of(await claim(muster, "c0")) == ["trainer-0"]


async def test_a_claim_that_others_use_is_kept(muster: Rig) -> None:
    pod, found = await allocated(muster, OTHER)
    [result] = await deallocate(muster, stale(found, pod))
    assert (result.outcome, result.message) == (KEPT, 'it is reserved for "trainings/other-0"')


async def test_a_claim_that_pods_share_is_deallocated_unless_one_of_them_is_bound(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-0", users=[user(pod) for pod in pods])
    given = stale(await claim(muster, "c0"), pods[0])
    given.sharing.append(name_of(pods[1]))
    [result] = await deallocate(muster, given)
    assert result.outcome == DEALLOCATED
    await muster.bind([pods[1]], devices=by_uid([pods[1]], [wanted(made, "gpu-0")]))
    given.resource_version = (await claim(muster, "c0"))["metadata"]["resourceVersion"]
    [result] = await deallocate(muster, given)
    assert (result.outcome, result.message) == (KEPT, 'its pod "trainer-1" is bound to node-0')


async def test_the_claim_of_a_pod_group_is_deallocated_if_the_order_names_the_group(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    await claims(muster, "c0")
    uid = (await pod_group(muster))["metadata"]["uid"]
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}
    await allocate(muster, "c0", "gpu-0", users=[group])
    given = stale(await claim(muster, "c0"), pod)
    [result] = await deallocate(muster, given)
    assert (result.outcome, result.message) == (KEPT, 'it is reserved for "podgroups/g"')
    given.pod_groups.append(uid)
    [result] = await deallocate(muster, given)
    assert result.outcome == DEALLOCATED


async def test_the_claim_of_a_pod_group_is_kept_while_another_bound_pod_uses_it(
    muster: Rig,
) -> None:
    entry = {"name": "gpus", "resourceClaimName": "c0"}
    group = await pod_group(muster, resourceClaims=[entry])
    belongs = {"schedulingGroup": {"podGroupName": "g"}}
    [waiting] = await muster.pods("waiting", **belongs, resourceClaims=[entry])
    await claims(muster, "c0")
    uid = group["metadata"]["uid"]
    users = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}]
    await allocate(muster, "c0", "gpu-0", users=users)
    await muster.pods("user", **belongs, resourceClaims=[entry])
    await muster.pods("other", **belongs)
    for name in ("user", "other"):
        await muster.kube.bind(name, "node-0")
    given = stale(await claim(muster, "c0"), waiting)
    given.pod_groups.append(uid)
    [result] = await deallocate(muster, given)
    assert (result.outcome, result.message) == (KEPT, 'pod "user" of its PodGroup "g" is bound')
    await muster.kube.patch("Pod", "user", {"status": {"phase": "Succeeded"}}, part="/status")
    [result] = await deallocate(muster, given)
    assert result.outcome == DEALLOCATED


async def test_a_claim_is_not_deallocated_if_pods_of_its_pod_group_cannot_be_listed(muster: Rig) -> None:
    entry = {"name": "gpus", "resourceClaimName": "c0"}
    group = await pod_group(muster, resourceClaims=[entry])
    [pod] = await muster.pods("trainer-0")
    await claims(muster, "c0")
    uid = group["metadata"]["uid"]
    users = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}]
    await allocate(muster, "c0", "gpu-0", users=users)
    given = stale(await claim(muster, "c0"), pod)
    given.pod_groups.append(uid)
    with muster.faults.refuse(Requests("GET", "/namespaces/ml/pods"), 403):
        [result] = await deallocate(muster, given)
    assert result.outcome == FAILED
    assert "403: made to fail" in result.message
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_a_claim_that_is_gone_or_replaced_is_kept(muster: Rig) -> None:
    pod, found = await allocated(muster)
    await muster.delete(f"{CLAIMS}/c0")
    [result] = await deallocate(muster, stale(found, pod))
    assert (result.outcome, result.message) == (KEPT, "it does not exist")
    await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-1", users=[user(pod)])
    [result] = await deallocate(muster, stale(found, pod))
    assert result.outcome == KEPT
    assert devices_of(await claim(muster, "c0")) == ["gpu-1"]


async def test_a_claim_whose_pod_is_gone_is_deallocated(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-0")
    found = await claim(muster, "c0")
    await muster.delete("/api/v1/namespaces/ml/pods/trainer-0")
    [result] = await deallocate(muster, stale(found, pod))
    assert result.outcome == DEALLOCATED


@pytest.mark.parametrize("requests", [STATUS_WRITES, Requests("GET", "/pods/trainer-0"), Requests("GET", "/c0")])
async def test_a_rejected_deallocation_has_a_reason(muster: Rig, requests: Requests) -> None:
    pod, found = await allocated(muster)
    with muster.faults.refuse(requests, 403):
        [result] = await deallocate(muster, stale(found, pod))
    assert result.outcome == FAILED
    assert "403: made to fail" in result.message
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_a_lost_answer_is_repeated(muster: Rig) -> None:
    pod, found = await allocated(muster)
    with muster.faults.cut(STATUS_WRITES, times=1, carried_out=True):
        [result] = await deallocate(muster, stale(found, pod))
    assert result.outcome == DEALLOCATED
    assert devices_of(await claim(muster, "c0")) == []


async def test_a_former_leader_deallocates_nothing(muster: Rig) -> None:
    pod, found = await allocated(muster)
    muster.leader = 9
    with pytest.raises(aio.AioRpcError) as error:
        await deallocate(muster, stale(found, pod), epoch=5)
    assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_pods_of_two_namespaces_are_rejected(muster: Rig) -> None:
    pod, found = await allocated(muster)
    given = stale(found, pod)
    given.sharing.append(pb.PodName(uid="u", namespace="other", name="trainer-1"))
    with pytest.raises(aio.AioRpcError, match="not in the namespace of pod 'ml/trainer-0'"):
        await deallocate(muster, given)


async def test_a_claim_without_a_version_is_rejected(muster: Rig) -> None:
    pod, found = await allocated(muster)
    given = stale(found, pod)
    given.resource_version = ""
    with pytest.raises(aio.AioRpcError, match="ResourceClaim 'c0' of pod 'ml/trainer-0': no resource version"):
        await deallocate(muster, given)
