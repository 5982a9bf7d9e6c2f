"""Bounds on placements: lower bounds on costs that prove optimality, upper bounds by counting that prove infeasibility.

They are cheap, and inconclusive where only a search could decide.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.solve.division import Divider, GrowthDivider
from muster.placement.solve.instance import ConstrainedGang, Part, Solution, TreeInstance
from muster.placement.solve.level_rules import Cost, Rule, Shape, cost_of, packed_levels, relaxed
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


def solution_cost(instance: TreeInstance, solution: Solution) -> Cost:
    """Smaller is better: members left out, members outside of the tree, then the cost of each gang's rules."""
    added = _added(instance, solution)
    cost = [sum(part.wanted for part in instance.parts) - solution.total, _outside(instance, added)]
    for one, sizes in zip(instance.gangs, added + instance.placed, strict=True):
        used = np.flatnonzero(sizes)
        cost += cost_of(one.rules, instance.tree, used, sizes[used])
    return tuple(cost)


def is_optimal(instance: TreeInstance, solution: Solution) -> bool:
    """Lower bounds prove that no solution is better; False is inconclusive."""
    added = _added(instance, solution)
    if solution.total < sum(part.wanted for part in instance.parts) or _outside(instance, added):
        return False
    return all(reaches_bounds(instance, gang, sizes) for gang, sizes in enumerate(added + instance.placed))


def reaches_bounds(instance: TreeInstance, gang: int, sizes: Int64) -> bool:
    """Every level reaches its lower bound. Top level first: the bound of a level depends on the domains used above."""
    usable = np.flatnonzero(instance.fits.any(axis=0) | (instance.placed[gang] > 0))
    used = np.flatnonzero(sizes)
    if not len(used):
        return True
    above = np.zeros(len(sizes), np.int64)
    for rule, of in _levels(instance, instance.gangs[gang]):
        distinct = usable[np.flatnonzero(np.diff(of[usable], prepend=-1))]
        most_within = int(np.bincount(above[distinct]).max(initial=0))
        first = np.flatnonzero(np.diff(of[used], prepend=-1))
        within = np.unique(above[used[first]], return_counts=True)[1]
        if not _reaches_bound(rule, np.add.reduceat(sizes[used], first), within, most_within):
            return False
        above = of
    return True


def _reaches_bound(rule: Rule, sizes: Int64, within: Int64, most_within: int) -> bool:
    """`within`: domains used within each used domain above; `most_within`: the largest number usable there."""
    if ((sizes < rule.least) | (sizes > rule.most) | (sizes % rule.step != 0)).any():
        return False
    if rule.shape is Shape.PACK:
        return bool(np.all(within == 1))
    even, members = int(sizes.max()) - int(sizes.min()) <= 1, int(sizes.sum())
    if rule.shape is Shape.SPREAD:
        return even and len(sizes) == min(members, len(within) * most_within)
    return even and (len(sizes) == min(members, rule.parts) if len(within) == 1 else bool((within == rule.parts).all()))


def _levels(instance: TreeInstance, one: ConstrainedGang) -> Iterator[tuple[Rule, Int64]]:
    """Declared rules with the domain of each tree node."""
    levels = instance.tree.levels
    for rule in one.rules:
        if rule.counts:
            yield rule, levels[rule.level].of if rule.level < len(levels) else np.arange(len(instance.tree.rows))


def _outside(instance: TreeInstance, added: Int64) -> int:
    """New members of constrained gangs outside of the tree."""
    constrained = [one.is_constrained for one in instance.gangs]
    return int(added[constrained, instance.tree.inside :].sum())


def _added(instance: TreeInstance, solution: Solution) -> Int64:
    """Members of each gang that the solution places on each tree node: int64[gangs, nodes]."""
    added = np.zeros_like(instance.placed)
    for index, (rows, counts) in solution.seats:
        np.add.at(added[instance.parts[index].gang], instance.tree.position[rows], counts)
    return added
