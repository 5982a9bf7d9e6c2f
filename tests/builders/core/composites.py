"""Placement of groups with composites by the solver of scenarios: every choice of racks, gangs in two orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

from muster.gangs.facts import LevelPolicy
from muster.gangs.solve import Assignment, SolveGang, SolveGroup

if TYPE_CHECKING:
    from builders.core.solver import Fit, Fitter, Free, Racks

MOST_CHOICES = 1000


def packed_in_racks(asked: SolveGang) -> bool:
    """All members of the gang must be in one rack."""
    return any(each.level == "rack" and each.policy is LevelPolicy.PACK and each.hard for each in asked.constraints)


def try_composites(fitter: Fitter, free: Free, group: SolveGroup) -> Fit:
    """All that the composites need, and more if it fits, earlier gangs first."""
    from builders.core.solver import Fit

    best, most = Fit((), "its subgroups do not fit", free), [False] * len(group.gangs)
    for racks in islice(_choices(fitter, free, group), MOST_CHOICES):
        for order in (group.gangs, sorted(group.gangs, key=lambda asked: asked.minimum)):
            found = _place(fitter, free, group, order, racks)
            seated = {each.gang for each in found.assignments} if found is not None else set()
            if found is not None and (placed := [asked.id in seated for asked in group.gangs]) > most:
                best, most = found, placed
        if all(most):
            break
    return best


def _choices(fitter: Fitter, free: Free, group: SolveGroup) -> Iterator[Racks]:
    """Racks by gang, for every choice of a rack for each composite with a domain, and each gang that asks for one."""
    levelled = [index for index, each in enumerate(group.composites) if each.level]
    options = []
    for index in levelled:
        there = {fitter.rack_of(name) for name in group.composites[index].placed}
        options.append(sorted(there) if there else sorted(set(map(fitter.rack_of, free))))
        if len(there) > 1:
            return
    packed = [asked for asked in group.gangs if packed_in_racks(asked)]
    options += [fitter.racks(free, asked) for asked in packed]
    for chosen in product(*options):
        of_composite = dict(zip(levelled, chosen[: len(levelled)], strict=True))
        own = {asked.id: {rack} for asked, rack in zip(packed, chosen[len(levelled) :], strict=True)}
        racks = {asked.id: _racks_above(group, asked, of_composite) | own.get(asked.id, set()) for asked in group.gangs}
        if all(len(each) <= 1 for each in racks.values()):
            yield {name: next(iter(each)) for name, each in racks.items() if each}


def _racks_above(group: SolveGroup, asked: SolveGang, of_composite: dict[int, str]) -> set[str]:
    found, at = set(), asked.composite
    while at >= 0:
        found |= {of_composite[at]} if at in of_composite else set()
        at = group.composites[at].parent
    return found


def _place(fitter: Fitter, free: Free, group: SolveGroup, order: Sequence[SolveGang], racks: Racks) -> Fit | None:
    """Gangs in order; those in composites that do not get enough children with them are left out."""
    while True:
        found = _place_all(fitter, free, group, order, racks)
        if found is None:
            return None
        seated = {each.gang for each in found.assignments}
        vain = seated & _below(group, set(range(len(group.composites))) - _complete(group, seated))
        if not vain:
            return found if _enough_members(group, found.assignments) else None
        order = [asked for asked in order if asked.id not in vain]


def _below(group: SolveGroup, composites: set[int]) -> set[str]:
    """Ids of the gangs in these composites."""
    found = set()
    for asked in group.gangs:
        at = asked.composite
        while at >= 0:
            if at in composites:
                found.add(asked.id)
            at = group.composites[at].parent
    return found


def _place_all(fitter: Fitter, free: Free, group: SolveGroup, order: Sequence[SolveGang], racks: Racks) -> Fit | None:
    from builders.core.solver import Fit

    trial, assignments, needed = free.copy(), list[Assignment](), dict[str, list[int]]()
    for asked in order:
        attempt, seated = trial.copy(), list[Assignment]()
        counts = fitter.smallest(asked, asked.minimum)
        if fitter.fill(attempt, asked, counts, seated, racks) == asked.minimum:
            trial, needed[asked.id] = attempt, counts
            assignments += seated
        elif asked.composite < 0:
            return None
    placed = SolveGroup(group.id, tuple(asked for asked in group.gangs if asked.id in needed))
    complete = _complete(group, set(needed))
    if not assignments or any(index not in complete for index, each in enumerate(group.composites) if each.parent < 0):
        return None
    fitter.fill_rest(trial, placed, needed, assignments, racks)
    return Fit(tuple(assignments), "", trial)


def _complete(group: SolveGroup, placed: set[str]) -> set[int]:
    """Composites that have enough children."""
    complete: set[int] = set()
    for index in reversed(range(len(group.composites))):
        children = sum(asked.composite == index and asked.id in placed for asked in group.gangs)
        children += sum(other.parent == index and at in complete for at, other in enumerate(group.composites))
        if children >= group.composites[index].minimum:
            complete.add(index)
    return complete


def _enough_members(group: SolveGroup, assignments: Sequence[Assignment]) -> bool:
    """Of composites without a parent; others have no least number of members in scenarios."""
    of_gang = {asked.id: asked.composite for asked in group.gangs}
    counts = [0] * len(group.composites)
    for each in assignments:
        at = of_gang[each.gang]
        while at >= 0:
            counts[at] += each.count
            at = group.composites[at].parent
    return all(count >= each.minimum_members for count, each in zip(counts, group.composites, strict=True))
