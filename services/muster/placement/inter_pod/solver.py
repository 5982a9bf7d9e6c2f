"""Places groups whose members interact by inter-pod rules: placing one member changes where the others may go.

Heuristic attempts come first: parts are seated in several orders, confined to several domains. If none places all
members, counting may prove the group infeasible; small groups are then searched exactly by branch and bound.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from typing import Final

from muster.gangs.solve import Explanation, SolveGroup
from muster.placement.explain.constraints import with_softer
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.branch_and_bound import branch_and_bound, is_infeasible
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.domains import AllowedRows, TopologyCheck, affinity_domains, open_affinity_keys
from muster.placement.inter_pod.pod_counts import PodCount
from muster.placement.inter_pod.seating import merged, seat
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
_MIN_ATTEMPTS: Final = 4
_MAX_ATTEMPTS: Final = 64
_MAX_BUNDLE_DOMAINS: Final = 8
"""Domains that are tried for each bundle of an attempt."""
_MAX_MEMBERS_SEATED: Final = 4_000
"""Members seated in all attempts together; large groups get fewer attempts."""

_Score = tuple[bool, int, int, tuple[int, ...], list[int]]
"""Feasible (minimums and hard constraints), members towards minimums, members, negated costs, members by part."""


def members_interact(state: CapacityState, parts: Sequence[Part]) -> bool:
    """By a required rule, placing a member of the group changes where others may go."""
    rules_by_class = _rules_by_class(state, parts)
    return any(rules.members_interact() for rules in rules_by_class.values()) or _others_counted(
        state,
        parts,
        {class_id: [each.matching for each in rules.required] for class_id, rules in rules_by_class.items()},
    )


def preferences_interact(state: CapacityState, parts: Sequence[Part]) -> bool:
    """By a preference, placing a member of the group changes which nodes others prefer."""
    rules_by_class = _rules_by_class(state, parts)
    return any(rules.preferences_interact() for rules in rules_by_class.values()) or _others_counted(
        state,
        parts,
        {class_id: [each.matching for each in rules.preferences] for class_id, rules in rules_by_class.items()},
    )


def _rules_by_class(state: CapacityState, parts: Sequence[Part]) -> dict[str, InterPodRules]:
    rules = {part.class_id: state.of(part.class_id).inter_pod for part in parts}
    return {class_id: each for class_id, each in rules.items() if each is not None}


def _others_counted(state: CapacityState, parts: Sequence[Part], counts: Mapping[str, Sequence[PodCount]]) -> bool:
    """A count of a class's rules counts members of other parts; those of the class, too, if another part has it."""
    if len(parts) < 2:
        return False
    class_ids = [part.class_id for part in parts]
    kinds = [state.of(class_id).kind for class_id in class_ids]
    first = {class_id: index for index, class_id in reversed(list(enumerate(class_ids)))}
    for class_id, of_class in counts.items():
        for count in of_class:
            counted = count.counted(kinds)
            counted[first[class_id]] = False
            if counted.any():
                return True
    return False


def place_interacting(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all members if such a placement is found, else every minimum and as many more members as fit."""
    solver = _Solver(state, group, parts)
    solution, proved = solver.solve(budget)
    if solution is None:

        def is_feasible(softer: SolveGroup, steps: Budget) -> bool:
            return find_interacting(state, softer, parts, steps) is not None

        return NotPlaced(proved, with_softer(state, group, solver.explain(explainer), is_feasible))
    reserve_again(state, parts, solution)
    return Placed(assignments_of(state, group, parts, solution))


def place_by_preferences(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> Placed | None:
    """Place a group whose members interact by preferences only, with a single attempt.

    None unless all members are placed or, if all are equal, all minimums are reached.
    """
    solver = _Solver(state, group, parts)
    all_placed = next(solver.attempts())
    if not all_placed and not (is_homogeneous(parts) and minimums_reached(group, parts, solver.best)):
        return None
    reserve_again(state, parts, solver.best)
    return Placed(assignments_of(state, group, parts, solver.best))


def find_interacting(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> Solution | None:
    """Seats that reach every gang's minimum, without taking them."""
    return _Solver(state, group, parts).solve(budget)[0]


def place_interacting_partly(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> Solution | None:
    """Take the seats of the best solution, minimums reached or not; None if it places no member."""
    solver = _Solver(state, group, parts)
    for _ in solver.attempts():
        pass
    best = solver.best
    if not best.total or not solver.topology.satisfied_by(best):
        return None
    reserve_again(state, parts, best)
    return best


@dataclass(frozen=True)
class _Strategy:
    """Seat parts in `order`, part i on the nodes `allowed[i]`; first `bundles`, each in one domain of its affinity."""

    order: Sequence[int]
    allowed: Sequence[AllowedRows]
    bundles: Sequence[Sequence[int]] = ()


class _Solver:
    """`best` is the best solution so far, not taken; it need not reach the minimums."""

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> None:
        self.best = Solution([0] * len(parts))
        self.topology = TopologyCheck(state, group, parts)
        self._state = state
        self._group = group
        self._parts = parts
        self._minimums = [gang.minimum for gang in group.gangs]
        self._members = sum(part.wanted for part in parts)
        self._score = self._score_of(self.best)

    def solve(self, budget: Budget) -> tuple[Solution | None, bool]:
        """The best solution that reaches all minimums, not taken; None with whether infeasibility is proved."""
        for number, all_placed in enumerate(self.attempts()):
            if all_placed and self.topology.unconstrained:
                return self.best, False
            if not number and not self._score[0] and is_infeasible(self._state, self._group, self._parts):
                return None, True
        feasible = self.best if self._score[0] else None
        if feasible is not None and feasible.total == self._members:
            return feasible, False
        found, exhausted = branch_and_bound(
            self._state, self._group, self._parts, budget, self.topology.satisfied_by, feasible
        )
        return found, exhausted and found is None

    def attempts(self) -> Iterator[bool]:
        """Seat the group by one strategy after another; yields whether all members were placed."""
        for strategy in self._strategies():
            solution = self._attempt(strategy)
            score = self._score_of(solution)
            if score > self._score:
                self.best, self._score = solution, score
            yield solution.total == self._members

    def explain(self, explainer: Explainer) -> Explanation:
        """Explain the first gang that is short of members in the best solution."""
        parts, best = self._parts, self.best
        gangs = range(len(self._minimums))
        gang = next((g for g in gangs if best.of_gang(parts, g) < self._minimums[g]), None)
        if gang is None:
            return self.topology.explanation(best)
        incomplete = [i for i, part in enumerate(parts) if part.gang == gang and best.placed[i] < part.wanted]
        fit_nowhere = [i for i in incomplete if not self._state.of(parts[i].class_id).fits.any()]
        return explainer.lacking_part(self._group, parts, gang, (fit_nowhere or incomplete)[0], best)

    def _score_of(self, solution: Solution) -> _Score:
        feasible = minimums_reached(self._group, self._parts, solution) and self.topology.satisfied_by(solution)
        toward = [min(solution.of_gang(self._parts, gang), least) for gang, least in enumerate(self._minimums)]
        cost = tuple(-each for each in self.topology.cost_of(solution))
        return feasible, sum(toward), solution.total, cost, solution.placed

    def _strategies(self) -> Iterator[_Strategy]:
        """Confined to the domains of pack constraints one after another, then on all nodes."""
        left = max(_MIN_ATTEMPTS, min(_MAX_ATTEMPTS, _MAX_MEMBERS_SEATED // self._members))
        for strategy in islice(self._strategies_in(self.topology.pack_domains()), left):
            left -= 1
            yield strategy
        yield from islice(self._strategies_in(self.topology.all_nodes()), max(_MIN_ATTEMPTS, left))

    def _strategies_in(self, confinements: Iterable[AllowedRows]) -> Iterator[_Strategy]:
        orders = self._orders()
        with_affinity = [index for index, part in enumerate(self._parts) if open_affinity_keys(self._state, part)]
        bundles = self._bundles(with_affinity)
        for confined in confinements:
            for order in orders if len(bundles) > 1 else ():
                yield _Strategy(order, [confined] * len(self._parts), _in_order(bundles, order))
            domains = affinity_domains(self._state, [self._parts[index] for index in with_affinity], confined)
            for domain in domains or [confined]:
                allowed = [domain if index in with_affinity else confined for index in range(len(self._parts))]
                for order in orders:
                    yield _Strategy(order, allowed)

    def _bundles(self, with_affinity: Sequence[int]) -> list[list[int]]:
        """Parts with open affinity, divided so that members of different bundles have none to each other."""
        bundles: list[list[int]] = []
        kinds = {index: self._state.of(self._parts[index].class_id).kind for index in with_affinity}
        for index in with_affinity:
            rules = self._state.of(self._parts[index].class_id).inter_pod
            open_rules = [rule for rule in rules.affinity if rule.members_interact()] if rules is not None else []
            joined = [
                bundle
                for bundle in bundles
                if any(rule.matching.counts_any(kinds[each] for each in bundle) for rule in open_rules)
            ]
            bundles = [bundle for bundle in bundles if bundle not in joined]
            bundles.append(sorted((index, *(each for bundle in joined for each in bundle))))
        return bundles

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

    def _attempt(self, strategy: _Strategy) -> Solution:
        """Seat minimums, then as many more members as fit; all capacity is given back."""
        checkpoint = self._state.checkpoint()
        solution = Solution([0] * len(self._parts))
        left = list(self._minimums)
        for bundle in strategy.bundles:
            self._seat_bundle(bundle, strategy.allowed[bundle[0]], solution, left)
        self._seat_parts(strategy.order, strategy.allowed, solution, left)
        if not any(left):
            self._seat_parts(sorted(strategy.order), strategy.allowed, solution, [self._members] * len(left))
        self._state.rollback(checkpoint)
        return merged(solution)

    def _seat_bundle(self, bundle: Sequence[int], allowed: AllowedRows, solution: Solution, left: list[int]) -> None:
        """Seat parts with affinity to one another in the domain that takes most of their members, of the most promising
        ones; as `_seat_parts`.
        """
        parts, most, best = [self._parts[index] for index in bundle], 0, None
        wanted = sum(part.wanted for part in parts)
        for domain in islice(affinity_domains(self._state, parts, allowed) or (), _MAX_BUNDLE_DOMAINS):
            checkpoint = self._state.checkpoint()
            trial = Solution([0] * len(self._parts))
            self._seat_parts(bundle, [domain] * len(self._parts), trial, list(left))
            self._state.rollback(checkpoint)
            if trial.total > most:
                most, best = trial.total, domain
            if most == min(wanted, sum(left[gang] for gang in {part.gang for part in parts})):
                break
        if best is not None:
            self._seat_parts(bundle, [best] * len(self._parts), solution, left)

    def _seat_parts(
        self, order: Sequence[int], allowed: Sequence[AllowedRows], solution: Solution, left: list[int]
    ) -> None:
        """Seat parts in order, repeatedly while members are seated: a part may need another one to be placed first.

        `left` is how many more members each gang may have.
        """
        progress = True
        while progress:
            progress = False
            for index in order:
                part = self._parts[index]
                wanted = min(part.wanted - solution.placed[index], left[part.gang])
                if wanted:
                    seated = seat(self._state, index, part, wanted, allowed[index], solution)
                    left[part.gang] -= seated
                    progress |= seated > 0


def _in_order(bundles: Sequence[Sequence[int]], order: Sequence[int]) -> list[Sequence[int]]:
    """Bundles in the order of their first parts."""
    return sorted(bundles, key=lambda bundle: order.index(bundle[0]))
