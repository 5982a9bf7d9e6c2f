"""Evict over real gRPC against an API server: each pod gets one correct result, and disruption budgets hold."""

import asyncio
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from structlog.testing import capture_logs

from builders.binding.service import Rig, in_order, names, results_of, waiting
from builders.e2e.faults import WRITES_OF_STATUS, Requests
from builders.telemetry.collector import collecting
from builders.wait import eventually
from muster.binding.v1 import binding_pb2 as pb
from muster.telemetry import tracing

EVICTED, GONE, FAILED = pb.EvictResult.OUTCOME_EVICTED, pb.EvictResult.OUTCOME_GONE, pb.EvictResult.OUTCOME_FAILED
EVICTIONS = Requests("POST", "/eviction")
READS_OF_PODS = Requests("GET", "/pods/[^/]+")


# -- results by state of the pod


async def test_pods_are_evicted_with_their_grace_period(muster: Rig) -> None:
    pods = await muster.running(*names(5))
    results = await muster.evict(pods)
    assert [(result.outcome, result.message) for result in results] == [(EVICTED, "")] * 5
    found = await muster.pod("trainer-3")
    assert found["metadata"]["deletionGracePeriodSeconds"] == 30
    assert "DisruptionTarget" in [condition["type"] for condition in found["status"]["conditions"]]


async def test_repeated_eviction_succeeds(muster: Rig) -> None:
    pods = await muster.running("trainer-0")
    await muster.evict(pods)
    with muster.faults.refuse(EVICTIONS, 500):
        (again,) = await muster.evict(pods)
    assert again.outcome == EVICTED


async def test_missing_pod_is_gone(muster: Rig) -> None:
    pods = await muster.running("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-0")
    gone, evicted = await muster.evict(pods)
    assert (gone.outcome, evicted.outcome) == (GONE, EVICTED)
    assert "not found" in gone.message


async def test_recreated_pod_and_its_budget_are_left_alone(muster: Rig) -> None:
    before = await muster.running("trainer-0", app="web")
    await muster.kube.delete("Pod", "trainer-0")
    await muster.running("trainer-0", app="web")
    await muster.budget("web", 1, minAvailable=0)
    (result,) = await muster.evict(before)
    assert result.outcome == GONE
    assert "another pod has the name" in result.message
    assert not await muster.is_going("trainer-0")
    await muster.allows("web", 1)


async def test_pod_replaced_between_read_and_eviction_is_left_alone(muster: Rig) -> None:
    before = await muster.running("trainer-0")
    with muster.faults.hold(EVICTIONS) as held:
        evicting = asyncio.create_task(muster.evict(before))
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        await muster.running("trainer-0")
        held.release()
        (result,) = await evicting
    assert result.outcome == GONE
    assert not await muster.is_going("trainer-0")


async def test_pod_deleted_between_read_and_eviction_is_gone(muster: Rig) -> None:
    pods = await muster.running("trainer-0")
    with muster.faults.hold(EVICTIONS) as held:
        evicting = asyncio.create_task(muster.evict(pods))
        await held.until(1)
        await muster.kube.delete("Pod", "trainer-0")
        held.release()
        (result,) = await evicting
    assert result.outcome == GONE


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_ended_pod_is_not_evicted(muster: Rig, phase: str) -> None:
    pods = await muster.running("trainer-0")
    await muster.kube.patch("Pod", "trainer-0", {"status": {"phase": phase}}, part="/status")
    (result,) = await muster.evict(pods)
    assert (result.outcome, result.message) == (GONE, f"the pod has ended: {phase}")
    assert not await muster.is_going("trainer-0")


async def test_empty_request_has_no_results(muster: Rig) -> None:
    assert await muster.evict([]) == []


async def test_invalid_request_is_rejected_whole(muster: Rig) -> None:
    (pod,) = await muster.running("trainer-0")
    with pytest.raises(grpc.aio.AioRpcError, match="is given twice") as refused:
        await muster.evict([pod, pod])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert not await muster.is_going("trainer-0")


# -- disruption budgets


async def test_eviction_waits_until_its_budget_allows_it(muster: Rig) -> None:
    pods = await muster.running("web-0", "web-1", app="web")
    await muster.budget("web", 1, minAvailable=1)
    call = muster.evict_call(pods)
    first = await call.read()
    assert [result.outcome for result in first.results] == [EVICTED]
    await muster.running("web-2", app="web")
    results = [*first.results, *await results_of(call)]
    assert {result.outcome for result in in_order(pods, results)} == {EVICTED}
    assert not await muster.is_going("web-2")


async def test_eviction_blocked_by_its_budget_fails_with_the_server_message(muster: Rig) -> None:
    pods = await muster.running("web-0", app="web")
    await muster.budget("web", 0, minAvailable=1)
    with capture_logs() as logs:
        (result,) = await muster.evict(pods, timeout=5)
    assert result.outcome == FAILED
    assert "Cannot evict pod as it would violate the pod's disruption budget." in result.message
    assert "The disruption budget web needs 1 healthy pods and has 1 currently" in result.message
    assert not await muster.is_going("web-0")
    (line,) = (line for line in logs if line["event"] == "pod_eviction_failed")
    assert 2 <= line["attempts"] < 15, "pauses grow"


async def test_exhausted_budget_does_not_block_other_pods(muster: Rig) -> None:
    stuck = await muster.running(*names(30, "web"), app="web")
    await muster.budget("web", 0, maxUnavailable=0)
    others, new = await muster.running(*names(8, "other")), await muster.pods(*names(8, "new"))
    evicting = asyncio.create_task(muster.evict(stuck, timeout=3))
    evicted, bound = await asyncio.gather(muster.evict(others), muster.bind(new))
    assert not evicting.done()
    assert {result.outcome for result in evicted} == {EVICTED}
    assert {result.outcome for result in bound} == {pb.BindResult.OUTCOME_BOUND}
    assert {result.outcome for result in await evicting} == {FAILED}


async def test_pod_with_several_budgets_fails_at_once(muster: Rig) -> None:
    pods = await muster.running("web-0", app="web")
    await muster.budget("web", 1, minAvailable=0)
    await muster.kube.create(
        "PodDisruptionBudget",
        {"metadata": {"name": "too"}, "spec": {"minAvailable": 0, "selector": {"matchLabels": {"app": "web"}}}},
    )
    with capture_logs() as logs:
        (result,) = await muster.evict(pods)
    assert result.outcome == FAILED
    assert "more than one PodDisruptionBudget" in result.message
    assert [line["attempts"] for line in logs if line["event"] == "pod_eviction_failed"] == [1]


async def test_pod_that_has_not_started_is_evicted_despite_its_budget(muster: Rig) -> None:
    pods = await muster.pods("web-0")
    await muster.kube.patch("Pod", "web-0", {"metadata": {"labels": {"app": "web"}}})
    await muster.budget("web", 0, minAvailable=1)
    (result,) = await muster.evict(pods)
    assert result.outcome == EVICTED


# -- retries


@pytest.mark.parametrize("status", [409, 429, 500, 502, 503, 504])
async def test_retryable_answers_are_retried(muster: Rig, status: int) -> None:
    pods = await muster.running(*names(6))
    with muster.faults.refuse(EVICTIONS, status, times=8, headers={"Retry-After": "0"}):
        results = await muster.evict(pods)
    assert {result.outcome for result in results} == {EVICTED}


async def test_final_answer_is_not_retried(muster: Rig) -> None:
    pods = await muster.running("trainer-0")
    with muster.faults.refuse(EVICTIONS, 403):
        (result,) = await muster.evict(pods)
    assert (result.outcome, result.message) == (FAILED, "403: made to fail")


@pytest.mark.parametrize("carried_out", [False, True])
async def test_connection_breaks_before_or_after_the_eviction(muster: Rig, carried_out: bool) -> None:
    pods = await muster.running(*names(6))
    with muster.faults.cut(EVICTIONS, times=6, carried_out=carried_out), muster.faults.cut(READS_OF_PODS, times=3):
        results = await muster.evict(pods)
    assert {result.outcome for result in results} == {EVICTED}
    assert all([await muster.is_going(name) for name in names(6)])


async def test_deadline_bounds_an_outage_and_settles_every_pod(muster: Rig) -> None:
    pods = await muster.running(*names(10))
    with muster.faults.cut(EVICTIONS):
        results = await muster.evict(pods, timeout=2)
    assert {result.outcome for result in results} == {FAILED}
    assert all(result.message.startswith("the deadline passed") for result in results)
    assert {result.outcome for result in await muster.evict(pods)} == {EVICTED}, "the caller retries"


# -- concurrency and order


async def test_slow_evictions_leave_connections_for_binds(muster: Rig) -> None:
    victims, new = await muster.running(*names(10)), await muster.pods(*names(10, "new"))
    with muster.faults.hold(EVICTIONS) as held:
        evicting = asyncio.create_task(muster.evict(victims))
        await held.until(2)
        results = await muster.bind(new)
        assert len(held.paths) == 2, "a quarter of the window"
    assert {result.outcome for result in results} == {pb.BindResult.OUTCOME_BOUND}
    assert {result.outcome for result in await evicting} == {EVICTED}


async def test_evictions_precede_conditions(muster: Rig) -> None:
    busy, waiters = await muster.pods(*names(8, "busy")), await muster.pods(*names(20, "waiter"))
    victims = await muster.running(*names(2))
    with muster.faults.hold(Requests("POST", "/busy-[^/]+/binding")) as held, muster.faults.hold(WRITES_OF_STATUS):
        binding = asyncio.create_task(muster.bind(busy))
        await held.until(8)
        writing = asyncio.create_task(muster.write([waiting(pod) for pod in waiters]))
        await muster.until_waiting(20)
        evicting = asyncio.create_task(muster.evict(victims))
        await muster.until_waiting(22)
        held.release()
        assert {result.outcome for result in await evicting} == {EVICTED}
        assert not writing.done()
    await asyncio.gather(binding, writing)


# -- disconnected callers and earlier leaders


async def test_earlier_leader_cannot_evict(muster: Rig) -> None:
    pods = await muster.running("trainer-0")
    await muster.bind([], epoch=7)
    with pytest.raises(grpc.aio.AioRpcError, match="leader epoch 6 is superseded: epoch 7 leads") as refused:
        await muster.evict(pods, epoch=6)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert not await muster.is_going("trainer-0")


async def test_running_evictions_of_an_earlier_leader_stop(muster: Rig) -> None:
    pods = await muster.running(*names(10))
    with muster.faults.hold(EVICTIONS) as held:
        call = asyncio.create_task(muster.evict(pods, epoch=6))
        await held.until(2)
        await muster.write(epoch=7)
        held.release()
        results = await call
    outcomes = [result.outcome for result in results]
    assert (outcomes.count(EVICTED), outcomes.count(FAILED)) == (2, 8)
    assert all("epoch 6 is superseded" in result.message for result in results if result.outcome == FAILED)
    assert len(held.paths) == 2


async def test_disconnect_stops_queued_evictions(muster: Rig) -> None:
    pods = await muster.running(*names(10))
    with muster.faults.hold(EVICTIONS) as held, capture_logs() as logs:
        call = muster.evict_call(pods)
        reading = asyncio.create_task(results_of(call))
        await held.until(2)
        call.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await eventually(lambda: sum(line["event"] == "pod_eviction_failed" for line in logs) == 8)
        held.release()
        await muster.service.stop()
    assert len(held.paths) == 2


# -- logs and traces


async def test_pods_and_calls_are_logged(muster: Rig) -> None:
    pods = await muster.running("trainer-0", "trainer-1")
    await muster.kube.delete("Pod", "trainer-1")
    with capture_logs() as logs:
        await muster.evict(pods)
    lines = {line["pod"]: line for line in logs if line["event"] == "pod_evicted"}
    assert (lines["ml/trainer-0"]["outcome"], lines["ml/trainer-1"]["outcome"]) == ("evicted", "gone")
    assert lines["ml/trainer-0"]["gang"] == "koordinator/ml/gang"
    (call,) = (line for line in logs if line["event"] == "evict_call_finished")
    assert (call["pods"], call["evicted"], call["gone"]) == (2, 1, 1)


async def test_trace_has_the_outcome_of_each_pod(muster: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = await muster.running("quick", "retried")
    async with collecting() as (collector, endpoint):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        shutdown = tracing.configure_tracing("binding", "binding-0")
        try:
            gang = tracing.new_traceparent()
            parent = tracing.from_traceparent(gang)
            assert parent is not None
            with (
                capture_logs() as logs,
                trace.use_span(trace.NonRecordingSpan(parent)),
                muster.faults.refuse(Requests("POST", "/retried/eviction"), 500, times=1),
            ):
                await muster.evict(pods)
        finally:
            await asyncio.to_thread(shutdown)
    call = collector.named("muster.binding.v1.BindingService/Evict")
    assert call.trace_id.hex() in gang
    found: dict[str, str] = {}
    for event in call.events:
        columns: dict[str, Any] = {pair.key: pair.value.array_value.values for pair in event.attributes}
        assert set(columns) == {"muster.pods", "muster.outcomes", "muster.milliseconds"}
        names, outcomes = (
            [value.string_value for value in columns[name]] for name in ("muster.pods", "muster.outcomes")
        )
        found |= dict(zip(names, outcomes, strict=True))
    assert found == {f"ml/{pod['metadata']['name']}": "evicted" for pod in pods}
    assert [line["trace_id"] in gang for line in logs if line["event"] == "pod_evicted"] == [True, True]
    slow = collector.named("evict pod")
    assert {pair.key: pair.value for pair in slow.attributes}["muster.attempts"].int_value == 2
