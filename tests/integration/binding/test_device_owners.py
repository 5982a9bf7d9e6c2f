"""Devices that another scheduler allocates at the same time: no pod is bound with a device that another claim has."""

from typing import Any

from builders.binding.device_claims import STATUS_WRITES, allocate, by_uid, claim, claims, devices_of, wanted
from builders.binding.service import SECONDS, Object, Rig, in_order, names, results_of
from builders.e2e.faults import Requests
from muster.binding.v1 import binding_pb2 as pb

BOUND, FAILED, WITHHELD = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_FAILED, pb.BindResult.OUTCOME_WITHHELD
LISTS = Requests("GET", "/v1/resourceclaims")


async def bind_while(muster: Rig, pods: list[Object], made: list[Object], *devices: str) -> list[pb.BindResult]:
    """Bind pods with a claim and a device each, the first two of which another scheduler's claim "theirs" gets after
    they were chosen; the results, in the order of the pods.
    """
    given = by_uid(pods, [wanted(each, device) for each, device in zip(made, devices, strict=True)])
    with muster.faults.hold(STATUS_WRITES) as held:
        call = muster.bind_call(pods, devices=given, volumes_first=True)
        await held.until(1, seconds=SECONDS)
        await allocate(muster, "theirs", "gpu-0", "gpu-1")
        held.release()
        return in_order(pods, await results_of(call))


async def test_a_device_that_another_claim_got_meanwhile_is_given_back_i3(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    *made, _ = await claims(muster, "c0", "c1", "theirs")
    results = await bind_while(muster, pods, made, "gpu-1", "gpu-2")
    assert [each.outcome for each in results] == [FAILED, WITHHELD]
    reason = 'ResourceClaim "c0" got device gpu.example.com/node-0/gpu-1, which ResourceClaim "ml/theirs" has, too'
    assert results[0].message == reason
    assert await muster.nodes_of(pods) == ["", ""]
    found = [devices_of(await claim(muster, name)) for name in ("c0", "c1", "theirs")]
    assert found == [[], [], ["gpu-0", "gpu-1"]]


async def test_other_devices_of_a_pool_are_used_at_the_same_time(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    *made, _ = await claims(muster, "c0", "c1", "theirs")
    results = await bind_while(muster, pods, made, "gpu-2", "gpu-3")
    assert [each.outcome for each in results] == [BOUND, BOUND]


async def bind_again(muster: Rig, pod: Object, given: Object, **status: Any) -> pb.BindResult:
    """Bind a pod with gpu-0 after the claim "theirs", which had it, got this status."""
    await muster.kube.patch("ResourceClaim", "theirs", {"status": status}, part="/status")
    [result] = await muster.bind([pod], devices=by_uid([pod], [wanted(given, "gpu-0")]))
    return result


async def test_a_device_is_used_after_the_other_claim_is_deallocated(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    made, _ = await claims(muster, "c0", "theirs")
    await allocate(muster, "theirs", "gpu-0")
    given = by_uid([pod], [wanted(made, "gpu-0")])
    [first] = await muster.bind([pod], devices=given)
    assert first.outcome == FAILED
    again = await bind_again(muster, pod, made, allocation=None)
    assert (again.outcome, again.message) == (BOUND, "")


async def test_admin_access_of_another_claim_does_not_withhold_a_device(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    made, _ = await claims(muster, "c0", "theirs")
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0", "adminAccess": True}
    result = await bind_again(muster, pod, made, allocation={"devices": {"results": [device]}})
    assert (result.outcome, result.message) == (BOUND, "")


async def test_a_deleted_claim_withholds_no_device_i11(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    made, theirs = await claims(muster, "c0", "theirs")
    await allocate(muster, "theirs", "gpu-0")
    given = by_uid([pod], [wanted(made, "gpu-0")])
    [first] = await muster.bind([pod], devices=given)
    assert first.outcome == FAILED
    await muster.delete(f"/apis/resource.k8s.io/v1/namespaces/ml/resourceclaims/{theirs['metadata']['name']}")
    [again] = await muster.bind([pod], devices=given)
    assert (again.outcome, again.message) == (BOUND, "")


async def test_a_pod_is_bound_if_claims_cannot_be_watched(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(LISTS, 403):
        [result] = await muster.bind([pod], devices=by_uid([pod], [wanted(made, "gpu-0")]))
    assert (result.outcome, result.message) == (BOUND, "")
