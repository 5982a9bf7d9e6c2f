"""A Deallocate call: one job per claim, which reads the claim and its pod, and then writes the claim.

state of the claim or its pods, or answer         result
missing, another uid, another version             KEPT
not allocated                                     DEALLOCATED
reserved for others than its pods or PodGroups    KEPT
one of its pods, or of its PodGroups', is bound   KEPT
2xx                                               DEALLOCATED
404, 409                                          read again
retryable (see retry_policy)                      retry until the deadline: FAILED
anything else                                     FAILED

The finalizer remains: it is needed again with the next allocation, and kube-controller-manager removes it when the
claim is deleted.
"""

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from muster.binding.device_claim_status import BadDeviceClaim, DeviceClaimState, deallocated_claim, read_claim
from muster.binding.group_claim_users import bound_user
from muster.binding.metrics import count_deallocations
from muster.binding.pipeline import Job, Pipeline, WriteType
from muster.binding.retry_policy import DONE, Retry, WriteOutcome, retryable, status_text, unreachable_outcome
from muster.binding.v1 import binding_pb2 as pb
from muster.gangs.quoting import quoted
from muster.kube.objects import BadObject, BadResourceVersion, decode_pod
from muster.kube.paths import object_path, pod_path
from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.kube.session import KubeSession

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = pb.DeallocateResult.Outcome.ValueType

DEALLOCATED: Final = pb.DeallocateResult.OUTCOME_DEALLOCATED
KEPT: Final = pb.DeallocateResult.OUTCOME_KEPT
FAILED: Final = pb.DeallocateResult.OUTCOME_FAILED

_NAMES: Final = {DEALLOCATED: "deallocated", KEPT: "kept", FAILED: "failed"}
_VERSION: Final = "resource.k8s.io/v1"
_AT_ONCE: Final = 16
"""Pods of one claim that are read at the same time."""

_log = structlog.get_logger()


class DeallocateCall:
    """Deallocates the claims of one request."""

    def __init__(
        self, request: pb.DeallocateRequest, session: KubeSession, pipeline: Pipeline, deadline: float
    ) -> None:
        """`deadline`: a time of the event loop's clock; claims that are not settled by then have failed."""
        self.session = session
        self._request = request
        self._flow = pipeline.open(WriteType.BIND, deadline)
        self._results: dict[str, pb.DeallocateResult] = {}
        self._complete = asyncio.Event()

    async def response(self) -> pb.DeallocateResponse:
        """The results of all claims."""
        if self._request.claims:
            self._flow.add([_DeallocateClaim(self, claim) for claim in self._request.claims])
            await self._complete.wait()
        return pb.DeallocateResponse(results=[self._results[claim.uid] for claim in self._request.claims])

    def stop(self, reason: str) -> None:
        """Write nothing more; claims that are queued, or whose attempts would be retried, have failed."""
        self._flow.close(reason)

    def settle(self, claim: pb.StaleClaim, outcome: "Outcome", message: str) -> None:
        """Report the result of a claim."""
        name = _NAMES[outcome]
        log = _log.warning if outcome == FAILED else _log.info
        log(
            "claim_deallocation_settled",
            gang=self._request.gang,
            leader_epoch=self._request.leader_epoch,
            claim=f"{claim.pod.namespace}/{claim.name}",
            uid=claim.uid,
            outcome=name,
            message=message,
        )
        count_deallocations({name: 1})
        self._results[claim.uid] = pb.DeallocateResult(uid=claim.uid, outcome=outcome, message=message)
        if len(self._results) == len(self._request.claims):
            self._complete.set()


class _DeallocateClaim(Job):
    __slots__ = ("_call", "_claim", "_path")

    def __init__(self, call: DeallocateCall, claim: pb.StaleClaim) -> None:
        super().__init__()
        self._call, self._claim = call, claim
        self._path = object_path(_VERSION, "resourceclaims", claim.pod.namespace, claim.name)

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            return await self._attempt(timeout_seconds)
        except KubeUnreachable as error:
            return unreachable_outcome(error)
        except (BadDeviceClaim, BadObject, BadResourceVersion) as error:
            return self._settled(FAILED, str(error))

    def give_up(self, reason: str) -> None:
        self._call.settle(self._claim, FAILED, reason)

    async def _attempt(self, timeout_seconds: float) -> WriteOutcome:
        """Raises KubeUnreachable, BadDeviceClaim, BadObject."""
        session = self._call.session
        response = await session.request("GET", self._path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._settled(KEPT, "it does not exist")
        if response.status != 200:
            return retryable(response) or self._settled(FAILED, status_text(response))
        found = read_claim(response.body)
        if found.uid == self._claim.uid and found.devices is None:
            return self._settled(DEALLOCATED)
        if reason := self._why_kept(found):
            return self._settled(KEPT, reason)
        if (outcome := await self._check_pods(timeout_seconds)) is not None:
            return outcome
        if (outcome := await self._check_groups(found, timeout_seconds)) is not None:
            return outcome
        response = await session.request(
            "PUT", f"{self._path}/status", body=deallocated_claim(found), timeout_seconds=timeout_seconds
        )
        if response.status < 300:
            return self._settled(DEALLOCATED)
        if response.status in (404, 409):
            return Retry(status_text(response))
        return retryable(response) or self._settled(FAILED, status_text(response))

    def _why_kept(self, found: DeviceClaimState) -> str:
        """Why the claim, as it is, is not changed; empty: it may be."""
        claim = self._claim
        if found.uid != claim.uid:
            return f"another claim has the name, with uid {found.uid!r}"
        if found.version != claim.resource_version:
            return f"it has changed: its resource version is {found.version!r}, not {claim.resource_version!r}"
        its = {claim.pod.uid, *(each.uid for each in claim.sharing), *claim.pod_groups}
        others = [each for each in found.consumers if each.uid not in its]
        return f"it is reserved for {others[0]}" if others else ""

    async def _check_pods(self, timeout_seconds: float) -> WriteOutcome | None:
        """Settle the claim if one of its pods is bound; None: none is. Raises KubeUnreachable, BadObject."""
        pods = [self._claim.pod, *self._claim.sharing]
        for start in range(0, len(pods), _AT_ONCE):
            reads = (self._check_pod(pod, timeout_seconds) for pod in pods[start : start + _AT_ONCE])
            for found in await asyncio.gather(*reads):
                if isinstance(found, tuple):
                    return self._settled(*found)
                if found is not None:
                    return found
        return None

    async def _check_groups(self, found: DeviceClaimState, timeout_seconds: float) -> WriteOutcome | None:
        """Settle the claim if it is reserved for a PodGroup and a bound pod of that uses it; None: none does. Raises
        KubeUnreachable, BadObject, BadResourceVersion.
        """
        groups = [each.name for each in found.consumers if each.uid in self._claim.pod_groups]
        for name in groups:
            where = self._call.session, self._claim.pod.namespace
            try:
                user = await bound_user(*where, self._claim.name, name, timeout_seconds)
            except ApiStatusError as error:
                message = f"pods of PodGroup {quoted(name)} cannot be listed: {error}"
                return Retry(message) if error.status >= 500 else self._settled(FAILED, message)
            if user:
                return self._settled(KEPT, f"pod {quoted(user)} of its PodGroup {quoted(name)} is bound")
        return None

    async def _check_pod(self, pod: pb.PodName, timeout_seconds: float) -> "tuple[Outcome, str] | WriteOutcome | None":
        """The result for the claim, with its reason, if the pod is bound or cannot be read, or a retry; None: it is not
        bound. Raises KubeUnreachable, BadObject.
        """
        path = pod_path(pod.namespace, pod.name)
        response = await self._call.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return None
        if response.status != 200:
            message = f"pod {quoted(pod.name)} cannot be read: {status_text(response)}"
            return retryable(response) or (FAILED, message)
        current = decode_pod(response.body)
        if current.metadata.uid == pod.uid and current.spec.node_name:
            return KEPT, f"its pod {quoted(pod.name)} is bound to {current.spec.node_name}"
        return None

    def _settled(self, outcome: "Outcome", message: str = "") -> WriteOutcome:
        self._call.settle(self._claim, outcome, message)
        return DONE
