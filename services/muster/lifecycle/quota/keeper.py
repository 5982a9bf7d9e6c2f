"""What the leader does about quota: reserves for PodGroups that wait, oldest first, returns what ended, and tells."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

import structlog

from muster.dialects.quota import QUOTA_WAITS
from muster.kube.responses import KubeUnreachable
from muster.kube.timestamps import timestamp
from muster.lifecycle.calls import Calls
from muster.lifecycle.event_log import EventLog
from muster.lifecycle.quota.asking import SeenGroup, condition_of
from muster.lifecycle.quota.books import Books, BooksFull
from muster.lifecycle.quota.sight import Sight
from muster.lifecycle.quota.store import LedgerStore
from muster.lifecycle.quota.telling import CONDITION, NO_QUOTA, RETURNED, Told, full, lacking, reserved, unreadable
from muster.lifecycle.surroundings import Surroundings
from muster.lifecycle.work_queue import WorkQueue

_TOGETHER_SECONDS: Final = 0.1
"""Pods that come and go within it are looked at at once."""
_LOOK_SECONDS: Final = 10.0
_LOST_RACES: Final = 20
_SAME_REASON_SECONDS: Final = 10.0
"""Between changes of a message while the reason stays: what others use changes with every pod."""
_WRITTEN_KEPT: Final = 100
_ACTION: Final = "ReservingQuota"

_log = structlog.get_logger(__name__)


class Keeper:
    """Looks at namespaces in which something about quota changed."""

    def __init__(self, surroundings: Surroundings, sight: Sight, store: LedgerStore, calls: Calls) -> None:
        self._sight, self._store, self._calls = sight, store, calls
        self._events = EventLog(calls, surroundings.settings.instance)
        self._written: dict[str, Told] = {}
        """By uid of the PodGroup, what was written and may not be seen yet."""
        self._told_at: dict[str, float] = {}
        """And when, by the clock of the event loop."""
        self._queue = WorkQueue("quota", self._look, self._everything, surroundings.leadership, surroundings.watches)

    def changed(self, namespace: str) -> None:
        """Something that matters to quota changed there."""
        self._queue.add(namespace, _TOGETHER_SECONDS)

    async def run(self) -> None:
        """Until cancelled."""
        await self._queue.run()

    def _everything(self) -> Iterable[str]:
        return {*self._sight.bounded, *(seen.reference.namespace for seen in self._sight.groups.values())}

    async def _look(self, namespace: str) -> float | None:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                books, told = await self._decide(namespace)
        except TimeoutError:
            raise KubeUnreachable(f"(quota of {namespace})", "pods are not seen as far as its ledger is") from None
        again = [books.next_look() if books is not None else None]
        known = [(seen, told[seen.group.id]) for seen in self._sight.groups_of(namespace) if seen.group.id in told]
        again += [await self._bring_up_to_date(seen, now) for seen, now in known]
        self._forget_written()
        return min((seconds for seconds in again if seconds is not None), default=None)

    async def _decide(self, namespace: str) -> tuple[Books | None, dict[str, Told]]:
        """Bring the ledger up to date; returns it, and what groups are to be told."""
        for _ in range(_LOST_RACES):
            kept = await self._store.read(namespace)
            await self._sight.reached(kept.ledger.seen)
            census = self._sight.census(namespace)
            if census is None or not census.bounds:
                if kept.version:
                    await self._store.delete(namespace, kept)
                told_before = (seen for seen in self._sight.groups_of(namespace) if seen.told is not None)
                return None, {seen.group.id: NO_QUOTA for seen in told_before}
            books = Books(census, kept.ledger, time.time())
            books.forget_groups(self._sight.groups_through)
            told = {seen.group.id: now for seen in self._sight.groups_of(namespace) if (now := _kept(books, seen))}
            if books.ledger is kept.ledger or await self._store.write(namespace, kept, books.ledger) is not None:
                return books, told
        raise KubeUnreachable(f"(quota of {namespace})", "others write its ledger all the time")

    async def _bring_up_to_date(self, seen: SeenGroup, told: Told) -> float | None:
        """Have a group say what it is told; returns the seconds after which it may, if it has said much lately."""
        before = self._before(seen)
        if before == told:
            return None
        if before is not None and (before.status, before.reason) == (told.status, told.reason):
            pause = self._told_at.get(seen.group.uid, 0.0) + _SAME_REASON_SECONDS - asyncio.get_running_loop().time()
            if pause > 0:
                return pause
        await self._tell(seen, told)
        self._told_at[seen.group.uid] = asyncio.get_running_loop().time()
        return None

    async def _tell(self, seen: SeenGroup, told: Told) -> None:
        """In its condition, where the API server keeps one, and as an event if it begins or ceases to wait."""
        before = self._before(seen)
        found = await self._calls.get(seen.path)
        if found is None or found.get("metadata", {}).get("uid") != seen.group.uid:
            return
        metadata = {"uid": seen.group.uid, "resourceVersion": found["metadata"]["resourceVersion"]}
        conditions = (found.get("status") or {}).get("conditions")
        answer = await self._calls.patch_status(
            seen.path, {"metadata": metadata, "status": {"conditions": _with(conditions, told)}}
        )
        if answer is None:
            return
        keeps_conditions = condition_of((answer.get("status") or {}).get("conditions")) is not None
        waits = told.message if told.status == "False" and not keeps_conditions else None
        if (found["metadata"].get("annotations") or {}).get(QUOTA_WAITS) != waits:
            await self._calls.patch(
                seen.path, {"metadata": {"uid": seen.group.uid, "annotations": {QUOTA_WAITS: waits}}}
            )
        self._written[seen.group.uid] = told
        if _waits(told) is not _waits(before):
            _log.info("quota", pod_group=seen.group.title, status=told.reason, message=told.message)
            await self._events.tell(seen.reference, told.reason, told.message, action=_ACTION, warning=_waits(told))

    def _before(self, seen: SeenGroup) -> Told | None:
        """What it says at present."""
        if self._written.get(seen.group.uid) == seen.told:
            self._written.pop(seen.group.uid, None)  # from now on what is seen counts
        return self._written.get(seen.group.uid, seen.told)

    def _forget_written(self) -> None:
        if len(self._told_at) > 2 * len(self._sight.groups) + _WRITTEN_KEPT:
            present = {seen.group.uid for seen in self._sight.groups.values()}
            self._written = {uid: told for uid, told in self._written.items() if uid in present}
            self._told_at = {uid: at for uid, at in self._told_at.items() if uid in present}


def _kept(books: Books, seen: SeenGroup) -> Told | None:
    """What a group has or lacks from now on; None: it asks for nothing."""
    group = seen.group
    if group.problem:
        return unreadable(group)
    if not group.total:
        return NO_QUOTA if seen.told is not None else None
    try:
        shortage = books.reserve(group)
    except BooksFull as problem:
        return full(str(problem))
    if shortage is not None:
        return lacking(group, shortage)
    reservation = books.reservation(group.id)
    return RETURNED if reservation is not None and reservation.finished else reserved(group)


def _waits(told: Told | None) -> bool:
    return told is not None and told.status == "False"


def _with(conditions: object, told: Told) -> list[Any]:
    """The conditions with ours; its time stays while its status does."""
    before = condition_of(conditions) or {}
    since = before.get("lastTransitionTime") if before.get("status") == told.status else None
    others = [each for each in conditions if each is not before] if isinstance(conditions, list) else []
    ours = {"type": CONDITION, "status": told.status, "reason": told.reason, "message": told.message}
    return [*others, ours | {"lastTransitionTime": since or timestamp(time.time())}]
