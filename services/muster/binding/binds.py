"""A Bind call: one job per pod, results gathered as they come. Pods whose claims have no volume yet come last.

Labels are on a pod before it is bound: what starts in it may read them once. Binding it is what cannot be taken back,
so a crash in between leaves a pod with labels, which the next try sets again, and not one that runs without them.

answer to the bind          result
2xx                         BOUND
404                         GONE
409                         the pod tells: on that node BOUND, on another CONFLICT, deleted, ended or another
                            pod GONE; free after all: try again, some times
500 and the like            try again, for some seconds: FAILED; who decided on the node may decide otherwise
not final (see verdicts)    try again, until the deadline: FAILED
anything else               FAILED

Answers to the labels mean the same, but nothing is BOUND or a CONFLICT by them; 422 may also be a pod of another uid.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import structlog
from msgspec import Struct

from muster.binding.claim_watch import ClaimWatch
from muster.binding.metrics import binds_ended
from muster.binding.pipeline import Job, Pipeline, Urgency
from muster.binding.request_bodies import MERGE, binding, marks_patch, pod_path
from muster.binding.results import Results
from muster.binding.retry_policy import DONE, Again, Verdict, no_answer, repeatable, said
from muster.binding.spans import PodTrace, Settled
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.volume_claims import Claims
from muster.kube.objects import BadObject, Pod, decode_pod
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession

if TYPE_CHECKING:
    from typing import TypeAlias

    Outcome: TypeAlias = pb.BindResult.Outcome.ValueType

_CONFLICTS_WITHOUT_CAUSE: Final = 4  # then what the API server says is taken for its last word
_OWN_TROUBLE_SECONDS: Final = 3.0  # of a pod whose bind fails while others get through; the caller tries a few times

BOUND: Final = pb.BindResult.OUTCOME_BOUND
CONFLICT: Final = pb.BindResult.OUTCOME_CONFLICT
GONE: Final = pb.BindResult.OUTCOME_GONE
FAILED: Final = pb.BindResult.OUTCOME_FAILED

_WORDS: Final = {BOUND: "bound", CONFLICT: "conflict", GONE: "gone", FAILED: "failed"}

_log = structlog.get_logger()


class _Result(Struct, frozen=True):
    outcome: "Outcome"
    node: str = ""
    message: str = ""


class BindCall:
    """The pods of one request on their way."""

    def __init__(
        self,
        request: pb.BindRequest,
        session: KubeSession,
        pipeline: Pipeline,
        watch: ClaimWatch,
        deadline: float,
        trace: PodTrace,
    ) -> None:
        """`deadline`: a time of the event loop's clock; what is not settled then has failed."""
        self.session = session
        self.loop = asyncio.get_running_loop()
        self._request = request
        self._deadline = deadline
        self._flow = pipeline.open(Urgency.BIND, deadline)
        self._jobs = {pod.uid: _BindPod(self, pod) for pod in request.pods}
        self._claims = Claims(
            request.pods, session, watch, self._flow, ready=self._has_volumes, failed=self._has_no_volumes
        )
        self._trace = trace
        self._results: Results[pb.BindResult] = Results(len(request.pods), binds_ended)

    async def results(self) -> AsyncIterator[list[pb.BindResult]]:
        """Every pod's result, in batches."""
        self._claims.serve(self._deadline)
        self._flow.add([job for job in self._jobs.values() if not job.pod.claims])
        async for batch in self._results.batches():
            yield batch
        self._log_end()

    def stop(self, why: str) -> None:
        """Send no new binds; pods that were not sent, or would have to be repeated, have failed."""
        self._flow.close(why)

    def _has_volumes(self, uid: str) -> None:
        self._flow.add([self._jobs[uid]])

    def _has_no_volumes(self, uid: str, why: str) -> None:
        self.settle(self._jobs[uid], _Result(FAILED, message=why))

    def settle(self, job: "_BindPod", result: _Result) -> None:
        """The pod's result is known."""
        pod, seconds = job.pod, self.loop.time() - job.began if job.attempts or job.pod.claims else 0.0
        word = _WORDS[result.outcome]
        error = "" if result.outcome == BOUND else result.message or word
        if self._trace.on:
            trouble = job.last_trouble
            settled = Settled(pod.namespace, pod.name, pod.uid, word, seconds, job.attempts, trouble, pod.node)
            self._trace.add(settled, error=error)
        if result.outcome != BOUND:
            _log.warning(
                "pod not bound",
                group=self._request.group,
                pod=f"{pod.namespace}/{pod.name}",
                uid=pod.uid,
                node=pod.node,
                outcome=word,
                on_node=result.node,
                message=result.message,
                attempts=job.attempts,
                **self._trace.log_fields,
            )
        told = pb.BindResult(uid=pod.uid, outcome=result.outcome, node=result.node, message=result.message)
        self._results.add(told, word, job.attempts)
        if self._results.complete:
            self._trace.close()

    def _log_end(self) -> None:
        _log.info(
            "bind call",
            group=self._request.group,
            leader_epoch=self._request.leader_epoch,
            pods=len(self._request.pods),
            **self._results.summary(),
        )


class _BindPod(Job):
    __slots__ = ("_call", "_conflicts", "_labelled", "pod", "started", "waits_since")

    def __init__(self, call: BindCall, pod: pb.PodBinding) -> None:
        super().__init__()
        self._call, self.pod = call, pod
        self._conflicts = 0
        self._labelled = not pod.labels
        self.started = 0.0
        self.waits_since = call.loop.time()

    @property
    def began(self) -> float:
        """When something was done for it first: its volumes count."""
        return self.waits_since if self.pod.claims else self.started

    async def attempt(self, timeout_seconds: float) -> Verdict:
        pod, call = self.pod, self._call
        if not self.started:
            self.started = call.loop.time()
        path = pod_path(pod.namespace, pod.name)
        try:
            if not self._labelled and (verdict := await self._label(path, timeout_seconds)) is not None:
                return verdict
            body = binding(pod.namespace, pod.name, pod.uid, pod.node, pod.annotations)
            response = await call.session.request("POST", path + "/binding", body=body, timeout_seconds=timeout_seconds)
            if response.status == 409:
                return await self._resolve(response, path, timeout_seconds)
        except KubeUnreachable as error:
            return no_answer(error)
        if response.status < 300:
            return self._settled(_Result(BOUND))
        if response.status == 404:
            return self._settled(_Result(GONE, message=said(response)))
        return self._repeated(response)

    def give_up(self, why: str) -> None:
        self._call.settle(self, _Result(FAILED, message=why))

    async def _label(self, path: str, timeout_seconds: float) -> Verdict | None:
        """Put its labels on the pod; None: they are there. Raises KubeUnreachable."""
        pod, call = self.pod, self._call
        body = marks_patch(pod.uid, labels=pod.labels)
        response = await call.session.request(
            "PATCH", path, body=body, content_type=MERGE, timeout_seconds=timeout_seconds
        )
        if response.status < 300:
            self._labelled = True
            return None
        if response.status == 404:
            return self._settled(_Result(GONE, message=said(response)))
        if response.status in (409, 422):
            return await self._resolve(response, path, timeout_seconds, final=response.status == 422)
        return self._repeated(response, "its labels: ")

    async def _resolve(self, conflict: Response, path: str, timeout_seconds: float, *, final: bool = False) -> Verdict:
        """The API server says that something is in the way: look at the pod to see what. `final`: if nothing is, it is
        not tried again. Raises KubeUnreachable.
        """
        response = await self._call.session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._settled(_Result(GONE, message=said(response)))
        if response.status != 200:
            return self._repeated(response)
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._settled(_Result(FAILED, message=f"{said(conflict)}; {error}"))
        result = self._standing(found)
        if result is not None:
            return self._settled(result)
        self._conflicts += 1
        if self._conflicts < _CONFLICTS_WITHOUT_CAUSE and not found.spec.scheduling_gates and not final:
            return Again(said(conflict))
        what = "" if self._labelled else "its labels: "
        return self._settled(_Result(FAILED, message=what + said(conflict)))

    def _standing(self, found: Pod) -> _Result | None:
        """What the state of the pod means for the bind; None if nothing is in its way."""
        if found.metadata.uid != self.pod.uid:
            return _Result(GONE, message=f"another pod has the name: its uid is {found.metadata.uid!r}")
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

    def _repeated(self, response: Response, what: str = "") -> Verdict:
        """Try again, if the answer is not final and the pod has not been in trouble for long. `what`: about what."""
        verdict = repeatable(response)
        seconds = self._call.loop.time() - self.started
        if verdict is None or (isinstance(verdict, Again) and seconds >= _OWN_TROUBLE_SECONDS):
            return self._settled(_Result(FAILED, message=what + said(response)))
        return verdict

    def _settled(self, result: _Result) -> Verdict:
        self._call.settle(self, result)
        return DONE
