"""Reconciles quota, on the leader: reserves for waiting PodGroups, oldest first, releases, and reports conditions."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

import structlog

from muster.dialects.quota import QUOTA_RESERVED, QUOTA_WAITS
from muster.kube.responses import KubeUnreachable
from muster.kube.timestamps import timestamp
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.quota.accounting import LedgerFull, QuotaAccount
from muster.lifecycle.quota.cache import QuotaCache
from muster.lifecycle.quota.ledger_store import LedgerStore
from muster.lifecycle.quota.messages import (
    NO_QUOTA,
    RELEASED,
    QuotaCondition,
    exceeded,
    invalid_total,
    reserved,
    too_many,
)
from muster.lifecycle.quota.pod_groups import ObservedGroup, condition_of
from muster.lifecycle.work_queue import WorkQueue

_BATCH_SECONDS: Final = 0.1
"""Changes of pods within this time are reconciled together."""
_RECONCILE_SECONDS: Final = 10.0
_MAX_CONFLICTS: Final = 20
_MESSAGE_INTERVAL_SECONDS: Final = 10.0
"""Between changes of a message with the same reason: the usage in it changes with every pod."""
_MAX_WRITTEN: Final = 100
_GROUPS_AT_ONCE: Final = 20
"""PodGroups that are decided in one piece."""
_ACTION: Final = "ReservingQuota"

_log = structlog.get_logger(__name__)


class QuotaReconciler:
    """Reconciles namespaces in which quota usage, limits or PodGroups changed.

    Conditions that were written are remembered for at most twice as many PodGroups as there are, and a few (I11).
    """

    def __init__(self, context: ControllerContext, cache: QuotaCache, store: LedgerStore, client: ObjectClient) -> None:
        self._cache, self._store, self._client = cache, store, client
        self._events = EventRecorder(client, context.settings.instance)
        self._written: dict[str, QuotaCondition] = {}
        """Conditions that were written and may not be observed yet, by uid of the PodGroup."""
        self._written_at: dict[str, float] = {}  # by the event loop's clock
        self._queue = WorkQueue(
            "quota", self._reconcile, self._all_keys, context.leadership, context.informers, namespace_of=str
        )

    def enqueue(self, namespace: str) -> None:
        """Queues a namespace in which quota changed."""
        self._queue.add(namespace, _BATCH_SECONDS)

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    def _all_keys(self) -> Iterable[str]:
        return {*self._cache.namespaces_with_quota, *(seen.reference.namespace for seen in self._cache.groups.values())}

    async def _reconcile(self, namespace: str) -> float | None:
        try:
            async with asyncio.timeout(_RECONCILE_SECONDS):
                account, conditions = await self._decide(namespace)
        except TimeoutError:
            raise KubeUnreachable(f"(quota of {namespace})", "the pods in its ledger are not observed yet") from None
        requeue = [account.next_change_seconds() if account is not None else None]
        groups = [
            (group, conditions[group.group.id])
            for group in self._cache.groups_of(namespace)
            if group.group.id in conditions
        ]
        requeue += [await self._report(group, condition) for group, condition in groups]
        self._trim_written()
        return min((seconds for seconds in requeue if seconds is not None), default=None)

    async def _decide(self, namespace: str) -> tuple[QuotaAccount | None, dict[str, QuotaCondition]]:
        """Updates the ledger; returns the account and the condition of each group."""
        for _ in range(_MAX_CONFLICTS):
            stored = await self._store.read(namespace)
            await self._cache.synced(stored.ledger.observed_revision)
            observed = self._cache.usage(namespace)
            if observed is None or not observed.limits:
                if stored.version:
                    await self._store.delete(namespace, stored)
                groups = (seen for seen in self._cache.groups_of(namespace) if seen.condition is not None)
                return None, {seen.group.id: NO_QUOTA for seen in groups}
            account = QuotaAccount(observed, stored.ledger, time.time())
            account.drop_deleted_groups(self._cache.groups_through)
            conditions: dict[str, QuotaCondition] = {}
            for number, seen in enumerate(self._cache.groups_of(namespace), start=1):
                if condition := _reserve(account, seen):
                    conditions[seen.group.id] = condition
                if number % _GROUPS_AT_ONCE == 0:
                    await asyncio.sleep(0)  # I12
            if (
                account.ledger is stored.ledger
                or await self._store.write(namespace, stored, account.ledger) is not None
            ):
                return account, conditions
        raise KubeUnreachable(f"(quota of {namespace})", "other replicas keep changing its ledger")

    async def _report(self, seen: ObservedGroup, condition: QuotaCondition) -> float | None:
        """Writes a group's condition; returns the seconds to wait first if its message changed recently."""
        before = self._before(seen)
        if before == condition:
            return None
        if before is not None and (before.status, before.reason) == (condition.status, condition.reason):
            written_at = self._written_at.get(seen.group.uid, 0.0)
            pause = written_at + _MESSAGE_INTERVAL_SECONDS - asyncio.get_running_loop().time()
            if pause > 0:
                return pause
        await self._write(seen, condition)
        self._written_at[seen.group.uid] = asyncio.get_running_loop().time()
        return None

    async def _write(self, seen: ObservedGroup, condition: QuotaCondition) -> None:
        """Writes the condition, or an annotation if the kind has no conditions.

        Records an event if the group starts or stops waiting.
        """
        before = self._before(seen)
        found = await self._client.get(seen.path)
        if found is None or found.get("metadata", {}).get("uid") != seen.group.uid:
            return
        metadata = {"uid": seen.group.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
        conditions = (found.get("status") or {}).get("conditions")
        answer = await self._client.patch_status(
            seen.path, {"metadata": metadata, "status": {"conditions": _merged(conditions, condition)}}
        )
        if answer is None:
            return
        keeps_conditions = condition_of((answer.get("status") or {}).get("conditions")) is not None
        waits = condition.message if condition.status == "False" and not keeps_conditions else None
        if (found["metadata"].get("annotations") or {}).get(QUOTA_WAITS) != waits:
            await self._client.patch(
                seen.path, {"metadata": {"uid": seen.group.uid, "annotations": {QUOTA_WAITS: waits}}}
            )
        self._written[seen.group.uid] = condition
        if _waits(condition) is not _waits(before):
            reason, message = condition.reason, condition.message
            _log.info("quota_condition_changed", pod_group=seen.group.title, reason=reason, message=message)
            await self._events.record(seen.reference, reason, message, action=_ACTION, warning=_waits(condition))

    def _before(self, seen: ObservedGroup) -> QuotaCondition | None:
        """Returns the group's latest known condition."""
        if self._written.get(seen.group.uid) == seen.condition:
            self._written.pop(seen.group.uid, None)  # observed by now
        return self._written.get(seen.group.uid, seen.condition)

    def _trim_written(self) -> None:
        if len(self._written_at) > 2 * len(self._cache.groups) + _MAX_WRITTEN:
            present = {seen.group.uid for seen in self._cache.groups.values()}
            self._written = {uid: each for uid, each in self._written.items() if uid in present}
            self._written_at = {uid: at for uid, at in self._written_at.items() if uid in present}


def _reserve(account: QuotaAccount, seen: ObservedGroup) -> QuotaCondition | None:
    """Reserves a group's total if it fits; returns the group's condition, None for a group without a total."""
    group = seen.group
    if group.problem:
        return invalid_total(group)
    if not group.total:
        return NO_QUOTA if seen.condition is not None else None
    try:
        shortage = account.reserve(group)
    except LedgerFull as problem:
        return too_many(str(problem))
    if shortage is not None:
        return exceeded(group, shortage)
    reservation = account.reservation(group.id)
    return RELEASED if reservation is not None and reservation.finished else reserved(group)


def _waits(condition: QuotaCondition | None) -> bool:
    return condition is not None and condition.status == "False"


def _merged(conditions: object, condition: QuotaCondition) -> list[Any]:
    """Returns the conditions with the given one in place of its predecessor."""
    before = condition_of(conditions) or {}
    since = before.get("lastTransitionTime") if before.get("status") == condition.status else None
    others = [each for each in conditions if each is not before] if isinstance(conditions, list) else []
    own = {
        "type": QUOTA_RESERVED,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    return [*others, own | {"lastTransitionTime": since or timestamp(time.time())}]
