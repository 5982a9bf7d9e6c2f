"""An Evict call: one job per pod, which reads the pod and then creates its eviction.

state of the pod, or answer                   result
missing, another uid, ended                   GONE
being deleted                                 EVICTED
2xx                                           EVICTED
404                                           GONE
409                                           read again: another pod may have the name by now
429 of its disruption budget                  retry this pod until the deadline: FAILED
500, several disruption budgets               FAILED
retryable (see retry_policy)                  retry until the deadline: FAILED
anything else                                 FAILED

The pod is read first because an eviction with another pod's uid is expensive: if that pod has not started, the API
server retries for ten seconds; if it runs, the eviction is charged to its budget before the uids are compared.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import structlog

from muster.binding.metrics import count_evictions
from muster.binding.pipeline import Job, Pipeline, WriteType
from muster.binding.request_bodies import eviction_body
from muster.binding.results import Results
from muster.binding.retry_policy import (
    DONE,
    Retry,
    WriteOutcome,
    blocked_by_budget,
    retryable,
    status_text,
    unreachable_outcome,
)
from muster.binding.spans import CallTrace, SettledPod
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.objects import BadObject, decode_pod
from muster.kube.paths import pod_path
from muster.kube.responses import KubeUnreachable
from muster.kube.session import KubeSession

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = pb.EvictResult.Outcome.ValueType

EVICTED: Final = pb.EvictResult.OUTCOME_EVICTED
GONE: Final = pb.EvictResult.OUTCOME_GONE
FAILED: Final = pb.EvictResult.OUTCOME_FAILED

_NAMES: Final = {EVICTED: "evicted", GONE: "gone", FAILED: "failed"}
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"

_log = structlog.get_logger()


class EvictCall:
    """Evicts the pods of one request."""

    def __init__(
        self, request: pb.EvictRequest, session: KubeSession, pipeline: Pipeline, deadline: float, trace: CallTrace
    ) -> None:
        """`deadline`: a time of the event loop's clock; pods that are not settled by then have failed."""
        self.session = session
        self.loop = asyncio.get_running_loop()
        self._request = request
        self._flow = pipeline.open(WriteType.EVICTION, deadline)
        self._trace = trace
        self._results: Results[pb.EvictResult] = Results(len(request.pods), count_evictions)

    async def results(self) -> AsyncIterator[list[pb.EvictResult]]:
        """The results of all pods, in batches."""
        self._flow.add([_EvictPod(self, pod) for pod in self._request.pods])
        async for batch in self._results.batches():
            yield batch
        _log.info(
            "evict_call_finished",
            gang=self._request.gang,
            leader_epoch=self._request.leader_epoch,
            pods=len(self._request.pods),
            **self._results.summary(),
        )

    def stop(self, reason: str) -> None:
        """Send no more evictions; pods that are queued, or whose attempts would be retried, have failed."""
        self._flow.close(reason)

    def settle(self, job: "_EvictPod", outcome: "Outcome", message: str) -> None:
        """Report the result of a pod."""
        pod, seconds = job.pod, self.loop.time() - job.started if job.attempts else 0.0
        name = _NAMES[outcome]
        error = message or name if outcome == FAILED else ""
        if self._trace.on:
            settled = SettledPod(pod.namespace, pod.name, pod.uid, name, seconds, job.attempts, job.last_failure)
            self._trace.add(settled, error=error)
        log = _log.warning if outcome == FAILED else _log.info
        log(
            "pod_eviction_failed" if outcome == FAILED else "pod_evicted",
            gang=self._request.gang,
            pod=f"{pod.namespace}/{pod.name}",
            uid=pod.uid,
            outcome=name,
            message=message,
            attempts=job.attempts,
            **self._trace.log_fields,
        )
        self._results.add(pb.EvictResult(uid=pod.uid, outcome=outcome, message=message), name, job.attempts)
        if self._results.complete:
            self._trace.close()


class _EvictPod(Job):
    __slots__ = ("_call", "pod", "started")

    def __init__(self, call: EvictCall, pod: pb.PodName) -> None:
        super().__init__()
        self._call, self.pod = call, pod
        self.started = 0.0

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        if not self.started:
            self.started = self._call.loop.time()
        try:
            return await self._check(timeout_seconds) or await self._evict(timeout_seconds)
        except KubeUnreachable as error:
            return unreachable_outcome(error)

    def give_up(self, reason: str) -> None:
        self._call.settle(self, FAILED, reason)

    async def _check(self, timeout_seconds: float) -> WriteOutcome | None:
        """Settle the pod if its state decides the result; None: it has to be evicted. Raises KubeUnreachable."""
        path = pod_path(self.pod.namespace, self.pod.name)
        response = await self._call.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._settled(GONE, status_text(response))
        if response.status != 200:
            return retryable(response) or self._settled(FAILED, status_text(response))
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._settled(FAILED, str(error))
        if found.metadata.uid != self.pod.uid:
            return self._settled(GONE, f"another pod has the name, with uid {found.metadata.uid!r}")
        if found.status.phase in ("Succeeded", "Failed"):
            return self._settled(GONE, f"the pod has ended: {found.status.phase}")
        if found.metadata.deletion_timestamp:
            return self._settled(EVICTED)
        return None

    async def _evict(self, timeout_seconds: float) -> WriteOutcome:
        """Create the eviction. Raises KubeUnreachable."""
        pod = self.pod
        response = await self._call.session.request(
            "POST",
            pod_path(pod.namespace, pod.name) + "/eviction",
            body=eviction_body(pod.namespace, pod.name, pod.uid),
            timeout_seconds=timeout_seconds,
        )
        if response.status < 300:
            return self._settled(EVICTED)
        if response.status == 404:
            return self._settled(GONE, status_text(response))
        if response.status == 409:
            return await self._check(timeout_seconds) or Retry(status_text(response))
        if response.status == 500 and _SEVERAL_BUDGETS in status_text(response):
            return self._settled(FAILED, status_text(response))
        return blocked_by_budget(response) or retryable(response) or self._settled(FAILED, status_text(response))

    def _settled(self, outcome: "Outcome", message: str = "") -> WriteOutcome:
        self._call.settle(self, outcome, message)
        return DONE
