"""Numbers of members that hard constraints can divide, whatever the free capacity: arithmetic only.

Sets of numbers are integers used as bit sets: bit n says that n members can be divided. For each constrained level,
from the nodes up, the set of numbers that a domain of the level above can hold is computed.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from muster.gangs.byte_cache import cached_by_number
from muster.gangs.facts import LevelConstraint, LevelPolicy

MAX_GANG_SIZE: Final = 8192
"""Larger gangs are not checked, because the arithmetic would take too long."""

_ARITHMETIC: Final = frozenset({LevelPolicy.PARTITION, LevelPolicy.RANGE, LevelPolicy.FACTOR})

_Numbers = int
"""A set of numbers, as bits."""


def satisfiable(constraints: tuple[LevelConstraint, ...], levels: Sequence[str], minimum: int, wanted: int) -> bool:
    """Whether some number from `minimum` to `wanted`, at least 1, satisfies the hard constraints."""
    arithmetic = [each for each in constraints if each.hard and each.policy in _ARITHMETIC]
    if any(each.policy is LevelPolicy.PARTITION and each.count > wanted for each in arithmetic):
        return False
    if not arithmetic or wanted > MAX_GANG_SIZE:
        return True
    return _satisfiable(constraints, tuple(levels), min(minimum, wanted), wanted)


@cached_by_number(1024)
def _satisfiable(constraints: tuple[LevelConstraint, ...], levels: tuple[str, ...], minimum: int, wanted: int) -> bool:
    everything = (2 << wanted) - 2  # 1 to wanted
    divisible = everything
    packed = False
    for level in reversed(levels):
        given = {each.policy: each for each in constraints if each.level == level}
        if not given:
            continue
        pack = given.get(LevelPolicy.PACK)
        # A hard pack makes soft ones above it hard.
        packed = packed or (pack is not None and pack.hard)
        hard = {policy: each for policy, each in given.items() if each.hard}
        sizes = divisible & _sizes(hard, wanted)
        divisible = everything & _sums(hard, sizes, wanted, packed=pack is not None and packed)
    return bool(divisible >> minimum)


def _sizes(hard: dict[LevelPolicy, LevelConstraint], wanted: int) -> _Numbers:
    """Numbers of members that one domain may have."""
    sizes = (2 << wanted) - 2
    if of_range := hard.get(LevelPolicy.RANGE):
        sizes &= _from_to(of_range.minimum, min(of_range.maximum, wanted))
    if factor := hard.get(LevelPolicy.FACTOR):
        sizes &= _multiples(factor.count, wanted)
    return sizes


def _sums(hard: dict[LevelPolicy, LevelConstraint], sizes: _Numbers, wanted: int, *, packed: bool) -> _Numbers:
    """Numbers that can be divided over domains of these sizes by the pack, partition or spread constraint."""
    if packed:
        return sizes
    if partition := hard.get(LevelPolicy.PARTITION):
        return _even(sizes, partition.count, wanted)
    if LevelPolicy.SPREAD in hard:
        return _even_over_any(sizes, wanted)
    return _any_sums(sizes, wanted)


def _any_sums(sizes: _Numbers, wanted: int) -> _Numbers:
    """Sums of any of the sizes, each used any number of times."""
    if _is_interval(sizes):
        return _interval_sums(sizes, wanted)
    everything = (2 << wanted) - 1
    sums = 1
    for size in _members(sizes):
        if sums == everything:
            break
        if sums >> size & 1:
            continue  # a sum of smaller sizes
        step = size
        while step <= wanted:
            sums |= sums << step & everything
            step *= 2
    return sums


def _even(sizes: _Numbers, domains: int, wanted: int) -> _Numbers:
    """Sums of `domains` of the sizes that differ by at most one."""
    if _is_interval(sizes):
        first, last = _ends(sizes)
        return _from_to(first * domains, min(last * domains, wanted))
    found = 0
    for size in _members(sizes):
        if size * domains > wanted:
            break
        if sizes >> size + 1 & 1:
            found |= _from_to(size * domains, min((size + 1) * domains, wanted))
        else:
            found |= 1 << size * domains
    return found


def _even_over_any(sizes: _Numbers, wanted: int) -> _Numbers:
    """Sums of any number of the sizes that differ by at most one."""
    if _is_interval(sizes):
        return _interval_sums(sizes, wanted)
    found, everything = 0, _from_to(1, wanted)
    for size in _members(sizes):
        if found == everything:
            break
        if not sizes >> size + 1 & 1:
            found |= _multiples(size, wanted)
            continue
        for domains in range(1, wanted // size + 1):
            if domains >= size - 1:  # from here on the intervals overlap
                found |= _from_to(size * domains, wanted)
                break
            found |= _from_to(size * domains, min((size + 1) * domains, wanted))
    return found


def _interval_sums(sizes: _Numbers, wanted: int) -> _Numbers:
    """Sums of any number of sizes from an interval; the sizes can always be chosen to differ by at most one."""
    first, last = _ends(sizes)
    found = 0
    for domains in range(1, wanted // first + 1):
        if domains * (last - first) >= first - 1:  # from here on the intervals overlap
            return found | _from_to(first * domains, wanted)
        found |= _from_to(first * domains, min(last * domains, wanted))
    return found


def _is_interval(numbers: _Numbers) -> bool:
    """The set is a non-empty interval."""
    return bool(numbers) and not numbers & numbers + (numbers & -numbers)


def _ends(numbers: _Numbers) -> tuple[int, int]:
    return (numbers & -numbers).bit_length() - 1, numbers.bit_length() - 1


def _members(numbers: _Numbers) -> Iterator[int]:
    """The numbers in the set, in order."""
    bits = bin(numbers)[:1:-1]
    at = bits.find("1")
    while at >= 0:
        yield at
        at = bits.find("1", at + 1)


def _from_to(first: int, last: int) -> _Numbers:
    return (1 << last + 1) - (1 << first) if first <= last else 0


def _multiples(of: int, wanted: int) -> _Numbers:
    """Multiples of `of` up to `wanted`."""
    if of > wanted:
        return 0
    found, step = 1 << of, of
    while step < wanted:
        found |= found << step
        step *= 2
    return found & ((2 << wanted) - 1)
