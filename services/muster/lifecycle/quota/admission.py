"""Decides whether new pods are admitted, by the quota account of their namespace, and records them in the ledger.

Pods of one namespace that arrive while a decision is in progress are decided together, in one write.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from muster.kube.objects import decode_pod_group
from muster.kube.resource_quota import PodUsage
from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.lifecycle.admission_server import CannotDecide, Decision
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.quota.accounting import LedgerFull, QuotaAccount
from muster.lifecycle.quota.cache import QuotaCache
from muster.lifecycle.quota.ledger import BadLedger
from muster.lifecycle.quota.ledger_store import LedgerStore, StoredLedger
from muster.lifecycle.quota.messages import rejection
from muster.lifecycle.quota.pod_groups import group_kind, group_path, observe_group
from muster.lifecycle.quota.usage import NamespaceUsage, QuotaGroup

DECISION_SECONDS: Final = 4.0
"""The API server waits for 5 s; answering before gives it the reason."""

_MAX_BATCH: Final = 200  # pods decided together; they block the event loop for some milliseconds
_MAX_IDLE: Final = 500  # of namespaces without pending reviews; others are read when a pod is reviewed
_RETRY_SECONDS: Final = 0.05  # longest pause after a write conflict

_log = structlog.get_logger(__name__)


class PodReview(Struct, frozen=True):
    """A pod to be created. `gang_id` is set if its PodGroup may reserve quota. A `dry_run` is not recorded."""

    namespace: str
    uid: str
    name: str
    usage: PodUsage
    gang_id: str = ""
    dry_run: bool = False


class _PendingReview(Struct):
    pod_review: PodReview
    group: QuotaGroup | None
    answer: asyncio.Future[Decision]


class NamespaceQueue:
    """Pending reviews of a namespace, and the ledger as last known."""

    def __init__(self) -> None:
        self.pending: list[_PendingReview] = []
        self.worker: asyncio.Task[None] | None = None
        self.known: StoredLedger | None = None


class NamespaceQueues:
    """Queues by namespace: those with pending reviews, and of the others the latest whose ledgers are not empty, up to
    a number (I11).
    """

    def __init__(self, max_idle: int = _MAX_IDLE) -> None:
        self._max_idle = max_idle
        self._busy: dict[str, NamespaceQueue] = {}
        self._idle: dict[str, NamespaceQueue] = {}

    def __len__(self) -> int:
        return len(self._busy) + len(self._idle)

    def open(self, namespace: str) -> NamespaceQueue:
        """The queue of a namespace, kept until `close`."""
        queue = self._busy.get(namespace)
        if queue is None:
            queue = self._busy[namespace] = self._idle.pop(namespace, NamespaceQueue())
        return queue

    def close(self, namespace: str) -> None:
        """No review of the namespace is pending any more."""
        queue = self._busy.pop(namespace)
        if queue.known is not None and not queue.known.ledger.empty:
            self._idle[namespace] = queue
            if len(self._idle) > self._max_idle:
                del self._idle[next(iter(self._idle))]

    def workers(self) -> list[asyncio.Task[None]]:
        """Tasks that decide pending reviews."""
        return [queue.worker for queue in self._busy.values() if queue.worker is not None]


class Admission:
    """Decides for one replica. Any number of replicas may decide concurrently."""

    def __init__(self, cache: QuotaCache, store: LedgerStore, client: ObjectClient) -> None:
        self._cache, self._store, self._client = cache, store, client
        self._queues = NamespaceQueues()

    async def close(self) -> None:
        """Cancels all pending reviews."""
        tasks = self._queues.workers()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def review(self, pod_review: PodReview) -> Decision:
        """Returns the decision about a pod. Raises CannotDecide."""
        observed = self._cache.usage(pod_review.namespace)
        if observed is None or not observed.limits:
            return Decision()
        try:
            async with asyncio.timeout(DECISION_SECONDS):
                group = await self._group(observed, pod_review.gang_id)
                answer: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
                self._put(_PendingReview(pod_review, group, answer))
                return await answer
        except TimeoutError:
            raise CannotDecide("the quota of the namespace could not be checked in time") from None
        except (ApiStatusError, KubeUnreachable, BadLedger) as error:
            raise CannotDecide(f"the quota of the namespace cannot be checked: {error}") from error

    async def _group(self, observed: NamespaceUsage, gang_id: str) -> QuotaGroup | None:
        """Returns the pod's PodGroup, from the API server if the informer has not observed it yet."""
        if not gang_id or (known := observed.groups.get(gang_id)) is not None:
            return known if gang_id else None
        found = await self._client.get(group_path(gang_id))
        if found is None:
            return None
        return observe_group(decode_pod_group(msgspec.json.encode(found)), group_kind(gang_id)).group

    def _put(self, waiting: _PendingReview) -> None:
        queue = self._queues.open(waiting.pod_review.namespace)
        queue.pending.append(waiting)
        if queue.worker is None or queue.worker.done():
            queue.worker = asyncio.create_task(self._work(waiting.pod_review.namespace, queue))

    async def _work(self, namespace: str, queue: NamespaceQueue) -> None:
        while queue.pending:
            batch, queue.pending = queue.pending[:_MAX_BATCH], queue.pending[_MAX_BATCH:]
            batch = [each for each in batch if not each.answer.done()]  # the others timed out
            try:
                async with asyncio.timeout(DECISION_SECONDS):
                    answers = await self._decide(namespace, queue, batch)
            except (ApiStatusError, KubeUnreachable, BadLedger, TimeoutError) as error:
                queue.known = None
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            except Exception as error:  # a bug: fail these reviews and go on with the others
                _log.error("admission_crashed", namespace=namespace, exc_info=error)
                queue.known = None
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(CannotDecide(f"an internal error: {error}"))
                continue
            for each, answer in zip(batch, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        queue.worker = None
        self._queues.close(namespace)

    async def _decide(self, namespace: str, queue: NamespaceQueue, batch: Sequence[_PendingReview]) -> list[Decision]:
        """Returns decisions about a batch; admitted pods are in the ledger by then."""
        while True:
            fresh = queue.known is None
            stored = queue.known if queue.known is not None else await self._store.read(namespace)
            await self._cache.synced(stored.ledger.observed_revision)
            observed = self._cache.usage(namespace)
            if observed is None:
                return [Decision()] * len(batch)
            account = QuotaAccount(observed, stored.ledger, time.time())
            answers = [_answer(account, each) for each in batch]
            if not fresh and any(each.rejection for each in answers):
                queue.known = None  # a rejection needs the current ledger
                continue
            ledger = account.ledger
            written = stored if ledger is stored.ledger else await self._store.write(namespace, stored, ledger)
            queue.known = written
            if written is not None:
                return answers
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS))  # noqa: S311 (so that replicas do not collide again)


def _answer(account: QuotaAccount, waiting: _PendingReview) -> Decision:
    pod, group = waiting.pod_review, waiting.group
    try:
        shortage = account.admit(pod.uid, pod.name, pod.usage, group, record=not pod.dry_run)
    except LedgerFull as error:
        return Decision(str(error), retryable=True)
    if shortage is None:
        return Decision()
    waits = group if group is not None and group.total and account.reservation(group.id) is None else None
    return Decision(rejection(waits, shortage))
