"""Groups whose members mind one another: who is placed first changes where the others may go.

Equal members that mind one another by the domains of one label are counted, which is exact. Otherwise members are
seated in several orders and regions, and few of them are searched exactly.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.explain.constraints import with_softer
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.branch_and_bound import branch_and_bound
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.domains import Region, common_domains, unsettled_keys
from muster.placement.inter_pod.infeasibility import too_few_domains
from muster.placement.inter_pod.rules import Rule
from muster.placement.inter_pod.seating import joined, seat
from muster.placement.inter_pod.topology_check import TopologyCheck
from muster.placement.inter_pod.water_filling import most_members
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.instance import (
    NotPlaced,
    Part,
    Placed,
    Solution,
    assignments_of,
    is_homogeneous,
    minimums_reached,
    reserve_again,
)
from muster.placement.state.capacity import CapacityState

_ALL_ORDERS_UP_TO: Final = 3
"""Parts up to which every order is tried."""
_FEWEST_TRIES: Final = 4
_MAX_TRIES: Final = 64
_MEMBERS_TRIED: Final = 4_000
"""Tries to seat a group, and members that they may seat in all."""
_MAX_COUNTED: Final = 256
"""RankedDomains that are counted to prove that none has room."""

_Merit = tuple[bool, int, int, tuple[int, ...], list[int]]
"""All that is hard is kept and all minimums are reached; members toward minimums, members, minus the costs, by part."""


def members_interact(state: CapacityState, parts: Sequence[Part]) -> bool:
    """Members of the group mind one another: where one goes changes where others may go."""
    limited = _limited(state, parts)
    return any(limits.members_interact() for limits in limited.values()) or any(
        rule.tally.classes & _others(state, parts, class_id)
        for class_id, limits in limited.items()
        for rule in limits.rules
    )


def preferences_interact(state: CapacityState, parts: Sequence[Part]) -> bool:
    """Where a member goes changes what others wish."""
    limited = _limited(state, parts)
    return any(limits.preferences_interact() for limits in limited.values()) or any(
        wish.tally.classes & _others(state, parts, class_id)
        for class_id, limits in limited.items()
        for wish in limits.wishes
    )


def _limited(state: CapacityState, parts: Sequence[Part]) -> dict[str, InterPodRules]:
    limits = {part.class_id: state.of(part.class_id).inter_pod for part in parts}
    return {class_id: each for class_id, each in limits.items() if each is not None}


def _others(state: CapacityState, parts: Sequence[Part], class_id: str) -> set[int]:
    """Indexes of the classes of a group besides one of its parts: its own class is among them if two parts have it."""
    others = [part.class_id for part in parts]
    others.remove(class_id)
    return {state.capacity.classes[other] for other in others}


def place_interacting(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if that can be found, else every gang's minimum and as many more as have room."""
    coupled = _Coupled(state, group, parts)
    solution, proved = coupled.settle(budget)
    if solution is None:

        def has_place(softer: SolveGroup, steps: Budget) -> bool:
            return find_interacting(state, softer, parts, steps) is not None

        return NotPlaced(proved, with_softer(state, group, coupled.explain(explainer), has_place))
    reserve_again(state, parts, solution)
    return Placed(assignments_of(state, group, parts, solution))


def place_by_preferences(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> Placed | None:
    """Place all members by what they wish of one another, as far as that is found at once; of equal members, as many
    as have room.
    """
    coupled = _Coupled(state, group, parts)
    full = next(coupled.tries())
    if not full and not (is_homogeneous(parts) and minimums_reached(group, parts, coupled.best)):
        return None
    reserve_again(state, parts, coupled.best)
    return Placed(assignments_of(state, group, parts, coupled.best))


def find_interacting(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Seats for every gang's minimum at least; nothing is taken."""
    return _Coupled(state, group, parts).settle(budget)[0]


def place_interacting_partly(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> Solution | None:
    """Seat as much of the group as was found to have room; None if that is nothing."""
    coupled = _Coupled(state, group, parts)
    for _ in coupled.tries():
        pass
    best = coupled.best
    if not best.total or not coupled.shape.kept_by(best):
        return None
    reserve_again(state, parts, best)
    return best


@dataclass(frozen=True)
class _Way:
    """How to try: parts in `order`, each in its region."""

    order: Sequence[int]
    regions: Sequence[Region]


class _Coupled:
    """`best` is the best attempt so far, not taken; it need not reach the minimums."""

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> None:
        self.best = Solution([0] * len(parts))
        self.shape = TopologyCheck(state, group, parts)
        self._state = state
        self._group = group
        self._parts = parts
        self._minimums = [gang.minimum for gang in group.gangs]
        self._members = sum(part.wanted for part in parts)
        self._merit = self._merit_of(self.best)

    def settle(self, budget: Budget) -> tuple[Solution | None, bool]:
        """The best attempt that reaches all minimums, not taken; if there is none, whether that is proved."""
        for number, full in enumerate(self.tries()):
            if full and self.shape.free:
                return self.best, False
            if not number and not self._merit[0] and self._impossible():
                return None, True
        good = self.best if self._merit[0] else None
        if good is not None and good.total == self._members:
            return good, False
        good, exhausted = branch_and_bound(self._state, self._group, self._parts, budget, self.shape.kept_by, good)
        return good, exhausted and good is None

    def tries(self) -> Iterator[bool]:
        """Seat the group in several orders and regions; whether everybody was seated."""
        for way in self._some_ways():
            solution = self._try(way)
            merit = self._merit_of(solution)
            if merit > self._merit:
                self.best, self._merit = solution, merit
            yield solution.total == self._members

    def explain(self, explainer: Explainer) -> Explanation:
        """What is in the way of the first gang that lacks members in the best attempt."""
        parts, best = self._parts, self.best
        gangs = range(len(self._minimums))
        gang = next((g for g in gangs if best.of_gang(parts, g) < self._minimums[g]), None)
        if gang is None:
            return self.shape.explanation(best)
        lacking = [i for i, part in enumerate(parts) if part.gang == gang and best.placed[i] < part.wanted]
        hopeless = [i for i in lacking if not self._state.of(parts[i].class_id).fits.any()]
        return explainer.stuck(self._group, parts, gang, (hopeless or lacking)[0], best)

    def _is_good(self, solution: Solution) -> bool:
        return minimums_reached(self._group, self._parts, solution) and self.shape.kept_by(solution)

    def _merit_of(self, solution: Solution) -> _Merit:
        toward = [min(solution.of_gang(self._parts, gang), least) for gang, least in enumerate(self._minimums)]
        cost = tuple(-each for each in self.shape.cost_of(solution))
        return self._is_good(solution), sum(toward), solution.total, cost, solution.placed

    # -- tries

    def _some_ways(self) -> Iterator[_Way]:
        """First in domains that constraints want to be in one by one, and then, however many these are, everywhere."""
        left = max(_FEWEST_TRIES, min(_MAX_TRIES, _MEMBERS_TRIED // self._members))
        for way in islice(self._ways(self.shape.domains()), left):
            left -= 1
            yield way
        yield from islice(self._ways(self.shape.everywhere()), max(_FEWEST_TRIES, left))

    def _ways(self, regions: Iterable[Region]) -> Iterator[_Way]:
        orders = self._orders()
        gathering = [index for index, part in enumerate(self._parts) if unsettled_keys(self._state, part)]
        for confined in regions:
            domains = common_domains(self._state, [self._parts[index] for index in gathering], confined)
            for domain in domains or [confined]:
                regions = [domain if index in gathering else confined for index in range(len(self._parts))]
                for order in orders:
                    yield _Way(order, regions)

    def _orders(self) -> list[tuple[int, ...]]:
        parts = self._parts
        in_order = tuple(range(len(parts)))
        if is_homogeneous(parts):
            return [in_order]
        seats = [int(self._state.of(part.class_id).fits.sum()) for part in parts]
        hardest_first = tuple(sorted(in_order, key=lambda index: (seats[index], -parts[index].wanted, index)))
        orders = [hardest_first, in_order, hardest_first[::-1], in_order[::-1]]
        if len(parts) <= _ALL_ORDERS_UP_TO:
            orders.extend(permutations(in_order))
        return list(dict.fromkeys(orders))

    def _try(self, way: _Way) -> Solution:
        """Minimums first, then as many more as have room; nothing stays taken."""
        checkpoint = self._state.checkpoint()
        solution = Solution([0] * len(self._parts))
        left = list(self._minimums)
        self._rounds(way.order, way.regions, solution, left)
        if not any(left):
            self._rounds(sorted(way.order), way.regions, solution, [self._members] * len(left))
        self._state.rollback(checkpoint)
        return joined(solution)

    def _rounds(self, order: Sequence[int], regions: Sequence[Region], solution: Solution, left: list[int]) -> None:
        """Parts one after another, again as long as that helps: one may need another to be there. `left` is how many
        more members each gang may have.
        """
        progress = True
        while progress:
            progress = False
            for index in order:
                part = self._parts[index]
                wanted = min(part.wanted - solution.placed[index], left[part.gang])
                if wanted:
                    seated = seat(self._state, index, part, wanted, regions[index], solution)
                    left[part.gang] -= seated
                    progress |= seated > 0

    # -- proofs

    def _impossible(self) -> bool:
        """Proved by counting that not all gangs can have their minimums."""
        seats = {part.class_id: self._most(part) for part in self._parts}
        if is_homogeneous(self._parts):
            return sum(self._minimums) > seats[self._parts[0].class_id]
        return too_few_domains(self._state, self._group, self._parts) or any(
            sum(min(part.wanted, seats[part.class_id]) for part in self._parts if part.gang == gang) < minimum
            for gang, minimum in enumerate(self._minimums)
        )

    def _most(self, part: Part) -> int:
        """No more members of the part's class than this can be placed."""
        state = self._state
        of_class = state.of(part.class_id)
        if not is_homogeneous(self._parts):
            return int(self._caps_at_best(part.class_id).sum())
        together = common_domains(state, self._parts)
        if together is None:
            return most_members(of_class, None)
        if len(together) > _MAX_COUNTED:
            return int(of_class.alone.sum())
        return max((most_members(of_class, region) for region in together), default=0)

    def _caps_at_best(self, class_id: str) -> Int64:
        """Members that fit on each node if other members of the group help as much as they can."""
        of_class = self._state.of(class_id)
        if of_class.inter_pod is None:
            return of_class.alone
        group = {self._state.capacity.classes[part.class_id] for part in self._parts}
        loosening: list[Rule] = [*of_class.inter_pod.spread, *of_class.inter_pod.together]
        helped = [rule for rule in loosening if not rule.tally.classes.isdisjoint(group)]
        return np.minimum(of_class.alone, of_class.inter_pod.caps_without(helped))
