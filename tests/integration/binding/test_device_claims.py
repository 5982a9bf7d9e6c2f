"""Pods with ResourceClaims: each claim is allocated and reserved for its pods before they are bound."""

import asyncio
from typing import Any

import pytest

from builders.binding.device_claims import (
    CLAIM_WRITES,
    CLAIMS,
    FINALIZER,
    FIRST_ALLOCATIONS,
    OTHER,
    STATUS_WRITES,
    allocate,
    allocation,
    by_uid,
    claim,
    claims,
    devices_of,
    pod_group,
    user,
    users_of,
    wanted,
)
from builders.binding.service import Object, Rig, in_order, names, results_of
from builders.e2e.faults import BINDS, Requests
from muster.binding.v1 import binding_pb2 as pb

BOUND, CONFLICT = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_CONFLICT
FAILED = pb.BindResult.OUTCOME_FAILED


async def bind_one(muster: Rig, pod: Object, *given: pb.DeviceClaim, **more: Any) -> pb.BindResult:
    [result] = await muster.bind([pod], devices={pod["metadata"]["uid"]: given}, **more)
    return result


# -- writes


async def test_claims_are_allocated_reserved_and_protected(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    made = await claims(muster, "c0", "c1", annotations={"kept": "yes"}, finalizers=["example.com/kept"])
    given = by_uid(pods, [wanted(made[0], "gpu-0", "gpu-1"), wanted(made[1], "gpu-2")])
    with muster.faults.seen(Requests("", "/resourceclaims/.*")) as requests:
        results = await muster.bind(pods, devices=given, volumes_first=True)
    assert [(each.outcome, each.message) for each in results] == [(BOUND, "")] * 2
    assert len(requests) == 4, "protect and allocate each"
    found = await claim(muster, "c0")
    written_at = found["status"]["allocation"].pop("allocationTimestamp")
    assert written_at.endswith("Z")
    assert found["status"] == {"allocation": allocation("gpu-0", "gpu-1"), "reservedFor": [user(pods[0])]}
    assert sorted(found["metadata"]["finalizers"]) == ["example.com/kept", FINALIZER]
    assert (found["spec"], found["metadata"]["annotations"]) == (made[0]["spec"], {"kept": "yes"})
    assert devices_of(await claim(muster, "c1")) == ["gpu-2"]


async def test_repeated_calls_write_nothing(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    await bind_one(muster, pod, wanted(made, "gpu-0", "gpu-1"))
    written = await claim(muster, "c0")
    with muster.faults.seen(STATUS_WRITES) as writes:
        result = await bind_one(muster, pod, wanted(made, "gpu-1", "gpu-0"))
    assert (result.outcome, writes) == (BOUND, [])
    assert await claim(muster, "c0") == written


async def test_pods_that_share_a_claim_are_reserved_in_one_write(muster: Rig) -> None:
    pods = await muster.pods(*names(3))
    [made] = await claims(muster, "c0")
    given = by_uid(pods, [wanted(made), wanted(made, "gpu-0"), wanted(made, "gpu-0")])
    with muster.faults.seen(STATUS_WRITES) as writes:
        results = await muster.bind(pods, devices=given)
    assert [each.outcome for each in results] == [BOUND] * 3
    assert len(writes) == 1
    assert users_of(await claim(muster, "c0")) == names(3)


async def test_calls_that_share_a_claim_allocate_it_once(muster: Rig) -> None:
    """As for gangs of one gang group, each of which has a call of its own."""
    pods = await muster.pods(*names(4))
    [made] = await claims(muster, "c0")
    halves = [pods[:2], pods[2:]]
    results = await asyncio.gather(
        *(muster.bind(half, devices=by_uid(half, [wanted(made, "gpu-0")] * 2)) for half in halves)
    )
    assert [each.outcome for of_call in results for each in of_call] == [BOUND] * 4
    found = await claim(muster, "c0")
    assert (devices_of(found), sorted(users_of(found))) == (["gpu-0"], names(4))


async def test_a_claim_of_a_pod_group_is_reserved_for_the_group(muster: Rig) -> None:
    group = await pod_group(muster)
    pods = await muster.pods(*names(3))
    [made] = await claims(muster, "c0")
    given = [wanted(made, "gpu-0", group=group)] * 2
    results = await muster.bind(pods[:2], devices=by_uid(pods[:2], given), volumes_first=True)
    assert [(each.outcome, each.message) for each in results] == [(BOUND, "")] * 2
    reserved = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": group["metadata"]["uid"]}
    ]
    assert (await claim(muster, "c0"))["status"]["reservedFor"] == reserved
    with muster.faults.seen(STATUS_WRITES) as writes:
        result = await bind_one(muster, pods[2], wanted(made, group=group))
    assert (result.outcome, writes) == (BOUND, [])


async def test_a_claim_of_a_pod_group_with_other_devices_is_not_allocated_anew(muster: Rig) -> None:
    group = await pod_group(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    user_ = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": group["metadata"]["uid"]}
    await allocate(muster, "c0", "gpu-7", users=[user_])
    result = await bind_one(muster, pod, wanted(made, "gpu-0", group=group))
    assert result.outcome == FAILED
    assert 'used by "podgroups/g"' in result.message
    assert devices_of(await claim(muster, "c0")) == ["gpu-7"]


async def test_an_allocated_claim_is_only_reserved(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-7", users=[{**OTHER, "apiGroup": "example.com"}])
    before = await claim(muster, "c0")
    result = await bind_one(muster, pod, wanted(made))
    found = await claim(muster, "c0")
    assert result.outcome == BOUND
    assert found["status"]["allocation"] == before["status"]["allocation"]
    assert found["status"]["reservedFor"] == [*before["status"]["reservedFor"], user(pod)]


async def test_pods_above_the_limit_of_a_claim_fail(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-0", users=[{**OTHER, "uid": f"uid-{number}"} for number in range(255)])
    first, second = await muster.bind(pods, devices=by_uid(pods, [wanted(made)] * 2))
    assert (first.outcome, second.outcome) == (BOUND, FAILED)
    assert 'ResourceClaim "c0"' in second.message
    assert "more than 256 pods" in second.message


async def test_a_pod_with_a_volume_and_a_device_waits_for_both(muster: Rig) -> None:
    """Its devices are released when there is no volume in time."""
    slow = {"provisioner": "simulated.muster.dev", "volumeBindingMode": "WaitForFirstConsumer"}
    await muster.kube.create("StorageClass", {"metadata": {"name": "slow"}, "parameters": {"seconds": "3600"}, **slow})
    spec = {"storageClassName": "slow", "accessModes": ["ReadWriteOnce"]}
    requests = {"resources": {"requests": {"storage": "1Gi"}}}
    await muster.kube.create("PersistentVolumeClaim", {"metadata": {"name": "data"}, "spec": {**spec, **requests}})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    [pod] = await muster.pods("trainer-0", volumes=volumes)
    [made] = await claims(muster, "c0")
    with muster.faults.seen(STATUS_WRITES) as writes:
        result = await bind_one(muster, pod, wanted(made, "gpu-0"), timeout=3)
    assert (result.outcome, len(writes)) == (FAILED, 2)
    assert "no volume on node" in result.message
    assert (await claim(muster, "c0"))["status"] == {}


# -- other writers


async def test_a_concurrent_change_of_a_claim_is_kept(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.hold(CLAIM_WRITES) as held:
        call = asyncio.create_task(bind_one(muster, pod, wanted(made, "gpu-0")))
        await held.until(1)
        await muster.kube.patch("ResourceClaim", "c0", {"metadata": {"labels": {"team": "a"}}})
        held.release()
        result = await call
    found = await claim(muster, "c0")
    assert result.outcome == BOUND
    assert (found["metadata"]["labels"], users_of(found)) == ({"team": "a"}, ["trainer-0"])


async def test_a_claim_that_others_allocate_meanwhile_is_left_to_them(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.hold(STATUS_WRITES) as held:
        call = asyncio.create_task(bind_one(muster, pod, wanted(made, "gpu-0")))
        await held.until(1)
        await allocate(muster, "c0", "gpu-9", users=[OTHER])
        held.release()
        result = await call
    used = 'is allocated to other devices (gpu.example.com/node-0/gpu-9) and used by "trainings/other-0"'
    assert (result.outcome, result.message) == (FAILED, f'ResourceClaim "c0" {used}')
    found = await claim(muster, "c0")
    assert (devices_of(found), found["status"]["reservedFor"]) == (["gpu-9"], [OTHER])
    assert await muster.nodes_of([pod]) == [""]


async def test_a_claim_that_changes_again_and_again_fails_its_pod(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(STATUS_WRITES, 409):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, "409" in result.message) == (FAILED, True)


@pytest.mark.parametrize("reserved", [False, True], ids=["not-reserved", "reserved-for-the-pod"])
async def test_an_allocation_of_an_earlier_placement_is_replaced(muster: Rig, reserved: bool) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-3", users=[user(pod)] if reserved else [], node="node-1")
    result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    found = await claim(muster, "c0")
    assert result.outcome == BOUND
    assert (devices_of(found), users_of(found)) == (["gpu-0"], ["trainer-0"])
    assert found["status"]["allocation"]["nodeSelector"] == allocation(node="node-0")["nodeSelector"]


async def test_the_devices_of_a_bound_pod_are_not_touched(muster: Rig) -> None:
    """An earlier call bound the pod, which the coordinator has not learnt."""
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-3", users=[user(pod)], node="node-1")
    await muster.kube.bind("trainer-0", "node-1")
    with muster.faults.seen(STATUS_WRITES) as writes:
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, result.node, writes) == (CONFLICT, "node-1", [])


async def test_the_devices_of_a_bound_pod_are_not_given_to_another(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    [made] = await claims(muster, "c0")
    await allocate(muster, "c0", "gpu-3", users=[user(pods[0])])
    await muster.kube.bind("trainer-0", "node-0")
    first, second = await muster.bind(pods, devices=by_uid(pods, [wanted(made, "gpu-0")] * 2))
    assert (first.outcome, second.outcome) == (BOUND, FAILED)
    assert second.message.endswith('used by pod "trainer-0"')
    assert devices_of(await claim(muster, "c0")) == ["gpu-3"]


# -- claims that cannot be used


async def test_a_missing_claim_fails_its_pod(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    result = await bind_one(muster, pod, wanted({"metadata": {"name": "c0", "uid": "u"}}, "gpu-0"))
    assert (result.outcome, result.message) == (FAILED, 'ResourceClaim "c0" does not exist')


async def test_another_claim_of_the_name_is_not_changed(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    await muster.delete(f"{CLAIMS}/c0")
    [new] = await claims(muster, "c0")
    result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, "was replaced by another claim" in result.message) == (FAILED, True)
    assert await claim(muster, "c0") == new


async def test_a_claim_that_is_being_deleted_fails_its_pod(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=["example.com/keep"])
    await muster.delete(f"{CLAIMS}/c0")
    result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, result.message) == (FAILED, 'ResourceClaim "c0" is being deleted')


async def test_a_claim_without_devices_fails_its_pod(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    result = await bind_one(muster, pod, wanted(made))
    message = 'ResourceClaim "c0" is not allocated, and no devices were chosen for it'
    assert (result.outcome, result.message) == (FAILED, message)


async def test_a_rejected_write_fails_the_pod(muster: Rig) -> None:
    """As without permission for resourceclaims/binding, or with devices that the API server does not accept."""
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(STATUS_WRITES, 422), muster.faults.seen(BINDS) as binds:
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, binds) == (FAILED, [])
    assert result.message == 'ResourceClaim "c0" cannot be written: 422: made to fail'


# -- claims that have the finalizer since their creation


async def test_claims_with_the_finalizer_are_allocated_in_one_write(muster: Rig) -> None:
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=[FINALIZER])
    with muster.faults.seen(Requests("", "/resourceclaims/.*")) as requests:
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, len(requests)) == (BOUND, 1)
    found = await claim(muster, "c0")
    assert found["status"]["allocation"].pop("allocationTimestamp").endswith("Z")
    assert found["status"] == {"allocation": allocation("gpu-0"), "reservedFor": [user(pod)]}


@pytest.mark.parametrize(
    ("finalizers", "devices"),
    [([], []), ([FINALIZER, "example.com/kept"], []), ([FINALIZER], ["gpu-7"])],
    ids=["without it", "with another finalizer", "allocated"],
)
async def test_a_claim_that_is_not_as_expected_is_read_first(
    muster: Rig, finalizers: list[str], devices: list[str]
) -> None:
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=finalizers)
    if devices:
        await allocate(muster, "c0", *devices)
    with muster.faults.seen(FIRST_ALLOCATIONS) as trials:
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    found = await claim(muster, "c0")
    assert (result.outcome, len(trials), devices_of(found)) == (BOUND, 1, ["gpu-0"])
    assert (FINALIZER in found["metadata"]["finalizers"], users_of(found)) == (True, ["trainer-0"])


async def test_a_claim_that_is_being_deleted_is_not_allocated_in_one_write(muster: Rig) -> None:
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=[FINALIZER])
    with muster.faults.hold(FIRST_ALLOCATIONS) as held:
        call = asyncio.create_task(bind_one(muster, pod, wanted(made, "gpu-0")))
        await held.until(1)
        await muster.kube.delete("ResourceClaim", "c0")
        held.release()
        result = await call
    assert result.outcome == FAILED
    assert 'ResourceClaim "c0"' in result.message


async def test_without_permission_for_patches_the_status_is_replaced(muster: Rig) -> None:
    """As after an upgrade of a release whose roles the administrator maintains."""
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=[FINALIZER])
    with muster.faults.refuse(FIRST_ALLOCATIONS, 403):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, users_of(await claim(muster, "c0"))) == (BOUND, ["trainer-0"])


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_lost_answer_to_the_only_write_is_followed_by_a_read(muster: Rig, carried_out: bool) -> None:
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=[FINALIZER])
    with muster.faults.cut(FIRST_ALLOCATIONS, times=1, carried_out=carried_out):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, users_of(await claim(muster, "c0"))) == (BOUND, ["trainer-0"])


async def test_what_the_only_write_wrote_is_removed_if_the_pod_is_not_bound(muster: Rig) -> None:
    await expects_the_finalizer(muster)
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0", finalizers=[FINALIZER])
    with muster.faults.refuse(BINDS, 403):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert (result.outcome, (await claim(muster, "c0")).get("status") or {}) == (FAILED, {})


async def expects_the_finalizer(muster: Rig) -> None:
    """Bind pods whose claims have it, until the next claim is taken to have it."""
    for count in (64, 1):
        pods = await muster.pods(*(f"of-{count}-{number}" for number in range(count)))
        made = await claims(muster, *(pod["metadata"]["name"] for pod in pods), finalizers=[FINALIZER])
        given = [wanted(each, each["metadata"]["name"]) for each in made]
        with muster.faults.seen(FIRST_ALLOCATIONS) as trials:
            results = await muster.bind(pods, devices=by_uid(pods, given))
        assert {each.outcome for each in results} == {BOUND}
    assert len(trials) == 1


# -- retries, deadlines and leaders


@pytest.mark.parametrize("carried_out", [False, True])
async def test_a_lost_answer_is_followed_by_a_read(muster: Rig, carried_out: bool) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.cut(STATUS_WRITES, times=1, carried_out=carried_out):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"))
    assert result.outcome == BOUND
    assert users_of(await claim(muster, "c0")) == ["trainer-0"]


async def test_an_outage_fails_the_pod_at_the_deadline(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(CLAIM_WRITES, 503):
        result = await bind_one(muster, pod, wanted(made, "gpu-0"), timeout=1)
    assert result.outcome == FAILED
    assert result.message.startswith('ResourceClaim "c0" could not be written: the deadline passed; last failure: 503')


async def test_no_claim_is_written_for_an_earlier_leader(muster: Rig) -> None:
    """The call stops between two writes to a claim."""
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.seen(STATUS_WRITES) as writes, muster.faults.hold(CLAIM_WRITES) as held:
        given = {pod["metadata"]["uid"]: [wanted(made, "gpu-0")]}
        call = asyncio.create_task(results_of(muster.bind_call([pod], epoch=5, devices=given)))
        await held.until(1)
        await muster.write(epoch=6)
        held.release()
        [result] = in_order([pod], await call)
    assert (result.outcome, writes) == (FAILED, [])
    assert "epoch 5 is superseded" in result.message
