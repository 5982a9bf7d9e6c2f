"""Keeps the status of PodGroups true as their pods change, and restarts groups that say they want that.

What only the scheduler knows of a group is not written here, nor groups whose pods are all other schedulers'.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct

from muster.dialects import coscheduling, koordinator, kube_batch
from muster.dialects.marks import Definition, DefinitionKind
from muster.dialects.registry import defined_gang, read_gang
from muster.dialects.values import BadValue
from muster.gangs.facts import ObjectReference
from muster.kube.changes import Changes, Removed
from muster.kube.gang_marks import definition
from muster.kube.objects import UNREADABLE, Pod, PodGroup, decode_pod_group
from muster.kube.resources import PODS, definitions
from muster.lifecycle.calls import Calls, Object, object_path
from muster.lifecycle.event_log import EventLog
from muster.lifecycle.group_status import (
    Counts,
    coscheduling_status,
    counts_of,
    kube_batch_status,
    runs_below_minimum,
)
from muster.lifecycle.members import Member, Members, mark_sets
from muster.lifecycle.restart_pace import RestartPace
from muster.lifecycle.restarts import BELOW_SINCE, Plan, Step, plan, whose_end_is_final
from muster.lifecycle.surroundings import Surroundings
from muster.lifecycle.work_queue import WorkQueue

_KINDS: Final = (kube_batch.DEFINITION, coscheduling.DEFINITION, koordinator.DEFINITION)
_TOGETHER_SECONDS: Final = 0.1
"""Changes of pods that come within it are written at once: a large group starts with hundreds of them."""
_AT_ONCE: Final = 16
"""Pods of a group that are deleted at the same time."""
_UNSCHEDULABLE: Final = "Unschedulable"
_RESTARTED: Final = "Restarted"
_NOT_RESTARTED: Final = "CannotRestart"
_ACTION: Final = "Observing"
_RESTARTING: Final = "Restarting"

_log = structlog.get_logger(__name__)


class _Group(Struct, frozen=True):
    """A PodGroup as it was seen last, and what it asks."""

    kind: DefinitionKind
    definition: Definition
    status: Mapping[str, Any]
    revision: int

    @property
    def path(self) -> str:
        declared = self.definition
        return object_path(declared.api_version, self.kind.plural, declared.namespace, declared.name)

    @property
    def reference(self) -> ObjectReference:
        declared = self.definition
        return ObjectReference(declared.api_version, declared.kind, declared.namespace, declared.name, declared.uid)


class PodGroups:
    """The controller of PodGroups of all kinds that have a status of counts."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._calls = Calls(surroundings.session)
        self._events = EventLog(self._calls, surroundings.settings.instance)
        self._members = Members(surroundings.settings.scheduler_names)
        self._groups: dict[str, _Group] = {}
        self._of_uid: dict[str, str] = {}
        self._told: dict[str, tuple[str, str]] = {}
        self._fallen: set[str] = set()
        """Those that were below their minimum since they were looked at last, be it for a moment."""
        self._carried_out: dict[str, str] = {}
        """When those fell below that have been restarted, until that is forgotten."""
        self._pace = RestartPace()
        self._leadership = surroundings.leadership
        self._queue = WorkQueue(
            "pod-groups", self._look, self._everything, surroundings.leadership, surroundings.watches
        )
        surroundings.watches.follow(PODS, self._take_pods)
        for kind in _KINDS:
            surroundings.watches.follow(definitions(kind), partial(self._take_groups, kind))

    async def run(self) -> None:
        """Until cancelled."""
        await self._queue.run()

    # -- what there is

    def _take_pods(self, changes: Changes[Pod]) -> None:
        for item in changes.items:
            for touched in self._members.put(item):
                if (group := self._groups.get(touched.gang_id)) is not None:
                    if touched.stopped and self._leadership.leads:
                        self._note_fall(touched.gang_id, group)
                    self._queue.add(touched.gang_id, _TOGETHER_SECONDS)

    def _note_fall(self, gang_id: str, group: _Group) -> None:
        """The next look may come when the pod has been replaced."""
        if _restarts_after(group) is not None and self._plan(gang_id, group, time.time()).step is Step.REMEMBER:
            self._fallen.add(gang_id)

    def _take_groups(self, kind: DefinitionKind, changes: Changes[PodGroup]) -> None:
        for item in changes.items:
            if not isinstance(item, Removed):
                self._take(kind, item)
            elif (gang_id := self._of_uid.pop(item.uid, None)) is not None and self._is(gang_id, item.uid):
                del self._groups[gang_id]
                self._forget(gang_id)

    def _forget(self, gang_id: str) -> None:
        """What is remembered of a group that is gone, whose name another one may have by now."""
        self._told.pop(gang_id, None)
        self._fallen.discard(gang_id)
        self._carried_out.pop(gang_id, None)
        self._pace.forget(gang_id)

    def _take(self, kind: DefinitionKind, seen: PodGroup) -> None:
        declared = definition(seen, kind)
        gang_id = defined_gang(declared)
        if gang_id is None:
            return
        known = self._groups.get(gang_id)
        revision = seen.metadata.revision
        if known is not None and known.definition.uid == declared.uid and known.revision >= revision:
            return  # what was written by us has been answered, and is only now told
        if known is not None and known.definition.uid != declared.uid:
            self._forget(gang_id)
        self._of_uid[declared.uid] = gang_id
        self._groups[gang_id] = _Group(kind, declared, _object(seen.status), revision)
        self._queue.add(gang_id)

    def _is(self, gang_id: str, uid: str) -> bool:
        group = self._groups.get(gang_id)
        return group is not None and group.definition.uid == uid

    def _everything(self) -> Iterable[str]:
        """What there is when this replica begins to lead. What it saw when it led before, others have dealt with."""
        self._fallen.clear()
        self._carried_out.clear()
        return list(self._groups)

    def _plan(self, gang_id: str, group: _Group, now: float) -> Plan:
        members = self._members.of(gang_id)
        minimum, counts = _minimum(group, gang_id, members), counts_of(members)
        return plan(minimum, counts, group.status, group.definition.annotations, _restarts_after(group), now)

    # -- what is to be

    async def _look(self, gang_id: str) -> float | None:
        group = self._groups.get(gang_id)
        if group is None or self._members.is_others(gang_id):
            return None
        members = self._members.of(gang_id)
        minimum, counts = _minimum(group, gang_id, members), counts_of(members)
        now = time.time()
        due = self._plan(gang_id, group, now)
        if due.step is Step.REMEMBER or (gang_id in self._fallen and BELOW_SINCE not in group.definition.annotations):
            self._fallen.discard(gang_id)
            await self._annotate(group, _timestamp(now))  # before its counts say so; what comes of it is looked at next
            return 0.0
        pause = self._pause(gang_id, due)
        if due.step is Step.RESTART and not pause:
            await self._restart(gang_id, group, minimum, members)
            members = self._members.of(gang_id)
        await self._write_status(group, _status(group, minimum, members, now))
        if due.step in (Step.RESTART, Step.FORGET) and not pause:  # not before the counts say that too few run
            await self._annotate(group, None)
            self._carried_out.pop(gang_id, None)
        await self._tell_shortage(gang_id, group, minimum, counts)
        return pause or None

    def _pause(self, gang_id: str, due: Plan) -> float:
        """Seconds until the group has to be looked at again if nothing happens; 0: it need not."""
        if due.step is not Step.RESTART or gang_id in self._carried_out:
            return due.seconds
        return self._pace.seconds_left(gang_id, asyncio.get_running_loop().time())

    async def _write_status(self, group: _Group, status: Mapping[str, Any]) -> None:
        changed = {key: value for key, value in status.items() if group.status.get(key) != value}
        if changed:
            body = {"metadata": {"uid": group.definition.uid}, "status": changed}
            self._learn(group, await self._calls.patch_status(group.path, body))

    async def _tell_shortage(self, gang_id: str, group: _Group, minimum: int, counts: Counts) -> None:
        """kube-batch's event: the group cannot run on as it should, and nothing that is there can mend it."""
        if group.kind != kube_batch.DEFINITION or not runs_below_minimum(minimum, counts):
            if self._told.get(gang_id, ("", ""))[0] == _UNSCHEDULABLE:
                del self._told[gang_id]
            return
        note = (
            f"{counts.running} of its pods run, {counts.pending} wait and {counts.succeeded} succeeded: together fewer "
            f"than its minimum of {minimum}" + (f"; {counts.failed} failed" if counts.failed else "")
        )
        await self._tell(gang_id, group, _UNSCHEDULABLE, note, _ACTION)

    # -- restarts

    async def _restart(self, gang_id: str, group: _Group, minimum: int, members: list[Member]) -> None:
        """Delete all its pods, once for each time it fell; if that cannot be, tell why."""
        since = group.definition.annotations[BELOW_SINCE]
        if self._carried_out.get(gang_id) == since:
            return
        if final := whose_end_is_final(members):
            note = (
                f"fewer than {minimum} of its pods ran, but it is not restarted: nobody would make pod {final[0].name} "
                "anew, which has no controller; delete and create the pods yourself"
            )
            await self._events.tell(group.reference, _NOT_RESTARTED, note, action=_RESTARTING)
            self._carried_out[gang_id] = since
            return
        doomed = [member for member in members if not member.deleting]
        for start in range(0, len(doomed), _AT_ONCE):
            await asyncio.gather(*map(self._delete, doomed[start : start + _AT_ONCE]))
        self._carried_out[gang_id] = since
        self._pace.note(gang_id, asyncio.get_running_loop().time())
        _log.info("restarted", pod_group=group.path, minimum=minimum, pods=len(doomed))
        note = (
            f"fewer than {minimum} of its pods ran: all {len(doomed)} were deleted, for their controllers to make "
            "them anew"
        )
        await self._events.tell(group.reference, _RESTARTED, note, action=_RESTARTING)

    async def _delete(self, member: Member) -> None:
        await self._calls.delete(object_path("v1", "pods", member.namespace, member.name), member.uid)
        self._members.doom(member)

    async def _annotate(self, group: _Group, since: str | None) -> None:
        body = {"metadata": {"uid": group.definition.uid, "annotations": {BELOW_SINCE: since}}}
        self._learn(group, await self._calls.patch(group.path, body))

    async def _tell(self, gang_id: str, group: _Group, reason: str, note: str, action: str) -> None:
        if self._told.get(gang_id) != (reason, note):
            await self._events.tell(group.reference, reason, note, action=action)
            self._told[gang_id] = (reason, note)

    def _learn(self, group: _Group, answer: Object | None) -> None:
        """What was written is known before the watch tells it."""
        if answer is not None:
            self._take(group.kind, decode_pod_group(msgspec.json.encode(answer)))


def _minimum(group: _Group, gang_id: str, members: list[Member]) -> int:
    """0 if what is declared cannot be read."""
    return read_gang(gang_id, group.definition, mark_sets(members)).minimum


def _restarts_after(group: _Group) -> float | None:
    if group.kind != kube_batch.DEFINITION:
        return None
    try:
        return kube_batch.restart_after_seconds(group.definition.spec.get("policy"))
    except BadValue:  # the gang has a Warning about it: see the dialect
        return None


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if bytes(raw) else {}
    except UNREADABLE:
        return {}


def _timestamp(unix_seconds: float) -> str:
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(group: _Group, minimum: int, members: list[Member], now: float) -> Mapping[str, Any]:
    if group.kind == kube_batch.DEFINITION:
        return kube_batch_status(counts_of(members))
    return coscheduling_status(minimum, members, group.status, _timestamp(now))
