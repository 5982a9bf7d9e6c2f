"""What a place for a group under constraints is worth, and whether there can be a better one at all."""

from collections.abc import Iterator

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.mixed.ground import Asked, Ground
from muster.placement.room.parts import Attempt
from muster.placement.shapes.rules import Rule, Shape
from muster.placement.shapes.sizes import Cost, cost_of


def worth(ground: Ground, attempt: Attempt) -> Cost:
    """Smaller is better: members left out, members outside of the tree, then what each gang's constraints miss."""
    added = _added(ground, attempt)
    cost = [sum(part.wanted for part in ground.parts) - attempt.total, _outside(ground, added)]
    for one, sizes in zip(ground.asked, added + ground.placed, strict=True):
        used = np.flatnonzero(sizes)
        cost += cost_of(one.rules, ground.tree, used, sizes[used])
    return tuple(cost)


def is_best(ground: Ground, attempt: Attempt) -> bool:
    """No place can be better, by bounds that are often reached; if not, there may be a better one or not."""
    added = _added(ground, attempt)
    if attempt.total < sum(part.wanted for part in ground.parts) or _outside(ground, added):
        return False
    return all(reaches_bounds(ground, gang, sizes) for gang, sizes in enumerate(added + ground.placed))


def reaches_bounds(ground: Ground, gang: int, sizes: Int64) -> bool:
    """From the top down, as long as each level's bound is reached: how many domains are used above is known then."""
    usable = np.flatnonzero(ground.fits.any(axis=0) | (ground.placed[gang] > 0))
    used = np.flatnonzero(sizes)
    if not len(used):
        return True
    above = np.zeros(len(sizes), np.int64)
    for rule, of in _levels(ground, ground.asked[gang]):
        distinct = usable[np.flatnonzero(np.diff(of[usable], prepend=-1))]
        most_within = int(np.bincount(above[distinct]).max(initial=0))
        first = np.flatnonzero(np.diff(of[used], prepend=-1))
        within = np.unique(above[used[first]], return_counts=True)[1]
        if not _reaches_bound(rule, np.add.reduceat(sizes[used], first), within, most_within):
            return False
        above = of
    return True


def _reaches_bound(rule: Rule, sizes: Int64, within: Int64, most_within: int) -> bool:
    """`within`: domains used within each one used above; `most_within`: how many could be used there at most."""
    if ((sizes < rule.least) | (sizes > rule.most) | (sizes % rule.step != 0)).any():
        return False
    if rule.shape is Shape.PACK:
        return bool(np.all(within == 1))
    even, members = int(sizes.max()) - int(sizes.min()) <= 1, int(sizes.sum())
    if rule.shape is Shape.SPREAD:
        return even and len(sizes) == min(members, len(within) * most_within)
    return even and (len(sizes) == min(members, rule.parts) if len(within) == 1 else bool((within == rule.parts).all()))


def _levels(ground: Ground, one: Asked) -> Iterator[tuple[Rule, Int64]]:
    """Rules that count, and the domain of each place."""
    levels = ground.tree.levels
    for rule in one.rules:
        if rule.counts:
            yield rule, levels[rule.level].of if rule.level < len(levels) else np.arange(len(ground.tree.rows))


def _outside(ground: Ground, added: Int64) -> int:
    """New members outside of the tree, of gangs that ask something of it."""
    asking = [one.asks for one in ground.asked]
    return int(added[asking, ground.tree.inside :].sum())


def _added(ground: Ground, attempt: Attempt) -> Int64:
    """Members of each gang that the attempt has on each place: int64[gangs, places]."""
    added = np.zeros_like(ground.placed)
    for index, (rows, counts) in attempt.seats:
        np.add.at(added[ground.parts[index].gang], ground.tree.place[rows], counts)
    return added
