"""Loans of reserved capacity: surplus runs on the capacity of a backfill reservation until its group needs it.

Surplus can be evicted at once, so it does not delay the group for which the capacity is reserved. A pod borrows if it
is placed on such capacity while it is surplus, since there was no other place for its batch, and
`nomination.may_borrow` holds for its gang. The reservation has a list of these pods (`Nomination.lent`), which ends
with it: what runs then is surplus as any other. Only the leader knows the list, as it does the reservation.

The group is tried again when all other pods that have to leave have left. If it has no place, these pods are potential
victims for it, before all others and whatever their priority (`preemption/potential_victims`). A plan that evicts them
is one of preemption: durable first, and continued by the next leader. It never takes a gang's minimum: a gang that
needs the pods meanwhile keeps them, and borrows nothing any more, in this run and the leader's term. The reservation is
then dropped as if others had taken the capacity.

Nothing is lent if evictions per hour are limited, since taking back might have to wait.
"""

from collections.abc import Collection

from muster.coordinator.core.cache.cache import Cache
from muster.coordinator.core.gang.gang import Gang
from muster.coordinator.core.preemption.nomination import Nomination
from muster.coordinator.core.preemption.surplus import given_up_order, keeps_minimums, kept_pods
from muster.coordinator.core.queue.queue import Queue
from muster.gangs.selection import PodSelection


def recall_loans(nomination: Nomination, cache: Cache, queue: Queue) -> None:
    """Activate the group if nothing but borrowers keeps it from its capacity, once for each set of them that run."""
    there = nomination.remaining(cache.ledger)
    if not there or not nomination.lent.issuperset(there):
        return
    running = borrowers(nomination.lent.intersection(there), cache)
    for gang, uids in list(running.items()):
        if not gang.in_transition and not gives_back(gang, uids, cache.ledger.selection):
            _default(gang, uids, nomination, cache)
            del running[gang]
    recalled = frozenset(uid for gang, uids in running.items() if not gang.in_transition for uid in uids)
    if recalled and recalled != nomination.recalled and nomination.group in queue:
        nomination.recalled = recalled
        queue.activate(nomination.group)


def note_defaults(nomination: Nomination, cache: Cache) -> None:
    """Pods did not leave in time when the capacity was taken back: their gangs borrow nothing any more."""
    for uid in nomination.remaining(cache.ledger):
        if (gang := cache.gang_of.get(uid)) is not None and gang in nomination.revoked_from:
            gang.growth.keep_loan()


def borrowers(lent: Collection[str], cache: Cache) -> dict[Gang, list[str]]:
    """The lent pods that run, by gang."""
    running: dict[Gang, list[str]] = {}
    for uid in sorted(lent):
        if (gang := cache.gang_of.get(uid)) is not None and uid in gang.bound:
            running.setdefault(gang, []).append(uid)
    return running


def gives_back(gang: Gang, uids: Collection[str], selection: PodSelection) -> bool:
    """The gang can lose these bound pods, and keeps its minimum and its leader."""
    if any(gang.pods[uid].budgets for uid in uids) or not kept_pods(gang, given_up_order(gang)).isdisjoint(uids):
        return False
    return keeps_minimums(gang, set(uids), selection)


def _default(gang: Gang, uids: Collection[str], nomination: Nomination, cache: Cache) -> None:
    """The gang needs the pods: the capacity is taken."""
    gang.growth.keep_loan()
    nomination.lent.difference_update(uids)
    nomination.leaving.difference_update(uids)
    nomination.overtaken |= not nomination.feasible(cache.ledger)
