"""Bind requests beyond the node: the trace, ranks, and claims that wait for a node."""

from builders.binding.stub import BindingStub, serving
from muster.coordinator.binder import RANK_ANNOTATION, TRACE_ANNOTATION, Binder
from muster.coordinator.core.effects import Bind
from muster.coordinator.core.events import BindOutcome, BindResults, Seat

SEATS = tuple(Seat(f"uid-{i}", "ns", f"pod-{i}", "class-0", "node-0") for i in range(3))


async def test_gangs_that_start_together_are_one_request_with_their_traces() -> None:
    stub = BindingStub()
    effect = Bind("test/ns/g", SEATS, claims_first=True, partners={"uid-2": "test/ns/h"})
    async with serving(stub) as channel:
        traces = {"test/ns/g": "abc", "test/ns/h": "def"}
        _ = [answer async for answer in Binder(channel, 7, 10).bind(effect, traces)]
    (request,) = stub.binds
    assert request.volumes_first
    assert [pod.annotations[TRACE_ANNOTATION] for pod in request.pods] == ["abc", "abc", "def"]


async def test_binds_carry_rank_and_trace_annotations_and_claims() -> None:
    stub = BindingStub()
    effect = Bind("test/ns/g", SEATS, {"uid-0": 0, "uid-2": 7}, {"uid-1": ("data", "logs")})
    async with serving(stub) as channel:
        answers = [answer async for answer in Binder(channel, 7, 10).bind(effect, {"test/ns/g": "abc"})]
    (answer,) = answers
    assert isinstance(answer, BindResults)
    assert [result.outcome for result in answer.results] == [BindOutcome.BOUND] * 3
    (request,) = stub.binds
    trace = {TRACE_ANNOTATION: "abc"}
    assert [dict(pod.annotations) for pod in request.pods] == [
        {**trace, RANK_ANNOTATION: "0"},
        trace,
        {**trace, RANK_ANNOTATION: "7"},
    ]
    assert [list(pod.claims) for pod in request.pods] == [[], ["data", "logs"], []]
