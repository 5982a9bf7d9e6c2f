"""Places groups with composites: sets of gangs that share a domain, or of which only some must be placed.

A choice of gangs to place and of a domain for each composite leaves gangs of which each may use some nodes, which
`constrained` places. Choices are made greedily first: composite by composite, tightest domain first. If that fails, all
choices are tried within the budget, so that small groups are solved exactly.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations, product
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from muster.gangs.capacity import Int64
from muster.gangs.solve import Explanation, PodsOnNode, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.inter_pod.solver import members_interact
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.constrained import place_on_allowed
from muster.placement.solve.instance import NotPlaced, Part, Placed, Solution, assignments_of, reserve_again
from muster.placement.state.capacity import CapacityState
from muster.placement.state.nodes import Bool
from muster.placement.state.trees import Tree

_DOMAINS_TRIED: Final = 12
_LARGEST_TRIED: Final = 4
"""Domains that the greedy search tries for one composite: the tightest, and then the largest."""
_STEPS_PER_CHOICE: Final = 20
"""Budget that one choice costs besides the search for a placement."""
_STEPS_PER_GANG: Final = 2_000
"""Budget of one greedy placement, which does not count against other choices."""
_UNSUPPORTED: Final = (
    "subgroups that share a domain, or of which some may be left out, are not supported for pods with affinity, "
    "spreading or host ports between members: remove one of them"
)


def place_composites(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], explainer: Explainer, budget: Budget
) -> Placed | NotPlaced:
    """Place all gangs that the composites need, and of the others as many as fit."""
    if members_interact(state, parts):
        first = group.gangs[0]
        return NotPlaced(False, Explanation(_UNSUPPORTED, first.id, parts[0].class_id, 0, first.minimum))
    search = _Search(state, group, parts, budget)
    solution, proved = search.best()
    if solution is None:
        return NotPlaced(proved, search.explain(explainer))
    reserve_again(state, parts, solution)
    return Placed(assignments_of(state, group, parts, solution))


def find_composites(state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> bool:
    """The group has a placement that is found within the budget. Nothing stays reserved."""
    return not members_interact(state, parts) and _Search(state, group, parts, budget).best()[0] is not None


class _Child(NamedTuple):
    """A gang, or a composite, and its index."""

    is_composite: bool
    at: int


class _Attempt(NamedTuple):
    """One way to make greedy choices: in which order, and whether gangs get all of their members at once."""

    order: Callable[[_Child], int] | None
    whole: bool
    every: bool = False
    """Composites get all of their children, also those that they do not need."""


class _Failure(NamedTuple):
    """Gangs for which the greedy search found no place on some nodes, and the solution at that time."""

    solution: Solution
    gangs: Sequence[int]
    nodes: Bool


class _Search:
    """One group in one state of capacity; nothing stays reserved."""

    def __init__(self, state: CapacityState, group: SolveGroup, parts: Sequence[Part], budget: Budget) -> None:
        self._state, self._group, self._parts, self._budget = state, group, parts, budget
        composites = group.composites
        self._children: list[list[_Child]] = [[] for _ in composites]
        self._top: list[_Child] = []
        for kind, parents in ((True, [c.parent for c in composites]), (False, [g.composite for g in group.gangs])):
            for index, parent in enumerate(parents):
                (self._top if parent < 0 else self._children[parent]).append(_Child(kind, index))
        self._below: list[list[int]] = [[] for _ in composites]
        for index in reversed(range(len(composites))):
            own = [child.at for child in self._children[index] if not child.is_composite]
            self._below[index] = sorted([*own, *self._below[index]])
            if (parent := composites[index].parent) >= 0:
                self._below[parent] += self._below[index]
        self._must = [self._least_members(index) for index in range(len(composites))]
        self._everywhere: Bool = np.ones(state.nodes.rows, np.bool_)
        self._solution = Solution([0] * len(parts))
        self._allowed: dict[int, Bool] = {}
        self._closest: _Failure | None = None

    def best(self) -> tuple[Solution | None, bool]:
        """A solution, not reserved; if none is found, whether it is proved that there is none."""
        every = [_Attempt(None, whole=True, every=True)] if self._has_optional else []
        for attempt in (
            *every,
            _Attempt(None, whole=True),
            _Attempt(None, whole=False),
            _Attempt(self._demand, whole=False),
            _Attempt(lambda child: -self._demand(child), whole=False),
        ):
            if (found := self._greedy(attempt)) is not None:
                return found, False
            if attempt.every:
                self._closest = None  # a gang that is not needed explains nothing
        return self._exhaustive()

    @property
    def _has_optional(self) -> bool:
        """Some composites do not need all of their children. Those that are left out may wait for long, since the
        domains of the others are theirs, so domains that hold all are tried first.
        """
        composites = self._group.composites
        return any(each.minimum < len(self._children[index]) for index, each in enumerate(composites))

    def explain(self, explainer: Explainer) -> Explanation:
        """Why a gang has no place, where the greedy search got furthest."""
        failure = self._closest or _Failure(Solution([0] * len(self._parts)), [0], self._everywhere)
        checkpoint = self._state.checkpoint()
        self._solution = Solution([0] * len(self._parts))
        self._take(failure.solution)
        attempt = _Attempt(None, whole=False)
        missing = next((g for g in failure.gangs if not self._place_gangs([g], failure.nodes, attempt)), None)
        self._state.rollback(checkpoint)
        gang = failure.gangs[-1] if missing is None else missing
        index = self._parts_of(gang)[0]
        found = explainer.lacking_part(self._group, self._parts, gang, index, self._solution)
        placed = sum(self._solution.of_gang(self._parts, each) > 0 for each in range(len(self._group.gangs)))
        domains = self._domains_of(gang)
        within = f" within one {' and one '.join(domains)}" if domains else ""
        others = f"{placed} of {len(self._group.gangs)} subgroups fit{within}"
        return structs.replace(found, summary=f"{others}; of the next {found.summary}", remedy="")

    def _domains_of(self, gang: int) -> list[str]:
        names, at = [], self._group.gangs[gang].composite
        while at >= 0:
            if (level := self._group.composites[at].level) and level not in names:
                names.append(level)
            at = self._group.composites[at].parent
        return names

    # -- greedy choices

    def _greedy(self, attempt: _Attempt) -> Solution | None:
        self._solution, self._allowed = Solution([0] * len(self._parts)), {}
        checkpoint = self._state.checkpoint()
        try:
            if not self._place_children(self._top, len(self._top), self._everywhere, attempt):
                return None
            if not attempt.whole:
                for gang in sorted(self._allowed):
                    self._grow(gang)
            return self._solution if self._solution.total else None
        except OutOfBudget:
            return None
        finally:
            self._state.rollback(checkpoint)

    def _place_composite(self, index: int, nodes: Bool, attempt: _Attempt) -> bool:
        composite = self._group.composites[index]
        for allowed in self._domains(index, nodes, few=True):
            self._state.limit.check()
            undo = self._mark()
            if self._place_children(self._children[index], composite.minimum, allowed, attempt) and (
                self._has_members(index, attempt) and self._members(self._solution, index)
            ):
                return True
            self._undo(undo)
        return not composite.minimum and not composite.minimum_members

    def _place_children(self, children: Sequence[_Child], minimum: int, nodes: Bool, attempt: _Attempt) -> bool:
        ordered = sorted(children, key=attempt.order) if attempt.order is not None else children
        if minimum < len(children) and not attempt.every:
            placed = sum([self._place_child(child, nodes, attempt) for child in ordered])
            return placed >= minimum
        composites = [child for child in ordered if child.is_composite]
        composites.sort(key=lambda child: not self._group.composites[child.at].level)
        gangs = [child.at for child in ordered if not child.is_composite]
        return all(self._place_child(child, nodes, attempt) for child in composites) and (
            not gangs or self._place_gangs(gangs, nodes, attempt)
        )

    def _place_child(self, child: _Child, nodes: Bool, attempt: _Attempt) -> bool:
        if child.is_composite:
            return self._place_composite(child.at, nodes, attempt)
        return self._place_gangs([child.at], nodes, attempt)

    def _place_gangs(self, gangs: Sequence[int], nodes: Bool, attempt: _Attempt) -> bool:
        least = {gang: self._group.gangs[gang].minimum for gang in gangs}
        budget = Budget(_STEPS_PER_GANG, self._state.limit)
        found, _ = self._flat(least, dict.fromkeys(gangs, nodes), budget, whole=attempt.whole)
        if found is None:
            self._note_failure(gangs, nodes)
            return False
        self._take(found)
        self._allowed.update(dict.fromkeys(gangs, nodes))
        return True

    def _note_failure(self, gangs: Sequence[int], nodes: Bool) -> None:
        if self._closest is None or self._solution.total > self._closest.solution.total:
            self._closest = _Failure(self._copy(), gangs, nodes)

    def _has_members(self, index: int, attempt: _Attempt) -> bool:
        """The composite has its least number of members; otherwise its gangs get more first."""
        needed = self._group.composites[index].minimum_members
        for gang in self._below[index] if not attempt.whole else ():
            if self._members(self._solution, index) >= needed:
                break
            if gang in self._allowed:
                self._grow(gang)
        return self._members(self._solution, index) >= needed

    def _grow(self, gang: int) -> None:
        """Place more members of a gang that is placed, as far as they fit."""
        parts = [replace(each, wanted=each.wanted - self._solution.placed[i]) for i, each in enumerate(self._parts)]
        if not any(part.wanted for part in parts if part.gang == gang):
            return
        budget = Budget(_STEPS_PER_GANG, self._state.limit)
        found, _ = self._flat({gang: 1}, self._allowed, budget, parts=parts, beside=self._solution)
        if found is not None:
            self._take(found)

    def _demand(self, child: _Child) -> int:
        gangs = self._below[child.at] if child.is_composite else [child.at]
        return sum(self._group.gangs[gang].minimum for gang in gangs)

    # -- all choices

    def _exhaustive(self) -> tuple[Solution | None, bool]:
        proved = True
        try:
            for chosen in self._selections(self._top, len(self._top)):
                gangs = sorted(child.at for child in chosen if not child.is_composite)
                composites = sorted(child.at for child in chosen if child.is_composite)
                if not gangs:
                    proved = False
                    continue
                for nodes in self._assign_domains(composites, {-1: self._everywhere}):
                    self._budget.spend(_STEPS_PER_CHOICE)
                    allowed = {gang: nodes[self._group.gangs[gang].composite] for gang in gangs}
                    least = {gang: self._group.gangs[gang].minimum for gang in gangs}
                    found, none = self._flat(least, allowed, self._budget)
                    if found is not None and self._complete(found, composites):
                        return self._extended(found, allowed, nodes), False
                    proved = proved and none and found is None
        except OutOfBudget:
            return None, False
        return None, proved

    def _complete(self, found: Solution, composites: Iterable[int]) -> bool:
        needed = self._group.composites
        return all(self._members(found, index) >= needed[index].minimum_members for index in composites)

    def _extended(self, found: Solution, allowed: Mapping[int, Bool], nodes: Mapping[int, Bool]) -> Solution:
        """The solution with further gangs of the chosen composites, as far as they fit on the nodes of these."""
        checkpoint = self._state.checkpoint()
        self._solution, self._allowed = Solution([0] * len(self._parts)), dict(allowed)
        self._take(found)
        for gang, asked in enumerate(self._group.gangs):
            if gang not in allowed and asked.composite in nodes:
                self._place_gangs([gang], nodes[asked.composite], _Attempt(None, whole=True))
        self._state.rollback(checkpoint)
        return self._solution

    def _selections(self, children: Sequence[_Child], minimum: int) -> Iterator[list[_Child]]:
        """Sets of children, and of children of those, that suffice."""
        counts_members = any(each.minimum_members for each in self._group.composites)
        sizes = range(minimum, len(children) + 1) if counts_members else (minimum,)
        for some in chain.from_iterable(combinations(children, size) for size in sizes):
            below = [
                list(self._selections(self._children[child.at], self._group.composites[child.at].minimum))
                for child in some
                if child.is_composite
            ]
            self._budget.spend(1 + len(some))
            for each in product(*below):
                yield [*some, *chain.from_iterable(each)]

    def _assign_domains(self, composites: Sequence[int], nodes: dict[int, Bool]) -> Iterator[dict[int, Bool]]:
        """The nodes that each of the composites, parents first, may use: every combination of their domains."""
        if not composites:
            yield nodes
            return
        first, *rest = composites
        for allowed in self._domains(first, nodes[self._group.composites[first].parent]):
            self._budget.spend()
            yield from self._assign_domains(rest, {**nodes, first: allowed})

    # -- domains

    def _domains(self, index: int, nodes: Bool, *, few: bool = False) -> Iterator[Bool]:
        """Nodes of each domain that may hold the composite, within `nodes`: bool[rows], the tightest first."""
        composite = self._group.composites[index]
        if not composite.level:
            yield nodes
            return
        tree = self._state.trees.get(composite.tree)
        assert tree is not None, f"tree {composite.tree!r} was not validated"
        level = tree.level_names.index(composite.level)
        of = tree.levels[level].of if level < len(tree.levels) else np.arange(len(tree.rows))
        usable = nodes[tree.rows]
        usable[tree.inside :] = False
        for position in {tree.position_of(name) for name in composite.placed} - {None}:
            usable &= of == of[position]
        if not usable.any() or not self._below[index]:
            return
        needed = {self._parts[at].class_id for gang in self._below[index] for at in self._parts_of(gang)}
        seats = {each: self._seats(each, tree.rows, usable, of) for each in needed}
        must = self._must[index]
        enough = np.all([seats[each] >= must[each] for each in needed], axis=0)
        total = np.sum(list(seats.values()), axis=0)
        domains = np.flatnonzero(enough & (total > 0))
        if not len(domains):
            self._note_failure(self._below[index], self._in_domain(nodes, tree, usable & (of == total.argmax())))
        domains = domains[np.argsort(total[domains], kind="stable")]
        if few and len(domains) > _DOMAINS_TRIED + _LARGEST_TRIED:
            domains = np.concatenate((domains[:_DOMAINS_TRIED], domains[: -_LARGEST_TRIED - 1 : -1]))
        for domain in domains.tolist():
            yield self._in_domain(nodes, tree, usable & (of == domain))

    def _in_domain(self, nodes: Bool, tree: Tree, positions: Bool) -> Bool:
        allowed = np.zeros_like(nodes)
        allowed[tree.rows[positions]] = True
        return allowed

    def _seats(self, class_id: str, rows: Int64, usable: Bool, of: Int64) -> Int64:
        fits = np.where(usable, self._state.of(class_id).fits[rows], 0)
        return np.bincount(of, fits).astype(np.int64)

    def _least_members(self, index: int) -> Counter[str]:
        """Members of each class that every placement of the composite has."""
        must: Counter[str] = Counter()
        if self._group.composites[index].minimum < len(self._children[index]):
            return must
        for child in self._children[index]:
            if child.is_composite:
                must += self._least_members(child.at)
                continue
            ours = [self._parts[at] for at in self._parts_of(child.at)]
            wanted = sum(part.wanted for part in ours)
            for part in ours:
                must[part.class_id] += max(0, self._group.gangs[child.at].minimum - (wanted - part.wanted))
        return must

    # -- solutions

    def _flat(
        self,
        least: Mapping[int, int],
        allowed: Mapping[int, Bool],
        budget: Budget,
        *,
        whole: bool = True,
        parts: Sequence[Part] | None = None,
        beside: Solution | None = None,
    ) -> tuple[Solution | None, bool]:
        """The gangs in `least` with so many members, and more if `whole`, on the nodes that each may use. `beside` are
        members placed already, which their constraints count.
        """
        gangs = list(least)
        constrained = any(self._group.gangs[gang].constraints for gang in gangs)
        asked = []
        for gang in gangs:
            one = self._group.gangs[gang]
            placed = (*one.placed, *self._placed(gang, beside)) if beside is not None else one.placed
            tree = one.tree if constrained else ""
            asked.append(structs.replace(one, minimum=least[gang], placed=placed, tree=tree, composite=-1))
        at = [i for i, part in enumerate(parts or self._parts) if part.gang in least and part.wanted]
        ours = [replace((parts or self._parts)[i], gang=gangs.index(self._parts[i].gang)) for i in at]
        group = SolveGroup(self._group.id, tuple(asked))
        found, proved = place_on_allowed(
            self._state, group, ours, [allowed[gang] for gang in gangs], budget, whole=whole
        )
        if found is None:
            return None, proved
        solution = Solution([0] * len(self._parts), [(at[index], seats) for index, seats in found.seats])
        for index, (_, counts) in solution.seats:
            solution.placed[index] += int(counts.sum())
        return solution, False

    def _placed(self, gang: int, solution: Solution) -> Iterator[PodsOnNode]:
        for index, (rows, counts) in solution.seats:
            if (part := self._parts[index]).gang == gang:
                for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                    yield PodsOnNode(self._state.nodes.name(row), part.class_id, count)

    def _take(self, found: Solution) -> None:
        reserve_again(self._state, self._parts, found)
        self._solution.seats += found.seats
        for index, count in enumerate(found.placed):
            self._solution.placed[index] += count

    def _mark(self) -> tuple[int, int, list[int], dict[int, Bool]]:
        return (
            self._state.checkpoint(),
            len(self._solution.seats),
            list(self._solution.placed),
            dict(self._allowed),
        )

    def _undo(self, mark: tuple[int, int, list[int], dict[int, Bool]]) -> None:
        checkpoint, seats, placed, self._allowed = mark
        self._state.rollback(checkpoint)
        self._solution = Solution(placed, self._solution.seats[:seats])

    def _copy(self) -> Solution:
        return Solution(list(self._solution.placed), list(self._solution.seats))

    def _members(self, solution: Solution, index: int) -> int:
        return sum(solution.of_gang(self._parts, gang) for gang in self._below[index])

    def _parts_of(self, gang: int) -> list[int]:
        return [index for index, part in enumerate(self._parts) if part.gang == gang]
