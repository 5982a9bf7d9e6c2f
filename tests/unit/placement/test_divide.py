"""Kernel `divide`: pack, spread and partition, with ranges and factors, independently in each segment."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.placement.kernels.divide import IMPOSSIBLE, divide, fewest, max_even
from muster.placement.solve.level_rules import Rule, Shape

SEGMENTS = st.lists(st.tuples(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 14)), min_size=1)


def divided(rule: Rule, segments: list[tuple[list[int], int]]) -> list[list[int]] | None:
    caps = np.array([cap for each, _ in segments for cap in each], np.int64)
    starts = np.cumsum([0, *(len(each) for each, _ in segments)])
    wants = np.array([wanted for _, wanted in segments], np.int64)
    found = np.zeros((2, len(caps)), np.int64)
    number, squares, off = divide(*rule.division, caps, starts, np.arange(len(segments)), wants, *found)
    if squares == IMPOSSIBLE:
        return None
    domains, sizes = found[:, :number]
    counts = np.zeros(len(caps), np.int64)
    counts[domains] = sizes
    used = np.add.reduceat(counts > 0, starts[:-1], dtype=np.int64)
    assert (squares, off) == (int((sizes * sizes).sum()), int(np.abs(used - rule.parts).sum()))
    return [counts[first : first + len(each)].tolist() for first, (each, _) in zip(starts, segments, strict=False)]


def fits(segments: list[tuple[list[int], int]]) -> bool:
    return all(sum(caps) >= wanted for caps, wanted in segments)


def fewest_of(caps: list[int], wanted: int) -> int:
    return next(n for n in range(len(caps) + 1) if any(sum(c) >= wanted for c in combinations(caps, n)))


def levelled(caps: list[int], wanted: int, parts: int) -> int:
    """The least sum of squares over at most `parts` parts: greedily to the smallest, for every choice of domains."""
    best = None
    for chosen in combinations(caps, min(parts, len(caps))):
        if sum(chosen) < wanted:
            continue
        sizes = [0] * len(chosen)
        for _ in range(wanted):
            at = min((i for i in range(len(sizes)) if sizes[i] < chosen[i]), key=sizes.__getitem__)
            sizes[at] += 1
        squares = sum(size * size for size in sizes)
        best = squares if best is None else min(best, squares)
    assert best is not None
    return best


@given(SEGMENTS)
def test_pack_uses_the_fewest_domains(segments: list[tuple[list[int], int]]) -> None:
    found = divided(Rule(0), segments)
    assert (found is not None) == fits(segments)
    for counts, (caps, wanted) in zip(found or (), segments, strict=False):
        assert sum(counts) == wanted
        assert all(count <= cap for count, cap in zip(counts, caps, strict=True))
        assert sum(count > 0 for count in counts) == fewest_of(caps, wanted)


@given(SEGMENTS)
def test_spread_is_as_even_as_capacity_allows(segments: list[tuple[list[int], int]]) -> None:
    found = divided(Rule(0, Shape.SPREAD), segments)
    assert (found is not None) == fits(segments)
    for counts, (caps, wanted) in zip(found or (), segments, strict=False):
        assert sum(counts) == wanted
        assert all(count <= cap for count, cap in zip(counts, caps, strict=True))
        assert sum(count * count for count in counts) == levelled(caps, wanted, len(caps))


@given(SEGMENTS, st.integers(1, 4))
def test_a_partition_has_the_declared_parts_if_they_hold_all(segments: list[tuple[list[int], int]], parts: int) -> None:
    found = divided(Rule(0, Shape.PARTITION, parts=parts), segments)
    assert (found is not None) == fits(segments)
    for counts, (caps, wanted) in zip(found or (), segments, strict=False):
        able = min(parts, sum(cap > 0 for cap in caps), wanted)
        used = max(able, fewest_of(caps, wanted))
        assert sum(count > 0 for count in counts) == used
        assert sum(count * count for count in counts) == levelled(caps, wanted, used)


@given(SEGMENTS, st.sampled_from([Shape.SPREAD, Shape.PARTITION]), st.integers(1, 4))
def test_hard_shapes_are_even_or_infeasible(segments: list[tuple[list[int], int]], shape: Shape, parts: int) -> None:
    found = divided(Rule(0, shape, shape_is_hard=True, parts=parts), segments)
    possible = []
    for caps, wanted in segments:
        numbers = [parts] if shape is Shape.PARTITION else range(1, len(caps) + 1)
        possible.append([n for n in numbers if _even(caps, wanted, n)])
    assert (found is not None) == all(possible)
    for counts, (_, wanted), numbers in zip(found or (), segments, possible, strict=False):
        used = [count for count in counts if count]
        assert sum(used) == wanted
        assert max(used) - min(used) <= 1
        assert len(used) == max(numbers)


@given(SEGMENTS, st.integers(1, 4), st.integers(0, 4), st.sampled_from(list(Shape)))
def test_every_division_satisfies_ranges_and_factors(
    segments: list[tuple[list[int], int]], least: int, step: int, shape: Shape
) -> None:
    step = max(1, step)
    segments = [([cap - cap % step if cap >= least else 0 for cap in caps], wanted) for caps, wanted in segments]
    segments = [([cap if cap >= least else 0 for cap in caps], wanted) for caps, wanted in segments]
    found = divided(Rule(0, shape, parts=2, least=least, step=step), segments)
    for counts, (caps, wanted) in zip(found or (), segments, strict=False):
        assert sum(counts) == wanted
        assert all(
            count == 0 or (least <= count <= cap and count % step == 0) for count, cap in zip(counts, caps, strict=True)
        )


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=12),
    st.integers(1, 40),
    st.sampled_from(list(Shape)),
    st.integers(1, 5),
    st.booleans(),
)
def test_domains_are_divided_independently(caps: list[int], wanted: int, shape: Shape, parts: int, hard: bool) -> None:
    rule = Rule(0, shape, shape_is_hard=hard, parts=parts)
    easy = ([wanted] * parts, wanted)
    one, other, both = divided(rule, [(caps, wanted)]), divided(rule, [easy]), divided(rule, [(caps, wanted), easy])
    assert both == (None if one is None or other is None else one + other)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=400), st.integers(1, 10**8))
def test_packing_many_large_domains_agrees_with_sorting(caps: list[int], wanted: int) -> None:
    counts = divided(Rule(0), [(caps, wanted)])
    expected = packed(caps, wanted)
    assert counts == (None if expected is None else [expected])
    if expected is not None:
        starts = np.array([0, len(caps)])
        assert fewest(np.array(caps), starts, 0, 1, wanted, True).tolist() == [sum(map(bool, expected))]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=400), st.integers(1, 10**8))
def test_spreading_over_many_large_domains_agrees_with_sorting(caps: list[int], wanted: int) -> None:
    counts = divided(Rule(0, Shape.SPREAD), [(caps, wanted)])
    expected = level(caps, wanted)
    assert counts == (None if expected is None else [expected])


def packed(caps: list[int], wanted: int) -> list[int] | None:
    """The tightest domain that holds all, or the largest ones and the tightest that holds the rest."""
    counts = [0] * len(caps)
    for at in sorted(range(len(caps)), key=lambda at: (-caps[at], at)):
        able = [other for other in range(len(caps)) if caps[other] >= wanted and not counts[other]]
        if able:
            counts[min(able, key=lambda other: (caps[other], other))] = wanted
            return counts
        counts[at] = caps[at]
        wanted -= caps[at]
        if not wanted:
            return counts
    return None


def level(caps: list[int], wanted: int) -> list[int] | None:
    """The largest equal share: smaller domains are full, the tightest of the others have the share."""
    if sum(caps) < wanted:
        return None
    order = sorted(range(len(caps)), key=lambda at: (caps[at], at), reverse=True)
    sharing = min(wanted, sum(map(bool, caps)))
    counts = [0] * len(caps)
    while sharing and caps[order[sharing - 1]] * sharing <= wanted:
        sharing -= 1
        counts[order[sharing]] = caps[order[sharing]]
        wanted -= caps[order[sharing]]
    if sharing:
        each, more = divmod(wanted, sharing)
        able = [at for at in order if caps[at] >= max(1, each + bool(more)) and not counts[at]]
        for turn, at in enumerate(sorted(able[-sharing:])):
            counts[at] = each + (turn < more)
    return counts


@given(SEGMENTS, st.integers(0, 4), st.integers(0, 1), st.booleans())
def test_the_largest_even_division(
    segments: list[tuple[list[int], int]], parts: int, difference: int, large: bool
) -> None:
    caps = [[cap * (20 if large else 1) for cap in each] for each, _ in segments]
    starts = np.cumsum([0, *map(len, caps)])
    found = max_even(np.array([cap for each in caps for cap in each], np.int64), starts, parts, difference).tolist()
    for most, each in zip(found, caps, strict=True):
        numbers = [parts] if parts else range(1, len(each) + 1)
        sums = [n * size + extra for n in numbers for size in range(1, 121) for extra in range(n if difference else 1)]
        able = [
            each_sum
            for n in numbers
            for each_sum in sums
            if _even(each, each_sum, n) and (difference or each_sum % n == 0)
        ]
        assert most == max(able, default=0)


def test_ties_go_to_the_first_domain() -> None:
    assert divided(Rule(0), [([4, 4, 4], 4)]) == [[4, 0, 0]]
    assert divided(Rule(0), [([4, 4, 4], 8)]) == [[4, 4, 0]]
    assert divided(Rule(0, Shape.SPREAD), [([4, 4, 4], 4)]) == [[2, 1, 1]]
    assert divided(Rule(0, Shape.SPREAD), [([4, 4, 4], 2)]) == [[1, 1, 0]]


def test_the_tightest_domains_share_the_members() -> None:
    assert divided(Rule(0, Shape.SPREAD), [([9, 1, 5, 1], 2)]) == [[0, 1, 0, 1]]
    assert divided(Rule(0), [([9, 6, 7], 6)]) == [[0, 6, 0]]


def _even(caps: list[int], wanted: int, parts: int) -> bool:
    """Sizes of `parts` parts can differ by at most one."""
    if parts > min(len(caps), wanted):
        return False
    each, more = divmod(wanted, parts)
    roomy = sorted(caps, reverse=True)
    return roomy[parts - 1] >= each and (not more or roomy[more - 1] > each)
