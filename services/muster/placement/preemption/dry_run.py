"""Dry run of a preemption: potential victims as arrays by node, and whether a group fits once some are evicted."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import PodsOnNode, PotentialVictim, SolveGroup, VictimGang, required_gangs
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.pod_records import Kind
from muster.placement.inter_pod.solver import members_interact
from muster.placement.solve.algorithms import has_place
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import Part, is_constrained, is_homogeneous
from muster.placement.state.capacity import CapacityState, Evicted, NominatedAmounts
from muster.placement.state.class_capacity import MAX_FITS, ClassCapacity
from muster.placement.state.filters import USABLE
from muster.placement.state.nodes import Bool

MAX_STEPS_PER_RUN: Final = 2_000
MAX_STEPS: Final = 30_000
"""Budget of exact searches, per dry run and for all dry runs together; about 5 microseconds a step."""
_EFFORT_HETEROGENEOUS: Final = 20
_EFFORT_INTERACTING: Final = 100
_ENTRIES_PER_EFFORT: Final = 5_000
"""A dry run by counting costs one effort per so many entries. Groups whose members have to be seated cost more: those
that are heterogeneous or constrained, and those whose members interact.
"""
EXCLUDED: Final = 2**58
"""Subtracted from the free amounts of nodes that are out of bounds whatever is evicted: more than any node has of any
resource, and far from the limits of int64.
"""
_UNLIMITED: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class VictimTable:
    """An entry is the pods of one class of one gang on one node. Entries are sorted by node, then by request order.

    - `gang`, `node`, `count`, `position`: int64[entries]; index into `gangs`, index into `rows`, number of pods, and
      position in the request.
    - `singly`: bool[entries]; its pods may be evicted one by one.
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
    singly: Bool
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
            self.singly[entries],
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
    ends = np.cumsum([len(each.pods) for each in potential_victims])
    last = [
        end - (len(each.pods) - each.spare_entries if each.spare_entries else 0)
        for each, end in zip(potential_victims, ends.tolist(), strict=True)
    ]
    singly: Bool = position < np.array(last, np.int64)[gang]
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
        singly,
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
    """Amounts that bound pods and reservations hold on nodes: int64[resources, rows]."""
    free = state.free[:, rows]
    if len(nominated.rows):
        withheld = np.zeros_like(state.free)
        withheld[:, nominated.rows] = nominated.amounts
        free += withheld[:, rows]
    in_use: Int64 = state.capacity.allocatable[rows, : len(state.free)].T - free
    return in_use


class ClassNeed:
    """Members of one class that must be seated, and where they fit.

    - `needed`: members that must be seated even if all members of other classes are.
    - `usable`: bool[nodes]; nodes of the victim table that pass the filters and are not excluded.
    - `now`: int64[all rows]; seats if no pod is evicted. `elsewhere`: their sum on nodes outside the victim table.

    `caps` bounds the members on each row by inter-pod rules, at best once pods are evicted; None without rules.
    """

    def __init__(self, of_class: ClassCapacity, needed: int, rows: Int64, open_: Bool, caps: Int64 | None) -> None:
        self.needed = needed
        self.usable: Bool = (of_class.filters.reason[rows] == USABLE) & open_
        self.now: Int64 = of_class.fits if caps is None else np.minimum(of_class.alone, caps)
        self.elsewhere = int(self.now.sum()) - int(self.now[rows].sum())
        self._caps = None if caps is None else caps[rows]
        self._columns = of_class.columns
        self._amounts = of_class.amounts[:, None]

    def fits(self, free: Int64, at: Int64 | slice = slice(None)) -> Int64:
        """Seats given free amounts, int64[resources, some], on the nodes `at`."""
        fits: Int64 = np.maximum((free[self._columns] // self._amounts).min(axis=0, initial=MAX_FITS), 0)
        if self._caps is not None:
            fits = np.minimum(fits, self._caps[at])
        return fits * self.usable[at]


class EffortSpent(Exception):
    """The allowed efforts are used up."""


class DryRun:
    """One group with its hard constraints, one capacity state, one victim table. Every run leaves the state unchanged.

    `free` is int64[resources, nodes], free amounts on the nodes of the table; `needs` has one element per class of the
    group. Effort is counted, about 50 microseconds each, instead of time, so that every replica finds the same victims.
    """

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], table: VictimTable) -> None:
        self.state = state
        self.group = group
        self.parts = parts
        self.table = table
        self.free: Int64 = state.free[:, table.rows]
        must_seat = _must_seat(group, parts)
        open_: Bool = np.all(self.free > -EXCLUDED // 2, axis=0)
        self._interacting = members_interact(state, parts)
        caps_are_exact = not table.tracked_kinds and not self._interacting
        caps = _caps(state, must_seat) if caps_are_exact else _caps_upper_bound(state, must_seat, table)
        self.needs = [
            ClassNeed(state.of(each), needed, table.rows, open_, caps.get(each)) for each, needed in must_seat.items()
        ]
        self.members = sum(part.wanted for part in parts)
        simple = is_homogeneous(parts) and not is_constrained(group) and not group.composites
        self._counting_suffices = simple and (caps_are_exact or not caps)
        self._steps_left = MAX_STEPS
        self._efforts_left = 0

    def restricted_to(self, table: VictimTable) -> "DryRun":
        """The dry run with a smaller table."""
        return DryRun(self.state, self.group, self.parts, table)

    def limit_effort(self, efforts: int) -> None:
        """Allow this much more effort."""
        self._efforts_left = efforts

    def spend(self, efforts: int) -> None:
        """Count effort. Raises EffortSpent, and OutOfTime."""
        self.state.limit.check()
        self._efforts_left -= efforts
        if self._efforts_left < 0:
            raise EffortSpent

    def useful(self) -> Bool:
        """Entries on nodes that some member may use, bool[entries]."""
        useful: Bool = np.logical_or.reduce([need.usable for need in self.needs])[self.table.node]
        return useful

    def fits(self, victims: Int64) -> bool:
        """All minimums fit once the victims are evicted.

        Raises EffortSpent.
        """
        self.spend(1 + len(victims) // _ENTRIES_PER_EFFORT)
        free = self.free + self.table.freed_by(victims)
        if any(need.elsewhere + int(need.fits(free).sum()) < need.needed for need in self.needs):
            return False
        return self._counting_suffices or self._seats_group(victims)

    def _seats_group(self, victims: Int64) -> bool:
        self.spend(_EFFORT_INTERACTING if self._interacting else _EFFORT_HETEROGENEOUS)
        checkpoint = self.state.checkpoint()
        self.table.evict(self.state, victims)
        budget = Budget(min(MAX_STEPS_PER_RUN, self._steps_left), self.state.limit)
        granted = budget.left
        try:
            return has_place(self.state, self.group, self.parts, budget)
        finally:
            self._steps_left -= granted - max(0, budget.left)
            self.state.rollback(checkpoint)


def _required_rules(state: CapacityState, class_ids: Iterable[str]) -> dict[str, InterPodRules]:
    rules = {class_id: state.of(class_id).inter_pod for class_id in class_ids}
    return {class_id: each for class_id, each in rules.items() if each is not None and each.required}


def _caps(state: CapacityState, class_ids: Iterable[str]) -> dict[str, Int64]:
    """For classes with required inter-pod rules, the members that these allow on each node."""
    return {class_id: rules.caps() for class_id, rules in _required_rules(state, class_ids).items()}


def _caps_upper_bound(state: CapacityState, class_ids: Iterable[str], table: VictimTable) -> dict[str, Int64]:
    """Upper bound of these members, whatever is evicted and whichever members of the group are placed."""
    rules = _required_rules(state, class_ids)
    if not rules:
        return {}
    checkpoint = state.checkpoint()
    table.evict(state, table.count)
    caps = {class_id: each.caps_upper_bound() for class_id, each in rules.items()}
    state.rollback(checkpoint)
    return caps


def _must_seat(group: SolveGroup, parts: Sequence[Part]) -> Counter[str]:
    """Members of each class that the minimums need even if all members of other classes are seated."""
    must_seat: Counter[str] = Counter()
    required = required_gangs(group)
    for index, gang in enumerate(group.gangs):
        if not required[index]:
            must_seat.update({part.class_id: 0 for part in parts if part.gang == index})
            continue
        wanted = sum(part.wanted for part in parts if part.gang == index)
        for part in parts:
            if part.gang == index:
                must_seat[part.class_id] += max(0, gang.minimum - (wanted - part.wanted))
    return must_seat
