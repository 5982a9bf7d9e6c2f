"""Patches objects that define gangs: reads, compares, and patches only if something changes.

The patch carries the uid and resourceVersion that were read. A merge patch can only replace a list as a whole; with the
version no condition is lost that another controller wrote concurrently.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from muster.binding.merge_patch import BadPatch, apply_merge_patch, check_patch, updated_conditions
from muster.binding.request_bodies import MERGE_PATCH, encode
from muster.binding.retry_policy import Retry, WriteOutcome, retryable, status_text
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import object_text, quoted
from muster.binding.write_call import WriteCall, WriteJob
from muster.kube.json_repair import repaired
from muster.kube.paths import object_path
from muster.kube.responses import Response
from muster.kube.session import KubeSession
from muster.kube.timestamps import timestamp

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_log = structlog.get_logger()


class _Meta(Struct, rename="camel", frozen=True):
    uid: str = ""
    resource_version: str = ""


class _Head(Struct, frozen=True):
    metadata: _Meta = _Meta()


_head: Final = msgspec.json.Decoder(_Head)
_object: Final = msgspec.json.Decoder(dict[str, Any])


class WriteObject(WriteJob):
    """Sets fields and conditions of one object."""

    __slots__ = ("_patch",)

    def __init__(self, call: WriteCall, patch: pb.ObjectPatch, session: KubeSession) -> None:
        super().__init__(call, session)
        self._patch = patch

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        try:
            return await super().attempt(timeout_seconds)
        except BadPatch as error:
            return self._refused(str(error))

    def give_up(self, reason: str) -> None:
        text = object_text(self._patch)
        _log.warning("object_write_failed", object=text, uid=self._patch.object.uid, message=reason)
        self._call.failure(f"{text}: {reason}")

    async def _attempt(self, timeout_seconds: float) -> WriteOutcome:
        about, patch = self._patch.object, self._patch
        path = object_path(about.api_version, patch.plural, about.namespace, about.name)
        desired = self._desired()
        response = await self._session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._gone()
        if response.status != 200:
            return retryable(response) or self._refused(status_text(response))
        try:
            body = repaired(response.body)  # deep nesting must not keep reports from the object
            head, found = _head.decode(body).metadata, _object.decode(body)
        except _UNREADABLE as error:
            return self._refused(f"the API server's answer cannot be read: {error}")
        if head.uid != about.uid:
            return self._gone()
        change = self._change(found, desired)
        if not change:
            return self._written()
        meta = {**change.get("metadata", {}), "uid": head.uid, "resourceVersion": head.resource_version}
        response = await self._session.request(
            "PATCH",
            f"{path}/{patch.subresource}" if patch.subresource else path,
            body=encode({**change, "metadata": meta}),
            content_type=MERGE_PATCH,
            timeout_seconds=timeout_seconds,
        )
        return self._answered(response)

    def _answered(self, response: Response) -> WriteOutcome:
        if response.status < 300:
            return self._written()
        if response.status == 409:  # the object has changed since it was read
            return Retry(status_text(response))
        if response.status == 404 and self._patch.subresource:
            return self._missing_subresource(response)
        if response.status == 404:
            return self._gone()
        return retryable(response) or self._refused(status_text(response))

    def _missing_subresource(self, response: Response) -> WriteOutcome:
        """The object was just read: if the retry gets a 404 as well, its kind does not have the subresource."""
        if self.last_failure:
            reason = f"its kind has no subresource {quoted(self._patch.subresource)}: its definition must declare it"
            return self._refused(f"{reason} ({status_text(response)})")
        return Retry(status_text(response))

    def _desired(self) -> dict[str, Any]:
        """The decoded merge patch, without conditions. Raises BadPatch."""
        if not self._patch.merge_patch:
            return {}
        try:
            desired = _object.decode(self._patch.merge_patch)
        except _UNREADABLE as error:
            raise BadPatch(f"its merge patch is not a JSON object: {error}") from error
        check_patch(desired, self._patch.subresource, has_conditions=bool(self._patch.conditions))
        return desired

    def _change(self, found: Mapping[str, Any], desired: Mapping[str, Any]) -> dict[str, Any]:
        """The patch to send for the object's current state; empty if nothing changes. Raises BadPatch."""
        change = dict(desired) if apply_merge_patch(found, desired) != found else {}
        if not self._patch.conditions:
            return change
        status = found.get("status")
        before = status.get("conditions") if isinstance(status, dict) else None
        conditions = updated_conditions(before or [], self._patch.conditions, timestamp(time.time()))
        if conditions is not None:
            change["status"] = {**change.get("status", {}), "conditions": conditions}
        return change
