"""Decides whether allocations are admitted, by what is observed and the ledger, in which it records them.

Reviews that arrive while a decision is in progress are decided together, in one write.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import structlog
from msgspec import Struct

from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.lifecycle.admission_server import CannotDecide, Decision
from muster.lifecycle.config_map_store import ConfigMapStore
from muster.lifecycle.device_allocations.cache import AllocationCache
from muster.lifecycle.device_allocations.ledger import (
    Allocation,
    Arbiter,
    BadLedger,
    InFlight,
    Ledger,
    LedgerFull,
    decode_ledger,
    encode_ledger,
    without,
)
from muster.lifecycle.metrics import DEVICE_CONFLICTS
from muster.lifecycle.object_client import ObjectClient

LEDGER: Final = "muster-device-allocations"
"""Name of the ConfigMap."""
DECISION_SECONDS: Final = 4.0
"""The API server waits for 5 s; answering before gives it the reason."""

_MAX_BATCH: Final = 200  # reviews decided together; they block the event loop for some milliseconds
_MAX_READ: Final = 20  # claims that are read at a time, because nothing confirmed their allocations
_RETRY_SECONDS: Final = 0.05  # longest pause after a write conflict

_log = structlog.get_logger(__name__)


class _PendingReview(Struct):
    allocation: Allocation
    answer: asyncio.Future[Decision]


class _Stored(Struct, frozen=True):
    """The ledger as read or written; without a version it does not exist."""

    ledger: Ledger
    version: str


class DeviceAdmission:
    """Decides for one replica. Any number of replicas may decide concurrently."""

    def __init__(self, cache: AllocationCache, store: ConfigMapStore, client: ObjectClient) -> None:
        self._cache, self._store, self._client = cache, store, client
        self._pending: list[_PendingReview] = []
        """Reviews without an answer, as many as the API server has open requests."""
        self._worker: asyncio.Task[None] | None = None
        self._known: _Stored | None = None

    async def close(self) -> None:
        """Cancels all pending reviews."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def review(self, allocation: Allocation) -> Decision:
        """Returns the decision about an allocation. Raises CannotDecide."""
        answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingReview(allocation, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        try:
            async with asyncio.timeout(DECISION_SECONDS):
                return await answer
        except TimeoutError:
            raise CannotDecide("the devices of the claim could not be checked in time") from None
        except (ApiStatusError, KubeUnreachable, BadLedger) as error:
            raise CannotDecide(f"the devices of the claim cannot be checked: {error}") from error

    async def _work(self) -> None:
        while self._pending:
            batch, self._pending = self._pending[:_MAX_BATCH], self._pending[_MAX_BATCH:]
            batch = [each for each in batch if not each.answer.done()]  # the others timed out
            try:
                async with asyncio.timeout(DECISION_SECONDS):
                    answers = await self._decide(batch)
            except (ApiStatusError, KubeUnreachable, BadLedger, TimeoutError) as error:
                self._fail(batch, error)
            except Exception as error:  # a bug: fail these reviews and go on with the others
                _log.error("admission_crashed", exc_info=error)
                self._fail(batch, CannotDecide(f"an internal error: {error}"))
            else:
                for each, answer in zip(batch, answers, strict=True):
                    if not each.answer.done():
                        each.answer.set_result(answer)

    def _fail(self, batch: Sequence[_PendingReview], error: Exception) -> None:
        self._known = None
        for each in batch:
            if not each.answer.done():
                each.answer.set_exception(error)

    async def _decide(self, batch: Sequence[_PendingReview]) -> list[Decision]:
        """Returns decisions about a batch; admitted allocations are in the ledger by then."""
        while True:
            fresh = self._known is None
            stored = self._known if self._known is not None else await self._read()
            await self._cache.reached(stored.ledger.observed_revision)
            arbiter = Arbiter(stored.ledger, self._cache, time.time())
            if expired := arbiter.expired():
                ledger = await self._without_unwritten(arbiter.ledger, expired[:_MAX_READ])
                await self._cache.reached(ledger.observed_revision)
                arbiter = Arbiter(ledger, self._cache, time.time())
            answers = [_answer(arbiter, each.allocation) for each in batch]
            if not fresh and any(each.rejection for each in answers):
                self._known = None  # a rejection needs the current ledger
                continue
            if not arbiter.admitted:
                self._known = stored
            else:
                version = await self._store.write(LEDGER, stored.version, encode_ledger(arbiter.ledger))
                self._known = _Stored(arbiter.ledger, version) if version is not None else None
            if self._known is not None:
                DEVICE_CONFLICTS.add(sum(bool(each.rejection) and not each.retryable for each in answers))
                return answers
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS))  # noqa: S311 (so that replicas do not collide again)

    async def _read(self) -> _Stored:
        """The ledger. A malformed one counts as empty: it has what was admitted in the last seconds."""
        stored = await self._store.read(LEDGER)
        if not stored.version:
            return _Stored(Ledger(), "")
        try:
            return _Stored(decode_ledger(stored.text), stored.version)
        except BadLedger as error:
            if error.is_newer:
                raise
            _log.error("device_ledger_reset", error=str(error))
            return _Stored(Ledger(), stored.version)

    async def _without_unwritten(self, ledger: Ledger, expired: Sequence[tuple[str, InFlight]]) -> Ledger:
        """The ledger without allocations that were admitted, and never written: their claims are read."""
        versions = await asyncio.gather(*(self._version(uid, entry.claim) for uid, entry in expired))
        settled, revision = [], 0
        for (uid, entry), version in zip(expired, versions, strict=True):
            if version > entry.revision:  # it is to be observed before anything is decided
                revision = max(revision, version)
            _log.info("device_allocation_unconfirmed", claim=entry.claim, changed_since=version > entry.revision)
            settled.append(uid)
        return without(ledger, settled, revision)

    async def _version(self, uid: str, name: str) -> int:
        """The present version of a claim; 0: it is gone."""
        namespace, _, name = name.partition("/")
        path = object_path("resource.k8s.io/v1", "resourceclaims", namespace)
        found = await self._client.get(f"{path}?fieldSelector={quote(f'metadata.name={name}')}")
        items = found.get("items") or () if found is not None else ()
        return next((int(each["metadata"]["resourceVersion"]) for each in items if each["metadata"]["uid"] == uid), 0)


def _answer(arbiter: Arbiter, allocation: Allocation) -> Decision:
    try:
        return Decision(arbiter.decide(allocation))
    except LedgerFull as error:
        return Decision(str(error), retryable=True)
