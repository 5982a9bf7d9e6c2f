"""Documents in ConfigMaps of lifecycle's own namespace, replaced as a whole by compare-and-swap.

Users with write access only to other namespaces cannot change them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from muster.kube.json_repair import repaired
from muster.kube.objects import UNREADABLE
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError, Response
from muster.kube.session import KubeSession

_KEY: Final = "ledger"
_TIMEOUT_SECONDS: Final = 5.0


class StoredText(Struct, frozen=True):
    """A document as read. An empty version means that it does not exist."""

    text: str = ""
    version: str = ""


class _Metadata(Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _ConfigMap(Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] | None = None


class ConfigMapStore:
    """Documents by the name of their ConfigMap. All methods raise KubeUnreachable and ApiStatusError."""

    def __init__(self, session: KubeSession, namespace: str) -> None:
        self._session, self._namespace = session, namespace

    async def read(self, name: str) -> StoredText:
        """Returns the document; an empty one if it does not exist."""
        response = await self._session.request("GET", self._path(name), timeout_seconds=_TIMEOUT_SECONDS)
        if response.status == 404:
            return StoredText()
        found = _config_map(response)
        return StoredText((found.data or {}).get(_KEY, ""), found.metadata.resource_version)

    async def write(self, name: str, version: str, text: str, labels: Mapping[str, str] | None = None) -> str | None:
        """Replaces the version that was read, or creates the document. Returns the new version; None if the document
        has changed since.
        """
        metadata: dict[str, Any] = {"name": name, "namespace": self._namespace}
        if labels:
            metadata["labels"] = dict(labels)
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_KEY: text}}
        if version:
            metadata["resourceVersion"] = version
            response = await self._send("PUT", self._path(name), body)
        else:
            response = await self._send("POST", self._path(), body)
        if response.status == 409 or (response.status == 404 and version):
            return None
        return _config_map(response).metadata.resource_version

    async def delete(self, name: str, version: str) -> None:
        """Deletes the version that was read, unless the document has changed since."""
        response = await self._send("DELETE", self._path(name), {"preconditions": {"resourceVersion": version}})
        if response.status not in (200, 202, 404, 409):
            raise ApiStatusError.from_response(response)

    async def _send(self, method: Any, path: str, body: dict[str, Any]) -> Response:
        return await self._session.request(
            method, path, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS
        )

    def _path(self, name: str = "") -> str:
        return object_path("v1", "configmaps", self._namespace, name)


def _config_map(response: Response) -> _ConfigMap:
    """Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    try:
        return msgspec.json.decode(repaired(response.body), type=_ConfigMap)
    except UNREADABLE:
        raise ApiStatusError.from_response(response) from None
