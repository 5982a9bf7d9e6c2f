"""A Bind call: one job per pod. Pods with claims are bound once their volumes are provisioned and their devices
allocated; with `volumes_first`, no pod is bound before the claims of all are ready.

Labels are written before the pod is bound, because its containers may read them at their start. Only the bind is
irreversible, so a crash in between leaves a labelled pod, which the next attempt labels again, and never a running pod
without its labels.

answer to the bind           result
2xx                          BOUND
404                          GONE
409                          by the state of the pod: on that node BOUND, on another CONFLICT; deleted, ended or
                             another uid GONE; otherwise retry a few times
500 and similar              retry for a few seconds: FAILED; the coordinator may choose another node
retryable (see retry_policy) retry until the deadline: FAILED
anything else                FAILED

Answers to the patch of labels have the same meaning, except that they never mean BOUND or CONFLICT, and that 422 may be
a pod with another uid.

A pod is reported as not bound after its ResourceClaims have been released: from then on the coordinator may give their
devices to others. They are not released if a pod has failed and an answer to its bind was lost: it may be bound.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from muster.binding.metrics import count_binds
from muster.binding.pipeline import Job, Pipeline, WriteType
from muster.binding.pod_claims import PodClaims, has_claims
from muster.binding.request_bodies import MERGE_PATCH, binding_body, metadata_patch
from muster.binding.results import Results
from muster.binding.retry_policy import (
    DONE,
    Retry,
    WriteOutcome,
    is_certain,
    retryable,
    status_text,
    unreachable_outcome,
)
from muster.binding.shared_claim_state import SharedClaimState
from muster.binding.spans import CallTrace, SettledPod
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.objects import BadObject, Pod, decode_pod
from muster.kube.paths import pod_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = pb.BindResult.Outcome.ValueType

_MAX_UNEXPLAINED_CONFLICTS: Final = 4  # then the API server's answer is final
_MAX_RETRY_SECONDS: Final = 3.0  # of a pod whose bind fails while others succeed; the caller retries it a few times

BOUND: Final = pb.BindResult.OUTCOME_BOUND
CONFLICT: Final = pb.BindResult.OUTCOME_CONFLICT
GONE: Final = pb.BindResult.OUTCOME_GONE
FAILED: Final = pb.BindResult.OUTCOME_FAILED
WITHHELD: Final = pb.BindResult.OUTCOME_WITHHELD

_NAMES: Final = {BOUND: "bound", CONFLICT: "conflict", GONE: "gone", FAILED: "failed", WITHHELD: "withheld"}

_log = structlog.get_logger()


class _Result(Struct, frozen=True):
    outcome: "Outcome"
    node: str = ""
    message: str = ""


class BindCall:
    """Binds the pods of one request."""

    def __init__(
        self,
        request: pb.BindRequest,
        session: KubeSession,
        pipeline: Pipeline,
        claims: SharedClaimState,
        deadline: float,
        trace: CallTrace,
    ) -> None:
        """`deadline`: a time of the event loop's clock; pods that are not settled by then have failed."""
        self.session = session
        self.loop = asyncio.get_running_loop()
        self._request = request
        self._deadline = deadline
        self._flow = pipeline.open(WriteType.BIND, deadline)
        self._jobs = {pod.uid: _BindPod(self, pod) for pod in request.pods}
        self._claims = PodClaims(
            request.pods, session, claims, self._flow, ready=self._claims_ready, failed=self._claims_failed
        )
        self._awaited = {pod.uid for pod in request.pods if has_claims(pod)} if request.volumes_first else set()
        """Pods whose claims all others wait for."""
        self._unsettled = set(self._jobs)
        self._trace = trace
        self._results: Results[pb.BindResult] = Results(len(request.pods), count_binds)

    async def results(self) -> AsyncIterator[list[pb.BindResult]]:
        """The results of all pods, in batches."""
        self._claims.start(self._deadline)
        if not self._awaited:
            self._flow.add([job for job in self._jobs.values() if not has_claims(job.pod)])
        async for batch in self._results.batches():
            yield batch
        self._log_end()

    def stop(self, reason: str) -> None:
        """Send no more binds; pods that are queued, or whose attempts would be retried, have failed."""
        self._flow.close(reason)

    def _claims_ready(self, uid: str) -> None:
        uids = [uid]
        if self._request.volumes_first:
            self._awaited.discard(uid)
            if self._awaited:
                return
            uids = [each for each in self._jobs if each in self._unsettled]
        self._claims.check(uids, partial(self._bind, uids))

    def _bind(self, uids: Sequence[str]) -> None:
        self._flow.add([self._jobs[uid] for uid in uids if uid in self._unsettled])

    def _claims_failed(self, uid: str, reason: str) -> None:
        if uid not in self._unsettled:
            return
        failed = self._jobs[uid]
        self.settle(failed, _Result(FAILED, message=reason))
        if self._request.volumes_first:
            message = f"it is bound when the claims of pod {failed.pod.namespace}/{failed.pod.name} are ready: {reason}"
            for job in self._jobs.values():
                if job.pod.uid in self._unsettled:
                    self.settle(job, _Result(WITHHELD, message=message))

    def settle(self, job: "_BindPod", result: _Result) -> None:
        """Report the result of a pod, after its ResourceClaims are released if it is not bound."""
        self._unsettled.discard(job.pod.uid)
        if result.outcome == BOUND or (result.outcome == FAILED and job.may_be_bound):
            self._report(job, result)
        else:
            self._claims.release(job.pod.uid, partial(self._report, job, result))

    def _report(self, job: "_BindPod", result: _Result, problem: str = "") -> None:
        """`problem`: why its ResourceClaims are not released."""
        text = "; ".join(filter(None, (result.message, problem)))
        pod, seconds = job.pod, self.loop.time() - job.began if job.attempts or has_claims(job.pod) else 0.0
        name = _NAMES[result.outcome]
        if self._trace.on:
            failure = job.last_failure
            settled = SettledPod(pod.namespace, pod.name, pod.uid, name, seconds, job.attempts, failure, pod.node)
            self._trace.add(settled, error="" if result.outcome == BOUND else text or name)
        if result.outcome != BOUND:
            _log.warning(
                "pod_bind_failed",
                group=self._request.group,
                pod=f"{pod.namespace}/{pod.name}",
                uid=pod.uid,
                node=pod.node,
                outcome=name,
                on_node=result.node,
                message=text,
                attempts=job.attempts,
                **self._trace.log_fields,
            )
        message = pb.BindResult(uid=pod.uid, outcome=result.outcome, node=result.node, message=text)
        self._results.add(message, name, job.attempts)
        if self._results.complete:
            self._trace.close()

    def _log_end(self) -> None:
        _log.info(
            "bind_call_finished",
            group=self._request.group,
            leader_epoch=self._request.leader_epoch,
            pods=len(self._request.pods),
            **self._results.summary(),
        )


class _BindPod(Job):
    __slots__ = ("_call", "_conflicts", "_labelled", "may_be_bound", "pod", "queued_at", "started")

    def __init__(self, call: BindCall, pod: pb.PodBinding) -> None:
        super().__init__()
        self._call, self.pod = call, pod
        self._conflicts = 0
        self._labelled = not pod.labels
        self.may_be_bound = False
        """A bind was sent whose result is not known."""
        self.started = 0.0
        self.queued_at = call.loop.time()

    @property
    def began(self) -> float:
        """Start of the first attempt, or of the wait for claims."""
        return self.queued_at if has_claims(self.pod) else self.started

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        pod, call = self.pod, self._call
        if not self.started:
            self.started = call.loop.time()
        path = pod_path(pod.namespace, pod.name)
        try:
            if not self._labelled and (outcome := await self._label(path, timeout_seconds)) is not None:
                return outcome
            response = await self._bind(path + "/binding", timeout_seconds)
            if response.status == 409:
                return await self._resolve(response, path, timeout_seconds)
        except KubeUnreachable as error:
            return unreachable_outcome(error)
        if response.status < 300:
            return self._settled(_Result(BOUND))
        if response.status == 404:
            return self._settled(_Result(GONE, message=status_text(response)))
        return self._retried(response)

    def give_up(self, reason: str) -> None:
        self._call.settle(self, _Result(FAILED, message=reason))

    async def _bind(self, path: str, timeout_seconds: float) -> Response:
        """Raises KubeUnreachable."""
        pod, before = self.pod, self.may_be_bound
        body = binding_body(pod.namespace, pod.name, pod.uid, pod.node, pod.annotations)
        self.may_be_bound = True
        response = await self._call.session.request("POST", path, body=body, timeout_seconds=timeout_seconds)
        if is_certain(response):
            self.may_be_bound = before
        return response

    async def _label(self, path: str, timeout_seconds: float) -> WriteOutcome | None:
        """Set the labels of the pod; None: done. Raises KubeUnreachable."""
        pod, call = self.pod, self._call
        body = metadata_patch(pod.uid, labels=pod.labels)
        response = await call.session.request(
            "PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=timeout_seconds
        )
        if response.status < 300:
            self._labelled = True
            return None
        if response.status == 404:
            return self._settled(_Result(GONE, message=status_text(response)))
        if response.status in (409, 422):
            return await self._resolve(response, path, timeout_seconds, final=response.status == 422)
        return self._retried(response, "its labels: ")

    async def _resolve(
        self, conflict: Response, path: str, timeout_seconds: float, *, final: bool = False
    ) -> WriteOutcome:
        """Read the pod after a conflict to find its cause. `final`: without a cause the pod has failed, and is
        not retried. Raises KubeUnreachable.
        """
        response = await self._call.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._settled(_Result(GONE, message=status_text(response)))
        if response.status != 200:
            return self._retried(response)
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._settled(_Result(FAILED, message=f"{status_text(conflict)}; {error}"))
        result = self._result_by_state(found)
        if result is not None:
            return self._settled(result)
        self._conflicts += 1
        if self._conflicts < _MAX_UNEXPLAINED_CONFLICTS and not found.spec.scheduling_gates and not final:
            return Retry(status_text(conflict))
        prefix = "" if self._labelled else "its labels: "
        return self._settled(_Result(FAILED, message=prefix + status_text(conflict)))

    def _result_by_state(self, found: Pod) -> _Result | None:
        """The result that the state of the pod implies; None if the pod can be bound."""
        if found.metadata.uid != self.pod.uid:
            return _Result(GONE, message=f"another pod has the name, with uid {found.metadata.uid!r}")
        node = found.spec.node_name
        if node == self.pod.node:
            return _Result(BOUND)
        if node:
            return _Result(CONFLICT, node=node)
        if found.metadata.deletion_timestamp:
            return _Result(GONE, message="the pod is being deleted")
        if found.status.phase in ("Succeeded", "Failed"):
            return _Result(GONE, message=f"the pod has ended: {found.status.phase}")
        return None

    def _retried(self, response: Response, prefix: str = "") -> WriteOutcome:
        """Retry if the answer is retryable and the pod's own failures are recent. `prefix`: of the failure message."""
        outcome = retryable(response)
        seconds = self._call.loop.time() - self.started
        if outcome is None or (isinstance(outcome, Retry) and seconds >= _MAX_RETRY_SECONDS):
            return self._settled(_Result(FAILED, message=prefix + status_text(response)))
        return outcome

    def _settled(self, result: _Result) -> WriteOutcome:
        self._call.settle(self, result)
        return DONE
