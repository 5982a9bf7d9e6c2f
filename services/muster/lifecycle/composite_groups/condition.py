"""The condition CompositePodGroupInitiallyScheduled, as kube-scheduler defines it: once True, never False."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw

from muster.dialects.composites import TreeProblem
from muster.kube.json_repair import shallow
from muster.kube.objects import UNREADABLE

TYPE: Final = "CompositePodGroupInitiallyScheduled"
INVALID: Final = "Invalid"
_UNSCHEDULABLE: Final = "Unschedulable"
_SCHEDULED: Final = "Scheduled"
_TRUE: Final = "True"
MAX_MESSAGE_LENGTH: Final = 1024


class Standing(NamedTuple):
    """A condition of an object: whether it is True, and its reason and message."""

    holds: bool
    reason: str = ""
    message: str = ""
    since: str = ""
    """Time of its last transition."""


NOTHING: Final = Standing(holds=False)


class Child(NamedTuple):
    """A group in a CompositePodGroup: how messages name it, and its own condition."""

    label: str
    standing: Standing


def standing_of(status: Raw, type_: str) -> Standing:
    """Reads one condition from the status of an object; without it nothing holds."""
    try:
        fields = msgspec.json.decode(shallow(bytes(status)), type=dict[str, Any]) if bytes(status) else {}
    except UNREADABLE:
        return NOTHING
    listed = fields.get("conditions")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("type") == type_:
            texts = (str(each.get(key) or "") for key in ("reason", "message", "lastTransitionTime"))
            return Standing(each.get("status") == _TRUE, *texts)
    return NOTHING


def next_standing(problem: TreeProblem | None, minimum: int, children: Iterable[Child]) -> Standing:
    """The condition that a CompositePodGroup should have. `minimum`: groups that must be scheduled, 0 if it is basic:
    then one is enough. Reads no more children than decide that.
    """
    if problem is not None:
        reason = INVALID if problem.invalid else _UNSCHEDULABLE
        return Standing(holds=False, reason=reason, message=problem.message[:MAX_MESSAGE_LENGTH])
    needed, scheduled, waiting = max(1, minimum), 0, ""
    for child in children:
        scheduled += child.standing.holds
        if scheduled >= needed:
            groups = "1 group is" if needed == 1 else f"{needed} groups are"
            return Standing(holds=True, reason=_SCHEDULED, message=f"{groups} scheduled, as many as it needs")
        if not child.standing.holds and not waiting and child.standing.message:
            waiting = f"; {child.label}: {child.standing.message}"
    message = f"{scheduled} of {needed} groups that it needs are scheduled{waiting}"
    return Standing(holds=False, reason=_UNSCHEDULABLE, message=message[:MAX_MESSAGE_LENGTH])


def as_condition(standing: Standing, before: Standing, now: str) -> Mapping[str, str]:
    """The condition as it is written; `now` is the time of a transition."""
    stays = before.since and before.holds is standing.holds
    return {
        "type": TYPE,
        "status": _TRUE if standing.holds else "False",
        "reason": standing.reason,
        "message": standing.message,
        "lastTransitionTime": before.since if stays else now,
    }
