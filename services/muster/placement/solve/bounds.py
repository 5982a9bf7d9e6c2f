"""Upper bounds that prove infeasibility by counting; cheap, and inconclusive where only a search could decide."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from muster.placement.solve.division import Divider, GrowthDivider
from muster.placement.solve.instance import Part, TreeInstance
from muster.placement.solve.level_rules import Shape, packed_levels, relaxed
from muster.placement.state.capacity import CapacityState

_ROUNDING: Final = 1 + 1e-12
"""Sums are floats, which cannot overflow; they are exact below 2**53, and the factor keeps proofs valid above that."""


def infeasible(state: CapacityState, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Proves that not every gang can have `required[gang]` members."""
    return _too_few_seats(state, parts, required) or _too_little_free(state, parts, required)


def infeasible_on_tree(instance: TreeInstance, required: Sequence[int]) -> bool:
    """Proves that hard constraints keep some gang from `required[gang]` members, regardless of the other gangs."""
    return any(
        _too_few_as_asked(instance, gang, needed)
        or _no_domain_for_all(instance, gang, needed)
        or _too_few_of_a_class(instance, gang, needed)
        for gang, needed in enumerate(required)
    )


def _too_few_as_asked(instance: TreeInstance, gang: int, needed: int) -> bool:
    """Members of all classes together, as if they did not compete for resources."""
    ours = [part.gang == gang for part in instance.parts]
    caps = instance.fits[ours].sum(axis=0)
    rules = relaxed(instance.gangs[gang].rules)[-1]
    tiers = instance.tree.tiers([rule.level for rule in rules], len(caps))
    held = instance.placed[gang]
    if held.any():
        return GrowthDivider(rules, tiers, caps, held).capacity < needed
    wanted = sum(part.wanted for part in instance.parts if part.gang == gang)
    return Divider(rules, tiers, caps, wanted).capacity < needed


def _no_domain_for_all(instance: TreeInstance, gang: int, needed: int) -> bool:
    """All members must be in one domain, and no domain has enough seats for each class alone."""
    levels = instance.tree.levels
    packed = packed_levels(instance.gangs[gang].rules)
    if not packed:
        return False
    of = levels[packed[-1]].of if packed[-1] < len(levels) else np.arange(len(instance.tree.rows))
    parts = [(index, part.wanted) for index, part in enumerate(instance.parts) if part.gang == gang]
    wanted = sum(count for _, count in parts)
    seats = [np.bincount(of, instance.fits[index]) for index, _ in parts]
    must = [max(0, needed - (wanted - count)) for _, count in parts]
    enough = np.all([have >= count for have, count in zip(seats, must, strict=True)], axis=0)
    return not bool((enough & (np.sum(seats, axis=0) >= needed)).any())


def _too_few_of_a_class(instance: TreeInstance, gang: int, needed: int) -> bool:
    """Hard shapes limit the domains of some class so that it has fewer seats than required."""
    rules, levels = instance.gangs[gang].rules, instance.tree.levels
    limited = [rule for rule in rules if rule.shape_is_hard and rule.shape is not Shape.SPREAD]
    parts = [(index, part.wanted) for index, part in enumerate(instance.parts) if part.gang == gang]
    wanted = sum(count for _, count in parts)
    if not limited or not len(instance.tree.rows):
        return False
    for index, count in parts:
        caps, at = instance.fits[index], np.arange(len(instance.tree.rows))
        for rule, above in zip(rules[::-1], [*rules[-2::-1], None], strict=True):
            owner = levels[above.level].of[at] if above is not None else np.zeros(len(at), np.int64)
            starts = np.flatnonzero(np.diff(owner, prepend=-1))
            if rule in limited:
                order = np.lexsort((-caps, owner))
                place = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
                caps = np.where(place < (1 if rule.shape is Shape.PACK else rule.parts), caps[order], 0)
            caps, at = np.add.reduceat(caps, starts), at[starts]
        if int(caps[0]) < needed - (wanted - count):
            return True
    return False


def _too_few_seats(state: CapacityState, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Each class alone in the cluster: too few of its members fit."""
    seats = {class_id: int(state.of(class_id).fits.sum()) for class_id in {part.class_id for part in parts}}
    must_seat: Counter[str] = Counter()
    for gang, needed in enumerate(required):
        ours = [part for part in parts if part.gang == gang]
        if sum(min(part.wanted, seats[part.class_id]) for part in ours) < needed:
            return True
        wanted = sum(part.wanted for part in ours)
        for part in ours:
            must_seat[part.class_id] += max(0, needed - (wanted - part.wanted))
    return any(count > seats[class_id] for class_id, count in must_seat.items())


def _too_little_free(state: CapacityState, parts: Sequence[Part], required: Sequence[int]) -> bool:
    """Each resource alone: the members with the smallest requests exceed what is free on nodes that any of them may
    use.
    """
    class_capacities = {part.class_id: state.of(part.class_id) for part in parts}
    useful = np.logical_or.reduce([of_class.fits > 0 for of_class in class_capacities.values()])
    resources = len(state.free)
    for column in range(resources):
        requested = 0
        for gang, needed in enumerate(required):
            least = sorted(
                (int(class_capacities[p.class_id].vector(resources)[column]), p.wanted) for p in parts if p.gang == gang
            )
            for amount, wanted in least:
                requested += amount * min(wanted, needed)
                needed -= min(wanted, needed)
        free = float(np.maximum(state.free[column, useful], 0).sum(dtype=np.float64))
        if requested > free * _ROUNDING:
            return True
    return False
