"""How many times claims fit on a node: arithmetic if devices are only counted, else the exact search.

Without counters, constraints, alternatives, admin access and mode All, requests are a flow problem: by Hall's theorem
`n` copies of the claims fit if and only if no set of selections asks for more devices than it can use together. So the
number is the smallest quotient over all sets of the distinct selections.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from muster.devices.facts import MAX_RESULTS
from muster.devices.instance import Problem, Shape
from muster.devices.search import BUDGET, Outcome, options_of, search

_MAX_SELECTIONS: Final = 8
"""Distinct selections whose sets are enumerated: 255 sets."""


class Copies(NamedTuple):
    """Number of pods whose claims fit; `proved`: one more does not, or the limit is reached."""

    number: int
    proved: bool = True


def copies_of(shape: Shape, problem: Problem, limit: int, shared: int = 0, budget: int = BUDGET) -> Copies:
    """How many pods with the claims from number `shared` on fit, if the claims before are allocated once for all."""
    if problem.blocked or limit <= 0:
        return Copies(0)
    single = [slot for slot in problem.slots if len(slot.options) == 1 and _counts(slot.options[0].wanted)]
    plain = [slot.options[0] for slot in single if not slot.options[0].admin]
    once: dict[int, int] = {}
    each_pod: dict[int, int] = {}
    for slot in single:
        option = slot.options[0]
        if not option.admin:
            demand = once if slot.claim < shared else each_pod
            demand[option.bit] = demand.get(option.bit, 0) + option.wanted
    bound = _bound(shape, once, each_pod, limit)
    if _oversized(problem):
        return Copies(0)
    if bound <= 0:
        return Copies(0)
    mask = 0
    for option in options_of(problem.slots):
        mask |= option.bit
    counted = any(group.usable & mask and group.consumes for group in shape.groups)
    distinct = len(once | each_pod)
    if len(plain) == len(problem.slots) and not counted and distinct <= _MAX_SELECTIONS:
        constrained = any(option.constraints for option in plain)
        if not constrained:
            return Copies(bound)
    return _searched(shape, problem, bound, shared, budget)


def _counts(wanted: int) -> bool:
    return wanted > 0


def _oversized(problem: Problem) -> bool:
    """A claim needs more devices than the API server accepts in one allocation."""
    sizes: dict[int, int] = {}
    for slot in problem.slots:
        least = min((option.wanted or 1 for option in slot.options), default=0)
        sizes[slot.claim] = sizes.get(slot.claim, 0) + least
    return any(size > MAX_RESULTS for size in sizes.values())


def _bound(shape: Shape, once: Mapping[int, int], each_pod: Mapping[int, int], limit: int) -> int:
    """Copies that fit if devices are only counted; -1 or 0 if none do."""
    bits = sorted(once.keys() | each_pod.keys())
    free: dict[int, int] = {}
    for group in shape.groups:
        free[group.usable] = free.get(group.usable, 0) + group.free
    bound = limit
    for chosen in _sets(bits):
        available = sum(number for usable, number in free.items() if any(usable & bit for bit in chosen))
        available -= sum(once.get(bit, 0) for bit in chosen)
        wanted = sum(each_pod.get(bit, 0) for bit in chosen)
        if available < 0:
            return -1
        if wanted:
            bound = min(bound, available // wanted)
    return bound


def _sets(bits: list[int]) -> Iterator[list[int]]:
    """The nonempty sets of bits; only those of one bit, and the whole, if there are too many."""
    if len(bits) > _MAX_SELECTIONS:
        yield from ([bit] for bit in bits)
        yield bits
        return
    for number in range(1, 1 << len(bits)):
        yield [bit for index, bit in enumerate(bits) if number >> index & 1]


def _searched(shape: Shape, problem: Problem, bound: int, shared: int, budget: int) -> Copies:
    """The largest number for which a search finds an allocation: it doubles, then halves the interval."""
    fits, proved_above = 0, bound + 1
    unproved_above = bound + 1
    left = budget
    number = 1
    while fits + 1 < min(proved_above, unproved_above):
        found = search(shape, problem, number, shared, left)
        left = max(left - found.steps, 1)
        if found.outcome is Outcome.FOUND:
            fits = number
        elif found.outcome is Outcome.IMPOSSIBLE:
            proved_above = number
        else:
            unproved_above = number
        high = min(proved_above, unproved_above)
        number = min(number * 2, bound) if high == bound + 1 and number < bound else (fits + high) // 2
        number = max(number, fits + 1)
    return Copies(fits, proved_above == fits + 1)
