"""Evict effects become calls of binding; each pod has exactly one result event, however the call ends."""

import grpc

from builders.binding.stub import BindingStub, serving
from muster.binding.v1 import binding_pb2 as pb
from muster.coordinator.binder import Binder
from muster.coordinator.core.effects import Evict
from muster.coordinator.core.events import EvictCallFailed, EvictOutcome, EvictResult, EvictResults, PodName
from muster.rpc.errors import RpcError

GANG = "koordinator/ml/gang"
PODS = tuple(PodName(f"uid-{number}", "ml", f"pod-{number}") for number in range(4))


def evict_response(*results: tuple[int, pb.EvictResult.Outcome.ValueType]) -> pb.EvictResponse:
    return pb.EvictResponse(results=[pb.EvictResult(uid=f"uid-{n}", outcome=o, message="why") for n, o in results])


async def events_of(stub: BindingStub) -> list[EvictResults | EvictCallFailed]:
    async with serving(stub) as channel:
        binder = Binder(channel, leader_epoch=7, timeout_seconds=20)
        return [event async for event in binder.evict(Evict(GANG, PODS))]


async def test_each_pod_has_a_result() -> None:
    stub = BindingStub()
    stub.evict_answers = [
        evict_response((2, pb.EvictResult.OUTCOME_EVICTED)),
        evict_response(
            (0, pb.EvictResult.OUTCOME_GONE), (3, pb.EvictResult.OUTCOME_FAILED), (1, pb.EvictResult.OUTCOME_EVICTED)
        ),
    ]
    events = await events_of(stub)
    assert events == [
        EvictResults((EvictResult("uid-2", EvictOutcome.EVICTED, "why"),)),
        EvictResults(
            (
                EvictResult("uid-0", EvictOutcome.GONE, "why"),
                EvictResult("uid-3", EvictOutcome.FAILED, "why"),
                EvictResult("uid-1", EvictOutcome.EVICTED, "why"),
            )
        ),
    ]
    (request,) = stub.evictions
    assert (request.leader_epoch, request.gang) == (7, GANG)
    assert [(pod.uid, pod.namespace, pod.name) for pod in request.pods] == [(p.uid, p.namespace, p.name) for p in PODS]


async def test_pods_without_a_result_fail_with_their_call() -> None:
    stub = BindingStub()
    stub.evict_answers = [evict_response((2, pb.EvictResult.OUTCOME_EVICTED))]
    stub.evict_error = RpcError(grpc.StatusCode.FAILED_PRECONDITION, "leader epoch 7 is superseded")
    first, last = await events_of(stub)
    assert isinstance(first, EvictResults)
    assert isinstance(last, EvictCallFailed)
    assert sorted(last.uids) == ["uid-0", "uid-1", "uid-3"]
    assert "leader epoch 7 is superseded" in last.message


async def test_a_call_that_ends_too_early_is_a_failure() -> None:
    (event,) = await events_of(BindingStub())
    assert isinstance(event, EvictCallFailed)
    assert sorted(event.uids) == [pod.uid for pod in PODS]


async def test_repeated_foreign_and_unknown_eviction_results_are_harmless() -> None:
    stub = BindingStub()
    unknown = pb.EvictResult.Outcome.ValueType(99)
    stub.evict_answers = [
        evict_response((0, pb.EvictResult.OUTCOME_EVICTED), (0, pb.EvictResult.OUTCOME_FAILED)),
        evict_response((0, pb.EvictResult.OUTCOME_FAILED), (77, pb.EvictResult.OUTCOME_EVICTED)),
        evict_response((1, unknown), (2, pb.EvictResult.OUTCOME_UNSPECIFIED), (3, pb.EvictResult.OUTCOME_GONE)),
    ]
    results = [result for event in await events_of(stub) if isinstance(event, EvictResults) for result in event.results]
    assert [(result.uid, result.outcome) for result in results] == [
        ("uid-0", EvictOutcome.EVICTED),
        ("uid-1", EvictOutcome.FAILED),
        ("uid-2", EvictOutcome.FAILED),
        ("uid-3", EvictOutcome.GONE),
    ]
