"""Restarts PodGroups as a whole: remembers groups below their minimum, backs off, and deletes their pods."""

import asyncio
import time
from typing import Final

import structlog
from msgspec import Struct

from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.kube.timestamps import timestamp
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.pod_groups.group import Group
from muster.lifecycle.pod_groups.members import Member, Members
from muster.lifecycle.pod_groups.restart_plan import BELOW_SINCE, Plan, Step, plan, pods_without_controller
from muster.lifecycle.pod_groups.status import counts_of

_CONCURRENT_CALLS: Final = 16
"""Pods of a group that are deleted concurrently."""
_RESTARTED: Final = "Restarted"
_NOT_RESTARTED: Final = "CannotRestart"
_ACTION: Final = "Restarting"
_DISRUPTED: Final = "DisruptionTarget"
"""Condition of pods by which a Job distinguishes this deletion from a failure."""
_DISRUPTED_BY_RESTART: Final = "PodGroupRestarted"

_FIRST_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 300.0
_RESET_SECONDS: Final = 600.0

_log = structlog.get_logger(__name__)


class _RestartHistory(Struct, frozen=True):
    count: int
    last: float


class RestartBackoff:
    """Backoff between restarts, by group. `now` is a monotonic clock.

    The first restart is immediate. The next ones wait 10 s after the last one, then 20 s, up to five minutes. After ten
    minutes without a restart the backoff starts over, as it does for a new leader.
    """

    def __init__(self) -> None:
        self._restarts: dict[str, _RestartHistory] = {}

    def seconds_left(self, key: str, now: float) -> float:
        """Returns the seconds until a group may be restarted; 0: now."""
        before = self._recent(key, now)
        if before is None:
            return 0.0
        pause = min(_MAX_SECONDS, _FIRST_SECONDS * 2.0 ** min(before.count - 1, 16))
        return max(0.0, before.last + pause - now)

    def record(self, key: str, now: float) -> None:
        """Records a restart."""
        before = self._recent(key, now)
        self._restarts[key] = _RestartHistory(1 if before is None else before.count + 1, now)

    def drop(self, key: str) -> None:
        """Drops a deleted group."""
        self._restarts.pop(key, None)

    def _recent(self, key: str, now: float) -> _RestartHistory | None:
        before = self._restarts.get(key)
        return before if before is not None and now - before.last < _RESET_SECONDS else None


class Restarter:
    """Restarts groups. Its state covers only the time for which this replica leads.

    Entries end with their group (I11).
    """

    def __init__(self, client: ObjectClient, events: EventRecorder, members: Members) -> None:
        self._client, self._events, self._members = client, events, members
        self._backoff = RestartBackoff()
        self._fell_below: set[str] = set()
        """Groups that were below their minimum since they were last reconciled, even for a moment."""
        self._restarted: dict[str, str] = {}
        """Times of falling below the minimum of restarted groups, until the mark is cleared."""

    def start_leading(self) -> None:
        """Clears the state of an earlier time as the leader; another leader has acted on it since."""
        self._fell_below.clear()
        self._restarted.clear()

    def drop(self, gang_id: str) -> None:
        """Drops a deleted group."""
        self._fell_below.discard(gang_id)
        self._restarted.pop(gang_id, None)
        self._backoff.drop(gang_id)

    def pod_stopped(self, group: Group, now_seconds: float) -> None:
        """Notes that a running pod stopped: it may be replaced before the group is reconciled."""
        known = group.gang_id in self._fell_below or BELOW_SINCE in group.definition.annotations
        if known or group.restarts_after is None:
            return
        if self._plan(group, now_seconds).step is Step.MARK_BELOW_MINIMUM:
            self._fell_below.add(group.gang_id)

    def next_step(self, group: Group, now_seconds: float) -> Plan:
        """Returns the next step. A restart waits for its backoff."""
        planned = self._plan(group, now_seconds)
        if group.gang_id in self._fell_below and BELOW_SINCE not in group.definition.annotations:
            return Plan(Step.MARK_BELOW_MINIMUM)
        if planned.step is Step.RESTART and group.gang_id not in self._restarted:
            left = self._backoff.seconds_left(group.gang_id, asyncio.get_running_loop().time())
            return Plan(Step.WAIT, left) if left > 0 else planned
        return planned

    def marked(self, group: Group) -> None:
        """Records that the group has been marked as below its minimum."""
        self._fell_below.discard(group.gang_id)

    def mark_cleared(self, group: Group) -> None:
        """Records that the mark has been cleared."""
        self._restarted.pop(group.gang_id, None)

    async def restart(self, group: Group, minimum: int) -> None:
        """Deletes all pods of the group, once for each time it fell below its minimum.

        Records an event instead if pods would not come back. Raises KubeUnreachable and ApiStatusError.
        """
        since = group.definition.annotations[BELOW_SINCE]
        if self._restarted.get(group.gang_id) == since:
            return
        members = self._members.of(group.gang_id)
        if final := pods_without_controller(members):
            note = (
                f"fewer than {minimum} of its pods were running, but it is not restarted: pod {final[0].name} has no "
                "controller to recreate it; delete and create the pods yourself"
            )
            await self._events.record(group.definition.reference, _NOT_RESTARTED, note, action=_ACTION)
            self._restarted[group.gang_id] = since
            return
        to_delete = [member for member in members if not member.deleting]
        for start in range(0, len(to_delete), _CONCURRENT_CALLS):
            await asyncio.gather(*map(self._delete, to_delete[start : start + _CONCURRENT_CALLS]))
        self._restarted[group.gang_id] = since
        self._backoff.record(group.gang_id, asyncio.get_running_loop().time())
        _log.info("pod_group_restarted", pod_group=group.path, minimum=minimum, pods=len(to_delete))
        note = (
            f"fewer than {minimum} of its pods were running: all {len(to_delete)} were deleted, for their controllers "
            "to recreate"
        )
        await self._events.record(group.definition.reference, _RESTARTED, note, action=_ACTION)

    async def _delete(self, member: Member) -> None:
        path = object_path("v1", "pods", member.namespace, member.name)
        condition = {
            "type": _DISRUPTED,
            "status": "True",
            "reason": _DISRUPTED_BY_RESTART,
            "message": "its PodGroup is restarted as a whole",
            "lastTransitionTime": timestamp(time.time()),
        }
        try:
            await self._client.set_condition(path, member.uid, condition)
        except ApiStatusError as error:  # restart the group anyway
            _log.warning("pod_condition_failed", pod=f"{member.namespace}/{member.name}", error=str(error))
        await self._client.delete(path, member.uid)
        self._members.mark_deleted(member)

    def _plan(self, group: Group, now_seconds: float) -> Plan:
        members = self._members.of(group.gang_id)
        minimum, counts = group.minimum(members), counts_of(members)
        return plan(minimum, counts, group.status, group.definition.annotations, group.restarts_after, now_seconds)
