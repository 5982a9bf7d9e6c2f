"""Devices of pods that are not bound in the end: what the call wrote for them is removed before they are reported."""

import asyncio
from pathlib import Path

import pytest

from builders.binding.device_claims import (
    CLAIM_WRITES,
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
from builders.binding.service import Rig, in_order, names, results_of, rig
from builders.e2e.faults import BINDS, Requests
from muster.binding.v1 import binding_pb2 as pb

BOUND, CONFLICT = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_CONFLICT
FAILED, GONE = pb.BindResult.OUTCOME_FAILED, pb.BindResult.OUTCOME_GONE
WITHHELD = pb.BindResult.OUTCOME_WITHHELD
BIND_OF_FIRST = Requests("POST", "/trainer-0/binding")


async def test_a_rejected_bind_deallocates_the_claim(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    made = await claims(muster, "c0", "c1")
    devices = {pod["metadata"]["uid"]: [wanted(made[0], "gpu-0"), wanted(made[1], "gpu-1")]}
    with muster.faults.refuse(BINDS, 403):
        [result] = await muster.bind([pod], devices=devices)
    assert (result.outcome, result.message) == (FAILED, "403: made to fail")
    assert [(await claim(muster, name))["status"] for name in ("c0", "c1")] == [{}, {}]


async def test_a_pod_that_others_bind_or_delete_leaves_no_devices(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    made = await claims(muster, "c0", "c1")
    with muster.faults.hold(BINDS) as held:
        devices = by_uid(pods, [wanted(made[0], "gpu-0"), wanted(made[1], "gpu-1")])
        call = asyncio.create_task(results_of(muster.bind_call(pods, devices=devices)))
        await held.until(2)
        await muster.kube.bind("trainer-0", "node-7")
        await muster.kube.delete("Pod", "trainer-1")
        held.release()
        results = in_order(pods, await call)
    assert [each.outcome for each in results] == [CONFLICT, GONE]
    assert [devices_of(await claim(muster, name)) for name in ("c0", "c1")] == [[], []]


async def test_a_claim_of_a_pod_group_is_given_back_with_its_last_pod(muster: Rig) -> None:
    group = await pod_group(muster)
    pods = await muster.pods(*names(2))
    [made] = await claims(muster, "c0")
    given = by_uid(pods, [wanted(made, "gpu-0", group=group)] * 2)
    with muster.faults.refuse(BINDS, 403):
        results = await muster.bind(pods, devices=given)
    assert [each.outcome for each in results] == [FAILED] * 2
    assert (await claim(muster, "c0"))["status"] == {}
    with muster.faults.refuse(BIND_OF_FIRST, 403):
        results = await muster.bind(pods, devices=given)
    assert [each.outcome for each in results] == [FAILED, BOUND]
    found = await claim(muster, "c0")
    assert (devices_of(found), users_of(found)) == (["gpu-0"], ["g"])


async def test_results_follow_the_release(muster: Rig) -> None:
    """The coordinator may give the devices to others once it has the result."""
    pods = await muster.pods(*names(2))
    [made] = await claims(muster, "c0")
    devices = {pods[0]["metadata"]["uid"]: [wanted(made, "gpu-0")]}
    with muster.faults.refuse(BIND_OF_FIRST, 403), muster.faults.hold(STATUS_WRITES, let_pass=1) as held:
        call = muster.bind_call(pods, devices=devices)
        await held.until(1)
        first = await call.read()
        assert [each.uid for each in first.results] == [pods[1]["metadata"]["uid"]]
        held.release()
        [result] = await results_of(call)
    assert (result.uid, result.outcome) == (pods[0]["metadata"]["uid"], FAILED)


@pytest.mark.parametrize("carried_out", [False, True])
async def test_devices_of_a_pod_that_may_be_bound_are_kept(muster: Rig, carried_out: bool) -> None:
    """The answer to its first bind is lost, and the second bind is rejected."""
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.cut(BINDS, times=1, carried_out=carried_out), muster.faults.refuse(BINDS, 403):
        [result] = await muster.bind([pod], devices=by_uid([pod], [wanted(made, "gpu-0")]))
    assert result.outcome == FAILED
    found = await claim(muster, "c0")
    assert (devices_of(found), users_of(found)) == (["gpu-0"], ["trainer-0"])
    [again] = await muster.bind([pod], devices=by_uid([pod], [wanted(made, "gpu-0")]))
    assert again.outcome == BOUND


async def test_with_volumes_first_a_claim_that_fails_withholds_all(muster: Rig) -> None:
    """The claims of the others are deallocated again, whether they were written before or after the failure."""
    pods = await muster.pods(*names(9))
    made = await claims(muster, *(f"c{number}" for number in range(8)))
    await allocate(muster, "c3", "gpu-9", users=[OTHER])
    given = [wanted(each, f"gpu-{number}") for number, each in enumerate(made)]
    devices = by_uid(pods[:8], given)
    with muster.faults.seen(BINDS) as binds:
        results = await muster.bind(pods, devices=devices, volumes_first=True)
    assert [each.outcome for each in results] == [WITHHELD] * 3 + [FAILED] + [WITHHELD] * 5
    assert "the claims of pod ml/trainer-3 are ready" in results[8].message
    assert binds == []
    left = {name: devices_of(await claim(muster, name)) for name in (f"c{number}" for number in range(8))}
    assert left == {f"c{number}": ["gpu-9"] if number == 3 else [] for number in range(8)}


async def test_a_write_in_flight_is_released_after_its_end(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    made = await claims(muster, "c0", "c1")
    await allocate(muster, "c1", "gpu-9", users=[OTHER])
    first_requests = Requests("PATCH", "/resourceclaims/c1")
    with muster.faults.hold(first_requests) as failing, muster.faults.hold(STATUS_WRITES) as held:
        devices = by_uid(pods, [wanted(made[0], "gpu-0"), wanted(made[1], "gpu-1")])
        call = muster.bind_call(pods, devices=devices, volumes_first=True)
        await failing.until(1)
        await held.until(1)
        failing.release()
        first = await call.read()
        assert [each.outcome for each in first.results] == [FAILED]
        held.release()
        [result] = await results_of(call)
    assert result.outcome == WITHHELD
    assert (await claim(muster, "c0"))["status"] == {}


async def test_no_claim_is_written_for_a_withheld_pod(tmp_path: Path) -> None:
    async with rig(tmp_path, requests_in_flight=1) as muster:
        pods = await muster.pods(*names(3))
        made = await claims(muster, "c0", "c1", "c2")
        await allocate(muster, "c1", "gpu-9", users=[OTHER])
        devices = by_uid(pods, [wanted(each, "gpu-0") for each in made])
        with muster.faults.seen(CLAIM_WRITES) as writes:
            results = await muster.bind(pods, devices=devices, volumes_first=True)
    assert [each.outcome for each in results] == [WITHHELD, FAILED, WITHHELD]
    assert [each.path.split("/")[-1] for each in writes] == ["c0", "status", "c1", "status"]


async def test_a_shared_claim_stays_allocated_for_the_others(muster: Rig) -> None:
    pods = await muster.pods(*names(2))
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(BIND_OF_FIRST, 403):
        results = await muster.bind(pods, devices=by_uid(pods, [wanted(made, "gpu-0")] * 2))
    assert [each.outcome for each in results] == [FAILED, BOUND]
    found = await claim(muster, "c0")
    assert (devices_of(found), users_of(found)) == (["gpu-0"], ["trainer-1"])


async def test_a_shared_claim_is_deallocated_with_its_last_pod(muster: Rig) -> None:
    pods = await muster.pods(*names(5))
    [made] = await claims(muster, "c0")
    with muster.faults.refuse(BINDS, 403):
        results = await muster.bind(pods, devices=by_uid(pods, [wanted(made, "gpu-0")] * 5))
    assert [each.outcome for each in results] == [FAILED] * 5
    assert (await claim(muster, "c0"))["status"] == {}


async def test_what_earlier_calls_and_others_wrote_stays(muster: Rig) -> None:
    pods = await muster.pods(*names(3))
    made = await claims(muster, "c0", "c1", "c2")
    await allocate(muster, "c0", "gpu-0", users=[user(pods[0])])
    await allocate(muster, "c1", "gpu-1", users=[OTHER])
    await allocate(muster, "c2", "gpu-2")
    given = [wanted(made[0], "gpu-0"), wanted(made[1]), wanted(made[2], "gpu-2")]
    with muster.faults.refuse(BINDS, 403):
        results = await muster.bind(pods, devices=by_uid(pods, given))
    assert [each.outcome for each in results] == [FAILED] * 3
    found = [await claim(muster, each["metadata"]["name"]) for each in made]
    assert [devices_of(each) for each in found] == [["gpu-0"], ["gpu-1"], ["gpu-2"]]
    assert [users_of(each) for each in found] == [["trainer-0"], ["other-0"], []]


async def test_a_claim_that_was_replaced_is_not_released(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(results_of(muster.bind_call([pod], devices=by_uid([pod], [wanted(made, "gpu-0")]))))
        await held.until(1)
        await muster.delete(f"{CLAIMS}/c0")
        await muster.kube.patch("ResourceClaim", "c0", {"metadata": {"finalizers": None}})
        await claims(muster, "c0")
        await allocate(muster, "c0", "gpu-0")
        await muster.kube.delete("Pod", "trainer-0")
        held.release()
        [result] = await call
    assert (result.outcome, "ResourceClaim" in result.message) == (GONE, False)
    assert devices_of(await claim(muster, "c0")) == ["gpu-0"]


async def test_a_claim_that_cannot_be_released_is_named(muster: Rig) -> None:
    [pod] = await muster.pods("trainer-0")
    [made] = await claims(muster, "c0")
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(results_of(muster.bind_call([pod], devices=by_uid([pod], [wanted(made, "gpu-0")]))))
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        with muster.faults.refuse(STATUS_WRITES, 403):
            held.release()
            [result] = await call
    assert result.outcome == GONE
    kept = 'ResourceClaim "c0" may stay allocated: it cannot be written: 403: made to fail'
    assert result.message.endswith(f"; {kept}")
