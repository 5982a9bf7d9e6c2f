"""Writes annotations and labels of pods, each in one merge patch that applies only to the pod with the given uid."""

import structlog

from muster.binding.request_bodies import MERGE_PATCH, metadata_patch
from muster.binding.retry_policy import Retry, WriteOutcome, retryable, status_text
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import metadata_kind
from muster.binding.write_call import WriteCall, WriteJob
from muster.kube.objects import BadObject, decode_pod
from muster.kube.paths import pod_path
from muster.kube.responses import Response
from muster.kube.session import KubeSession

_log = structlog.get_logger()


class WriteAnnotations(WriteJob):
    """Sets and removes annotations and labels of one pod."""

    __slots__ = ("_change",)

    def __init__(self, call: WriteCall, change: pb.PodAnnotations, session: KubeSession) -> None:
        super().__init__(call, session)
        self._change = change

    async def _attempt(self, timeout_seconds: float) -> WriteOutcome:
        change, pod = self._change, self._change.pod
        path = pod_path(pod.namespace, pod.name)
        body = metadata_patch(
            pod.uid,
            labels={**change.set_labels, **dict.fromkeys(change.remove_labels)},
            annotations={**change.set, **dict.fromkeys(change.remove)},
        )
        response = await self._session.request(
            "PATCH", path, body=body, content_type=MERGE_PATCH, timeout_seconds=timeout_seconds
        )
        if response.status in (409, 422):
            return await self._resolve(response, path, timeout_seconds)
        if response.status < 300:
            return self._written()
        if response.status == 404:
            return self._gone()
        return retryable(response) or self._refused(status_text(response))

    def give_up(self, reason: str) -> None:
        pod, kind = self._change.pod, metadata_kind(self._change)
        name = f"{pod.namespace}/{pod.name}"
        _log.warning("pod_metadata_write_failed", metadata=kind, pod=name, uid=pod.uid, message=reason)
        self._call.failure(f"{kind} of pod {name}: {reason}")

    async def _resolve(self, refusal: Response, path: str, timeout_seconds: float) -> WriteOutcome:
        """Read the pod to learn whether another pod has the name: the API server answers a differing uid with 409 or
        422. Raises KubeUnreachable.
        """
        response = await self._session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._gone()
        if response.status != 200:
            return retryable(response) or self._refused(status_text(response))
        try:
            found = decode_pod(response.body)
        except BadObject as error:
            return self._refused(f"{status_text(refusal)}; {error}")
        if found.metadata.uid != self._change.pod.uid:
            return self._gone()
        return Retry(status_text(refusal)) if refusal.status == 409 else self._refused(status_text(refusal))
