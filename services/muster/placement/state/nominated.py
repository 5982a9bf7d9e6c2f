"""Room that is kept for others: nobody holds it, but the groups of a request may not have it."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from muster.gangs.capacity import LARGEST_AMOUNT, Int64
from muster.gangs.solve import NominatedCapacity
from muster.placement.state.capacity import CapacityState, ClassCapacity
from muster.placement.state.filters import USABLE


@dataclass(frozen=True)
class NominatedAmounts:
    """What was taken out of the room: `amounts` is int64[resources, rows]."""

    rows: Int64
    amounts: Int64

    def in_the_way(self, of_class: ClassCapacity, left: Int64) -> int:
        """Nodes that would have room for one more of the class if nothing were kept.

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
    """Take it out of the room until that is undone; nodes and resources that are not known are passed over.

    A node may be left with less than nothing: what is kept may still be in use by pods that are to go.
    """
    by_row: dict[int, dict[int, int]] = {}
    for each in nominated:
        row = state.nodes.row(each.node)
        if row is not None:
            amounts = by_row.setdefault(row, {})
            for name, amount in each.amounts:
                column = state.capacity.resources.get(name)
                if column is not None:
                    amounts[column] = min(amounts.get(column, 0) + amount, LARGEST_AMOUNT)
    if not by_row:
        return NO_NOMINATIONS
    kept = NominatedAmounts(np.array(list(by_row), np.int64), np.zeros((len(state.free), len(by_row)), np.int64))
    for index, amounts in enumerate(by_row.values()):
        for column, amount in amounts.items():
            kept.amounts[column, index] = amount
    state.change_free(kept.rows, -kept.amounts)
    return kept
