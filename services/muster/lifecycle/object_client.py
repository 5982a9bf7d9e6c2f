"""Reads and writes single Kubernetes objects for the controllers: JSON in, JSON out, one error type for rejections."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.kube.json_repair import repaired
from muster.kube.objects import UNREADABLE
from muster.kube.responses import ApiStatusError, Response
from muster.kube.session import KubeSession

MERGE: Final = "application/merge-patch+json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

_TIMEOUT_SECONDS: Final = 10.0
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409

Object = dict[str, Any]


class ObjectClient:
    """A client for single objects. All methods raise KubeUnreachable and, unless stated otherwise, ApiStatusError."""

    def __init__(self, session: KubeSession) -> None:
        self._session = session

    async def get(self, path: str) -> Object | None:
        """Returns the object; None if it does not exist."""
        response = await self._session.request("GET", path, timeout_seconds=_TIMEOUT_SECONDS)
        return None if response.status == _NOT_FOUND else _content(response)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """Creates the object and returns it; None if an object of that name exists."""
        response = await self._session.request(
            "POST", path, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS
        )
        return None if response.status == _CONFLICT and _reason(response) == "AlreadyExists" else _content(response)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """Applies a merge patch and returns the object; None if it does not exist.

        With a uid in the patch's metadata, the API server rejects the patch if the name belongs to another object by
        now.
        """
        response = await self._session.request(
            "PATCH", path, body=msgspec.json.encode(body), content_type=MERGE, timeout_seconds=_TIMEOUT_SECONDS
        )
        return None if response.status == _NOT_FOUND else _content(response)

    async def patch_status(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """Patches the status subresource, or the object itself if its kind has no such subresource."""
        response = await self._session.request(
            "PATCH",
            f"{path}/status",
            body=msgspec.json.encode(body),
            content_type=MERGE,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        return await self.patch(path, body) if response.status == _NOT_FOUND else _content(response)

    async def set_condition(self, path: str, uid: str, condition: Mapping[str, Any]) -> None:
        """Sets one condition of an object of a built-in kind. Does nothing if the object is gone."""
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})
        response = await self._session.request(
            "PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE, timeout_seconds=_TIMEOUT_SECONDS
        )
        if response.status not in (_NOT_FOUND, _CONFLICT):
            _content(response)

    async def delete(self, path: str, uid: str, **options: Any) -> bool:
        """Deletes the object with that uid; `options` are further DeleteOptions. Returns False if it was gone."""
        body = msgspec.json.encode({"preconditions": {"uid": uid}, **options})
        response = await self._session.request("DELETE", path, body=body, timeout_seconds=_TIMEOUT_SECONDS)
        if response.status in (_NOT_FOUND, _CONFLICT):
            return False
        _content(response)
        return True


def _content(response: Response) -> Object:
    """Returns the decoded body. Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    try:
        return msgspec.json.decode(repaired(response.body), type=dict[str, Any])
    except UNREADABLE:
        raise ApiStatusError.from_response(response) from None


def _reason(response: Response) -> str:
    return ApiStatusError.from_response(response).reason
