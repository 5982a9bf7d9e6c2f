"""Deallocate effects become calls of binding, with one event for all claims, however the call ends."""

import grpc
import pytest

from builders.binding.stub import BindingStub, serving
from muster.binding.v1 import binding_pb2 as pb
from muster.coordinator.binder import Binder
from muster.coordinator.core.effects import Deallocate, StaleClaim
from muster.coordinator.core.events import (
    DeallocateCallFailed,
    DeallocateOutcome,
    DeallocateResult,
    DeallocateResults,
    PodName,
)
from muster.rpc.errors import RpcError

GANG = "koordinator/ml/gang"
PODS = tuple(PodName(f"p{number}", "ml", f"pod-{number}") for number in range(4))
CLAIMS = (
    StaleClaim("claim-0", "c0", "40", PODS[:1]),
    StaleClaim("claim-1", "c1", "41", PODS[1:2]),
    StaleClaim("shared", "c2", "42", PODS, ("g",)),
)


async def event_of(stub: BindingStub) -> DeallocateResults | DeallocateCallFailed:
    async with serving(stub) as channel:
        return await Binder(channel, leader_epoch=7, timeout_seconds=20).deallocate(Deallocate(GANG, CLAIMS))


async def test_each_claim_has_a_result() -> None:
    stub = BindingStub()
    unknown = pb.DeallocateResult.Outcome.ValueType(99)
    outcomes = (pb.DeallocateResult.OUTCOME_DEALLOCATED, pb.DeallocateResult.OUTCOME_KEPT, unknown)
    results = [
        pb.DeallocateResult(uid=f"c{number}", outcome=each, message="why") for number, each in enumerate(outcomes)
    ]
    stub.deallocate_answer = pb.DeallocateResponse(results=results)
    expected = (DeallocateOutcome.DEALLOCATED, DeallocateOutcome.KEPT, DeallocateOutcome.FAILED)
    assert await event_of(stub) == DeallocateResults(
        GANG, tuple(DeallocateResult(f"c{number}", each, "why") for number, each in enumerate(expected))
    )
    [request] = stub.deallocations
    assert (request.leader_epoch, request.gang) == (7, GANG)
    assert [(each.name, each.uid, each.resource_version) for each in request.claims] == [
        (each.name, each.uid, each.version) for each in CLAIMS
    ]
    pods = [[(pod.uid, pod.namespace, pod.name) for pod in (each.pod, *each.sharing)] for each in request.claims]
    assert pods == [[(pod.uid, pod.namespace, pod.name) for pod in each.pods] for each in CLAIMS]
    assert [tuple(each.pod_groups) for each in request.claims] == [each.groups for each in CLAIMS]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (RpcError(grpc.StatusCode.FAILED_PRECONDITION, "leader epoch 7 is superseded"), "is superseded"),
        (pb.DeallocateResponse(results=[pb.DeallocateResult(uid="c0")]), "without a result"),
    ],
)
async def test_a_deallocate_call_that_fails(answer: pb.DeallocateResponse | RpcError, reason: str) -> None:
    stub = BindingStub()
    stub.deallocate_answer = answer
    event = await event_of(stub)
    assert isinstance(event, DeallocateCallFailed)
    assert (event.gang, sorted(event.uids)) == (GANG, ["c0", "c1", "c2"])
    assert reason in event.message
