"""What users are told of quota: why a pod is refused, and in a condition what its PodGroup has or lacks."""

from typing import Final

from msgspec import Struct

from muster.kube.resource_quota import shown_amounts
from muster.lifecycle.quota.books import Shortage
from muster.lifecycle.quota.census import Group

CONDITION: Final = "QuotaReserved"

_GROUPS_NAMED: Final = 3


class Told(Struct, frozen=True):
    """The condition, without its type."""

    status: str
    reason: str
    message: str


RETURNED: Final = Told("True", "QuotaReturned", "its pods have ended, and what was reserved for them was returned")
NO_QUOTA: Final = Told("True", "NoQuota", "no ResourceQuota of the namespace bounds what it asks for")


def reserved(group: Group) -> Told:
    """It has what it asks for."""
    return Told("True", "QuotaReserved", f"{shown_amounts(_shortest(group))} is reserved for its pods")


def lacking(group: Group, shortage: Shortage) -> Told:
    """It waits for room in a quota."""
    return Told("False", "QuotaExceeded", f"{group.field} of {group.title} does not fit: {_exceeded(shortage)}")


def unreadable(group: Group) -> Told:
    """It waits until somebody mends it."""
    return Told("False", "BadTotal", f"{group.problem}: no quota can be reserved for it")


def full(problem: str) -> Told:
    """It waits because there are too many."""
    return Told("False", "TooMany", problem)


def refusal(waits: Group | None, shortage: Shortage) -> str:
    """To who creates a pod; begins as the API server's own refusals do, which controllers look for. `waits`: the pod's
    group, if it waits for its quota.
    """
    told = _exceeded(shortage)
    return f"{told}; the pod's group, {waits.title}, waits until its {waits.field} fits" if waits is not None else told


def _exceeded(shortage: Shortage) -> str:
    amounts = [shown_amounts(each) for each in (shortage.requested, shortage.used, shortage.limited)]
    told = f"exceeded quota: {shortage.bound}, requested: {amounts[0]}, used: {amounts[1]}, limited: {amounts[2]}"
    if shortage.hopeless:
        return f"{told} (more than the quota has in all)"
    if not shortage.reserved:
        return told
    named = [f"{shown_amounts(spare)} for {_words(group)}" for group, spare in shortage.reserved[:_GROUPS_NAMED]]
    if len(shortage.reserved) > _GROUPS_NAMED:
        named.append(f"more for {len(shortage.reserved) - _GROUPS_NAMED} others")
    return f"{told} (what is used includes what is reserved: {', '.join(named)})"


def _words(group_id: str) -> str:
    return f"PodGroup {group_id.rpartition('/')[2]}"


def _shortest(group: Group) -> dict[str, int]:
    """Each resource once: a total has "cpu" and "requests.cpu" for the same."""
    total = dict(group.total)
    return {
        name: nanos
        for name, nanos in total.items()
        if name != "count/pods" and not (name.startswith("requests.") and name.removeprefix("requests.") in total)
    }
