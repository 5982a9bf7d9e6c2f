"""Tables of the dynamic programme: joins agree with enumeration, and cells trace back to shares."""

from itertools import product
from random import Random

import numpy as np
import pytest

from muster.gangs.capacity import Int64
from muster.placement.solve.branch_and_bound import OutOfBudget
from muster.placement.solve.tables import IMPOSSIBLE, Axis, join, read_back

PARTS = (Axis(3), Axis(2))
MATCHING = Axis(2, adds=False)


def unlimited(cells: int, shares: int) -> None:
    """An unlimited budget."""


def random_table(seed: int, units: int, axes: tuple[Axis, ...]) -> Int64:
    chance = Random(seed)
    table = np.full((units, *(axis.length for axis in axes)), IMPOSSIBLE)
    for at in np.ndindex(table.shape):
        if not any(at[1:3]) or chance.random() < 0.5:
            table[at] = chance.randrange(10)
    return table


def by_enumeration(table: Int64, axes: tuple[Axis, ...], cell: tuple[int, ...]) -> int:
    """The least cost of all ways to divide a cell over all units."""
    best = IMPOSSIBLE
    cells = list(np.ndindex(table.shape[1:]))
    for way in product(cells, repeat=len(table)):
        fits = all(
            sum(at[index] for at in way) == cell[index] if axis.adds else all(at[index] == cell[index] for at in way)
            for index, axis in enumerate(axes)
        )
        if fits:
            best = min(best, sum(int(table[(unit, *at)]) for unit, at in enumerate(way)))
    return best


@pytest.mark.parametrize("axes", [PARTS, (*PARTS, MATCHING)], ids=["parts", "with an axis that matches"])
@pytest.mark.parametrize("seed", range(6))
def test_joined_tables_have_the_least_costs_and_trace_back(seed: int, axes: tuple[Axis, ...]) -> None:
    table = random_table(seed, 3, axes)
    joined, steps = join(table, np.zeros(3, np.int64), axes, unlimited)
    assert len(joined) == 1
    for cell in np.ndindex(joined.shape[1:]):
        cost = int(joined[(0, *cell)])
        assert cost == min(by_enumeration(table, axes, cell), IMPOSSIBLE)
        if cost < IMPOSSIBLE and len(axes) == len(PARTS):
            found = dict(read_back(steps, cell, len(PARTS)))
            assert [sum(share[part] for share in found.values()) for part in range(len(PARTS))] == list(cell)
            nobody = sum(int(table[unit, 0, 0]) for unit in range(3) if unit not in found)
            assert cost == nobody + sum(int(table[(unit, *share)]) for unit, share in found.items())


def test_only_units_of_one_owner_are_joined() -> None:
    table = random_table(7, 5, PARTS)
    joined, _ = join(table, np.array([0, 0, 1, 2, 2]), PARTS, unlimited)
    alone, _ = join(table[:2], np.zeros(2, np.int64), PARTS, unlimited)
    assert len(joined) == 3
    assert (joined[0] == alone[0]).all()
    assert (joined[1] == table[2]).all()


def test_the_budget_is_spent_before_the_work() -> None:
    def refuse(cells: int, shares: int) -> None:
        assert cells >= shares > 0
        raise OutOfBudget

    with pytest.raises(OutOfBudget):
        join(random_table(1, 2, PARTS), np.zeros(2, np.int64), PARTS, refuse)
