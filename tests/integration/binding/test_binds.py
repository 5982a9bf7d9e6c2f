"""Bind over real gRPC against an API server: each pod gets exactly one correct result, whatever fails."""

import asyncio

import grpc
import pytest
from structlog.testing import capture_logs

from builders.binding.service import Rig, in_order, names, results_of
from builders.e2e.faults import BINDS, Requests
from builders.wait import eventually, yield_to_loop
from muster.binding.v1 import binding_pb2 as pb

BOUND, CONFLICT = pb.BindResult.OUTCOME_BOUND, pb.BindResult.OUTCOME_CONFLICT
GONE, FAILED = pb.BindResult.OUTCOME_GONE, pb.BindResult.OUTCOME_FAILED
READS_OF_PODS = Requests("GET", "/pods/[^/]+")


# -- results by state of the pod


async def test_pods_are_bound_with_their_annotations(muster: Rig) -> None:
    pods = await muster.pods(*names(20))
    results = await muster.bind(pods, "node-7", **{"muster.dev/trace-id": "abc"})
    assert [(result.outcome, result.node, result.message) for result in results] == [(BOUND, "", "")] * 20
    assert await muster.nodes_of(pods) == ["node-7"] * 20
    assert (await muster.pod("trainer-3"))["metadata"]["annotations"]["muster.dev/trace-id"] == "abc"


async def test_i4_repeated_bind_succeeds_and_another_node_is_a_conflict(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    assert (await muster.bind(pods, "node-0"))[0].outcome == BOUND
    assert (await muster.bind(pods, "node-0"))[0].outcome == BOUND
    (elsewhere,) = await muster.bind(pods, "node-1")
    assert (elsewhere.outcome, elsewhere.node) == (CONFLICT, "node-0")
    assert await muster.nodes_of(pods) == ["node-0"]


async def test_missing_pod_is_gone(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-0")
    gone, bound = await muster.bind(pods)
    assert gone.outcome == GONE
    assert "not found" in gone.message
    assert bound.outcome == BOUND


async def test_recreated_pod_is_not_bound(muster: Rig) -> None:
    before = await muster.pods("trainer-0")
    await muster.kube.delete("Pod", "trainer-0")
    now = await muster.pods("trainer-0")
    (result,) = await muster.bind(before)
    assert result.outcome == GONE
    assert "another pod has the name" in result.message
    assert await muster.nodes_of(now) == [""]


async def test_pod_being_deleted_is_gone(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    await muster.kube.patch("Pod", "trainer-0", {"metadata": {"finalizers": ["example.com/wait"]}})
    await muster.kube.delete("Pod", "trainer-0")
    (result,) = await muster.bind(pods)
    assert (result.outcome, result.message) == (GONE, "the pod is being deleted")


async def test_gated_pod_fails_with_the_server_message(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", schedulingGates=[{"name": "example.com/wait"}])
    (result,) = await muster.bind(pods)
    assert result.outcome == FAILED
    assert "schedulingGates" in result.message


async def test_final_answer_is_not_retried(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.refuse(BINDS, 403) as refused:
        (result,) = await muster.bind(pods)
        await refused.struck(1)
    assert (result.outcome, result.message) == (FAILED, "403: made to fail")


async def test_empty_request_has_no_results(muster: Rig) -> None:
    assert await muster.bind([]) == []


async def test_invalid_request_is_rejected_whole(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await muster.bind(pods, "no node")
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "'no node'" in (refused.value.details() or "")
    assert await muster.nodes_of(pods) == [""]


# -- retries


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_i6_retryable_answers_are_retried(muster: Rig, status: int) -> None:
    pods = await muster.pods(*names(10))
    with muster.faults.refuse(BINDS, status, times=15, headers={"Retry-After": "0"}):
        results = await muster.bind(pods)
    assert {result.outcome for result in results} == {BOUND}


async def test_g37_pod_that_alone_fails_is_settled_long_before_the_deadline(muster: Rig) -> None:
    """The coordinator may choose another node; the other pods are bound meanwhile."""
    pods = await muster.pods(*names(4))
    with muster.faults.refuse(Requests("POST", "/trainer-2/binding"), 500) as refused:
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=300)))
        await refused.struck(3)
    assert [result.outcome for result in results] == [BOUND, BOUND, FAILED, BOUND]
    assert results[2].message == "500: made to fail"


@pytest.mark.parametrize("carried_out", [False, True])
async def test_i4_connection_breaks_before_or_after_the_bind(muster: Rig, carried_out: bool) -> None:
    pods = await muster.pods(*names(10))
    with muster.faults.cut(BINDS, times=12, carried_out=carried_out):
        results = await muster.bind(pods, "node-3")
    assert {result.outcome for result in results} == {BOUND}
    assert await muster.nodes_of(pods) == ["node-3"] * 10


async def test_lost_answers_to_the_bind_and_to_the_read_of_the_pod(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with (
        muster.faults.cut(BINDS, times=1, carried_out=True),
        muster.faults.refuse(READS_OF_PODS, 500, times=1),
        muster.faults.cut(READS_OF_PODS, times=1),
    ):
        (result,) = await muster.bind(pods)
    assert result.outcome == BOUND


async def test_unexplained_conflict_is_retried_a_few_times(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.refuse(BINDS, 409, times=2):
        (result,) = await muster.bind(pods)
    assert result.outcome == BOUND
    pods = await muster.pods("trainer-1")
    with muster.faults.refuse(BINDS, 409):
        (result,) = await muster.bind(pods)
    assert (result.outcome, result.message) == (FAILED, "409: made to fail")


async def test_retry_after_pauses_all_binds(muster: Rig) -> None:
    pods = await muster.pods(*names(20))
    with muster.faults.refuse(BINDS, 429, headers={"Retry-After": "30"}), capture_logs() as logs:
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=5)))
    sent = sum(line["attempts"] for line in logs if line["event"] == "pod_bind_failed")
    assert 1 <= sent <= 8, "only requests in flight before the first answer"
    assert {result.outcome for result in results} == {FAILED}
    assert any("429" in result.message for result in results)


async def test_deadline_bounds_an_outage_and_settles_every_pod(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.cut(BINDS):
        results = in_order(pods, await results_of(muster.bind_call(pods, timeout=5)))
    assert {result.outcome for result in results} == {FAILED}
    assert all(result.message.startswith("the deadline passed") for result in results)
    assert {result.outcome for result in await muster.bind(pods)} == {BOUND}, "the caller retries"


async def test_i6_hanging_bind_fails_at_the_deadline(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    with muster.faults.hold(BINDS):
        (result,) = await results_of(muster.bind_call(pods, timeout=5))
    assert result.outcome == FAILED
    assert "no answer in time" in result.message
    assert (await muster.bind(pods))[0].outcome == BOUND


# -- concurrency and order


async def test_concurrency_never_exceeds_the_setting(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(muster.bind(pods))
        await held.until(8)
        await muster.get("/api/v1/namespaces/ml/pods")
        assert len(held.paths) == 8
    assert {result.outcome for result in await call} == {BOUND}


async def test_small_gang_does_not_wait_for_a_large_one(muster: Rig) -> None:
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


async def test_results_are_batched(muster: Rig) -> None:
    pods = await muster.pods(*names(200))
    messages = 0
    results = []
    async for response in muster.bind_call(pods):
        messages += 1
        results += response.results
    in_order(pods, results)
    assert messages < 100


async def test_first_results_arrive_before_the_last_pod_is_bound(muster: Rig) -> None:
    pods = await muster.pods(*names(12))
    with muster.faults.hold(BINDS, let_pass=4) as held:
        call = muster.bind_call(pods)
        early = list((await call.read()).results)
        assert 1 <= len(early) <= 4
        held.release()
        results = early + await results_of(call)
    in_order(pods, results)


# -- disconnected callers and earlier leaders


async def test_disconnect_stops_queued_binds_but_not_those_in_flight(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held, capture_logs() as logs:
        call = muster.bind_call(pods)
        reading = asyncio.create_task(results_of(call))
        await held.until(8)
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await eventually(lambda: sum(line["event"] == "pod_bind_failed" for line in logs) == 22)
        held.release()
        await muster.service.stop()
    assert len(held.paths) == 8
    assert (await muster.nodes_of(pods)).count("") == 22


async def test_earlier_leader_is_rejected(muster: Rig) -> None:
    pods = await muster.pods("trainer-0")
    await muster.bind([], epoch=7)
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is superseded: epoch 7 leads") as refused:
        await muster.bind(pods, epoch=6)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is superseded"):
        await muster.write(epoch=6)
    assert await muster.nodes_of(pods) == [""]


async def test_i4_running_binds_of_an_earlier_leader_stop(muster: Rig) -> None:
    pods = await muster.pods(*names(30))
    with muster.faults.hold(BINDS) as held:
        call = asyncio.create_task(muster.bind(pods, epoch=6))
        await held.until(8)
        await muster.write(epoch=7)
        held.release()
        results = await call
    outcomes = [result.outcome for result in results]
    assert (outcomes.count(BOUND), outcomes.count(FAILED)) == (8, 22)
    assert all("epoch 6 is superseded" in result.message for result in results if result.outcome == FAILED)
    assert len(held.paths) == 8
    assert (await muster.nodes_of(pods)).count("") == 22


async def test_failed_pods_and_calls_are_logged(muster: Rig) -> None:
    pods = await muster.pods("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-1")
    with capture_logs() as logs:
        await muster.bind(pods)
    (failed,) = (line for line in logs if line["event"] == "pod_bind_failed")
    assert (failed["pod"], failed["outcome"], failed["group"]) == ("ml/trainer-1", "gone", "ml/gang")
    (call,) = (line for line in logs if line["event"] == "bind_call_finished")
    assert (call["pods"], call["bound"], call["gone"]) == (2, 1, 1)
