"""Keeps the status of PodGroups true as their pods change, and restarts groups that say they want that.

What only the scheduler knows of a group is not written here, nor groups whose pods are all other schedulers'.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from muster.dialects import coscheduling, koordinator, kube_batch
from muster.dialects.definitions import DefinitionKind
from muster.kube.api_resources import PODS, definitions
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Pod, PodGroup, decode_pod_group
from muster.lifecycle.calls import Calls, Object
from muster.lifecycle.event_log import EventLog
from muster.lifecycle.pod_groups.group import Group, group_of
from muster.lifecycle.pod_groups.members import Member, Members
from muster.lifecycle.pod_groups.restarting import Restarting
from muster.lifecycle.pod_groups.restarts import BELOW_SINCE, Step
from muster.lifecycle.pod_groups.status import (
    Counts,
    coscheduling_status,
    counts_of,
    kube_batch_status,
    runs_below_minimum,
)
from muster.lifecycle.surroundings import Surroundings
from muster.lifecycle.work_queue import WorkQueue

_KINDS: Final = (kube_batch.DEFINITION, coscheduling.DEFINITION, koordinator.DEFINITION)
_TOGETHER_SECONDS: Final = 0.1
"""Changes that come within it are written at once: a large group starts with hundreds of them."""
_UNSCHEDULABLE: Final = "Unschedulable"
_ACTION: Final = "Observing"


class PodGroups:
    """The controller of PodGroups of all kinds that have a status of counts."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._leadership = surroundings.leadership
        self._calls = Calls(surroundings.session)
        self._events = EventLog(self._calls, surroundings.settings.instance)
        self._members = Members(surroundings.settings.scheduler_names)
        self._restarting = Restarting(self._calls, self._events, self._members)
        self._groups: dict[str, Group] = {}
        self._of_uid: dict[str, str] = {}
        self._told: dict[str, str] = {}
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

    def _take_pods(self, changes: ObjectChanges[Pod]) -> None:
        for item in changes.items:
            for touched in self._members.put(item):
                if (group := self._groups.get(touched.gang_id)) is not None:
                    if touched.stopped and self._leadership.leads:
                        self._restarting.note_stop(group, time.time())
                    self._queue.add(touched.gang_id, _TOGETHER_SECONDS)

    def _take_groups(self, kind: DefinitionKind, changes: ObjectChanges[PodGroup]) -> None:
        for item in changes.items:
            if not isinstance(item, Removed):
                self._take(item, kind)
            elif (gang_id := self._of_uid.pop(item.uid, None)) is not None and self._groups[gang_id].uid == item.uid:
                del self._groups[gang_id]
                self._forget(gang_id)

    def _take(self, seen: PodGroup, kind: DefinitionKind) -> None:
        group = group_of(seen, kind)
        if group is None:
            return
        known = self._groups.get(group.gang_id)
        if known is not None and known.uid != group.uid:
            self._of_uid.pop(known.uid, None)
            self._forget(group.gang_id)
        elif known is not None and known.revision >= group.revision:
            return  # what was written by us has been answered, and is only now told
        self._of_uid[group.uid] = group.gang_id
        self._groups[group.gang_id] = group
        self._queue.add(group.gang_id, _TOGETHER_SECONDS)

    def _forget(self, gang_id: str) -> None:
        """A group is gone, whose name another one may have by now."""
        self._told.pop(gang_id, None)
        self._restarting.forget(gang_id)

    def _everything(self) -> Iterable[str]:
        self._restarting.begin()
        return list(self._groups)

    # -- what is to be

    async def _look(self, gang_id: str) -> float | None:
        group = self._groups.get(gang_id)
        if group is None or self._members.is_others(gang_id):
            return None
        now = time.time()
        members = self._members.of(gang_id)
        minimum, counts = group.minimum(members), counts_of(members)
        due = self._restarting.due(group, now)
        if due.step is Step.REMEMBER:
            await self._annotate(group, _timestamp(now))  # before its counts say so; what comes of it is looked at next
            self._restarting.remembered(group)
            return 0.0
        if due.step is Step.RESTART:
            await self._restarting.carry_out(group, minimum)
            members = self._members.of(gang_id)
        await self._write_status(group, _status(group, minimum, members, now))
        if due.step in (Step.RESTART, Step.FORGET):  # not before the counts say that too few run
            await self._annotate(group, None)
            self._restarting.forgotten(group)
        await self._tell_shortage(group, minimum, counts)
        return due.seconds or None

    async def _write_status(self, group: Group, status: Mapping[str, Any]) -> None:
        changed = {key: value for key, value in status.items() if group.status.get(key) != value}
        if not changed:
            return
        # A pod may stop before the answer is here, and others know by then that so many ran.
        written = self._groups[group.gang_id] = replace(group, status={**group.status, **changed})
        try:
            answer = await self._calls.patch_status(group.path, {"metadata": {"uid": group.uid}, "status": changed})
        except BaseException:
            if self._groups.get(group.gang_id) is written:
                self._groups[group.gang_id] = group
            raise
        self._learn(group, answer)

    async def _annotate(self, group: Group, below_since: str | None) -> None:
        body = {"metadata": {"uid": group.uid, "annotations": {BELOW_SINCE: below_since}}}
        self._learn(group, await self._calls.patch(group.path, body))

    def _learn(self, group: Group, answer: Object | None) -> None:
        """What was written is known before the watch tells it."""
        known = self._groups.get(group.gang_id)
        if answer is not None and known is not None and known.uid == group.uid:
            self._take(decode_pod_group(msgspec.json.encode(answer)), group.kind)

    async def _tell_shortage(self, group: Group, minimum: int, counts: Counts) -> None:
        """kube-batch's event: the group cannot run on as it should, and nothing that is there can mend it."""
        if not group.is_kube_batch or not runs_below_minimum(minimum, counts):
            self._told.pop(group.gang_id, None)
            return
        note = (
            f"{counts.running} of its pods run, {counts.pending} wait and {counts.succeeded} succeeded: together fewer "
            f"than its minimum of {minimum}" + (f"; {counts.failed} failed" if counts.failed else "")
        )
        if self._told.get(group.gang_id) != note:
            await self._events.tell(group.definition.reference, _UNSCHEDULABLE, note, action=_ACTION)
            self._told[group.gang_id] = note


def _status(group: Group, minimum: int, members: list[Member], now_seconds: float) -> Mapping[str, Any]:
    if group.is_kube_batch:
        return kube_batch_status(counts_of(members))
    return coscheduling_status(minimum, members, group.status, _timestamp(now_seconds))


def _timestamp(unix_seconds: float) -> str:
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
