"""When a PodGroup is restarted as a whole, because too few of its pods run. Pure.

    enough run --fewer--> below (since then) --timeout--> restart: all pods are deleted --> none run
        ^                    |
        +----enough again----+

That enough ran is remembered by the counts in the group's status, that it fell below by an annotation of the group. So
whoever looks next goes on where somebody stopped, and a group that has only begun to start is never taken for one that
broke.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

from muster.kube.timestamps import BadTimestamp, parse_timestamp
from muster.lifecycle.pod_groups.members import Member
from muster.lifecycle.pod_groups.status import Counts

BELOW_SINCE: Final = "muster.dev/below-minimum-since"
"""Annotation of a PodGroup that is to be restarted: since when fewer than its minimum run."""


class Step(Enum):
    """What is to be done."""

    NOTHING = auto()
    REMEMBER = auto()
    """Note that it fell below its minimum now."""
    WAIT = auto()
    """It may recover until the timeout."""
    RESTART = auto()
    """Delete all its pods, then forget."""
    FORGET = auto()
    """It recovered, or is not to be restarted any more."""


class Plan(Struct, frozen=True):
    """A step, and in how many seconds the next one is due if nothing happens; 0: none is."""

    step: Step
    seconds: float = 0.0


def plan(
    minimum: int,
    counts: Counts,
    status: Mapping[str, Any],
    annotations: Mapping[str, str],
    after_seconds: float | None,
    now_seconds: float,
) -> Plan:
    """`status` is the one the group has, `after_seconds` is how long it may run with too few pods (None: for ever).

    With no time to recover, it is restarted also if it has got enough pods again meanwhile: those that went left a gap.
    """
    since = annotations.get(BELOW_SINCE)
    if since is not None and after_seconds == 0 and minimum > 0:
        return Plan(Step.RESTART)
    enough = counts.running + counts.succeeded >= minimum
    if after_seconds is None or enough or minimum < 1:
        return Plan(Step.NOTHING if since is None else Step.FORGET)
    if since is None:
        return Plan(
            Step.REMEMBER if _count(status, "running") + _count(status, "succeeded") >= minimum else Step.NOTHING
        )
    left = _seconds(since, now_seconds) + after_seconds - now_seconds
    if left > 0:
        return Plan(Step.WAIT, min(left, after_seconds))
    return Plan(Step.RESTART)


def whose_end_is_final(members: Sequence[Member]) -> list[Member]:
    """Pods that nobody would make anew: as long as a group has one, it is not restarted."""
    return [member for member in members if not (member.controller or member.ended or member.deleting)]


def _count(status: Mapping[str, Any], field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(since: str, now_seconds: float) -> float:
    """A time that cannot be read, or is yet to come, counts as now."""
    try:
        return min(parse_timestamp(since), now_seconds)
    except BadTimestamp:
        return now_seconds
