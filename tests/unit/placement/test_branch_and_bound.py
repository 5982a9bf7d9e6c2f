"""Branch and bound: finds solutions, proves infeasibility, and gives up within its budget."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import alone, answers, cluster, node, pod_class, refusal
from muster.placement.solve.branch_and_bound import (
    Bin,
    Budget,
    Counts,
    OutOfBudget,
    PackingInstance,
    search,
    undominated_bins,
)


def instance(asks: list[int], wanted: list[int], free: list[int], slack: int = 0) -> PackingInstance:
    """One gang, one resource."""
    return PackingInstance(
        asks=tuple((ask,) for ask in asks),
        wanted=tuple(wanted),
        gang=(0,) * len(asks),
        slack=(slack,),
        bins=tuple(Bin((have,), tuple(min(w, have // a) for a, w in zip(asks, wanted, strict=True))) for have in free),
    )


def test_a_perfect_packing_is_found() -> None:
    found = search(instance([6, 5, 4, 3], [1, 2, 2, 2], [10, 10, 10]), Budget(10_000))
    assert found is not None
    assert [sum(column) for column in zip(*found, strict=True)] == [1, 2, 2, 2]
    assert [6 * a + 5 * b + 4 * c + 3 * d for a, b, c, d in found] == [10, 10, 10]


def test_infeasibility_is_proved() -> None:
    assert search(instance([7, 4], [2, 3], [10, 10, 10]), Budget(10_000)) is None


def test_slack_allows_leaving_out_members() -> None:
    found = search(instance([7, 4], [2, 3], [10, 10, 10], slack=1), Budget(10_000))
    assert found is not None
    assert sum(map(sum, found)) >= 4


def test_without_budget_the_search_gives_up() -> None:
    with pytest.raises(OutOfBudget):
        search(instance([6, 5, 4, 3], [1, 2, 2, 2], [10, 10, 10]), Budget(3))


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=3),
    st.lists(st.integers(1, 3), min_size=3, max_size=3),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 2),
)
def test_branch_and_bound_agrees_with_enumeration(
    asks: list[int], wanted: list[int], free: list[int], slack: int
) -> None:
    packing = instance(asks, wanted[: len(asks)], free, slack)
    found = search(packing, Budget(100_000))
    assert (found is not None) == _possible(packing)
    if found is not None:
        for of_bin, counts in zip(packing.bins, found, strict=True):
            assert sum(count * ask for count, (ask,) in zip(counts, packing.asks, strict=True)) <= of_bin.free[0]
        totals = [sum(column) for column in zip(*found, strict=True)]
        assert all(total <= want for total, want in zip(totals, packing.wanted, strict=True))
        assert sum(totals) >= sum(packing.wanted) - slack


def _possible(packing: PackingInstance) -> bool:
    """Enumerates how many members of each part each bin gets."""
    states: set[Counts] = {packing.wanted}
    for of_bin in packing.bins:
        reached = set(states)
        for left in states:
            for counts in product(*(range(each + 1) for each in left)):
                if sum(count * ask for count, (ask,) in zip(counts, packing.asks, strict=True)) <= of_bin.free[0]:
                    reached.add(tuple(have - put for have, put in zip(left, counts, strict=True)))
        states = reached
    return any(sum(left) <= packing.slack[0] for left in states)


@settings(max_examples=200)
@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=2),
    st.lists(st.integers(1, 2), min_size=2, max_size=2),
    st.lists(st.integers(0, 8), min_size=4, max_size=12),
    st.integers(2, 6),
)
def test_dominated_bins_do_not_change_the_result(
    asks: list[int], wanted: list[int], free: list[int], most_bins: int
) -> None:
    packing = instance(asks, wanted, free)
    bins = np.array([(*each.most, *each.free) for each in packing.bins], np.int64)
    chosen, whole = undominated_bins(bins, len(asks), sum(wanted), most_bins)
    reduced = PackingInstance(
        packing.asks, packing.wanted, packing.gang, packing.slack, tuple(packing.bins[index] for index in chosen)
    )
    found, found_in_reduced = search(packing, Budget(100_000)), search(reduced, Budget(100_000))
    if whole:
        assert (found is None) == (found_in_reduced is None)
    else:
        assert found is not None or found_in_reduced is None


def test_a_small_gang_on_many_nodes_is_proved_infeasible() -> None:
    # every node holds one 7 or two 4s; counting each class alone, and cpu in total, shows no infeasibility
    nodes = [node(f"n{i:03}", 10) for i in range(8)] + [node(f"s{i:03}", 3.9) for i in range(500)]
    [answer] = answers(cluster(nodes, [pod_class("7", 7), pod_class("4", 4)]), alone("g", ("7", 6), ("4", 5)))
    assert refusal(answer).proved
