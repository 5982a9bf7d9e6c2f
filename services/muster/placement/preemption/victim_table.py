"""Pods that may be removed, as arrays: what they hold, on which nodes, and what is free where when some are gone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import PodsOnNode, PotentialVictim, VictimGang
from muster.placement.state.capacity import CapacityState, Evicted
from muster.placement.state.nodes import Bool
from muster.placement.state.nominated import NominatedAmounts

_UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class VictimTable:
    """Entries are pods of one class of one gang on one node, sorted by node and, on each, in the order of the request.

    `gang`, `at`, `count` and `turn` are int64[entries]: index into `gangs`, index into `rows`, pods, and place in the
    order of the request. `rows` are the rows of the nodes, int64[nodes], `starts` their first entries. `amounts` is
    what one pod of each entry holds, int64[resources, entries]. `minded` are classes whose pods others may mind, and
    `class_at` is int64[entries], index into them, -1 for other classes.
    """

    gangs: Sequence[PotentialVictim]
    gang: Int64
    at: Int64
    count: Int64
    turn: Int64
    rows: Int64
    starts: Int64
    amounts: Int64
    minded: Sequence[str]
    class_at: Int64

    def __len__(self) -> int:
        return len(self.gang)

    @property
    def in_order(self) -> Int64:
        """Entries in the order of the request, int64[entries]."""
        return np.argsort(self.turn)

    def freed(self, removed: Int64) -> Int64:
        """What is given back by so many pods of each entry: int64[resources, nodes]."""
        if not len(self):
            return np.zeros((len(self.amounts), 0), np.int64)
        freed: Int64 = np.add.reduceat(self.amounts * removed, self.starts, axis=1)
        return freed

    def let_go(self, state: CapacityState, removed: Int64) -> None:
        """As if so many pods of each entry were gone, until that is undone."""
        freed = self.freed(removed)
        changed = np.flatnonzero(freed.any(axis=0))
        state.change_free(self.rows[changed], freed[:, changed], self.gone(removed))

    def gone(self, removed: Int64) -> list[Evicted]:
        """So many pods of each entry, as far as others may mind them."""
        gone = []
        for index, class_id in enumerate(self.minded):
            entries = np.flatnonzero((self.class_at == index) & (removed > 0))
            if len(entries):
                gone.append((class_id, self.rows[self.at[entries]], removed[entries]))
        return gone

    def only(self, entries: Bool) -> Self:
        """Some of the entries."""
        places, starts, at = np.unique(self.at[entries], return_index=True, return_inverse=True)
        return type(self)(
            self.gangs,
            self.gang[entries],
            at,
            self.count[entries],
            self.turn[entries],
            self.rows[places],
            starts,
            self.amounts[:, entries],
            self.minded,
            self.class_at[entries],
        )

    def answer(self, removed: Int64) -> tuple[VictimGang, ...]:
        """In the words of the answer, in the order of the request."""
        by_gang: dict[int, list[tuple[int, int]]] = {}
        for entry in np.flatnonzero(removed).tolist():
            by_gang.setdefault(int(self.gang[entry]), []).append((int(self.turn[entry]), int(removed[entry])))
        held = np.bincount(self.gang, self.count, len(self.gangs))
        first = np.cumsum([0, *(len(gang.pods) for gang in self.gangs)]).tolist()
        return tuple(
            _of_gang(
                self.gangs[index], [(turn - first[index], count) for turn, count in sorted(gone)], int(held[index])
            )
            for index, gone in sorted(by_gang.items())
        )


def _of_gang(gang: PotentialVictim, gone: list[tuple[int, int]], held: int) -> VictimGang:
    """`gone`: (index of pods, count). When all that it `held` goes, all that was listed does."""
    if sum(count for _, count in gone) == held:
        return VictimGang(gang.id, True, tuple(pods for pods in gang.pods if pods.count))
    listed = ((gang.pods[index], count) for index, count in gone)
    return VictimGang(gang.id, False, tuple(PodsOnNode(pods.node, pods.class_id, count) for pods, count in listed))


def victim_table(
    state: CapacityState, potential_victims: Sequence[PotentialVictim], kept: NominatedAmounts
) -> VictimTable:
    """What may be removed. Pods on nodes that are not known are left out, and no node gives back more than pods hold
    there, whatever the caller says.
    """
    listed = [pods for gang in potential_victims for pods in gang.pods]
    names = [pods.node for pods in listed]
    classes = [pods.class_id for pods in listed]
    row_of = {name: -1 if (row := state.nodes.row(name)) is None else row for name in set(names)}
    rows = np.fromiter(map(row_of.__getitem__, names), np.int64)
    turn = np.flatnonzero(rows >= 0)
    turn = turn[np.argsort(rows[turn], kind="stable")]
    gang = np.repeat(np.arange(len(potential_victims)), [len(each.pods) for each in potential_victims])[turn]
    count = np.array([pods.count for pods in listed], np.int64)[turn]
    class_ids = {class_id: index for index, class_id in enumerate(sorted(set(classes)))}
    vectors = np.array([state.of(class_id).vector(len(state.free)) for class_id in class_ids], np.int64)
    class_at = np.fromiter(map(class_ids.__getitem__, classes), np.int64)[turn]
    amounts = vectors.reshape(-1, len(state.free)).T[:, class_at]
    distinct, starts, at = np.unique(rows[turn], return_index=True, return_inverse=True)
    count = _clipped(count, amounts, at, starts, _in_use(state, distinct, kept))
    minded = [class_id for class_id in class_ids if state.pod_counts.tracks(class_id)]
    index_of = np.array([minded.index(class_id) if class_id in minded else -1 for class_id in class_ids], np.int64)
    return VictimTable(potential_victims, gang, at, count, turn, distinct, starts, amounts, minded, index_of[class_at])


def _clipped(count: Int64, amounts: Int64, at: Int64, starts: Int64, in_use: Int64) -> Int64:
    """Counts that free no more than is `in_use`, int64[resources, nodes]; first entries are believed first."""
    if not len(count):
        return count
    most = np.where(amounts > 0, in_use[:, at] // np.maximum(amounts, 1), _UNLIMITED).min(axis=0)
    count = np.minimum(count, np.maximum(most, 0))
    given = np.add.reduceat(amounts * count.astype(np.float64), starts, axis=1)
    for node in np.flatnonzero((given > in_use).any(axis=0)).tolist():
        left = in_use[:, node].copy()
        for entry in np.flatnonzero(at == node).tolist():
            asked = np.flatnonzero(amounts[:, entry])
            fits = (left[asked] // amounts[asked, entry]).min(initial=count[entry])
            count[entry] = max(0, int(fits))
            left -= amounts[:, entry] * count[entry]
    return count


def _in_use(state: CapacityState, rows: Int64, kept: NominatedAmounts) -> Int64:
    """What pods hold on nodes, seated or reserved: int64[resources, rows]."""
    free = state.free[:, rows]
    if len(kept.rows):
        nominated = np.zeros_like(state.free)
        nominated[:, kept.rows] = kept.amounts
        free += nominated[:, rows]
    in_use: Int64 = state.capacity.allocatable[rows, : len(state.free)].T - free
    return in_use
