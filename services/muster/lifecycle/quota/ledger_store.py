"""Stores quota ledgers: one ConfigMap per namespace with quotas."""

from typing import Final

import structlog
from msgspec import Struct

from muster.kube.session import KubeSession
from muster.lifecycle.config_map_store import ConfigMapStore
from muster.lifecycle.quota.ledger import BadLedger, Ledger, decode_ledger, encode_ledger

NAMESPACE_LABEL: Final = "muster.dev/quota-of"
"""Label of a ledger with the namespace that it is about."""

_log = structlog.get_logger(__name__)


class StoredLedger(Struct, frozen=True):
    """A ledger as read. An empty version means that it does not exist."""

    ledger: Ledger
    version: str = ""


class LedgerStore:
    """Reads and writes ledgers. All methods raise KubeUnreachable and ApiStatusError."""

    def __init__(self, session: KubeSession, namespace: str) -> None:
        self._documents = ConfigMapStore(session, namespace)

    async def read(self, namespace: str) -> StoredLedger:
        """Returns the ledger of a namespace. A malformed one counts as empty: reservations are rebuilt from PodGroups.

        Raises BadLedger if a later version of lifecycle wrote it.
        """
        stored = await self._documents.read(_name(namespace))
        if not stored.version:
            return StoredLedger(Ledger())
        try:
            ledger = decode_ledger(stored.text)
        except BadLedger as error:
            if error.is_newer:
                raise
            _log.error("ledger_reset", namespace=namespace, error=str(error))
            ledger = Ledger()
        return StoredLedger(ledger, stored.version)

    async def write(self, namespace: str, before: StoredLedger, ledger: Ledger) -> StoredLedger | None:
        """Replaces the ledger that was read; None if it has changed since."""
        labels = {NAMESPACE_LABEL: namespace}
        version = await self._documents.write(_name(namespace), before.version, encode_ledger(ledger), labels)
        return StoredLedger(ledger, version) if version is not None else None

    async def delete(self, namespace: str, before: StoredLedger) -> None:
        """Deletes the ledger that was read, unless it has changed since."""
        await self._documents.delete(_name(namespace), before.version)


def _name(namespace: str) -> str:
    return f"muster-quota.{namespace}"
