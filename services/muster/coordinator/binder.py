"""Client of binding's Bind, Evict and Deallocate calls, in the name of one leader.

The results are events of the core.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TypeVar

import structlog
from grpc import aio

from muster.binding.v1 import binding_pb2 as pb
from muster.binding.v1 import binding_pb2_grpc as pb_grpc
from muster.coordinator.core.effects import Bind, Deallocate, Evict, ExtendedClaimWrite
from muster.coordinator.core.events import (
    BindCallFailed,
    BindOutcome,
    BindResult,
    BindResults,
    DeallocateCallFailed,
    DeallocateOutcome,
    DeallocateResult,
    DeallocateResults,
    EvictCallFailed,
    EvictOutcome,
    EvictResult,
    EvictResults,
    PodName,
    Seat,
)
from muster.dialects.registry import labels_at_bind
from muster.rpc.call_spans import gang_metadata
from muster.rpc.errors import in_words

TRACE_ANNOTATION = "muster.dev/trace-id"
"""Set on every pod that Muster binds: the id of its gang's trace."""
RANK_ANNOTATION = "muster.dev/rank"
"""Set on every pod that Muster binds of a gang with more than one member: 0 is the master; pods that are close in the
topology have ranks that are close.
"""
_NO_RESULT = "binding ended the call without a result"

_R = TypeVar("_R", pb.BindResult, pb.EvictResult)

_log = structlog.get_logger()


class Binder:
    """Sends Bind, Evict and Deallocate effects to binding."""

    def __init__(self, channel: aio.Channel, leader_epoch: int, timeout_seconds: float) -> None:
        self._stub = pb_grpc.BindingServiceStub(channel)
        self._epoch = leader_epoch
        self._timeout_seconds = timeout_seconds

    async def bind(
        self, effect: Bind, trace_ids: Mapping[str, str], root: str = ""
    ) -> AsyncIterator[BindResults | BindCallFailed]:
        """Yields results as they arrive; every pod is in exactly one of them.

        `trace_ids`, by gang, are annotated on the pods; `root` is the traceparent of the first gang's root span.
        """
        request = pb.BindRequest(
            leader_epoch=self._epoch,
            group=effect.gang,
            pods=[_pod_binding(effect, seat, trace_ids) for seat in effect.seats],
            volumes_first=effect.claims_first,
        )
        pending = {seat.uid for seat in effect.seats}
        reason = _NO_RESULT
        try:
            async for response in self._stub.Bind(request, timeout=self._timeout_seconds, metadata=gang_metadata(root)):
                yield BindResults(tuple(_bind_result(result) for result in _first_results(response.results, pending)))
        except aio.AioRpcError as error:
            reason = in_words(error, "binding")
        if pending:
            _log.warning("bind_call_failed", gang=effect.gang, pods=len(pending), reason=reason)
            yield BindCallFailed(tuple(pending), reason)

    async def deallocate(self, effect: Deallocate, root: str = "") -> DeallocateResults | DeallocateCallFailed:
        """The results of all claims. `root` is the traceparent of the gang's root span."""
        request = pb.DeallocateRequest(
            leader_epoch=self._epoch,
            gang=effect.gang,
            claims=[
                pb.StaleClaim(
                    name=each.name,
                    uid=each.uid,
                    resource_version=each.version,
                    pod=_pod_name(each.pods[0]),
                    sharing=map(_pod_name, each.pods[1:]),
                    pod_groups=each.groups,
                )
                for each in effect.claims
            ],
        )
        wanted = {each.uid for each in effect.claims}
        reason = _NO_RESULT
        try:
            response = await self._stub.Deallocate(request, timeout=self._timeout_seconds, metadata=gang_metadata(root))
            if {each.uid for each in response.results} == wanted:
                return DeallocateResults(effect.gang, tuple(map(_deallocate_result, response.results)))
        except aio.AioRpcError as error:
            reason = in_words(error, "binding")
        _log.warning("deallocate_call_failed", gang=effect.gang, claims=len(wanted), reason=reason)
        return DeallocateCallFailed(effect.gang, tuple(wanted), reason)

    async def evict(self, effect: Evict, root: str = "") -> AsyncIterator[EvictResults | EvictCallFailed]:
        """Yields results as they arrive; every pod is in exactly one of them.

        `root` is the traceparent of the gang's root span.
        """
        request = pb.EvictRequest(
            leader_epoch=self._epoch,
            gang=effect.gang,
            pods=map(_pod_name, effect.pods),
        )
        pending = {pod.uid for pod in effect.pods}
        reason = _NO_RESULT
        try:
            async for response in self._stub.Evict(
                request, timeout=self._timeout_seconds, metadata=gang_metadata(root)
            ):
                yield EvictResults(tuple(_evict_result(result) for result in _first_results(response.results, pending)))
        except aio.AioRpcError as error:
            reason = in_words(error, "binding")
        if pending:
            _log.warning("evict_call_failed", gang=effect.gang, pods=len(pending), reason=reason)
            yield EvictCallFailed(tuple(pending), reason)


def _pod_binding(effect: Bind, seat: Seat, trace_ids: Mapping[str, str]) -> pb.PodBinding:
    gang, rank = effect.gang_of(seat.uid), effect.ranks.get(seat.uid)
    claims = effect.claims.get(seat.uid, ())
    return pb.PodBinding(
        uid=seat.uid,
        namespace=seat.namespace,
        name=seat.name,
        node=seat.node,
        annotations=_annotations(trace_ids.get(gang, ""), rank),
        claims=claims,
        volumes={claim: volume for claim, volume in seat.volumes if claim in claims},
        labels=labels_at_bind(gang, rank, effect.tries.get(gang, 0)),
        device_claims=[
            pb.DeviceClaim(
                name=each.name,
                uid=each.uid,
                allocation=each.allocation,
                group_name=each.group_name,
                group_uid=each.group_uid,
            )
            for each in effect.devices.get(seat.uid, ())
        ],
        extended_claim=_extended_claim(effect.extended.get(seat.uid)),
    )


def _extended_claim(write: ExtendedClaimWrite | None) -> pb.ExtendedClaim | None:
    if write is None:
        return None
    mappings = [
        pb.RequestMapping(container=each.container, resource=each.resource, request=each.request)
        for each in write.mappings
    ]
    return pb.ExtendedClaim(spec=write.spec, allocation=write.allocation, mappings=mappings)


def _pod_name(pod: PodName) -> pb.PodName:
    return pb.PodName(uid=pod.uid, namespace=pod.namespace, name=pod.name)


def _annotations(trace_id: str, rank: int | None) -> dict[str, str]:
    annotations = {TRACE_ANNOTATION: trace_id} if trace_id else {}
    if rank is not None:
        annotations[RANK_ANNOTATION] = str(rank)
    return annotations


def _first_results(results: Iterable[_R], pending: set[str]) -> list[_R]:
    """Results of pending pods, which it removes from `pending`; repeated results are dropped."""
    found = []
    for result in results:
        if result.uid in pending:
            pending.discard(result.uid)
            found.append(result)
    return found


def _bind_result(result: pb.BindResult) -> BindResult:
    try:
        outcome = BindOutcome(result.outcome)
    except ValueError:
        outcome = BindOutcome.FAILED
    return BindResult(result.uid, outcome, result.node, result.message)


def _evict_result(result: pb.EvictResult) -> EvictResult:
    try:
        outcome = EvictOutcome(result.outcome)
    except ValueError:
        outcome = EvictOutcome.FAILED
    return EvictResult(result.uid, outcome, result.message)


def _deallocate_result(result: pb.DeallocateResult) -> DeallocateResult:
    try:
        outcome = DeallocateOutcome(result.outcome)
    except ValueError:
        outcome = DeallocateOutcome.FAILED
    return DeallocateResult(result.uid, outcome, result.message)
