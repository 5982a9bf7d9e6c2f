"""Writes conditions of pods, and with PodScheduled the nominated node. In the usual cases, of a pod without conditions
or of one whose reason or message changes, it is written without reading the pod, in one request; otherwise the pod is
read and compared, and what changes is patched.

A patch carries the resourceVersion that was read, or tests that the pod has no node, so it cannot overwrite concurrent
changes: PodScheduled=False is never written to a pod that another scheduler has just bound.
"""

import time
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from muster.binding.request_bodies import (
    JSON_PATCH,
    STRATEGIC_MERGE_PATCH,
    first_condition_patch,
    same_condition_patch,
    status_patch,
)
from muster.binding.retry_policy import Retry, WriteOutcome, retryable, status_text
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.write_call import WriteCall, WriteJob
from muster.kube.objects import BadObject, Pod, decode_pod
from muster.kube.paths import pod_path
from muster.kube.session import KubeSession
from muster.kube.timestamps import timestamp

POD_SCHEDULED: Final = "PodScheduled"
_MAX_MESSAGE_CHARACTERS: Final = 1024

_log = structlog.get_logger()


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


_conditions = msgspec.json.Decoder(list[_Condition] | None)


class WriteCondition(WriteJob):
    """Sets one condition of one pod."""

    __slots__ = ("_condition",)

    def __init__(self, call: WriteCall, condition: pb.PodCondition, session: KubeSession) -> None:
        super().__init__(call, session)
        self._condition = condition

    def give_up(self, reason: str) -> None:
        about = self._condition
        pod = f"{about.namespace}/{about.name}"
        _log.warning("condition_write_failed", pod=pod, uid=about.uid, condition=about.type, message=reason)
        self._call.failure(f"condition {about.type} of pod {pod}: {reason}")

    async def _attempt(self, timeout_seconds: float) -> WriteOutcome:
        """Write unread, or by the API server's cache, and read the pod itself unless that changed it."""
        unread = self._condition.first or self._condition.changed
        if unread and (outcome := await self._write_unread(timeout_seconds)) is not None:
            return outcome
        outcome = await self._write(timeout_seconds, cached=True)
        return outcome if outcome is not None else await self._write(timeout_seconds, cached=False) or self._written()

    async def _write_unread(self, timeout_seconds: float) -> WriteOutcome | None:
        """Write the pod's first condition, or another reason and message. None if the pod has to be read, because it
        has a node or another condition, or has ended.
        """
        condition = self._condition
        patch = first_condition_patch if condition.first else same_condition_patch
        response = await self._session.request(
            "PATCH",
            pod_path(condition.namespace, condition.name) + "/status",
            body=patch(condition.uid, self._to_write(transition=condition.first), condition.nominated_node),
            content_type=JSON_PATCH,
            timeout_seconds=timeout_seconds,
        )
        if response.status < 300:
            return self._written()
        if response.status == 404:
            return self._gone()
        return None if response.status in (409, 422) else retryable(response)

    async def _write(self, timeout_seconds: float, *, cached: bool) -> WriteOutcome | None:
        """Read the pod, and patch what differs; None if nothing does. A `cached` pod may be outdated: only a patch of
        it counts, which the API server rejects then; None in every other case.
        """
        path = pod_path(self._condition.namespace, self._condition.name)
        query = {"resourceVersion": "0"} if cached else None
        response = await self._session.request("GET", path, query=query, timeout_seconds=timeout_seconds)
        if cached and response.status in (404, 410):
            return None
        if response.status == 404:
            return self._gone()
        if response.status != 200:
            return retryable(response) or self._refused(status_text(response))
        try:
            pod = decode_pod(response.body)
        except BadObject as error:
            return self._refused(str(error))
        if self._is_moot(pod):
            return None if cached else self._gone()
        status = self._status(pod)
        if not status:
            return None
        response = await self._session.request(
            "PATCH",
            path + "/status",
            body=status_patch(pod.metadata.uid, pod.metadata.resource_version, status),
            content_type=STRATEGIC_MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )
        if response.status < 300:
            return self._written()
        if response.status == 404:
            return self._gone()
        if response.status == 409:  # the pod has changed since it was read
            return None if cached else Retry(status_text(response))
        return retryable(response) or self._refused(status_text(response))

    def _is_moot(self, pod: Pod) -> bool:
        if pod.metadata.uid != self._condition.uid:
            return True
        if self._condition.type != POD_SCHEDULED:
            return False
        return bool(pod.spec.node_name) or pod.status.phase in ("Succeeded", "Failed")

    def _status(self, pod: Pod) -> dict[str, Any]:
        """The fields to merge into the pod's status; None removes one."""
        status: dict[str, Any] = {}
        if (change := self._change(pod)) is not None:
            status["conditions"] = [change]
        node = self._condition.nominated_node or None
        if self._condition.type == POD_SCHEDULED and node != (pod.status.nominated_node_name or None):
            status["nominatedNodeName"] = node
        return status

    def _change(self, pod: Pod) -> dict[str, Any] | None:
        """The condition to merge into the pod's status; None if the pod has it already."""
        before = _found(pod, self._condition.type)
        after = self._to_write(transition=before is None or before.status != self._condition.status)
        if before is not None and (before.status, before.reason or "", before.message or "") == (
            after["status"],
            after["reason"],
            after["message"],
        ):
            return None
        return after

    def _to_write(self, *, transition: bool) -> dict[str, Any]:
        condition = self._condition
        written = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message[:_MAX_MESSAGE_CHARACTERS],
            "lastProbeTime": None,  # unset, as kube-scheduler leaves it
        }
        return {**written, "lastTransitionTime": timestamp(time.time())} if transition else written


def _found(pod: Pod, kind: str) -> _Condition | None:
    if not pod.status.conditions:
        return None
    try:
        known = _conditions.decode(pod.status.conditions) or []
    except msgspec.DecodeError:
        return None
    return next((each for each in known if each.type == kind), None)
