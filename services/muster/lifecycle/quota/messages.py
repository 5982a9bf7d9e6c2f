"""Messages about quota: rejections of pods, and the condition QuotaReserved of PodGroups."""

from typing import Final

from msgspec import Struct

from muster.kube.resource_quota import shown_amounts
from muster.lifecycle.quota.accounting import Shortage
from muster.lifecycle.quota.usage import QuotaGroup

_MAX_GROUPS_NAMED: Final = 3


class QuotaCondition(Struct, frozen=True):
    """The condition QuotaReserved, without its type."""

    status: str
    reason: str
    message: str


RELEASED: Final = QuotaCondition("True", "QuotaReleased", "its pods have ended, and its reservation was released")
NO_QUOTA: Final = QuotaCondition("True", "NoQuota", "no ResourceQuota of the namespace limits its resources")


def reserved(group: QuotaGroup) -> QuotaCondition:
    """Returns the condition of a group whose total is reserved."""
    return QuotaCondition(
        "True", "QuotaReserved", f"{shown_amounts(_without_duplicates(group))} is reserved for its pods"
    )


def exceeded(group: QuotaGroup, shortage: Shortage) -> QuotaCondition:
    """Returns the condition of a group that waits for free quota."""
    return QuotaCondition(
        "False", "QuotaExceeded", f"{group.field} of {group.title} does not fit: {_exceeded(shortage)}"
    )


def invalid_total(group: QuotaGroup) -> QuotaCondition:
    """Returns the condition of a group whose total is invalid."""
    return QuotaCondition("False", "InvalidTotal", f"{group.problem}: no quota can be reserved for it")


def too_many(problem: str) -> QuotaCondition:
    """Returns the condition of a group that waits because the ledger is full."""
    return QuotaCondition("False", "TooManyReservations", problem)


def rejection(waits: QuotaGroup | None, shortage: Shortage) -> str:
    """Returns the message to the creator of a rejected pod.

    It starts like the API server's own quota rejections, which controllers recognise. `waits` is the pod's group if the
    group waits for quota.
    """
    text = _exceeded(shortage)
    return f"{text}; the pod's group, {waits.title}, waits until its {waits.field} fits" if waits is not None else text


def _exceeded(shortage: Shortage) -> str:
    amounts = [shown_amounts(each) for each in (shortage.requested, shortage.used, shortage.limited)]
    text = f"exceeded quota: {shortage.quota}, requested: {amounts[0]}, used: {amounts[1]}, limited: {amounts[2]}"
    if shortage.exceeds_quota:
        return f"{text} (more than the whole quota)"
    if not shortage.reserved:
        return text
    named = [f"{shown_amounts(spare)} for {_title(group)}" for group, spare in shortage.reserved[:_MAX_GROUPS_NAMED]]
    if len(shortage.reserved) > _MAX_GROUPS_NAMED:
        named.append(f"more for {len(shortage.reserved) - _MAX_GROUPS_NAMED} others")
    return f"{text} (used includes reservations: {', '.join(named)})"


def _title(group_id: str) -> str:
    return f"PodGroup {group_id.rpartition('/')[2]}"


def _without_duplicates(group: QuotaGroup) -> dict[str, int]:
    """Returns the total with each resource once: "cpu" and "requests.cpu" are the same."""
    total = dict(group.total)
    return {
        name: nanos
        for name, nanos in total.items()
        if name != "count/pods" and not (name.startswith("requests.") and name.removeprefix("requests.") in total)
    }
