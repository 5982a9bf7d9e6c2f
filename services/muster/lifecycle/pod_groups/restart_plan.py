"""Plans when a PodGroup is restarted as a whole because too few of its pods are running. Pure.

    enough running --fewer--> below (since then) --timeout--> restart: all pods are deleted --> none running
        ^                        |
        +----enough again--------+

The counts in the group's status say that enough pods were running; an annotation says since when there are fewer. A new
leader therefore continues where the old one stopped, and a group that is only starting is never restarted.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

from msgspec import Struct

from muster.kube.timestamps import BadTimestamp, parse_timestamp
from muster.lifecycle.pod_groups.members import Member
from muster.lifecycle.pod_groups.status import Counts

BELOW_SINCE: Final = "muster.dev/below-minimum-since"
"""Annotation of a PodGroup with a restart policy: since when fewer pods than its minimum are running."""


class Step(Enum):
    """The next step for a group."""

    NOTHING = auto()
    MARK_BELOW_MINIMUM = auto()
    """Record that it has fallen below its minimum now."""
    WAIT = auto()
    """Wait until the timeout; the group may recover."""
    RESTART = auto()
    """Delete all its pods, then clear the mark."""
    CLEAR_MARK = auto()
    """Remove the mark: the group recovered, or has no restart policy any more."""


class Plan(Struct, frozen=True):
    """A step, and the seconds until the next one is due if nothing changes; 0: none is due."""

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
    """Returns the next step for a group with this status.

    `after_seconds` is how long it may run with too few pods (None: forever). If that is 0, a group that fell below its
    minimum is restarted even if it has enough pods again by now.
    """
    since = annotations.get(BELOW_SINCE)
    if since is not None and after_seconds == 0 and minimum > 0:
        return Plan(Step.RESTART)
    enough = counts.running + counts.succeeded >= minimum
    if after_seconds is None or enough or minimum < 1:
        return Plan(Step.NOTHING if since is None else Step.CLEAR_MARK)
    if since is None:
        ran_enough = _count(status, "running") + _count(status, "succeeded") >= minimum
        return Plan(Step.MARK_BELOW_MINIMUM if ran_enough else Step.NOTHING)
    left = _seconds(since, now_seconds) + after_seconds - now_seconds
    if left > 0:
        return Plan(Step.WAIT, min(left, after_seconds))
    return Plan(Step.RESTART)


def pods_without_controller(members: Sequence[Member]) -> list[Member]:
    """Returns live pods without a controller. A group with such pods is not restarted: they would not come back."""
    return [member for member in members if not (member.controller or member.ended or member.deleting)]


def _count(status: Mapping[str, Any], field: str) -> int:
    value = status.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(since: str, now_seconds: float) -> float:
    """Parses a time. A malformed or future time counts as now."""
    try:
        return min(parse_timestamp(since), now_seconds)
    except BadTimestamp:
        return now_seconds
