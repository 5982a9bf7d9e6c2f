"""Bind against an API server over real gRPC: each pod gets one true result, whatever happens on the way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from builders.binding.service import Rig, in_order, results_of, rig
from builders.e2e.faults import BINDS, Requests
from builders.wait import eventually, yield_to_loop
from muster.binding.v1 import binding_pb2 as pb

BOUND, CONFLICT = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_CONFLICT
GONE, FAILED = pb.BindResult.OUTCOME_GONE, pb.BindResult.OUTCOME_FAILED
READS_OF_PODS = Requests("GET", "/pods/[^/]+")


@pytest.fixture
async def muster(tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(tmp_path, requests_in_flight=8) as found:
        yield found


def names(count: int, prefix: str = "trainer") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


# -- what becomes of a pod


async def test_pods_are_bound_with_their_annotations(muster: Rig) -> None:
    pods = await muster.pods(*names(20))
    results = await muster.bind(pods, "node-7", **{"muster.dev/trace-id": "abc"})
    assert [(result.outcome, result.node, result.message) for result in results] == [(BOUND, "", "")] * 20
    assert await muster.nodes_of(pods) == ["node-7"] * 20
    assert (await muster.pod("trainer-3"))["metadata"]["annotations"]["muster.dev/trace-id"] == "abc"


async def test_i4_repeating_a_bind_is_a_success_and_another_node_a_conflict(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    assert (await muster.bind(pods, "node-0"))[0].outcome == BOUND
    assert (await muster.bind(pods, "node-0"))[0].outcome == BOUND
    (elsewhere,) = await muster.bind(pods, "node-1")
    assert (elsewhere.outcome, elsewhere.node) == (CONFLICT, "node-0")
    assert await muster.nodes_of(pods) == ["node-0"]


async def test_a_pod_that_is_not_there(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-0")
    gone, bound = await muster.bind(pods)
    assert gone.outcome == GONE
    assert "not found" in gone.message
    assert bound.outcome == BOUND


async def test_another_pod_of_the_same_name_is_left_alone(muster: Rig) -> None:
    before = await muster.pods("trainer-0")
    await muster.kube.delete("Pod", "trainer-0")
    now = await muster.pods("trainer-0")
    (result,) = await muster.bind(before)
    assert result.outcome == GONE
    assert "another pod has the name" in result.message
    assert await muster.nodes_of(now) == [""]


async def test_a_pod_that_is_being_deleted(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    await muster.kube.patch("Pod", "trainer-0", {"metadata": {"finalizers": ["example.com/wait"]}})
    await muster.kube.delete("Pod", "trainer-0")
    (result,) = await muster.bind(pods)
    assert (result.outcome, result.message) == (GONE, "the pod is being deleted")


async def test_a_pod_with_a_scheduling_gate_fails_with_what_the_api_server_says(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", schedulingGates=[{"name": "example.com/wait"}])
    (result,) = await muster.bind(pods)
    assert result.outcome == FAILED
    assert "schedulingGates" in result.message


async def test_an_answer_that_is_final_is_not_repeated(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.refuse(BINDS, 403) as refused:
        (result,) = await muster.bind(pods)
        await refused.struck(1)
    assert (result.outcome, result.message) == (FAILED, "403: made to fail")


async def test_no_pods_no_results(muster: Rig) -> None:
    assert await muster.bind([]) == []


async def test_bad_requests_are_refused_whole(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await muster.bind(pods, "no node")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'no node'" in (refused.value.details() or "")
    assert await muster.nodes_of(pods) == [""]


# -- trouble on the way


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_i6_what_may_be_repeated_is_repeated(muster: Rig, status: int) -> None:
    pods = await muster.pods(*names(10))
    with muster.faults.refuse(BINDS, status, times=15, headers={"Retry-After": "0"}):
        results = await muster.bind(pods)
    assert {result.outcome for result in results} == {BOUND}


async def test_g37_a_pod_that_alone_is_in_trouble_has_failed_long_before_the_deadline(muster: Rig) -> None:
    """Whoever decided on the node may decide otherwise; the others are bound meanwhile."""
    pods = await muster.pods(*names(4))
    with muster.faults.refuse(Requests("POST", "/trainer-2/binding"), 500) as refused:
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=300)))
        await refused.struck(3)
    assert [result.outcome for result in results] == [BOUND, BOUND, FAILED, BOUND]
    assert results[2].message == "500: made to fail"


@pytest.mark.parametrize("carried_out", [False, True])
async def test_i4_a_connection_that_breaks_before_or_after_the_bind(muster: Rig, carried_out: bool) -> None:
    pods = await muster.pods(*names(10))
    with muster.faults.cut(BINDS, times=12, carried_out=carried_out):
        results = await muster.bind(pods, "node-3")
    assert {result.outcome for result in results} == {BOUND}
    assert await muster.nodes_of(pods) == ["node-3"] * 10


async def test_the_answer_to_a_bind_is_lost_and_so_is_the_look_at_the_pod(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with (
        muster.faults.cut(BINDS, times=1, carried_out=True),
        muster.faults.refuse(READS_OF_PODS, 500, times=1),
        muster.faults.cut(READS_OF_PODS, times=1),
    ):
        (result,) = await muster.bind(pods)
    assert result.outcome == BOUND


async def test_a_conflict_that_has_no_cause_is_tried_again_but_not_for_ever(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.refuse(BINDS, 409, times=2):
        (result,) = await muster.bind(pods)
    assert result.outcome == BOUND
    pods = await muster.pods("trainer-1")
    with muster.faults.refuse(BINDS, 409):
        (result,) = await muster.bind(pods)
    assert (result.outcome, result.message) == (FAILED, "409: made to fail")


async def test_a_retry_after_holds_back_everybody(muster: Rig) -> None:
    pods = await muster.pods(*names(20))
    with muster.faults.refuse(BINDS, 429, headers={"Retry-After": "30"}), capture_logs() as logs:
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=5)))
    sent = sum(line["attempts"] for line in logs if line["event"] == "pod not bound")
    assert 1 <= sent <= 8, "only what was under way before the first answer"
    assert {result.outcome for result in results} == {FAILED}
    assert any("429" in result.message for result in results)


async def test_the_deadline_bounds_an_outage_and_every_pod_is_told(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.cut(BINDS):
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=5)))
    assert {result.outcome for result in results} == {FAILED}
    assert all(result.message.startswith("there was no time left") for result in results)
    assert {result.outcome for result in await muster.bind(pods)} == {BOUND}, "the caller tries again"


async def test_i6_a_pod_that_hangs_has_failed_at_the_deadline(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.hold(BINDS):
        (result,) = await results_of(muster.bind_call(pods, timeout=5))
    assert result.outcome == FAILED
    assert "no answer in time" in result.message
    assert (await muster.bind(pods))[0].outcome == BOUND


# -- how much at once, and whose turn it is


async def test_no_more_under_way_than_set(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(muster.bind(pods))
        await held.until(8)
        await muster.get("/api/v1/namespaces/ml/pods")
        assert len(held.paths) == 8
    assert {result.outcome for result in await call} == {BOUND}


async def test_a_gang_of_8_need_not_wait_for_a_large_one(muster: Rig) -> None:
    large, small = await muster.pods(*names(300, "large")), await muster.pods(*names(8, "small"))
    with muster.faults.hold(BINDS) as held:
        of_large = asyncio.create_task(muster.bind(large))
        await held.until(8)
        of_small = asyncio.create_task(muster.bind(small))
        await yield_to_loop()
        held.release()
        await of_small
        left = (await muster.nodes_of(large)).count("")
        await of_large
    assert left > 100, "most of the large gang still waits when the small one is done"


async def test_results_of_many_travel_together(muster: Rig) -> None:
    pods = await muster.pods(*names(200))
    messages = 0
    results = []
    async for response in muster.bind_call(pods):
        messages += 1
        results += response.results
    in_order(pods, results)
    assert messages < 100


async def test_the_first_results_come_before_the_last_pod_is_bound(muster: Rig) -> None:
    pods = await muster.pods(*names(12))
    with muster.faults.hold(BINDS, let_pass=4) as held:
        call = muster.bind_call(pods)
        early = list((await call.read()).results)
        assert 1 <= len(early) <= 4
        held.release()
        results = early + await results_of(call)
    in_order(pods, results)


# -- callers that leave, leaders that change


async def test_a_caller_that_leaves_stops_new_binds_but_not_those_under_way(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held, capture_logs() as logs:
        call = muster.bind_call(pods)
        reading = asyncio.create_task(results_of(call))
        await held.until(8)
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await eventually(lambda: sum(line["event"] == "pod not bound" for line in logs) == 22)
        held.release()
        await muster.service.stop()
    assert len(held.paths) == 8
    assert (await muster.nodes_of(pods)).count("") == 22


async def test_a_deposed_leader_is_refused(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    await muster.bind([], epoch=7)
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is over: epoch 7 has called") as refused:
        await muster.bind(pods, epoch=6)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is over"):
        await muster.write(epoch=6)
    assert await muster.nodes_of(pods) == [""]


async def test_i4_running_binds_of_a_deposed_leader_send_nothing_more(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(muster.bind(pods, epoch=6))
        await held.until(8)
        await muster.write(epoch=7)
        held.release()
        results = await call
    outcomes = [result.outcome for result in results]
    assert (outcomes.count(BOUND), outcomes.count(FAILED)) == (8, 22)
    assert all("epoch 6 is over" in result.message for result in results if result.outcome == FAILED)
    assert len(held.paths) == 8
    assert (await muster.nodes_of(pods)).count("") == 22


async def test_each_pod_that_failed_and_each_call_has_its_line(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-1")
    with capture_logs() as logs:
        await muster.bind(pods)
    (failed,) = (line for line in logs if line["event"] == "pod not bound")
    assert (failed["pod"], failed["outcome"], failed["group"]) == ("ml/trainer-1", "gone", "ml/gang")
    (call,) = (line for line in logs if line["event"] == "bind call")
    assert (call["pods"], call["bound"], call["gone"]) == (2, 1, 1)
