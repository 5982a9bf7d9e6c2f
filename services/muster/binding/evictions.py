"""An Evict call: one job per pod, which looks at the pod and then asks for its eviction.

the pod, or the answer                        result
not there, another, ended                     GONE
being deleted                                 EVICTED
2xx                                           EVICTED
404                                           GONE
409                                           look again: the pod may be another by now
429, its disruption budget has no room        try this one again, until the deadline: FAILED
500, it has several disruption budgets        FAILED
not final (see verdicts)                      try again, until the deadline: FAILED
anything else                                 FAILED

The pod is looked at first because an eviction that names another pod's uid is no cheap mistake: if that one has not
started, the API server repeats the attempt for ten seconds; if it runs, its budget has paid before the uid is compared.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import structlog

from muster.binding.metrics import evictions_ended
from muster.binding.pipeline import Job, Pipeline, Urgency
from muster.binding.request_bodies import eviction, pod_path
from muster.binding.results import Results
from muster.binding.retry_policy import DONE, Again, Verdict, no_answer, refused_by_budget, repeatable, said
from muster.binding.spans import PodTrace, Settled
from muster.binding.v1 import binding_pb2 as pb
from muster.kube.objects import BadObject, decode_pod
from muster.kube.responses import KubeUnreachable
from muster.kube.session import KubeSession

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = pb.EvictResult.Outcome.ValueType

EVICTED: Final = pb.EvictResult.OUTCOME_EVICTED
GONE: Final = pb.EvictResult.OUTCOME_GONE
FAILED: Final = pb.EvictResult.OUTCOME_FAILED

_WORDS: Final = {EVICTED: "evicted", GONE: "gone", FAILED: "failed"}
_SEVERAL_BUDGETS: Final = "more than one PodDisruptionBudget"

_log = structlog.get_logger()


class EvictCall:
    """The pods of one request on their way."""

    def __init__(
        self, request: pb.EvictRequest, session: KubeSession, pipeline: Pipeline, deadline: float, trace: PodTrace
    ) -> None:
        """`deadline`: a time of the event loop's clock; what is not settled then has failed."""
        self.session = session
        self.loop = asyncio.get_running_loop()
        self._request = request
        self._flow = pipeline.open(Urgency.EVICTION, deadline)
        self._trace = trace
        self._results: Results[pb.EvictResult] = Results(len(request.pods), evictions_ended)

    async def results(self) -> AsyncIterator[list[pb.EvictResult]]:
        """Every pod's result, in batches."""
        self._flow.add([_EvictPod(self, pod) for pod in self._request.pods])
        async for batch in self._results.batches():
            yield batch
        _log.info(
            "evict call",
            gang=self._request.gang,
            leader_epoch=self._request.leader_epoch,
            pods=len(self._request.pods),
            **self._results.summary(),
        )

    def stop(self, why: str) -> None:
        """Send no new evictions; pods that were not sent, or would have to be repeated, have failed."""
        self._flow.close(why)

    def settle(self, job: "_EvictPod", outcome: "Outcome", message: str) -> None:
        """The pod's result is known."""
        pod, seconds = job.pod, self.loop.time() - job.started if job.attempts else 0.0
        word = _WORDS[outcome]
        error = message or word if outcome == FAILED else ""
        if self._trace.on:
            settled = Settled(pod.namespace, pod.name, pod.uid, word, seconds, job.attempts, job.last_trouble)
            self._trace.add(settled, error=error)
        say = _log.warning if outcome == FAILED else _log.info
        say(
            "pod not evicted" if outcome == FAILED else "pod evicted",
            gang=self._request.gang,
            pod=f"{pod.namespace}/{pod.name}",
            uid=pod.uid,
            outcome=word,
            message=message,
            attempts=job.attempts,
            **self._trace.log_fields,
        )
        self._results.add(pb.EvictResult(uid=pod.uid, outcome=outcome, message=message), word, job.attempts)
        if self._results.complete:
            self._trace.close()


class _EvictPod(Job):
    __slots__ = ("_call", "pod", "started")

    def __init__(self, call: EvictCall, pod: pb.PodName) -> None:
        super().__init__()
        self._call, self.pod = call, pod
        self.started = 0.0

    async def attempt(self, timeout_seconds: float) -> Verdict:
        if not self.started:
            self.started = self._call.loop.time()
        try:
            return await self._look(timeout_seconds) or await self._evict(timeout_seconds)
        except KubeUnreachable as error:
            return no_answer(error)

    def give_up(self, why: str) -> None:
        self._call.settle(self, FAILED, why)

    async def _look(self, timeout_seconds: float) -> Verdict | None:
        """None: it is there to be evicted. Raises KubeUnreachable."""
        path = pod_path(self.pod.namespace, self.pod.name)
        response = await self._call.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._settled(GONE, said(response))
        if response.status != 200:
            return repeatable(response) or self._settled(FAILED, said(response))
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._settled(FAILED, str(error))
        if found.metadata.uid != self.pod.uid:
            return self._settled(GONE, f"another pod has the name: its uid is {found.metadata.uid!r}")
        if found.status.phase in ("Succeeded", "Failed"):
            return self._settled(GONE, f"the pod has ended: {found.status.phase}")
        if found.metadata.deletion_timestamp:
            return self._settled(EVICTED)
        return None

    async def _evict(self, timeout_seconds: float) -> Verdict:
        """Raises KubeUnreachable."""
        pod = self.pod
        response = await self._call.session.request(
            "POST",
            pod_path(pod.namespace, pod.name) + "/eviction",
            body=eviction(pod.namespace, pod.name, pod.uid),
            timeout_seconds=timeout_seconds,
        )
        if response.status < 300:
            return self._settled(EVICTED)
        if response.status == 404:
            return self._settled(GONE, said(response))
        if response.status == 409:
            return await self._look(timeout_seconds) or Again(said(response))
        if response.status == 500 and _SEVERAL_BUDGETS in said(response):
            return self._settled(FAILED, said(response))
        return refused_by_budget(response) or repeatable(response) or self._settled(FAILED, said(response))

    def _settled(self, outcome: "Outcome", message: str = "") -> Verdict:
        self._call.settle(self, outcome, message)
        return DONE
