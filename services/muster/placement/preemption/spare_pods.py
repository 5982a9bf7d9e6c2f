"""Selects spare pods as victims: pods that their gangs can lose and keep their minimums, and as few as possible."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice, product
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.placement.inter_pod.seating import seat
from muster.placement.preemption.dry_run import DryRun, VictimTable
from muster.placement.solve.instance import Solution
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.filters import USABLE

_MAX_GANGS_VARIED: Final = 7
_MAX_CHOICES: Final = 200
"""Bounds on the choices among the pods of gangs that can spare some of them but not all."""
_UNREACHABLE: Final = 2**62

Pods = list[tuple[int, int]]
"""Entries and the number of pods of each."""


class SparePods:
    """Spare pods among the pods that may be evicted. Pods that are of no use to the group are left out.

    - `spare`: how many pods each gang can spare, by index into the request.
    - `limited`: gangs that cannot spare all of their useful pods.
    - `most`: int64[entries]; pods of the entry that may be evicted if no other pods of the gang are.
    - `first`: int64[entries]; for each gang, its first spare pods in request order.
    """

    def __init__(self, dry_run: DryRun, allowed: Int64) -> None:
        table = dry_run.table
        self.spare = [gang.spare for gang in table.gangs]
        self._dry_run = dry_run
        self._allowed = allowed
        spare = np.array(self.spare, np.int64)[table.gang]
        useful: Int64 = np.where(dry_run.useful(), allowed, 0)
        self.most: Int64 = np.where(table.singly, np.minimum(useful, spare), 0)
        self.first = _first(table, self.most, self.spare)
        totals, most = table.pods_by_gang(useful), table.pods_by_gang(self.most)
        self.limited = np.flatnonzero(totals > np.minimum(most, self.spare)).tolist()

    def select(self, whole: Sequence[int] = ()) -> Int64 | None:
        """The victims if the gangs in `whole` are evicted whole and other gangs lose spare pods.

        None if no placement is found then.

        Raises EffortSpent.
        """
        dry_run = self._dry_run
        is_whole = np.isin(dry_run.table.gang, whole)
        victims: Int64 = np.where(is_whole, self._allowed, 0)
        if not self.most.any():
            return victims if whole and dry_run.fits(victims) else None
        available: Int64 = np.where(is_whole, 0, self.most)
        if not dry_run.fits(victims + available):
            return None
        found = _select_while_seating(dry_run, victims, available, self.spare)
        if found is not None and dry_run.fits(found):
            return found
        for choice in self._choices(available):
            if dry_run.fits(victims + choice):
                return victims + choice
        return None

    def select_first(self, whole: Sequence[int]) -> Int64 | None:
        """As `select`, with the first spare pods of every other gang as victims, needed or not."""
        is_whole = np.isin(self._dry_run.table.gang, whole)
        victims: Int64 = np.where(is_whole, self._allowed, self.first)
        return victims if self._dry_run.fits(victims) else None

    def _choices(self, available: Int64) -> Iterator[Int64]:
        """Choices of as many pods as each gang can spare: its first pods, then other combinations."""
        table = self._dry_run.table
        first = np.minimum(self.first, available)
        yield first
        if len(self.limited) > _MAX_GANGS_VARIED:
            return
        in_order = table.request_order
        gang_of, pods = table.gang[in_order], available[in_order]
        totals = table.pods_by_gang(available)
        binding = [gang for gang in self.limited if totals[gang] > self.spare[gang]]
        entries = [in_order[(gang_of == gang) & (pods > 0)] for gang in binding]
        combinations = [
            list(islice(_combinations(available[each].tolist(), self.spare[gang]), _MAX_CHOICES))
            for gang, each in zip(binding, entries, strict=True)
        ]
        for combination in islice(product(*combinations), _MAX_CHOICES):
            choice = first.copy()
            for each, counts in zip(entries, combination, strict=True):
                choice[each] = counts
            yield choice


def _first(table: VictimTable, available: Int64, spare: Sequence[int]) -> Int64:
    in_order = table.request_order
    gang, pods = table.gang[in_order], available[in_order]
    before = pods.cumsum() - pods
    before -= before[np.searchsorted(gang, gang)]
    first: Int64 = np.zeros(len(available), np.int64)
    first[in_order] = np.clip(np.array(spare, np.int64)[gang] - before, 0, pods)
    return first


def _combinations(pods: Sequence[int], spare: int) -> Iterator[tuple[int, ...]]:
    """Combinations of `spare` pods, the first pods first."""
    if not pods:
        if not spare:
            yield ()
        return
    for count in range(min(pods[0], spare), max(0, spare - sum(pods[1:])) - 1, -1):
        for others in _combinations(pods[1:], spare - count):
            yield (count, *others)


def _select_while_seating(dry_run: DryRun, victims: Int64, available: Int64, spare: Sequence[int]) -> Int64 | None:
    """Seat the group and add victims where the fewest are needed per seat: at most the `available` pods of each entry,
    and at most what each gang can spare. None if the members cannot be seated one after another.

    Raises EffortSpent.
    """
    checkpoint = dry_run.state.checkpoint()
    for order in _orders(dry_run):
        try:
            seating = _Seating(dry_run, victims.copy(), available.copy(), list(spare))
            if seating.seat_minimums(order):
                return seating.victims
        finally:
            dry_run.state.rollback(checkpoint)
    return None


def _orders(dry_run: DryRun) -> Iterator[list[int]]:
    """Hardest parts first; before that, if members may be left out, in the order of roles."""
    seats = [int(dry_run.state.of(part.class_id).fits.sum()) for part in dry_run.parts]
    hardest_first = sorted(range(len(seats)), key=lambda index: (seats[index], index))
    if sum(gang.minimum for gang in dry_run.group.gangs) < dry_run.members and len(seats) > 1:
        yield list(range(len(seats)))
    yield hardest_first


class _Seating:
    """Seats a group and collects `victims` on the way; `available` and `spare` shrink as victims are added."""

    def __init__(self, dry_run: DryRun, victims: Int64, available: Int64, spare: list[int]) -> None:
        self.victims = victims
        self._dry_run = dry_run
        self._state = dry_run.state
        self._table = dry_run.table
        self._available = available
        self._spare = spare
        self._table.evict(self._state, victims)

    def seat_minimums(self, order: Sequence[int]) -> bool:
        left = [gang.minimum for gang in self._dry_run.group.gangs]
        for index in order:
            part = self._dry_run.parts[index]
            missing = min(part.wanted, left[part.gang])
            if missing:
                seated = seat(self._state, 0, part, missing, None, Solution([0]))
                if seated < missing:
                    seated += self._seat_by_eviction(self._state.of(part.class_id), missing - seated)
                left[part.gang] -= seated
        return not any(left)

    def _seat_by_eviction(self, of_class: ClassCapacity, missing: int) -> int:
        """Seat up to `missing` members on the nodes that need fewest victims per seat, of these where the first pods in
        request order are; returns how many were seated.
        """
        rank = self._state.nodes.rank[self._table.rows].tolist()
        costs, firsts = self._costs(of_class), self._first_positions()
        estimates = enumerate(zip(costs.tolist(), firsts.tolist(), strict=True))
        heap = [(cost, first, rank[node], node) for node, (cost, first) in estimates if cost < _UNREACHABLE]
        heapify(heap)
        seated = 0
        while heap and seated < missing:
            self._dry_run.spend(2)
            _, _, by_name, node = heappop(heap)
            pods = self._victims_for_seat(of_class, node)
            if pods is None:
                continue
            cost = sum(count for _, count in pods)
            first = min((int(self._table.position[entry]) for entry, _ in pods), default=0)
            if heap and (cost, first, by_name) > heap[0][:3]:
                heappush(heap, (cost, first, by_name, node))  # the estimate was too low
                continue
            here = self._seat_on(of_class, node, pods, missing - seated)
            seated += here
            if here:
                heappush(heap, (cost, first, by_name, node))
        return seated

    def _first_positions(self) -> Int64:
        """Position in the request of the first spare pod on each node: int64[nodes]."""
        table = self._table
        if not len(table):
            return np.zeros(len(table.rows), np.int64)
        available = np.minimum(self._available, np.array(self._spare, np.int64)[table.gang])
        firsts: Int64 = np.minimum.reduceat(np.where(available > 0, table.position, _UNREACHABLE), table.starts)
        return firsts

    def _costs(self, of_class: ClassCapacity) -> Int64:
        """Lower bound on the victims for one seat: int64[nodes]; each node as if gangs had no spare pods elsewhere."""
        table, columns = self._table, of_class.columns
        costs = np.full(len(table.rows), _UNREACHABLE)
        if not len(table):
            return costs
        available = np.minimum(self._available, np.array(self._spare, np.int64)[table.gang])
        amounts = table.amounts[columns]
        missing = (of_class.amounts[:, None] - self._state.free[columns[:, None], table.rows])[:, table.node]
        missing -= _sum_before(table, amounts * available)
        most = np.where(amounts > 0, -(-missing // np.maximum(amounts, 1)), np.where(missing > 0, _UNREACHABLE, 0))
        here = np.maximum(most.max(axis=0, initial=0), 0)
        pods = np.where(here <= available, _sum_before(table, available[None])[0] + here, _UNREACHABLE)
        costs = np.minimum.reduceat(pods, table.starts)
        costs[of_class.filters.reason[table.rows] != USABLE] = _UNREACHABLE
        return costs

    def _victims_for_seat(self, of_class: ClassCapacity, node: int) -> Pods | None:
        """Pods to evict for one more member on a node; None if spare pods do not suffice."""
        table, columns = self._table, of_class.columns
        start = int(table.starts[node])
        end = int(table.starts[node + 1]) if node + 1 < len(table.rows) else len(table)
        amounts = table.amounts[columns, start:end].T.tolist()
        missing = (of_class.amounts - self._state.free[columns, table.rows[node]]).tolist()
        taken: dict[int, int] = {}
        pods: Pods = []
        gangs, available = table.gang[start:end].tolist(), self._available[start:end].tolist()
        for entry, (gang, held, each) in enumerate(zip(gangs, available, amounts, strict=True)):
            if max(missing, default=0) <= 0:
                break
            useful = max((-(-lack // amount) for lack, amount in zip(missing, each, strict=True) if amount), default=0)
            count = min(held, self._spare[gang] - taken.get(gang, 0), useful)
            if count > 0:
                pods.append((start + entry, count))
                taken[gang] = taken.get(gang, 0) + count
                missing = [lack - count * amount for lack, amount in zip(missing, each, strict=True)]
        if max(missing, default=0) > 0:
            return None
        return _without_unneeded(pods, [amounts[entry - start] for entry, _ in pods], missing)

    def _seat_on(self, of_class: ClassCapacity, node: int, pods: Pods, missing: int) -> int:
        """Evict the pods and seat as many members on the node as fit then; if none fits, the pods are not evicted."""
        table = self._table
        checkpoint, victims = self._state.checkpoint(), np.zeros(len(table), np.int64)
        freed = np.zeros(len(self._state.free), np.int64)
        for entry, count in pods:
            freed += table.amounts[:, entry] * count
            victims[entry] = count
        row = table.rows[node : node + 1]
        self._state.change_free(row, freed[:, None], table.tracked_evictions(victims))
        fits = int((self._state.free[of_class.columns, row[0]] // of_class.amounts).min(initial=missing))
        if of_class.inter_pod is not None:
            fits = min(fits, int(self._state.of(of_class.pod_class.id).fits[row[0]]))
        if not fits:
            self._state.rollback(checkpoint)
            return 0
        for entry, count in pods:
            self.victims[entry] += count
            self._available[entry] -= count
            self._spare[int(table.gang[entry])] -= count
        self._state.reserve(of_class, row, np.array([fits]))
        return fits


def _sum_before(table: VictimTable, each: Int64) -> Int64:
    """Sums over the entries before each one on its node: int64[some, entries]."""
    sums = each.cumsum(axis=1) - each
    before: Int64 = sums - sums[:, table.starts][:, table.node]
    return before


def _without_unneeded(pods: Pods, amounts: list[list[int]], missing: list[int]) -> Pods:
    """The pods without those that others made unnecessary, the last ones removed first; `missing` is 0 or less."""
    needed: Pods = []
    for (entry, count), each in zip(reversed(pods), reversed(amounts), strict=True):
        idle = min((-lack // amount for lack, amount in zip(missing, each, strict=True) if amount), default=count)
        idle = min(idle, count)
        missing = [lack + idle * amount for lack, amount in zip(missing, each, strict=True)]
        if count > idle:
            needed.append((entry, count - idle))
    return needed[::-1]
