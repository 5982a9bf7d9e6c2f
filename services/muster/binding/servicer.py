"""The methods of the service."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog

from muster.binding.annotations import WriteAnnotations
from muster.binding.binds import BindCall
from muster.binding.claim_watch import ClaimWatch
from muster.binding.conditions import WriteCondition
from muster.binding.events import EventRecorder
from muster.binding.evictions import EvictCall
from muster.binding.leader_fence import Epochs
from muster.binding.object_patches import WriteObject
from muster.binding.pipeline import Flow, Pipeline, Urgency
from muster.binding.spans import PodTrace
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.binding.validation import (
    check_bind,
    check_evict,
    problem_of_annotations,
    problem_of_condition,
    problem_of_event,
    problem_of_object,
)
from muster.binding.write_call import WriteCall
from muster.kube.session import KubeSession
from muster.rpc.call_spans import gangs_span

FULL_NAME: Final = "muster.binding.v1.BindingService"

_LONGEST_CALL_SECONDS: Final = 300.0  # of callers that set no deadline, or one far away
_WAY_BACK_SECONDS: Final = 0.5  # kept of the deadline, so that results still reach the caller
_WAY_BACK_SHARE: Final = 0.1
_LEFT: Final = "the caller has left"

_log = structlog.get_logger()


class BindingServicer(pb_grpc.BindingServiceServicer):
    """Binds and evicts pods, writes what pods and gangs' objects say of themselves, records events."""

    def __init__(self, session: KubeSession, pipeline: Pipeline, events: EventRecorder, claims: ClaimWatch) -> None:
        self._session, self._pipeline, self._events, self._claims = session, pipeline, events, claims
        self._epochs = Epochs()

    async def Bind(self, request: pb.BindRequest, context: Any) -> AsyncIterator[pb.BindResponse]:  # noqa: N802
        """Results as they come."""
        check_bind(request)
        trace = PodTrace("bind", len(request.pods), gangs_span(context.invocation_metadata()))
        call = BindCall(request, self._session, self._pipeline, self._claims, _deadline(context), trace)
        context.add_done_callback(_stopping(call.stop))
        with self._epochs.admitted(request.leader_epoch, call.stop):
            try:
                async for results in call.results():
                    yield pb.BindResponse(results=results)
            finally:
                call.stop(_LEFT)

    async def Evict(self, request: pb.EvictRequest, context: Any) -> AsyncIterator[pb.EvictResponse]:  # noqa: N802
        """Results as they come."""
        check_evict(request)
        trace = PodTrace("evict", len(request.pods), gangs_span(context.invocation_metadata()))
        call = EvictCall(request, self._session, self._pipeline, _deadline(context), trace)
        context.add_done_callback(_stopping(call.stop))
        with self._epochs.admitted(request.leader_epoch, call.stop):
            try:
                async for results in call.results():
                    yield pb.EvictResponse(results=results)
            finally:
                call.stop(_LEFT)

    async def Write(self, request: pb.WriteRequest, context: Any) -> pb.WriteResponse:  # noqa: N802
        """When everything is written or given up."""
        deadline = _deadline(context)
        conditions = self._pipeline.open(Urgency.CONDITION, deadline)
        events = self._pipeline.open(Urgency.EVENT, deadline)

        def stop(why: str) -> None:
            conditions.close(why)
            events.close(why)

        context.add_done_callback(_stopping(stop))
        with self._epochs.admitted(request.leader_epoch, stop):
            try:
                call = WriteCall()
                states = len(request.conditions) + len(request.annotations) + len(request.objects)
                call.expect(states + len(request.events))
                self._write_states(request, call, conditions)
                for event in request.events:
                    problem = problem_of_event(event)
                    if problem:
                        call.failure(problem)
                    else:
                        self._events.record(event, call, events)
                response = await call.finished()
            finally:
                stop(_LEFT)
        _log.info(
            "write call",
            leader_epoch=request.leader_epoch,
            conditions=len(request.conditions),
            annotations=len(request.annotations),
            objects=len(request.objects),
            events=len(request.events),
            written=response.written,
            gone=response.gone,
            suppressed=response.suppressed,
            failed=call.failed,
        )
        return response

    def _write_states(self, request: pb.WriteRequest, call: WriteCall, flow: Flow) -> None:
        """All but events: what is wrong with one of them holds up no other."""
        session = self._session
        jobs = [
            *((problem_of_condition(each), WriteCondition(call, each, session)) for each in request.conditions),
            *((problem_of_annotations(each), WriteAnnotations(call, each, session)) for each in request.annotations),
            *((problem_of_object(each), WriteObject(call, each, session)) for each in request.objects),
        ]
        for problem, job in jobs:
            if problem:
                call.failure(problem)
            else:
                flow.add([job])


def _deadline(context: Any) -> float:
    """On the event loop's clock, a little before the caller gives up."""
    remaining = context.time_remaining()
    seconds = _LONGEST_CALL_SECONDS if remaining is None else min(remaining, _LONGEST_CALL_SECONDS)
    return asyncio.get_running_loop().time() + seconds - min(_WAY_BACK_SECONDS, seconds * _WAY_BACK_SHARE)


def _stopping(stop: Callable[[str], None]) -> Callable[[Any], None]:
    """For `add_done_callback`: a call that is cancelled while a result is being sent must stop, too."""
    return lambda _context: stop(_LEFT)
