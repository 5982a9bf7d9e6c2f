"""The solver of scenarios: packs the fullest nodes first, and evicts no more than necessary.

It satisfies "rack: hard pack" in the default tree; other constraints are soft.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from types import MappingProxyType

from builders.core.composites import packed_in_racks, try_composites
from builders.core.objects import ANY_DEVICE, EXTENDED, GPUS, Cluster, take_devices
from builders.gangs.labels import selects
from muster.coordinator.core.effects import Solve
from muster.gangs.facts import split_kind
from muster.gangs.quantity import MAX_AMOUNT
from muster.gangs.solve import (
    Assignment,
    Explanation,
    PodsOnNode,
    PotentialVictim,
    SolveGang,
    SolveGroup,
    SolveOutcome,
    SolveResult,
    VictimGang,
)

MOST_COMBINED = 12
"""Above this number of gangs not every set is tried."""
MOST_COMBINED_FOR_COMPOSITES = 6
"""The same for groups with composites or subgroups, of which each trial is a search of its own."""


class Free(dict[str, int]):
    """Usable millicores by node; nodes that accept no pod are missing. `pods`: kinds of pods by node, which matter only
    if some class has inter-pod rules; `devices`: free devices by node and resource, empty if there are none.
    """

    def __init__(
        self,
        millicores: Mapping[str, int],
        pods: Mapping[str, Counter[str]],
        *,
        ruled: bool,
        devices: Mapping[tuple[str, str], int] = MappingProxyType({}),
        requested: Callable[[str], tuple[str, int]] = lambda _: ("", 0),
    ) -> None:
        """`requested`: the resource and the number of devices that a pod of a kind requests."""
        super().__init__(millicores)
        self.first = ""
        """The node for pods of which the first decides where the others may be; empty: any."""
        self.pods = {node: Counter(kinds) for node, kinds in pods.items()}
        self.ruled = ruled
        self.devices, self._requested = Counter(devices), requested

    def copy(self) -> "Free":
        """Another one that may be changed."""
        copied = Free(self, self.pods, ruled=self.ruled, devices=self.devices, requested=self._requested)
        copied.first = self.first
        return copied

    def fitting(self, node: str, kind: str, count: int) -> int:
        """How many of the pods the devices of the node suffice for."""
        resource, number = self._requested(kind)
        free = min(self.devices.get((node, each), MAX_AMOUNT) for each in (resource, ANY_DEVICE))
        return min(count, max(0, free) // number) if number else count

    def add(self, node: str, kind: str, count: int) -> None:
        """Pods of a kind are on the node now, or fewer are."""
        if self.devices:
            take_devices(self.devices, node, self._requested(kind), count)
        if self.ruled:
            self.pods.setdefault(node, Counter())[kind] += count


Racks = Mapping[str, str]
"""Required rack by gang id; gangs without a required rack are missing."""


@dataclass(frozen=True)
class Fit:
    """Result of one attempt: assignments, and the shortage."""

    assignments: tuple[Assignment, ...]
    short: str
    free: Free


def first_fit(cluster: Cluster, solve: Solve) -> tuple[SolveResult, ...]:
    """Results for every group, in order; each takes its capacity before the next."""
    fitter = Fitter(cluster)
    free = _free(cluster, solve)
    results = []
    for group in solve.groups:
        fit = fitter.try_whole(free, group)
        if not fit.short:
            results.append(SolveResult(group.id, SolveOutcome.PLACED, fit.assignments))
        elif (freed := _Removal(fitter, free, group, solve.potential_victims).find()) is not None:
            removed, fit = freed
            results.append(SolveResult(group.id, SolveOutcome.PLACED, fit.assignments, victims=removed))
        else:
            why = Explanation(summary=fit.short)
            fit = fitter.try_part(free, group) if group.partial else fit
            outcome = SolveOutcome.PARTIAL if fit.assignments and group.partial else SolveOutcome.INFEASIBLE
            assignments = fit.assignments if outcome is SolveOutcome.PARTIAL else ()
            results.append(SolveResult(group.id, outcome, assignments, why))
            if not assignments:
                continue
        free = fit.free
    return tuple(results)


def _free(cluster: Cluster, solve: Solve) -> Free:
    open_ = {name for name, facts in cluster.nodes.items() if facts.ready and not facts.unschedulable}
    usable = {name: room for name, room in cluster.free().items() if name in open_}
    free = Free(
        *(usable, cluster.kinds_on_nodes()),
        ruled=cluster.ruled,
        devices=cluster.free_devices(),
        requested=cluster.requested_devices,
    )
    for held in solve.reservations:
        for uid in held.pod_uids:
            pod = cluster.pods.get(uid)
            if held.node in free and not (pod is not None and pod.node):
                free[held.node] -= cluster.class_cpu(held.class_id)
                free.add(held.node, held.class_id, 1)
    for kept in solve.nominated:
        if kept.node in free:
            free[kept.node] -= dict(kept.amounts).get("cpu", 0)
            if free.devices:
                amounts = dict(kept.amounts)
                for resource in (GPUS, EXTENDED):
                    take_devices(free.devices, kept.node, (resource, amounts.get(resource, 0)))
    return free


class Fitter:
    """Whether a group fits into the free capacity."""

    def __init__(self, cluster: Cluster) -> None:
        self.cpu, self.rack_of, self._cluster = cluster.class_cpu, cluster.rack_of, cluster

    def try_whole(self, free: Free, group: SolveGroup) -> Fit:
        """All minimums, then members above them, which take nothing from partners."""
        fit = self._try_whole(free, group)
        if fit.short and free.ruled and self._has_first(free, group):
            for node in sorted(free):
                trial = free.copy()
                trial.first = node
                if not (found := self._try_whole(trial, group)).short:
                    found.free.first = ""
                    return found
        return fit

    def _has_first(self, free: Free, group: SolveGroup) -> bool:
        return any(self._is_first(free, role.class_id) for asked in group.gangs for role in asked.roles)

    def _try_whole(self, free: Free, group: SolveGroup) -> Fit:
        if group.composites:
            return try_composites(self, free, group)
        best = Fit((), "its members are in several racks, and must be in one", free)
        for racks in self._choices(free, group):
            best = self._try_whole_in(free, group, racks)
            if not best.short:
                return best
        return best

    def _choices(self, free: Free, group: SolveGroup) -> Iterator[Racks]:
        packed = [asked for asked in group.gangs if packed_in_racks(asked)]
        for racks in product(*(self.racks(free, asked) for asked in packed)):
            yield {asked.id: rack for asked, rack in zip(packed, racks, strict=True)}

    def racks(self, free: Free, asked: SolveGang) -> list[str]:
        there = {self.rack_of(pods.node) for pods in asked.placed}
        return sorted(there) if len(there) == 1 else sorted(set(map(self.rack_of, free))) if not there else []

    def _try_whole_in(self, free: Free, group: SolveGroup, racks: Racks) -> Fit:
        trial, assignments = free.copy(), list[Assignment]()
        needed = {asked.id: self.smallest(asked, asked.minimum) for asked in group.gangs}
        fit = {asked.id: self.fill(trial, asked, needed[asked.id], assignments, racks) for asked in group.gangs}
        short = [
            f"{fit[asked.id]} of {asked.minimum} members fit" for asked in group.gangs if fit[asked.id] < asked.minimum
        ]
        if short:
            return Fit((), short[-1], free)
        self.fill_rest(trial, group, needed, assignments, racks)
        return Fit(tuple(assignments), "", trial)

    def try_part(self, free: Free, group: SolveGroup) -> Fit:
        """As many members as fit, minimums first; of all racks the one where most fit."""
        tries = (self._try_part_in(free, group, racks) for racks in self._choices(free, group))
        return max(
            tries, key=lambda fit: sum(assignment.count for assignment in fit.assignments), default=Fit((), "", free)
        )

    def _try_part_in(self, free: Free, group: SolveGroup, racks: Racks) -> Fit:
        trial, assignments = free.copy(), list[Assignment]()
        placed: dict[str, list[int]] = {}
        for asked in group.gangs:
            before = len(assignments)
            self.fill(trial, asked, self.smallest(asked, asked.minimum), assignments, racks)
            placed[asked.id] = [
                sum(assignment.count for assignment in assignments[before:] if assignment.role == index)
                for index in range(len(asked.roles))
            ]
        self.fill_rest(trial, group, placed, assignments, racks)
        return Fit(tuple(assignments), "", trial)

    def fill_rest(
        self, free: Free, group: SolveGroup, placed: dict[str, list[int]], assignments: list[Assignment], racks: Racks
    ) -> None:
        for asked in group.gangs:
            rest = [role.wanted - count for role, count in zip(asked.roles, placed[asked.id], strict=True)]
            self.fill(free, asked, rest, assignments, racks)

    def smallest(self, asked: SolveGang, count: int) -> list[int]:
        """Number of members by role, the smallest first, but before them the one that requests the devices of a claim
        that they share.
        """
        counts = [0] * len(asked.roles)
        for index in sorted(range(len(counts)), key=lambda index: self._smallest_first(asked.roles[index].class_id)):
            counts[index] = min(asked.roles[index].wanted, count - sum(counts))
        return counts

    def _smallest_first(self, kind: str) -> tuple[bool, int]:
        own = self._cluster.class_of(split_kind(kind)[0])
        return not (own.shared_claims and self._cluster.requested_devices(kind)[1]), self.cpu(kind)

    def fill(
        self, free: Free, asked: SolveGang, counts: Sequence[int], assignments: list[Assignment], racks: Racks
    ) -> int:
        """Place members by role, largest first, each on the fullest node that takes it; returns how many fit. If the
        first of a role decides where the others may be, it goes where all of them have capacity, if they have anywhere.
        """
        placed, rack = 0, racks.get(asked.id)
        nodes = [name for name in free if rack is None or self.rack_of(name) == rack]
        for index in sorted(range(len(counts)), key=lambda index: -self.cpu(asked.roles[index].class_id)):
            cpu, left = self.cpu(asked.roles[index].class_id), counts[index]
            is_first = free.ruled and self._is_first(free, asked.roles[index].class_id)
            needed, only = (cpu * left, free.first) if is_first else (0, "")
            for name in sorted(nodes, key=lambda name: (only not in ("", name), free[name] < needed, free[name], name)):
                count = min(free[name] // cpu, left)
                if count > 0 and not self._cluster.may_use(asked.roles[index].class_id, name):
                    count = 0
                if count > 0 and free.devices:
                    count = free.fitting(name, asked.roles[index].class_id, count)
                if count > 0 and free.ruled:
                    count = self._beside(free, name, asked.roles[index].class_id, count)
                if count > 0:
                    free[name] -= count * cpu
                    free.add(name, asked.roles[index].class_id, count)
                    left -= count
                    placed += count
                    assignments.append(Assignment(asked.id, index, name, count))
        return placed

    def _beside(self, free: Free, node: str, kind: str, count: int) -> int:
        """How many of the pods the rules between pods let onto the node."""
        first = not self._wanted_beside(kind) or self._is_first(free, kind)
        return self._cluster.room_beside(kind, free.pods.get(node, Counter()), count, first=first)

    def _wanted_beside(self, kind: str) -> list[str]:
        """Selectors of the pods that a pod must be beside."""
        own = self._cluster.class_of(split_kind(kind)[0])
        return [term.selector for term in (*own.required_pod_affinity, *own.shared_claims)]

    def _is_first(self, free: Free, kind: str) -> bool:
        """The pod must be beside others, and there are none yet."""
        wanted = self._wanted_beside(kind)
        pods = [split_kind(other)[1] for kinds in free.pods.values() for other, number in kinds.items() if number > 0]
        return bool(wanted) and not any(selects(name, labels) for name in wanted for labels in pods)


@dataclass
class _Removal:
    """Victims that let the group fit: the lowest level, spare pods, then the fewest whole gangs."""

    fitter: Fitter
    free: Free
    group: SolveGroup
    potential_victims: Sequence[PotentialVictim]

    def find(self) -> tuple[tuple[VictimGang, ...], Fit] | None:
        """None: it does not fit even if all potential victims are evicted."""
        for level in sorted({each.level for each in self.potential_victims}):
            offered = [each for each in self.potential_victims if each.level <= level]
            if self._fit({each.id: _singly(each) for each in offered}).short:
                continue
            going = self._fewest(offered)
            for each in reversed(offered):
                if len(going[each.id]) <= each.spare:
                    self._put_back(going, each)
            removed = tuple(
                VictimGang(
                    each.id, len(going[each.id]) == _count(each) and each.spare < _count(each), _joined(going[each.id])
                )
                for each in offered
                if going[each.id]
            )
            return removed, self._fit(going)
        return None

    def _fewest(self, offered: list[PotentialVictim]) -> dict[str, list[PodsOnNode]]:
        """All spare pods, and as few whole gangs as possible; of many gangs, the needed ones in order."""
        divided = bool(self.group.composites) or len(self.group.gangs) > 1
        if len(offered) > (MOST_COMBINED_FOR_COMPOSITES if divided else MOST_COMBINED):
            return self._needed_in_turn(offered)
        for count in range(len(offered) + 1):
            for whole in combinations(offered, count):
                going = {each.id: _singly(each)[: None if each in whole else each.spare] for each in offered}
                if not self._fit(going).short:
                    return going
        raise AssertionError("all of it was seen to suffice")

    def _needed_in_turn(self, offered: list[PotentialVictim]) -> dict[str, list[PodsOnNode]]:
        going = {each.id: _singly(each) for each in offered}
        for each in reversed(offered):
            fewer = {**going, each.id: going[each.id][: each.spare]}
            if not self._fit(fewer).short:
                going = fewer
        return going

    def _put_back(self, going: dict[str, list[PodsOnNode]], each: PotentialVictim) -> None:
        """Reprieves spare pods that are not needed, the last first."""
        for pod in reversed(list(going[each.id])):
            fewer = list(going[each.id])
            del fewer[len(fewer) - 1 - fewer[::-1].index(pod)]
            if not self._fit({**going, each.id: fewer}).short:
                going[each.id] = fewer

    def _fit(self, going: dict[str, list[PodsOnNode]]) -> Fit:
        trial = self.free.copy()
        for pods in going.values():
            for pod in pods:
                if pod.node in trial:
                    trial[pod.node] += pod.count * self.fitter.cpu(pod.class_id)
                    trial.add(pod.node, pod.class_id, -pod.count)
        return self.fitter.try_whole(trial, self.group)


def _count(each: PotentialVictim) -> int:
    return sum(pods.count for pods in each.pods)


def _singly(each: PotentialVictim) -> list[PodsOnNode]:
    return [PodsOnNode(pods.node, pods.class_id, 1) for pods in each.pods for _ in range(pods.count)]


def _joined(pods: Iterable[PodsOnNode]) -> tuple[PodsOnNode, ...]:
    counts: dict[tuple[str, str], int] = {}
    for pod in pods:
        counts[pod.node, pod.class_id] = counts.get((pod.node, pod.class_id), 0) + pod.count
    return tuple(PodsOnNode(node, class_id, count) for (node, class_id), count in counts.items())
