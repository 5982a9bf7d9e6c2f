"""Stores quota ledgers: one ConfigMap per namespace with quotas, written by compare-and-swap.

The ConfigMaps are in lifecycle's own namespace, so that users with write access only to the namespace that a ledger is
about cannot change it.
"""

from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from muster.kube.json_repair import repaired
from muster.kube.objects import UNREADABLE
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError, Response
from muster.kube.session import KubeSession
from muster.lifecycle.quota.ledger import BadLedger, Ledger, decode_ledger, encode_ledger

NAMESPACE_LABEL: Final = "muster.dev/quota-of"
"""Label of a ledger with the namespace that it is about."""

_KEY: Final = "ledger"
_TIMEOUT_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class StoredLedger(Struct, frozen=True):
    """A ledger as read. An empty version means that it does not exist."""

    ledger: Ledger
    version: str = ""


class _Metadata(Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _ConfigMap(Struct, frozen=True):
    metadata: _Metadata
    data: dict[str, str] | None = None


class LedgerStore:
    """Reads and writes ledgers. All methods raise KubeUnreachable and ApiStatusError."""

    def __init__(self, session: KubeSession, namespace: str) -> None:
        self._session, self._namespace = session, namespace

    async def read(self, namespace: str) -> StoredLedger:
        """Returns the ledger of a namespace. A malformed one counts as empty: reservations are rebuilt from PodGroups.

        Raises BadLedger if a later version of lifecycle wrote it.
        """
        response = await self._session.request("GET", self._path(namespace), timeout_seconds=_TIMEOUT_SECONDS)
        if response.status == 404:
            return StoredLedger(Ledger())
        found = _config_map(response)
        try:
            ledger = decode_ledger((found.data or {}).get(_KEY, ""))
        except BadLedger as error:
            if error.is_newer:
                raise
            _log.error("ledger_reset", namespace=namespace, error=str(error))
            ledger = Ledger()
        return StoredLedger(ledger, found.metadata.resource_version)

    async def write(self, namespace: str, before: StoredLedger, ledger: Ledger) -> StoredLedger | None:
        """Replaces the ledger that was read; None if it has changed since."""
        metadata: dict[str, Any] = {"name": _name(namespace), "namespace": self._namespace}
        metadata["labels"] = {NAMESPACE_LABEL: namespace}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        body["data"] = {_KEY: encode_ledger(ledger)}
        if before.version:
            metadata["resourceVersion"] = before.version
            response = await self._send("PUT", self._path(namespace), body)
        else:
            response = await self._send("POST", self._path(), body)
        if response.status == 409 or (response.status == 404 and before.version):
            return None
        return StoredLedger(ledger, _config_map(response).metadata.resource_version)

    async def delete(self, namespace: str, before: StoredLedger) -> None:
        """Deletes the ledger that was read, unless it has changed since."""
        body = {"preconditions": {"resourceVersion": before.version}}
        response = await self._send("DELETE", self._path(namespace), body)
        if response.status not in (200, 202, 404, 409):
            raise ApiStatusError.from_response(response)

    async def _send(self, method: Any, path: str, body: dict[str, Any]) -> Response:
        return await self._session.request(
            method, path, body=msgspec.json.encode(body), timeout_seconds=_TIMEOUT_SECONDS
        )

    def _path(self, namespace: str = "") -> str:
        return object_path("v1", "configmaps", self._namespace, _name(namespace) if namespace else "")


def _name(namespace: str) -> str:
    return f"muster-quota.{namespace}"


def _config_map(response: Response) -> _ConfigMap:
    """Raises ApiStatusError."""
    if response.status >= 300:
        raise ApiStatusError.from_response(response)
    try:
        return msgspec.json.decode(repaired(response.body), type=_ConfigMap)
    except UNREADABLE:
        raise ApiStatusError.from_response(response) from None
