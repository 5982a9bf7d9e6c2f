"""Seats a group where the fewest spare pods have to go for each seat, as far as their gangs can spare them."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.seating import seat
from muster.placement.preemption.dry_run import DryRun
from muster.placement.preemption.victim_table import VictimTable
from muster.placement.solve.instance import Solution
from muster.placement.state.capacity import ClassCapacity
from muster.placement.state.filters import USABLE

_OUT_OF_REACH: Final = 2**62

Pods = list[tuple[int, int]]
"""Entries and how many pods of each."""


def spare_for(trial: DryRun, removed: Int64, available: Int64, allowance: Sequence[int]) -> Int64 | None:
    """What has to go besides what is `removed` anyway: of the `available` pods of each entry, and of each gang no more
    than its `allowance`. None if seating members one after another does not find a place.

    Raises EffortSpent.
    """
    checkpoint = trial.state.checkpoint()
    for order in _orders(trial):
        try:
            economy = _Economy(trial, removed.copy(), available.copy(), list(allowance))
            if economy.seat(order):
                return economy.removed
        finally:
            trial.state.rollback(checkpoint)
    return None


def _orders(trial: DryRun) -> Iterator[list[int]]:
    """Hardest parts first; where members may be left out, first roles first before that."""
    seats = [int(trial.state.of(part.class_id).fits.sum()) for part in trial.parts]
    hardest_first = sorted(range(len(seats)), key=lambda index: (seats[index], index))
    members = sum(part.wanted for part in trial.parts)
    if sum(gang.minimum for gang in trial.group.gangs) < members and len(seats) > 1:
        yield list(range(len(seats)))
    yield hardest_first


class _Economy:
    def __init__(self, trial: DryRun, removed: Int64, available: Int64, allowance: list[int]) -> None:
        self.removed = removed
        self._trial = trial
        self._state = trial.state
        self._available = available
        self._allowance = allowance
        trial.candidates.let_go(self._state, removed)

    def seat(self, order: Sequence[int]) -> bool:
        """Every gang its minimum, parts in this order."""
        left = [gang.minimum for gang in self._trial.group.gangs]
        for index in order:
            part = self._trial.parts[index]
            missing = min(part.wanted, left[part.gang])
            if missing:
                seated = seat(self._state, 0, part, missing, None, Solution([0]))
                if seated < missing:
                    seated += self._make_room(self._state.of(part.class_id), missing - seated)
                left[part.gang] -= seated
        return not any(left)

    def _make_room(self, of_class: ClassCapacity, missing: int) -> int:
        """Remove pods for up to so many members, where fewest have to go first; returns how many got a seat."""
        rank = self._state.nodes.rank[self._trial.candidates.rows].tolist()
        costs = self._estimate(of_class)
        heap = [(cost, rank[at], at) for at, cost in enumerate(costs.tolist()) if cost < _OUT_OF_REACH]
        heapify(heap)
        seated = 0
        while heap and seated < missing:
            self._trial.spend(2)
            _, by_name, at = heappop(heap)
            pods = self._next_seat(of_class, at)
            if pods is None:
                continue
            cost = sum(count for _, count in pods)
            if heap and (cost, by_name) > heap[0][:2]:
                heappush(heap, (cost, by_name, at))  # dearer than it seemed, since its gangs have had to spare others
                continue
            here = self._seat_at(of_class, at, pods, missing - seated)
            seated += here
            if here:
                heappush(heap, (cost, by_name, at))
        return seated

    def _estimate(self, of_class: ClassCapacity) -> Int64:
        """Pods that have to go for one seat on each node, as if no gang had pods elsewhere: int64[nodes]."""
        candidates, columns = self._trial.candidates, of_class.columns
        costs = np.full(len(candidates.rows), _OUT_OF_REACH)
        if not len(candidates):
            return costs
        available = np.minimum(self._available, np.array(self._allowance, np.int64)[candidates.gang])
        amounts = candidates.amounts[columns]
        lacking = (of_class.amounts[:, None] - self._state.free[columns[:, None], candidates.rows])[:, candidates.at]
        lacking -= _before(candidates, amounts * available)
        most = np.where(amounts > 0, -(-lacking // np.maximum(amounts, 1)), np.where(lacking > 0, _OUT_OF_REACH, 0))
        here = np.maximum(most.max(axis=0, initial=0), 0)
        pods = np.where(here <= available, _before(candidates, available[None])[0] + here, _OUT_OF_REACH)
        costs = np.minimum.reduceat(pods, candidates.starts)
        costs[of_class.filters.reason[candidates.rows] != USABLE] = _OUT_OF_REACH
        return costs

    def _next_seat(self, of_class: ClassCapacity, at: int) -> Pods | None:
        """Pods that have to go for one more member on a node; None if that is more than can."""
        candidates, columns = self._trial.candidates, of_class.columns
        start = int(candidates.starts[at])
        end = int(candidates.starts[at + 1]) if at + 1 < len(candidates.rows) else len(candidates)
        amounts = candidates.amounts[columns, start:end].T.tolist()
        lacking = (of_class.amounts - self._state.free[columns, candidates.rows[at]]).tolist()
        taken: dict[int, int] = {}
        pods: Pods = []
        gangs, available = candidates.gang[start:end].tolist(), self._available[start:end].tolist()
        for entry, (gang, held, each) in enumerate(zip(gangs, available, amounts, strict=True)):
            if max(lacking, default=0) <= 0:
                break
            wished = max((-(-lack // amount) for lack, amount in zip(lacking, each, strict=True) if amount), default=0)
            count = min(held, self._allowance[gang] - taken.get(gang, 0), wished)
            if count > 0:
                pods.append((start + entry, count))
                taken[gang] = taken.get(gang, 0) + count
                lacking = [lack - count * amount for lack, amount in zip(lacking, each, strict=True)]
        if max(lacking, default=0) > 0:
            return None
        return _without_idle(pods, [amounts[entry - start] for entry, _ in pods], lacking)

    def _seat_at(self, of_class: ClassCapacity, at: int, pods: Pods, missing: int) -> int:
        """Let the pods go and seat as many members there as it gives room for; if that is none, they stay."""
        candidates = self._trial.candidates
        checkpoint, gone = self._state.checkpoint(), np.zeros(len(candidates), np.int64)
        freed = np.zeros(len(self._state.free), np.int64)
        for entry, count in pods:
            freed += candidates.amounts[:, entry] * count
            gone[entry] = count
        row = candidates.rows[at : at + 1]
        self._state.change_free(row, freed[:, None], candidates.gone(gone))
        fits = int((self._state.free[of_class.columns, row[0]] // of_class.amounts).min(initial=missing))
        if of_class.inter_pod is not None:
            fits = min(fits, int(self._state.of(of_class.pod_class.id).fits[row[0]]))
        if not fits:
            self._state.rollback(checkpoint)
            return 0
        for entry, count in pods:
            self.removed[entry] += count
            self._available[entry] -= count
            self._allowance[int(candidates.gang[entry])] -= count
        self._state.reserve(of_class, row, np.array([fits]))
        return fits


def _before(candidates: VictimTable, each: Int64) -> Int64:
    """Sums over the entries before each on its node: int64[some, entries]."""
    sums = each.cumsum(axis=1) - each
    before: Int64 = sums - sums[:, candidates.starts][:, candidates.at]
    return before


def _without_idle(pods: Pods, amounts: list[list[int]], lacking: list[int]) -> Pods:
    """Without those that turned out not to be needed, the last ones first; `lacking` is 0 or less."""
    needed: Pods = []
    for (entry, count), each in zip(reversed(pods), reversed(amounts), strict=True):
        idle = min((-lack // amount for lack, amount in zip(lacking, each, strict=True) if amount), default=count)
        idle = min(idle, count)
        lacking = [lack + idle * amount for lack, amount in zip(lacking, each, strict=True)]
        if count > idle:
            needed.append((entry, count - idle))
    return needed[::-1]
