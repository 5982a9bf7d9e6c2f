"""What controllers ask of the API server: JSON in, JSON out, and one error for everything that it refuses."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from muster.kube.responses import ApiStatusError, Response
from muster.kube.session import KubeSession

MERGE: Final = "application/merge-patch+json"
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

_SECONDS: Final = 10.0
_GONE: Final = 404
_CONFLICT: Final = 409

Object = dict[str, Any]


class Calls:
    """Reads and writes of single objects. Everything raises KubeUnreachable and, unless it says otherwise,
    ApiStatusError.
    """

    def __init__(self, session: KubeSession) -> None:
        self._session = session

    async def get(self, path: str) -> Object | None:
        """The object; None if there is none."""
        response = await self._session.request("GET", path, timeout_seconds=_SECONDS)
        return None if response.status == _GONE else _content(response)

    async def create(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """The object as it was created; None if there is one of its name already."""
        response = await self._session.request("POST", path, body=msgspec.json.encode(body), timeout_seconds=_SECONDS)
        return None if response.status == _CONFLICT and _reason(response) == "AlreadyExists" else _content(response)

    async def patch(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """The object after a merge patch; None if there is none. Put its uid into the patch's metadata, so that no
        other one of its name is changed: it is refused then.
        """
        response = await self._session.request(
            "PATCH", path, body=msgspec.json.encode(body), content_type=MERGE, timeout_seconds=_SECONDS
        )
        return None if response.status == _GONE else _content(response)

    async def patch_status(self, path: str, body: Mapping[str, Any]) -> Object | None:
        """As `patch`, of the object's status; also where the kind has no such subresource."""
        response = await self._session.request(
            "PATCH", f"{path}/status", body=msgspec.json.encode(body), content_type=MERGE, timeout_seconds=_SECONDS
        )
        return await self.patch(path, body) if response.status == _GONE else _content(response)

    async def set_condition(self, path: str, uid: str, condition: Mapping[str, Any]) -> None:
        """Set a condition of an object of a built-in kind, and leave its other ones alone. Nothing if it is gone."""
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": {"conditions": [condition]}})
        response = await self._session.request(
            "PATCH", f"{path}/status", body=body, content_type=STRATEGIC_MERGE, timeout_seconds=_SECONDS
        )
        if response.status not in (_GONE, _CONFLICT):
            _content(response)

    async def delete(self, path: str, uid: str, **options: Any) -> bool:
        """Delete the object with that uid; further DeleteOptions may be given. False: it is gone already."""
        body = msgspec.json.encode({"preconditions": {"uid": uid}, **options})
        response = await self._session.request("DELETE", path, body=body, timeout_seconds=_SECONDS)
        if response.status in (_GONE, _CONFLICT):
            return False
        _content(response)
        return True


def _content(response: Response) -> Object:
    """Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    try:
        return msgspec.json.decode(response.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiStatusError.from_response(response) from None


def _reason(response: Response) -> str:
    return ApiStatusError.from_response(response).reason
