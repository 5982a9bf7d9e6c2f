"""Annotations and labels of pods: written in one patch each, which takes effect only on the pod that is meant."""

import structlog

from muster.binding.request_bodies import MERGE, marks_patch, pod_path
from muster.binding.retry_policy import Again, Verdict, no_answer, repeatable, said
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import named_marks
from muster.binding.write_call import WriteCall, WriteJob
from muster.kube.objects import BadObject, decode_pod
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession

_log = structlog.get_logger()


class WriteAnnotations(WriteJob):
    """Brings the annotations and labels of one pod about."""

    __slots__ = ("_wanted",)

    def __init__(self, call: WriteCall, wanted: pb.PodAnnotations, session: KubeSession) -> None:
        super().__init__(call, session)
        self._wanted = wanted

    async def attempt(self, timeout_seconds: float) -> Verdict:
        wanted, pod = self._wanted, self._wanted.pod
        path = pod_path(pod.namespace, pod.name)
        body = marks_patch(
            pod.uid,
            labels={**wanted.set_labels, **dict.fromkeys(wanted.remove_labels)},
            annotations={**wanted.set, **dict.fromkeys(wanted.remove)},
        )
        try:
            response = await self._session.request(
                "PATCH", path, body=body, content_type=MERGE, timeout_seconds=timeout_seconds
            )
            if response.status in (409, 422):
                return await self._resolve(response, path, timeout_seconds)
        except KubeUnreachable as error:
            return no_answer(error)
        if response.status < 300:
            return self._written()
        if response.status == 404:
            return self._gone()
        return repeatable(response) or self._refused(said(response))

    def give_up(self, why: str) -> None:
        pod, what = self._wanted.pod, named_marks(self._wanted)
        name = f"{pod.namespace}/{pod.name}"
        _log.warning(f"{what} not written", pod=name, uid=pod.uid, message=why)
        self._call.failure(f"{what} of pod {name}: {why}")

    async def _resolve(self, refusal: Response, path: str, timeout_seconds: float) -> Verdict:
        """Look whether it was refused because the pod is another: a uid that differs is told as a conflict, or as a
        field that may not change. Raises KubeUnreachable.
        """
        response = await self._session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._gone()
        if response.status != 200:
            return repeatable(response) or self._refused(said(response))
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._refused(f"{said(refusal)}; {error}")
        if found.metadata.uid != self._wanted.pod.uid:
            return self._gone()
        return Again(said(refusal)) if refusal.status == 409 else self._refused(said(refusal))
