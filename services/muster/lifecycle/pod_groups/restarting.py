"""Restarts groups that ask for it: what is remembered between two looks at a group, and the deletion of its pods."""

import asyncio
import time
from typing import Final

import structlog

from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError
from muster.kube.timestamps import timestamp
from muster.lifecycle.calls import Calls
from muster.lifecycle.event_log import EventLog
from muster.lifecycle.pod_groups.group import Group
from muster.lifecycle.pod_groups.members import Member, Members
from muster.lifecycle.pod_groups.pace import RestartPace
from muster.lifecycle.pod_groups.restarts import BELOW_SINCE, Plan, Step, plan, whose_end_is_final
from muster.lifecycle.pod_groups.status import counts_of

_AT_ONCE: Final = 16
"""Pods of a group that are deleted at the same time."""
_RESTARTED: Final = "Restarted"
_NOT_RESTARTED: Final = "CannotRestart"
_ACTION: Final = "Restarting"
_DISRUPTED: Final = "DisruptionTarget"
"""Condition of pods by which a Job can tell this end from a failure of their own."""
_DISRUPTED_BY_RESTART: Final = "PodGroupRestarted"

_log = structlog.get_logger(__name__)


class Restarting:
    """Of all groups. All that it keeps is about the time in which this replica leads."""

    def __init__(self, calls: Calls, events: EventLog, members: Members) -> None:
        self._calls, self._events, self._members = calls, events, members
        self._pace = RestartPace()
        self._fallen: set[str] = set()
        """Those that were below their minimum since they were looked at last, be it for a moment."""
        self._carried_out: dict[str, str] = {}
        """When those fell below that have been restarted, until that is forgotten."""

    def begin(self) -> None:
        """To be called when this replica begins to lead: what it saw when it led before, others have dealt with."""
        self._fallen.clear()
        self._carried_out.clear()

    def forget(self, gang_id: str) -> None:
        """The group is gone."""
        self._fallen.discard(gang_id)
        self._carried_out.pop(gang_id, None)
        self._pace.forget(gang_id)

    def note_stop(self, group: Group, now_seconds: float) -> None:
        """A pod of it stopped running. The next look may come when that pod has been replaced."""
        known = group.gang_id in self._fallen or BELOW_SINCE in group.definition.annotations
        if known or group.restarts_after is None:
            return
        if self._planned(group, now_seconds).step is Step.REMEMBER:
            self._fallen.add(group.gang_id)

    def due(self, group: Group, now_seconds: float) -> Plan:
        """What is to be done. A restart whose turn has not come yet is waited for."""
        due = self._planned(group, now_seconds)
        if group.gang_id in self._fallen and BELOW_SINCE not in group.definition.annotations:
            return Plan(Step.REMEMBER)
        if due.step is Step.RESTART and group.gang_id not in self._carried_out:
            left = self._pace.seconds_left(group.gang_id, asyncio.get_running_loop().time())
            return Plan(Step.WAIT, left) if left > 0 else due
        return due

    def remembered(self, group: Group) -> None:
        """It has the annotation that says since when it is below."""
        self._fallen.discard(group.gang_id)

    def forgotten(self, group: Group) -> None:
        """It has that annotation no more."""
        self._carried_out.pop(group.gang_id, None)

    async def carry_out(self, group: Group, minimum: int) -> None:
        """Delete all its pods, once for each time it fell; if that cannot be, tell why. Raises KubeUnreachable and
        ApiStatusError.
        """
        since = group.definition.annotations[BELOW_SINCE]
        if self._carried_out.get(group.gang_id) == since:
            return
        members = self._members.of(group.gang_id)
        if final := whose_end_is_final(members):
            note = (
                f"fewer than {minimum} of its pods ran, but it is not restarted: nobody would make pod {final[0].name} "
                "anew, which has no controller; delete and create the pods yourself"
            )
            await self._events.tell(group.definition.reference, _NOT_RESTARTED, note, action=_ACTION)
            self._carried_out[group.gang_id] = since
            return
        doomed = [member for member in members if not member.deleting]
        for start in range(0, len(doomed), _AT_ONCE):
            await asyncio.gather(*map(self._delete, doomed[start : start + _AT_ONCE]))
        self._carried_out[group.gang_id] = since
        self._pace.note(group.gang_id, asyncio.get_running_loop().time())
        _log.info("restarted", pod_group=group.path, minimum=minimum, pods=len(doomed))
        note = (
            f"fewer than {minimum} of its pods ran: all {len(doomed)} were deleted, for their controllers to make "
            "them anew"
        )
        await self._events.tell(group.definition.reference, _RESTARTED, note, action=_ACTION)

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
            await self._calls.set_condition(path, member.uid, condition)
        except ApiStatusError as error:  # that is no reason to leave half a group running
            _log.warning("pod not told why it is deleted", pod=f"{member.namespace}/{member.name}", error=str(error))
        await self._calls.delete(path, member.uid)
        self._members.doom(member)

    def _planned(self, group: Group, now_seconds: float) -> Plan:
        members = self._members.of(group.gang_id)
        minimum, counts = group.minimum(members), counts_of(members)
        return plan(minimum, counts, group.status, group.definition.annotations, group.restarts_after, now_seconds)
