"""Potential victims as arrays: their pods by node, the capacity they hold, and what evicting some of them frees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import PodsOnNode, PotentialVictim, VictimGang
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.state.capacity import CapacityState, Evicted
from muster.placement.state.nodes import Bool
from muster.placement.state.nominated import NominatedAmounts

_UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class VictimTable:
    """An entry is the pods of one class of one gang on one node. Entries are sorted by node, then by request order.

    - `gang`, `node`, `count`, `position`: int64[entries]; index into `gangs`, index into `rows`, number of pods, and
      position in the request.
    - `rows`, `starts`: int64[nodes]; the row of each node, and its first entry.
    - `amounts`: int64[resources, entries]; what one pod of the entry holds.
    - `tracked_kinds`: kinds of pods that inter-pod rules may select; `tracked_kind` is int64[entries], index into them,
      -1 for others.

    A selection of victims is int64[entries]: how many pods of each entry are evicted.
    """

    gangs: Sequence[PotentialVictim]
    gang: Int64
    node: Int64
    count: Int64
    position: Int64
    rows: Int64
    starts: Int64
    amounts: Int64
    tracked_kinds: Sequence[Kind]
    tracked_kind: Int64

    def __len__(self) -> int:
        return len(self.gang)

    @property
    def level(self) -> Int64:
        """Preemption level of each entry's gang, int64[entries]."""
        return np.array([gang.level for gang in self.gangs], np.int64)[self.gang]

    @property
    def request_order(self) -> Int64:
        """Entries in the order of the request, int64[entries]."""
        return np.argsort(self.position)

    def pods_by_gang(self, pods: Int64) -> Int64:
        """Sums of pods per entry over each gang: int64[gangs]."""
        return np.bincount(self.gang, pods, len(self.gangs)).astype(np.int64)

    def freed_by(self, victims: Int64) -> Int64:
        """Amounts that the victims free: int64[resources, nodes]."""
        if not len(self):
            return np.zeros((len(self.amounts), 0), np.int64)
        freed: Int64 = np.add.reduceat(self.amounts * victims, self.starts, axis=1)
        return freed

    def evict(self, state: CapacityState, victims: Int64) -> None:
        """Simulate the eviction of the victims until the next rollback."""
        freed = self.freed_by(victims)
        changed = np.flatnonzero(freed.any(axis=0))
        state.change_free(self.rows[changed], freed[:, changed], self.tracked_evictions(victims))

    def tracked_evictions(self, victims: Int64) -> list[Evicted]:
        """The victims that inter-pod rules may select."""
        entries = np.flatnonzero((self.tracked_kind >= 0) & (victims > 0))
        if not len(entries):
            return []
        entries = entries[np.argsort(self.tracked_kind[entries], kind="stable")]
        indexes, starts = np.unique(self.tracked_kind[entries], return_index=True)
        return [
            (self.tracked_kinds[index], self.rows[self.node[some]], victims[some])
            for index, some in zip(indexes.tolist(), np.split(entries, starts[1:]), strict=True)
        ]

    def restricted_to(self, entries: Bool) -> Self:
        """The table with some of the entries."""
        nodes, starts, node = np.unique(self.node[entries], return_index=True, return_inverse=True)
        return type(self)(
            self.gangs,
            self.gang[entries],
            node,
            self.count[entries],
            self.position[entries],
            self.rows[nodes],
            starts,
            self.amounts[:, entries],
            self.tracked_kinds,
            self.tracked_kind[entries],
        )

    def victim_gangs(self, victims: Int64) -> tuple[VictimGang, ...]:
        """The victims as in the solve response, in the order of the request."""
        by_gang: dict[int, list[tuple[int, int]]] = {}
        for entry in np.flatnonzero(victims).tolist():
            by_gang.setdefault(int(self.gang[entry]), []).append((int(self.position[entry]), int(victims[entry])))
        held = self.pods_by_gang(self.count)
        first = np.cumsum([0, *(len(gang.pods) for gang in self.gangs)]).tolist()
        return tuple(
            _victim_gang(
                self.gangs[index], [(each - first[index], count) for each, count in sorted(evicted)], int(held[index])
            )
            for index, evicted in sorted(by_gang.items())
        )


def _victim_gang(gang: PotentialVictim, evicted: list[tuple[int, int]], held: int) -> VictimGang:
    """`evicted`: (index of pods, count). If that is every pod that the table `held`, all listed pods are victims."""
    if sum(count for _, count in evicted) == held:
        return VictimGang(gang.id, True, tuple(pods for pods in gang.pods if pods.count))
    listed = ((gang.pods[index], count) for index, count in evicted)
    return VictimGang(gang.id, False, tuple(PodsOnNode(pods.node, pods.class_id, count) for pods, count in listed))


def victim_table(
    state: CapacityState, potential_victims: Sequence[PotentialVictim], nominated: NominatedAmounts
) -> VictimTable:
    """The table of a request. Pods on unknown nodes are left out, and counts are clipped so that evictions never free
    more than is in use on a node, whatever the request claims.
    """
    listed = [pods for gang in potential_victims for pods in gang.pods]
    names = [pods.node for pods in listed]
    classes = [pods.class_id for pods in listed]
    row_of = {name: -1 if (row := state.nodes.row(name)) is None else row for name in set(names)}
    rows = np.fromiter(map(row_of.__getitem__, names), np.int64)
    position = np.flatnonzero(rows >= 0)
    position = position[np.argsort(rows[position], kind="stable")]
    gang = np.repeat(np.arange(len(potential_victims)), [len(each.pods) for each in potential_victims])[position]
    count = np.array([pods.count for pods in listed], np.int64)[position]
    class_ids = {class_id: index for index, class_id in enumerate(sorted(set(classes)))}
    vectors = np.array([state.request_of(class_id) for class_id in class_ids], np.int64)
    class_of = np.fromiter(map(class_ids.__getitem__, classes), np.int64)[position]
    amounts = vectors.reshape(-1, len(state.free)).T[:, class_of]
    distinct, starts, node = np.unique(rows[position], return_index=True, return_inverse=True)
    count = _clipped(count, amounts, node, starts, _in_use(state, distinct, nominated))
    tracked: list[Kind] = []
    tracked_index = np.full(len(class_ids), -1)
    for class_id, index in class_ids.items():
        if (kind := state.kind_if_followed(class_id)) is not None:
            tracked_index[index] = len(tracked)
            tracked.append(kind)
    return VictimTable(
        potential_victims,
        gang,
        node,
        count,
        position,
        distinct,
        starts,
        amounts,
        tracked,
        tracked_index[class_of],
    )


def _clipped(count: Int64, amounts: Int64, node: Int64, starts: Int64, in_use: Int64) -> Int64:
    """Counts that free no more than is `in_use`, int64[resources, nodes]; the first entries keep their counts first."""
    if not len(count):
        return count
    most = np.where(amounts > 0, in_use[:, node] // np.maximum(amounts, 1), _UNLIMITED).min(axis=0)
    count = np.minimum(count, np.maximum(most, 0))
    freed = np.add.reduceat(amounts * count.astype(np.float64), starts, axis=1)
    for at in np.flatnonzero((freed > in_use).any(axis=0)).tolist():
        left = in_use[:, at].copy()
        for entry in np.flatnonzero(node == at).tolist():
            requested = np.flatnonzero(amounts[:, entry])
            fits = (left[requested] // amounts[requested, entry]).min(initial=count[entry])
            count[entry] = max(0, int(fits))
            left -= amounts[:, entry] * count[entry]
    return count


def _in_use(state: CapacityState, rows: Int64, nominated: NominatedAmounts) -> Int64:
    """What bound pods and reservations hold on nodes: int64[resources, rows]."""
    free = state.free[:, rows]
    if len(nominated.rows):
        withheld = np.zeros_like(state.free)
        withheld[:, nominated.rows] = nominated.amounts
        free += withheld[:, rows]
    in_use: Int64 = state.capacity.allocatable[rows, : len(state.free)].T - free
    return in_use
