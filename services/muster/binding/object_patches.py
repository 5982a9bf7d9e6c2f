"""Objects that define gangs: read, compared, and patched only if something changes.

The patch carries the version that was read: it takes effect on the object that is meant and on no other. A merge patch
can only replace a list as a whole; this way no condition is lost that somebody else wrote meanwhile.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from muster.binding.merge_patch import BadPatch, changed_conditions, check_patch, merged
from muster.binding.request_bodies import MERGE, encode, timestamp
from muster.binding.retry_policy import Again, Verdict, no_answer, repeatable, said
from muster.binding.v1 import binding_pb2 as pb
from muster.binding.validation import named_object, quoted
from muster.binding.write_call import WriteCall, WriteJob
from muster.kube.paths import object_path
from muster.kube.responses import KubeUnreachable, Response
from muster.kube.session import KubeSession

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
    """Brings fields and conditions of one object about."""

    __slots__ = ("_patch",)

    def __init__(self, call: WriteCall, patch: pb.ObjectPatch, session: KubeSession) -> None:
        super().__init__(call, session)
        self._patch = patch

    async def attempt(self, timeout_seconds: float) -> Verdict:
        try:
            return await self._attempt(timeout_seconds)
        except KubeUnreachable as error:
            return no_answer(error)
        except BadPatch as error:
            return self._refused(str(error))

    def give_up(self, why: str) -> None:
        what = named_object(self._patch)
        _log.warning("object not written", object=what, uid=self._patch.object.uid, message=why)
        self._call.failure(f"{what}: {why}")

    async def _attempt(self, timeout_seconds: float) -> Verdict:
        about, patch = self._patch.object, self._patch
        path = object_path(about.api_version, patch.plural, about.namespace, about.name)
        wanted = self._wanted()
        response = await self._session.request("GET", path, timeout_seconds=timeout_seconds)
        if response.status == 404:
            return self._gone()
        if response.status != 200:
            return repeatable(response) or self._refused(said(response))
        try:
            head, found = _head.decode(response.body).metadata, _object.decode(response.body)
        except _UNREADABLE as error:
            return self._refused(f"the API server's answer cannot be read: {error}")
        if head.uid != about.uid:
            return self._gone()
        change = self._change(found, wanted)
        if not change:
            return self._written()
        meta = {**change.get("metadata", {}), "uid": head.uid, "resourceVersion": head.resource_version}
        response = await self._session.request(
            "PATCH",
            f"{path}/{patch.subresource}" if patch.subresource else path,
            body=encode({**change, "metadata": meta}),
            content_type=MERGE,
            timeout_seconds=timeout_seconds,
        )
        return self._answered(response)

    def _answered(self, response: Response) -> Verdict:
        if response.status < 300:
            return self._written()
        if response.status == 409:  # it has changed since it was read
            return Again(said(response))
        if response.status == 404 and self._patch.subresource:
            return self._no_status(response)
        if response.status == 404:
            return self._gone()
        return repeatable(response) or self._refused(said(response))

    def _no_status(self, response: Response) -> Verdict:
        """It was there a moment ago. If it still is, its kind has no status of its own."""
        if self.last_trouble:
            why = f"its kind has no subresource {quoted(self._patch.subresource)}: its definition must declare it"
            return self._refused(f"{why} ({said(response)})")
        return Again(said(response))

    def _wanted(self) -> dict[str, Any]:
        """What is to be merged, besides conditions. Raises BadPatch."""
        if not self._patch.merge_patch:
            return {}
        try:
            wanted = _object.decode(self._patch.merge_patch)
        except _UNREADABLE as error:
            raise BadPatch(f"its merge patch is no JSON object: {error}") from error
        check_patch(wanted, self._patch.subresource, has_conditions=bool(self._patch.conditions))
        return wanted

    def _change(self, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
        """What is to be merged into the object as it is; nothing if that makes no difference. Raises BadPatch."""
        change = dict(wanted) if merged(found, wanted) != found else {}
        if not self._patch.conditions:
            return change
        status = found.get("status")
        before = status.get("conditions") if isinstance(status, dict) else None
        conditions = changed_conditions(before or [], self._patch.conditions, timestamp(time.time()))
        if conditions is not None:
            change["status"] = {**change.get("status", {}), "conditions": conditions}
        return change
