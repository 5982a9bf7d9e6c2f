"""The gRPC methods of BindingService."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog

from muster.binding.annotations import WriteAnnotations
from muster.binding.binds import BindCall
from muster.binding.conditions import WriteCondition
from muster.binding.deallocations import DeallocateCall
from muster.binding.events import EventRecorder
from muster.binding.evictions import EvictCall
from muster.binding.leader_fence import LeaderFence
from muster.binding.object_patches import WriteObject
from muster.binding.pipeline import Flow, Pipeline, WriteType
from muster.binding.shared_claim_state import SharedClaimState
from muster.binding.spans import CallTrace
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.binding.validation import (
    annotations_problem,
    condition_problem,
    event_problem,
    object_patch_problem,
    validate_bind,
    validate_deallocate,
    validate_evict,
)
from muster.binding.write_call import WriteCall
from muster.kube.session import KubeSession
from muster.rpc.call_spans import gang_traceparent

FULL_NAME: Final = "muster.binding.v1.BindingService"

_MAX_CALL_SECONDS: Final = 300.0  # for callers with no deadline, or a distant one
_RETURN_SECONDS: Final = 0.5  # subtracted from the deadline, so that results still reach the caller
_RETURN_SHARE: Final = 0.1
_DISCONNECTED: Final = "the caller disconnected"

_log = structlog.get_logger()


class BindingServicer(pb_grpc.BindingServiceServicer):
    """Binds and evicts pods, deallocates claims, writes conditions, annotations and gang objects, records events."""

    def __init__(
        self,
        session: KubeSession,
        pipeline: Pipeline,
        events: EventRecorder,
        claims: SharedClaimState,
        leader_fence: LeaderFence,
    ) -> None:
        self._session, self._pipeline, self._events = session, pipeline, events
        self._claims, self._leader_fence = claims, leader_fence

    async def Bind(self, request: pb.BindRequest, context: Any) -> AsyncIterator[pb.BindResponse]:  # noqa: N802
        """Bind or evict pods; streams results as they are settled."""
        validate_bind(request)
        trace = CallTrace("bind", len(request.pods), gang_traceparent(context.invocation_metadata()))
        call = BindCall(request, self._session, self._pipeline, self._claims, _deadline(context), trace)
        context.add_done_callback(_stopping(call.stop))
        async with self._leader_fence.admit(request.leader_epoch, call.stop):
            try:
                async for results in call.results():
                    yield pb.BindResponse(results=results)
            finally:
                call.stop(_DISCONNECTED)

    async def Evict(self, request: pb.EvictRequest, context: Any) -> AsyncIterator[pb.EvictResponse]:  # noqa: N802
        """Bind or evict pods; streams results as they are settled."""
        validate_evict(request)
        trace = CallTrace("evict", len(request.pods), gang_traceparent(context.invocation_metadata()))
        call = EvictCall(request, self._session, self._pipeline, _deadline(context), trace)
        context.add_done_callback(_stopping(call.stop))
        async with self._leader_fence.admit(request.leader_epoch, call.stop):
            try:
                async for results in call.results():
                    yield pb.EvictResponse(results=results)
            finally:
                call.stop(_DISCONNECTED)

    async def Deallocate(self, request: pb.DeallocateRequest, context: Any) -> pb.DeallocateResponse:  # noqa: N802
        """Deallocate claims; returns when all are settled."""
        validate_deallocate(request)
        call = DeallocateCall(request, self._session, self._pipeline, _deadline(context))
        context.add_done_callback(_stopping(call.stop))
        async with self._leader_fence.admit(request.leader_epoch, call.stop):
            try:
                return await call.response()
            finally:
                call.stop(_DISCONNECTED)

    async def Write(self, request: pb.WriteRequest, context: Any) -> pb.WriteResponse:  # noqa: N802
        """Write conditions, annotations, objects and events; returns when all are settled."""
        deadline = _deadline(context)
        conditions = self._pipeline.open(WriteType.CONDITION, deadline)
        events = self._pipeline.open(WriteType.EVENT, deadline)

        def stop(reason: str) -> None:
            conditions.close(reason)
            events.close(reason)

        context.add_done_callback(_stopping(stop))
        async with self._leader_fence.admit(request.leader_epoch, stop):
            try:
                call = WriteCall()
                statuses = len(request.conditions) + len(request.annotations) + len(request.objects)
                call.expect(statuses + len(request.events))
                self._write_statuses(request, call, conditions)
                for event in request.events:
                    problem = event_problem(event)
                    if problem:
                        call.failure(problem)
                    else:
                        self._events.record(event, call, events)
                response = await call.finished()
            finally:
                stop(_DISCONNECTED)
        _log.info(
            "write_call_finished",
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

    def _write_statuses(self, request: pb.WriteRequest, call: WriteCall, flow: Flow) -> None:
        """Write all but events; an invalid one does not block the others."""
        session = self._session
        jobs = [
            *((condition_problem(each), WriteCondition(call, each, session)) for each in request.conditions),
            *((annotations_problem(each), WriteAnnotations(call, each, session)) for each in request.annotations),
            *((object_patch_problem(each), WriteObject(call, each, session)) for each in request.objects),
        ]
        for problem, job in jobs:
            if problem:
                call.failure(problem)
            else:
                flow.add([job])


def _deadline(context: Any) -> float:
    """Deadline of the call on the event loop's clock, a little before the caller's."""
    remaining = context.time_remaining()
    seconds = _MAX_CALL_SECONDS if remaining is None else min(remaining, _MAX_CALL_SECONDS)
    return asyncio.get_running_loop().time() + seconds - min(_RETURN_SECONDS, seconds * _RETURN_SHARE)


def _stopping(stop: Callable[[str], None]) -> Callable[[Any], None]:
    """Callback for `add_done_callback`, so that a call cancelled while a result is being sent stops as well."""
    return lambda _context: stop(_DISCONNECTED)
