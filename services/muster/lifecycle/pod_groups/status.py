"""The status of a PodGroup: counts and phase, from its pods. Pure.

Pods that are being deleted do not count.

The phases are those of the coscheduling plugin:

    Pending -> PreScheduling -> Scheduling -> Scheduled -> Running -> Finished
      fewer      complete,        some have     minimum      minimum     minimum
      pods than  none has a       a node        has nodes    running or  succeeded
      the        node                                        succeeded
      minimum

    Unknown   some are running, but too few pods are left, or they lost their nodes after the group had started
    Failed    some failed, and at least the minimum have ended or are running
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from muster.lifecycle.pod_groups.members import Member

FINISHED, FAILED, UNKNOWN = "Finished", "Failed", "Unknown"
PENDING, PRE_SCHEDULING, SCHEDULING, SCHEDULED, RUNNING = (
    "Pending",
    "PreScheduling",
    "Scheduling",
    "Scheduled",
    "Running",
)

_STARTED: Final = (SCHEDULED, RUNNING, UNKNOWN)


class Counts(Struct, frozen=True):
    """Numbers of pods. `scheduled` counts pods with a node, whatever their phase."""

    pods: int = 0
    pending: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


def counts_of(members: Sequence[Member]) -> Counts:
    """Counts the members that are not being deleted."""
    present = [member for member in members if not member.deleting]
    phases = [member.phase for member in present]
    return Counts(
        pods=len(present),
        pending=phases.count("Pending"),
        scheduled=sum(1 for member in present if member.node),
        running=phases.count("Running"),
        succeeded=phases.count("Succeeded"),
        failed=phases.count("Failed"),
    )


def kube_batch_status(counts: Counts) -> dict[str, Any]:
    """Returns the status of kube-batch's PodGroup."""
    return {
        "admitted": counts.scheduled,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }


def coscheduling_status(
    minimum: int, members: Sequence[Member], before: Mapping[str, Any], now: str
) -> Mapping[str, Any]:
    """Returns the status of the coscheduling plugin's PodGroup. `before` is its present status, `now` an API timestamp.

    A finished group with too few pods left to start again keeps its status, because ended pods may be deleted. So does
    a failed one, once all its pods are gone.
    """
    counts = counts_of(members)
    if _is_over(minimum, counts, before):
        return before
    phase = _phase(minimum, counts, before.get("phase"))
    status = {
        "phase": phase,
        "scheduled": counts.scheduled,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }
    if phase != PENDING:
        status["occupiedBy"] = _occupied_by(members, before)
        status["scheduleStartTime"] = before.get("scheduleStartTime") or now
    return status


def runs_below_minimum(minimum: int, counts: Counts) -> bool:
    """Returns whether some pods are running, but too few are left to reach the minimum."""
    return counts.running > 0 and counts.succeeded + counts.pending + counts.running < minimum


def _is_over(minimum: int, counts: Counts, before: Mapping[str, Any]) -> bool:
    if before.get("phase") == FINISHED:
        return counts.pending + counts.running < max(minimum, 1) and counts.succeeded < minimum
    return before.get("phase") == FAILED and not counts.pods


def _phase(minimum: int, counts: Counts, before: Any) -> str:
    if minimum < 1:  # invalid declaration
        return PENDING
    if counts.succeeded >= minimum:
        return FINISHED
    if counts.failed and counts.failed + counts.running + counts.succeeded >= minimum:
        return FAILED
    if counts.running + counts.succeeded >= minimum:
        return RUNNING
    if counts.scheduled >= minimum and counts.pods >= minimum:
        return SCHEDULED
    if counts.running and (counts.pods < minimum or before in _STARTED):
        return UNKNOWN
    if counts.pods < minimum:
        return PENDING
    return SCHEDULING if counts.scheduled else PRE_SCHEDULING


def _occupied_by(members: Sequence[Member], before: Mapping[str, Any]) -> str:
    """Returns who occupies the group: set each time that it becomes complete, and kept while pods have no owner."""
    known = before.get("occupiedBy")
    kept = known if isinstance(known, str) else ""
    becomes_complete = before.get("phase") in (None, "", PENDING, FINISHED, FAILED)
    return (_occupant(members) or kept) if becomes_complete or not kept else kept


def _occupant(members: Sequence[Member]) -> str:
    """Returns the owners of the oldest pod."""
    return ",".join(f"{members[0].namespace}/{owner}" for owner in members[0].owners) if members else ""
