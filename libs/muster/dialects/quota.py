"""Reads from a PodGroup whether quota is reserved for it."""

from typing import Final

from muster.dialects.definitions import Definition
from muster.dialects.sources import blocking
from muster.gangs.facts import Problem

QUOTA_RESERVED: Final = "QuotaReserved"
"""Condition of a PodGroup: "False" while its total request does not fit the namespace's quota."""

QUOTA_WAITS: Final = "muster.dev/quota-waits"
"""Annotation with the reason why a PodGroup waits for quota, for kinds without conditions."""

WAITING_FOR_QUOTA: Final = "WaitingForQuota"
"""Reason of the condition of pods whose gang waits for quota."""

_MAX_REASON_LENGTH: Final = 1024


def quota_problems(definition: Definition) -> list[Problem]:
    """Returns why a gang waits for quota; nothing if neither the annotation nor the condition says that it waits."""
    if waits := definition.annotations.get(QUOTA_WAITS):
        return [_not_reserved(waits)]
    conditions = definition.status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if isinstance(condition, dict) and condition.get("type") == QUOTA_RESERVED:
            if condition.get("status") != "False":
                return []
            message = condition.get("message")
            default = "the namespace has not enough free quota"
            return [_not_reserved(message if isinstance(message, str) and message else default)]
    return []


def _not_reserved(reason: str) -> Problem:
    return blocking(f"quota is not reserved for it yet: {reason[:_MAX_REASON_LENGTH]}", WAITING_FOR_QUOTA)
