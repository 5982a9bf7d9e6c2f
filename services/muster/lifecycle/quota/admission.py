"""Whether new pods may pass: decided by the books of their namespace, and agreed on by writing the ledger.

Pods of one namespace that come while a decision is under way are decided together, in one write.
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
from muster.lifecycle.calls import Calls
from muster.lifecycle.quota.asking import kind_of, path_of_group, seen_group
from muster.lifecycle.quota.books import Books, BooksFull
from muster.lifecycle.quota.census import Census, Group
from muster.lifecycle.quota.ledger import BadLedger
from muster.lifecycle.quota.sight import Sight
from muster.lifecycle.quota.store import Kept, LedgerStore
from muster.lifecycle.quota.telling import refusal

DECISION_SECONDS: Final = 4.0
"""The API server waits for 5: it is better told why it gets no answer."""

_AT_ONCE: Final = 200  # pods decided together: they hold up the event loop for some milliseconds
_RETRY_SECONDS: Final = 0.05  # longest pause after a lost race, of which there are as many as replicas

_log = structlog.get_logger(__name__)


class CannotDecide(Exception):
    """No answer can be given in time; the message says why."""


class Arrival(Struct, frozen=True):
    """A pod that is to be created. `gang_id` may have a PodGroup that asks for quota; empty: none. Of a `dry_run`
    nothing is kept.
    """

    namespace: str
    uid: str
    name: str
    usage: PodUsage
    gang_id: str = ""
    dry_run: bool = False


class Answer(Struct, frozen=True):
    """Empty: it may pass. `again`: it may be tried again as it is, soon."""

    refusal: str = ""
    again: bool = False


class _Waiting(Struct):
    arrival: Arrival
    group: Group | None
    answer: asyncio.Future[Answer]


class _Desk:
    """Those of a namespace that wait for an answer, and the ledger as it was last known."""

    def __init__(self) -> None:
        self.waiting: list[_Waiting] = []
        self.working: asyncio.Task[None] | None = None
        self.known: Kept | None = None


class Admission:
    """One replica's; any number of them may decide at the same time."""

    def __init__(self, sight: Sight, store: LedgerStore, calls: Calls) -> None:
        self._sight, self._store, self._calls = sight, store, calls
        self._desks: dict[str, _Desk] = {}

    async def close(self) -> None:
        """Leave all without an answer."""
        tasks = [desk.working for desk in self._desks.values() if desk.working is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def ask(self, arrival: Arrival) -> Answer:
        """Raises CannotDecide."""
        census = self._sight.census(arrival.namespace)
        if census is None or not census.bounds:
            return Answer()
        try:
            async with asyncio.timeout(DECISION_SECONDS):
                group = await self._group(census, arrival.gang_id)
                answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
                self._put(_Waiting(arrival, group, answer))
                return await answer
        except TimeoutError:
            raise CannotDecide("the quota of the namespace could not be decided on in time") from None
        except (ApiStatusError, KubeUnreachable, BadLedger) as error:
            raise CannotDecide(f"the quota of the namespace cannot be decided on: {error}") from error

    async def _group(self, census: Census, gang_id: str) -> Group | None:
        """The pod's PodGroup, also one that is so new that the watch has not told it yet."""
        if not gang_id or (known := census.groups.get(gang_id)) is not None:
            return known if gang_id else None
        found = await self._calls.get(path_of_group(gang_id))
        if found is None:
            return None
        return seen_group(decode_pod_group(msgspec.json.encode(found)), kind_of(gang_id)).group

    def _put(self, waiting: _Waiting) -> None:
        desk = self._desks.setdefault(waiting.arrival.namespace, _Desk())
        desk.waiting.append(waiting)
        if desk.working is None or desk.working.done():
            desk.working = asyncio.create_task(self._work(waiting.arrival.namespace, desk))

    async def _work(self, namespace: str, desk: _Desk) -> None:
        while desk.waiting:
            batch, desk.waiting = desk.waiting[:_AT_ONCE], desk.waiting[_AT_ONCE:]
            batch = [each for each in batch if not each.answer.done()]  # the others gave up
            try:
                async with asyncio.timeout(DECISION_SECONDS):
                    answers = await self._decide(namespace, desk, batch)
            except (ApiStatusError, KubeUnreachable, BadLedger, TimeoutError) as error:
                desk.known = None
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            except Exception as error:  # a mistake of ours: whoever waits is told, and others are served on
                _log.error("failed unexpectedly", namespace=namespace, exc_info=error)
                desk.known = None
                for each in batch:
                    if not each.answer.done():
                        each.answer.set_exception(CannotDecide(f"an internal error: {error}"))
                continue
            for each, answer in zip(batch, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
        desk.working = None
        if not desk.waiting and desk.known is not None and desk.known.ledger.empty:
            self._desks.pop(namespace, None)

    async def _decide(self, namespace: str, desk: _Desk, batch: Sequence[_Waiting]) -> list[Answer]:
        """What all of them are told; whoever passes is in the ledger by then."""
        while True:
            fresh = desk.known is None
            kept = desk.known if desk.known is not None else await self._store.read(namespace)
            await self._sight.reached(kept.ledger.seen)
            census = self._sight.census(namespace)
            if census is None:
                return [Answer()] * len(batch)
            books = Books(census, kept.ledger, time.time())
            answers = [_answer(books, each) for each in batch]
            if not fresh and any(each.refusal for each in answers):
                desk.known = None  # nobody is refused by what may have been long ago
                continue
            ledger = books.ledger
            written = kept if ledger is kept.ledger else await self._store.write(namespace, kept, ledger)
            desk.known = written
            if written is not None:
                return answers
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS))  # noqa: S311 (so that replicas do not meet again)


def _answer(books: Books, waiting: _Waiting) -> Answer:
    arrival, group = waiting.arrival, waiting.group
    try:
        shortage = books.admit(arrival.uid, arrival.name, arrival.usage, group, note=not arrival.dry_run)
    except BooksFull as full:
        return Answer(str(full), again=True)
    if shortage is None:
        return Answer()
    waits = group if group is not None and group.total and books.reservation(group.id) is None else None
    return Answer(refusal(waits, shortage))
