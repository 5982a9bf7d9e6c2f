"""The share of the cluster that gangs may hold while they wait for the rest of their members."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from muster.coordinator.core.cache.cache import Cache
from muster.gangs.solve import Assignment, SolveGroup


def within_share(
    cache: Cache, asked: SolveGroup, assignments: Sequence[Assignment], share: float
) -> tuple[Assignment, ...]:
    """The part of a partial answer that may be reserved: with it, all gangs that wait hold at most this share of each
    resource of the cluster.
    """
    if share >= 1:
        return tuple(assignments)
    capacity = cache.ledger.capacity
    _, held = capacity.used_by(_held(cache))
    limit = share * capacity.allocatable.sum(axis=0, dtype=np.float64) - held.sum(axis=0, dtype=np.float64)
    roles = {(gang.id, index): role for gang in asked.gangs for index, role in enumerate(gang.roles)}
    kept = []
    for assignment in assignments:
        role = roles.get((assignment.gang, assignment.role))
        if role is None or role.class_id not in capacity.classes:
            return tuple(assignments)  # the answer is rejected as a whole
        amounts = capacity.vectors[capacity.classes[role.class_id]]
        wanted = amounts > 0
        most = int((limit[wanted] // amounts[wanted]).min()) if wanted.any() else assignment.count
        if (count := min(assignment.count, most)) > 0:
            limit = limit - count * amounts
            kept.append(replace(assignment, count=count))
    return tuple(kept)


def _held(cache: Cache) -> Iterator[str]:
    """Pods that hold a reservation without a permit."""
    for uid in cache.ledger.reserved:
        gang = cache.gang_of.get(uid)
        if gang is not None and uid in gang.seats and not gang.permit.granted and gang.group.accumulates:
            yield uid
