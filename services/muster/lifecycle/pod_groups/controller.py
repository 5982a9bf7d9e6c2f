"""The PodGroup controller: keeps the status of PodGroups up to date and restarts groups with a restart policy.

It leaves out what only the scheduler knows of a group, and groups whose pods all belong to other schedulers.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from muster.dialects import coscheduling, koordinator, kube_batch, volcano
from muster.dialects.definitions import DefinitionKind
from muster.kube.api_resources import PODS, definitions
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Pod, PodGroup, decode_pod_group
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import Object, ObjectClient
from muster.lifecycle.pod_groups.group import Group, group_of, volcano_key
from muster.lifecycle.pod_groups.members import Member, Members
from muster.lifecycle.pod_groups.restart_plan import BELOW_SINCE, Step
from muster.lifecycle.pod_groups.restarter import Restarter
from muster.lifecycle.pod_groups.status import (
    Counts,
    coscheduling_status,
    counts_of,
    kube_batch_status,
    runs_below_minimum,
)
from muster.lifecycle.pod_groups.volcano_jobs import is_ours, is_volcano_job
from muster.lifecycle.pod_groups.volcano_scheduler import VolcanoScheduler
from muster.lifecycle.pod_groups.volcano_status import (
    GRACE_SECONDS,
    is_short,
    task_counts,
    volcano_status,
    was_written,
)
from muster.lifecycle.work_queue import WorkQueue

_KINDS: Final = (kube_batch.DEFINITION, coscheduling.DEFINITION, koordinator.DEFINITION)
_BATCH_SECONDS: Final = 0.1
"""Changes within this time are written together: a large group causes hundreds of them when it starts."""
_UNSCHEDULABLE: Final = "Unschedulable"
_ACTION: Final = "Observing"


class PodGroupController:
    """Reconciles PodGroups of all kinds whose status has counts, each by its key (Group.key).

    Everything that is remembered of a group ends with it (I11).
    """

    def __init__(self, context: ControllerContext) -> None:
        self._leadership = context.leadership
        self._client = ObjectClient(context.session)
        self._events = EventRecorder(self._client, context.settings.instance)
        self._members = Members(context.settings.scheduler_names)
        self._restarter = Restarter(self._client, self._events, self._members)
        self._groups: dict[str, Group] = {}
        self._keys_by_uid: dict[str, str] = {}
        self._shortage_notes: dict[str, str] = {}
        self._short_since: dict[str, float] = {}
        """When Volcano's groups fell below their minimum (monotonic clock), by key; dropped with the group."""
        self._scheduler_names = frozenset(context.settings.scheduler_names)
        self._volcano = VolcanoScheduler(context.session, context.settings.volcano, self._queue_volcano)
        self._queue = WorkQueue(
            "pod-groups",
            self._reconcile,
            self._all_keys,
            context.leadership,
            context.informers,
            namespace_of=_namespace,
        )
        context.informers.add_handler(PODS, self._on_pods)
        writes_volcano = context.settings.volcano.status != "never"
        for kind in (*_KINDS, volcano.DEFINITION) if writes_volcano else _KINDS:
            context.informers.add_handler(definitions(kind), partial(self._on_groups, kind))

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._volcano.run(), name="observe Volcano's scheduler")
            await self._queue.run()

    # -- informer handlers

    def _on_pods(self, changes: ObjectChanges[Pod]) -> None:
        for item in changes.items:
            for change in self._members.put(item):
                if (group := self._groups.get(change.gang_id)) is not None:
                    if change.stopped and self._leadership.leads:
                        self._restarter.pod_stopped(group, time.time())
                    self._queue.add(change.gang_id, _BATCH_SECONDS)
                if (key := volcano_key(change.gang_id)) in self._groups:
                    self._queue.add(key, _BATCH_SECONDS)

    def _on_groups(self, kind: DefinitionKind, changes: ObjectChanges[PodGroup]) -> None:
        for item in changes.items:
            if not isinstance(item, Removed):
                self._put(item, kind)
            elif (key := self._keys_by_uid.pop(item.uid, None)) is not None and self._groups[key].uid == item.uid:
                del self._groups[key]
                self._drop(key)

    def _put(self, seen: PodGroup, kind: DefinitionKind) -> None:
        group = group_of(seen, kind)
        if group is None:
            return
        known = self._groups.get(group.key)
        if known is not None and known.uid != group.uid:
            self._keys_by_uid.pop(known.uid, None)
            self._drop(group.key)
        elif known is not None and known.revision >= group.revision:
            return  # older than the response to our own write
        if group.is_volcano:
            self._volcano.start()
        self._keys_by_uid[group.uid] = group.key
        self._groups[group.key] = group
        self._queue.add(group.key, _BATCH_SECONDS)

    def _drop(self, key: str) -> None:
        """Drops what is remembered of a deleted group, whose name another group may have by now."""
        self._shortage_notes.pop(key, None)
        self._short_since.pop(key, None)
        self._restarter.drop(key)

    def _queue_volcano(self) -> None:
        """Queues all PodGroups of Volcano: its scheduler does not write their status any more."""
        for key, group in self._groups.items():
            if group.is_volcano:
                self._queue.add(key)

    def _all_keys(self) -> Iterable[str]:
        self._restarter.start_leading()
        return list(self._groups)

    # -- reconciliation

    async def _reconcile(self, key: str) -> float | None:
        try:
            return await self._reconcile_group(key)
        finally:
            if key not in self._groups:  # deleted meanwhile
                self._drop(key)

    async def _reconcile_group(self, key: str) -> float | None:
        group = self._groups.get(key)
        if group is None or self._members.is_foreign(group.gang_id):
            return None
        if group.is_volcano:
            return await self._reconcile_volcano(group)
        now = time.time()
        gang_id = group.gang_id
        members = self._members.of(gang_id)
        minimum, counts = group.minimum(members), counts_of(members)
        plan = self._restarter.next_step(group, now)
        if plan.step is Step.MARK_BELOW_MINIMUM:
            await self._annotate(group, _timestamp(now))  # before its counts say so; reconciled again at once
            self._restarter.marked(group)
            return 0.0
        if plan.step is Step.RESTART:
            await self._restarter.restart(group, minimum)
            members = self._members.of(gang_id)
        await self._write_status(group, _status(group, minimum, members, now))
        if plan.step in (Step.RESTART, Step.CLEAR_MARK):  # not before the counts say that too few are running
            await self._annotate(group, None)
            self._restarter.mark_cleared(group)
        await self._report_shortage(group, minimum, counts)
        return plan.seconds or None

    async def _reconcile_volcano(self, group: Group) -> float | None:
        """Writes the status, unless Volcano's scheduler does, or the group has no pods and is not known to be ours."""
        if not self._volcano.absent:
            return None
        members = self._members.of(group.gang_id)
        minimum, counts = group.minimum(members), task_counts(members)
        if minimum < 1:  # invalid declaration
            return None
        if not members and not was_written(group.status):
            owner = group.definition.controller
            if owner is None or not is_volcano_job(owner):
                return None
            if not await is_ours(self._client, group.definition.namespace, owner, self._scheduler_names):
                return None
        clock, since, left = asyncio.get_running_loop().time(), 0.0, 0.0
        if is_short(minimum, counts, group.status):
            since = self._short_since.setdefault(group.key, clock)
            left = since + GRACE_SECONDS - clock
        else:
            self._short_since.pop(group.key, None)
        short = bool(since) and left <= 0
        now = _timestamp(time.time())
        await self._write_status(group, volcano_status(minimum, counts, group.status, now, short=short))
        return left if left > 0 else None

    async def _write_status(self, group: Group, status: Mapping[str, Any]) -> None:
        changed = {key: value for key, value in status.items() if group.status.get(key) != value}
        if not changed:
            return
        # A pod may stop before the response arrives, while others already know these counts.
        written = self._groups[group.key] = replace(group, status={**group.status, **changed})
        write = self._client.patch if group.is_volcano else self._client.patch_status  # Volcano's has no subresource
        try:
            answer = await write(group.path, {"metadata": {"uid": group.uid}, "status": changed})
        except BaseException:
            if self._groups.get(group.key) is written:
                self._groups[group.key] = group
            raise
        self._apply(group, answer)

    async def _annotate(self, group: Group, below_since: str | None) -> None:
        body = {"metadata": {"uid": group.uid, "annotations": {BELOW_SINCE: below_since}}}
        self._apply(group, await self._client.patch(group.path, body))

    def _apply(self, group: Group, answer: Object | None) -> None:
        """Applies the response to a write before the informer delivers it."""
        known = self._groups.get(group.key)
        if answer is not None and known is not None and known.uid == group.uid:
            self._put(decode_pod_group(msgspec.json.encode(answer)), group.kind)

    async def _report_shortage(self, group: Group, minimum: int, counts: Counts) -> None:
        """Records kube-batch's event for a group that has too few pods left to reach its minimum."""
        if not group.is_kube_batch or not runs_below_minimum(minimum, counts):
            self._shortage_notes.pop(group.gang_id, None)
            return
        note = (
            f"{counts.running} of its pods are running, {counts.pending} pending and {counts.succeeded} succeeded: "
            f"fewer than its minimum of {minimum}" + (f"; {counts.failed} failed" if counts.failed else "")
        )
        if self._shortage_notes.get(group.gang_id) != note:
            await self._events.record(group.definition.reference, _UNSCHEDULABLE, note, action=_ACTION)
            self._shortage_notes[group.gang_id] = note


def _namespace(gang_id: str) -> str:
    """The namespace of a gang id: "dialect/namespace/name"."""
    return gang_id.split("/", 2)[1]


def _status(group: Group, minimum: int, members: list[Member], now_seconds: float) -> Mapping[str, Any]:
    if group.is_kube_batch:
        return kube_batch_status(counts_of(members))
    return coscheduling_status(minimum, members, group.status, _timestamp(now_seconds))


def _timestamp(unix_seconds: float) -> str:
    return datetime.fromtimestamp(int(unix_seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
