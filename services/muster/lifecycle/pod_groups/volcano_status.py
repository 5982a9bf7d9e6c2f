"""The status of Volcano's PodGroup: phase, counts and conditions, from its pods. Pure.

    "", Pending -> Inqueue -> Running -> Completed
                   the pods   minimum    all pods that
                   may be     has nodes, have a node
                   created    or ended   ended

    Unknown   some are running, but for some seconds fewer than the minimum have nodes, after enough had

A group of which no pod is left and that was not completed is Inqueue again, and after the same time not scheduled.

Volcano's Job controller creates no pod before the phase is Inqueue. Unknown lets it apply its policies, so a pod that
is replaced within the grace period does not cause it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.lifecycle.pod_groups.members import Member

PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED = "Pending", "Inqueue", "Running", "Unknown", "Completed"

GRACE_SECONDS: Final = 5.0
"""How long a group is below its minimum before its status says so: most pods are placed or replaced within seconds."""

_TRANSITION_ID: Final = "muster"
_SCHEDULED, _UNSCHEDULABLE = "Scheduled", "Unschedulable"
_STARTED: Final = (RUNNING, UNKNOWN)
_READY: Final = "tasks in gang are ready to be scheduled"


class TaskCounts(Struct, frozen=True):
    """Numbers of pods. `scheduled` also counts pods on their way out that still occupy a node."""

    pods: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def ended(self) -> int:
        """Pods that succeeded or failed."""
        return self.succeeded + self.failed


def task_counts(members: Sequence[Member]) -> TaskCounts:
    """Counts the members as Volcano counts tasks."""
    present = [member for member in members if not member.deleting]
    phases = [member.phase for member in present]
    occupied = sum(1 for member in members if member.deleting and member.node and not member.ended)
    return TaskCounts(
        pods=len(present),
        scheduled=sum(1 for member in present if member.node or member.ended) + occupied,
        running=phases.count("Running"),
        succeeded=phases.count("Succeeded"),
        failed=phases.count("Failed"),
    )


def was_written(status: Mapping[str, Any]) -> bool:
    """Returns whether a condition in the status is Muster's: the group has had pods of Muster's."""
    return any(each.get("transitionID") == _TRANSITION_ID for each in _present(status.get("conditions")))


def is_short(minimum: int, counts: TaskCounts, before: Mapping[str, Any]) -> bool:
    """Returns whether fewer pods than the minimum have a node or have ended, of a group that has pods or, according to
    `before`, its present status, had enough and was not completed.
    """
    if counts.scheduled >= max(minimum, 1):
        return False
    return counts.pods > 0 or (before.get("phase") != COMPLETED and _is_scheduled(before))


def _is_scheduled(status: Mapping[str, Any]) -> bool:
    return any(
        each.get("type") == _SCHEDULED and each.get("transitionID") == _TRANSITION_ID
        for each in _present(status.get("conditions"))
    )


def volcano_status(
    minimum: int, counts: TaskCounts, before: Mapping[str, Any], now: str, *, short: bool
) -> dict[str, Any]:
    """Returns the fields of the status that differ from `before`, the present status; `now` is an API timestamp.

    `short`: the group has been below its minimum for the grace period. A completed group stays completed when its pods
    are deleted.
    """
    phase = _phase(minimum, counts, before.get("phase"), short=short)
    status: dict[str, Any] = {
        "phase": phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }
    conditions = _conditions(minimum, counts, before.get("conditions"), phase, now, short=short)
    if conditions is not None:
        status["conditions"] = conditions
    return {key: value for key, value in status.items() if (before.get(key) or 0) != value}


def _phase(minimum: int, counts: TaskCounts, before: Any, *, short: bool) -> str:
    if before == COMPLETED and not counts.pods:
        return COMPLETED
    if counts.scheduled >= max(minimum, 1):
        return COMPLETED if counts.ended == counts.scheduled else RUNNING
    if before in _STARTED and counts.running:
        return UNKNOWN if short or before == UNKNOWN else RUNNING
    return INQUEUE


def _conditions(
    minimum: int, counts: TaskCounts, before: Any, phase: str, now: str, *, short: bool
) -> list[dict[str, Any]] | None:
    """Returns all conditions, with one of the two types that Volcano knows; None if none changes."""
    present = _present(before)
    if phase == RUNNING and not short:
        changed = _condition(_SCHEDULED, "True", _READY, "", now)
    elif short:
        needed = max(minimum, 1)
        few = counts.pods < needed
        shown = f"{counts.pods} of {needed} pods exist" if few else f"{counts.scheduled} of {needed} pods have a node"
        reason = "NotEnoughTasks" if few else "NotEnoughResources"
        changed = _condition(_UNSCHEDULABLE, "True", reason, f"{shown}; the events of the pods say why", now)
    else:
        return None
    ours = [each for each in present if each.get("type") in (_SCHEDULED, _UNSCHEDULABLE)]
    if [_content(each) for each in ours] == [_content(changed)]:
        return None
    return [*(each for each in present if each not in ours), changed]


def _present(conditions: Any) -> list[dict[str, Any]]:
    return [each for each in conditions if isinstance(each, dict)] if isinstance(conditions, list) else []


def _condition(type_: str, status: str, reason: str, message: str, now: str) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "transitionID": _TRANSITION_ID,
        "lastTransitionTime": now,
    }


def _content(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(condition.get(key) or "" for key in ("type", "status", "reason", "message"))
