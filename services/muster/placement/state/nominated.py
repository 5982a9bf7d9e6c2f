"""Nominated capacity: withheld from the groups of a request on behalf of preemptors and starving gangs."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from muster.gangs.capacity import MAX_AMOUNT, Int64
from muster.gangs.solve import NominatedCapacity
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import USABLE


@dataclass(frozen=True)
class NominatedAmounts:
    """Amounts withheld from the free capacity, int64[resources, rows]."""

    rows: Int64
    amounts: Int64

    def blocked_nodes(self, of_class: ClassCapacity, left: Int64) -> int:
        """Number of nodes on which one more pod of the class would fit without the nominated capacity.

        `left` is what is free of the class's resources, int64[its resources, all rows].
        """
        if not len(self.rows):
            return 0
        usable = of_class.filters.reason[self.rows] == USABLE
        if of_class.inter_pod is not None:
            usable &= of_class.inter_pod.caps()[self.rows] > 0
        now, needed = left[:, self.rows], of_class.amounts[:, None]
        fits = (now >= needed).all(axis=0)
        would_fit = (now + self.amounts[of_class.columns] >= needed).all(axis=0)
        return int((usable & would_fit & ~fits).sum())


NO_NOMINATIONS: NominatedAmounts = NominatedAmounts(np.zeros(0, np.int64), np.zeros((0, 0), np.int64))


def withhold(state: CapacityState, nominated: Iterable[NominatedCapacity]) -> NominatedAmounts:
    """Withhold nominated capacity until the next rollback; unknown nodes and resources are skipped.

    Free amounts may become negative: victims that have not terminated may still use the capacity.
    """
    by_row: dict[int, dict[int, int]] = {}
    for each in nominated:
        row = state.nodes.row(each.node)
        if row is not None:
            amounts = by_row.setdefault(row, {})
            for name, amount in each.amounts:
                column = state.capacity.resources.get(name)
                if column is not None:
                    amounts[column] = min(amounts.get(column, 0) + amount, MAX_AMOUNT)
    if not by_row:
        return NO_NOMINATIONS
    withheld = NominatedAmounts(np.array(list(by_row), np.int64), np.zeros((len(state.free), len(by_row)), np.int64))
    for index, amounts in enumerate(by_row.values()):
        for column, amount in amounts.items():
            withheld.amounts[column, index] = amount
    state.change_free(withheld.rows, -withheld.amounts)
    return withheld
