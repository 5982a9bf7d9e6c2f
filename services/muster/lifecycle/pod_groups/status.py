"""What the status of a PodGroup says of its pods, by their number and what became of them. Pure.

Pods that are being deleted count no more: whatever they still do, the group cannot count on them.

The phases are those of the coscheduling plugin:

    Pending -> PreScheduling -> Scheduling -> Scheduled -> Running -> Finished
      fewer      all there,       some have     as many      as many     as many
      pods than  none has a       a node        as the       run or      succeeded
      the        node                           minimum      succeeded
      minimum                                   have one

    Unknown   some run, and of the others there are too few, or they lost their nodes after the group had started
    Failed    some failed, and those that ended or run are as many as the minimum
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
    """How many pods there are, and what became of them. `scheduled`: they were given a node, whatever came after."""

    pods: int = 0
    pending: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


def counts_of(members: Sequence[Member]) -> Counts:
    """Of all that are not being deleted."""
    there = [member for member in members if not member.deleting]
    phases = [member.phase for member in there]
    return Counts(
        pods=len(there),
        pending=phases.count("Pending"),
        scheduled=sum(1 for member in there if member.node),
        running=phases.count("Running"),
        succeeded=phases.count("Succeeded"),
        failed=phases.count("Failed"),
    )


def kube_batch_status(counts: Counts) -> dict[str, Any]:
    """The status of kube-batch's PodGroup."""
    return {
        "admitted": counts.scheduled,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }


def coscheduling_status(
    minimum: int, members: Sequence[Member], before: Mapping[str, Any], now: str
) -> Mapping[str, Any]:
    """The status of the coscheduling plugin's PodGroup. `before` is the one it has, `now` the time as the API has it.

    A group that finished, and of which too few pods are left to start again, stays as it is: pods that ended may be
    deleted without a change to what became of the group. So does one that failed, once all its pods are gone.
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
        status["occupiedBy"] = before.get("occupiedBy") or _occupant(members)
        status["scheduleStartTime"] = before.get("scheduleStartTime") or now
    return status


def runs_below_minimum(minimum: int, counts: Counts) -> bool:
    """Some run, but with all that may still run or succeeded there are fewer than the minimum."""
    return counts.running > 0 and counts.succeeded + counts.pending + counts.running < minimum


def _is_over(minimum: int, counts: Counts, before: Mapping[str, Any]) -> bool:
    if before.get("phase") == FINISHED:
        return counts.pending + counts.running < max(minimum, 1) and counts.succeeded < minimum
    return before.get("phase") == FAILED and not counts.pods


def _phase(minimum: int, counts: Counts, before: Any) -> str:
    if minimum < 1:  # what it declares cannot be read
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


def _occupant(members: Sequence[Member]) -> str:
    """The workload that the oldest pod is of."""
    return ",".join(f"{members[0].namespace}/{owner}" for owner in members[0].owners) if members else ""
