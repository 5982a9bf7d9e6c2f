"""Exact answers for interacting groups: a proof of infeasibility by counting, and branch and bound.

The search places members one by one; each is admitted by the inter-pod rules at that point. For few members and few
kinds of nodes it finds the best placement, or proves that there is none.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np

from muster.gangs.capacity import Int64
from muster.gangs.solve import SolveGroup
from muster.placement.inter_pod.class_rules import InterPodRules
from muster.placement.inter_pod.domains import affinity_domains
from muster.placement.inter_pod.instance import Instance
from muster.placement.inter_pod.rules import AntiAffinityRule, HostPortsRule, Rule
from muster.placement.inter_pod.seating import max_members
from muster.placement.solve.branch_and_bound import Budget, OutOfBudget
from muster.placement.solve.instance import Part, Solution, is_homogeneous, minimums_reached
from muster.placement.state.capacity import CapacityState
from muster.placement.state.class_capacity import ClassCapacity
from muster.placement.state.nodes import Bool

MAX_MEMBERS: Final = 16
MAX_NODES: Final = 64
"""Limits beyond which the search would not finish within its budget."""
_NODES_PER_STEP: Final = 4
"""Nodes examined at the cost of one budget step."""
_MAX_DOMAINS_COUNTED: Final = 256
"""Affinity domains that are counted one by one."""
_MAX_CLASSES_COMBINED: Final = 8
"""Classes of which all combinations are examined; of more classes, only all of them together."""

Accept = Callable[[Solution], bool]
"""Tests whether a solution satisfies the constraints on the group as a whole."""

_Key = tuple[object, ...]


def is_infeasible(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> bool:
    """Proved: not all gangs can reach their minimums."""
    seats = {part.class_id: _max_members(state, parts, part) for part in parts}
    if is_homogeneous(parts):
        return sum(gang.minimum for gang in group.gangs) > seats[parts[0].class_id]
    return _too_few_domains(state, group, parts) or any(
        sum(min(part.wanted, seats[part.class_id]) for part in parts if part.gang == index) < gang.minimum
        for index, gang in enumerate(group.gangs)
    )


def _max_members(state: CapacityState, parts: Sequence[Part], part: Part) -> int:
    """Upper bound on the members of the part's class that can be placed."""
    of_class = state.of(part.class_id)
    if not is_homogeneous(parts):
        return int(_fits_upper_bound(state, parts, part.class_id).sum())
    domains = affinity_domains(state, parts)
    if domains is None:
        return max_members(of_class, None)
    if len(domains) > _MAX_DOMAINS_COUNTED:
        return int(of_class.alone.sum())
    return max((max_members(of_class, domain) for domain in domains), default=0)


def _fits_upper_bound(state: CapacityState, parts: Sequence[Part], class_id: str) -> Int64:
    """Members that fit on each node if rules are ignored that other members of the group can satisfy: int64[rows]."""
    of_class = state.of(class_id)
    if of_class.inter_pod is None:
        return of_class.alone
    group = {state.of(part.class_id).kind for part in parts}
    satisfiable: list[Rule] = [*of_class.inter_pod.spread, *of_class.inter_pod.affinity]
    ignored = [rule for rule in satisfiable if rule.matching.counts_any(group)]
    return np.minimum(of_class.alone, of_class.inter_pod.caps_without(ignored))


def _too_few_domains(state: CapacityState, group: SolveGroup, parts: Sequence[Part]) -> bool:
    """Proved: there are fewer domains than members that each need a domain of their own."""
    rules = {part.class_id: each for part in parts if (each := state.of(part.class_id).inter_pod) is not None}
    keys = sorted({rule.key for each in rules.values() for rule in _self_excluding(each)})
    return any(_too_few_domains_of(state, group, parts, rules, key) for key in keys)


def _too_few_domains_of(
    state: CapacityState, group: SolveGroup, parts: Sequence[Part], rules: dict[str, InterPodRules], key: str
) -> bool:
    class_ids = _mutually_exclusive(state, rules, key)
    usable = {
        class_id: np.minimum(state.of(class_id).alone, rules[class_id].caps_upper_bound()) for class_id in class_ids
    }
    codes = state.nodes.domains(key).codes if key else np.arange(state.nodes.rows) + 1
    for chosen in _combinations(class_ids):
        seats = np.sum([usable[class_id] for class_id in chosen], axis=0)
        rows: Bool = seats > 0
        domains = len(np.unique(codes[rows & (codes > 0)])) + int(seats[codes == 0].sum())
        if _required_members(group, parts, chosen) > domains:
            return True
    return False


def _self_excluding(rules: InterPodRules) -> list[HostPortsRule | AntiAffinityRule]:
    """Rules by which a member of the class excludes other members from its domain."""
    return [*rules.host_ports, *(rule for rule in rules.anti_affinity if rule.counts_own_class)]


def _mutually_exclusive(state: CapacityState, rules: dict[str, InterPodRules], key: str) -> list[str]:
    """Classes of which a domain accepts one member in total: each excludes itself and all classes listed before it."""
    found: list[str] = []
    for class_id, each in sorted(rules.items()):
        excluding = [rule.matching for rule in _self_excluding(each) if rule.key == key]
        kinds = [state.of(other).kind for other in (*found, class_id)]
        if all(any(excluded.counts(kind) for excluded in excluding) for kind in kinds):
            found.append(class_id)
    return found


def _combinations(class_ids: Sequence[str]) -> Iterable[tuple[str, ...]]:
    if len(class_ids) > _MAX_CLASSES_COMBINED:
        return [tuple(class_ids)]
    return chain.from_iterable(combinations(class_ids, size) for size in range(1, len(class_ids) + 1))


def _required_members(group: SolveGroup, parts: Sequence[Part], class_ids: Sequence[str]) -> int:
    """Members of these classes that are needed for the minimums even if all other members are placed."""
    required = 0
    for index, gang in enumerate(group.gangs):
        others = sum(part.wanted for part in parts if part.gang == index and part.class_id not in class_ids)
        required += max(0, gang.minimum - others)
    return required


def branch_and_bound(
    state: CapacityState,
    group: SolveGroup,
    parts: Sequence[Part],
    budget: Budget,
    accept: Accept,
    best: Solution | None,
) -> tuple[Solution | None, bool]:
    """The accepted solution with most members that reaches all minimums, and whether it is proved optimal.

    `best` is a known feasible solution.
    """
    if sum(part.wanted for part in parts) > MAX_MEMBERS:
        return best, False
    search = _BranchAndBound(state, group, parts, budget, accept, best)
    if len(search.rows) > MAX_NODES:
        return best, False
    try:
        search.branch(0)
    except OutOfBudget:
        return search.best, False
    return search.best, True


class _BranchAndBound:
    """`rows` are the nodes on which some member fits as far as inter-pod rules do not matter, by name."""

    def __init__(
        self,
        state: CapacityState,
        group: SolveGroup,
        parts: Sequence[Part],
        budget: Budget,
        accept: Accept,
        best: Solution | None,
    ) -> None:
        self.best = best
        self._group = group
        self._parts = parts
        self._budget = budget
        self._accept = accept
        self._members = sum(part.wanted for part in parts)
        classes = [state.of(part.class_id) for part in parts]
        useful = np.logical_or.reduce([of_class.alone > 0 for of_class in classes])
        rows = np.flatnonzero(useful)
        self.rows: Int64 = rows[np.argsort(state.nodes.rank[rows])]
        few = self.rows[:MAX_NODES]
        self._kinds = _kinds(state, group, classes, few)
        self._instance = Instance(state, parts, few)
        self._steps = 1 + len(few) // _NODES_PER_STEP
        self._any_order = any(_may_gain_nodes(of_class) for of_class in classes)
        self._placed: dict[int, list[int]] = {}  # index into rows -> members of each part
        self._counts = [0] * len(parts)
        self._seen: set[_Key] = set()

    def branch(self, first_part: int) -> None:
        """Place one more member in every possible way: of this part or a later one, or of any part if order matters."""
        self._budget.spend(self._steps)
        self._update_best()
        for index in range(0 if self._any_order else first_part, len(self._parts)):
            if self._counts[index] < self._parts[index].wanted and self._can_improve(index):
                for node in self._choices(index):
                    self._place(index, node)
                    if self._is_complete():
                        return

    def _place(self, index: int, node: int) -> None:
        here = self._placed.setdefault(node, [0] * len(self._parts))
        here[index] += 1
        self._counts[index] += 1
        key = self._key(index)
        if key not in self._seen:
            self._seen.add(key)
            self._instance.put(index, node, 1)
            self.branch(index)
            self._instance.put(index, node, -1)
        self._counts[index] -= 1
        here[index] -= 1
        if not any(here):
            del self._placed[node]

    def _choices(self, index: int) -> list[int]:
        """Nodes for the next member of a part, one for each kind and content (symmetry breaking)."""
        distinct: dict[_Key, int] = {}
        for node in self._instance.nodes:
            distinct.setdefault((self._kinds[node], tuple(self._placed.get(node, ()))), node)
        return [node for node in distinct.values() if self._instance.accepts(index, node)]

    def _can_improve(self, first_part: int) -> bool:
        """The bound: more members than in the best solution may still be placed, and all minimums be reached."""
        if self._any_order:
            first_part = 0
        reach = list(self._counts)
        for index in range(first_part, len(self._parts)):
            missing = self._parts[index].wanted - self._counts[index]
            if missing:
                reach[index] += self._instance.seats(index, missing, by_rules=not self._any_order)
        bound = Solution(reach)
        if not minimums_reached(self._group, self._parts, bound):
            return False
        return self.best is None or bound.total > self.best.total

    def _update_best(self) -> None:
        solution = Solution(list(self._counts))
        if self.best is not None and solution.total <= self.best.total:
            return
        if not minimums_reached(self._group, self._parts, solution):
            return
        for index in range(len(self._parts)):
            used = [(node, here[index]) for node, here in sorted(self._placed.items()) if here[index]]
            if used:
                nodes, counts = np.array(used).T
                solution.seats.append((index, (self.rows[nodes], counts)))
        if self._accept(solution):
            self.best = solution

    def _is_complete(self) -> bool:
        return self.best is not None and self.best.total == self._members

    def _key(self, index: int) -> _Key:
        """The placement up to exchange of equivalent nodes, and the part from which the search continues."""
        placed = sorted((self._kinds[node], tuple(here)) for node, here in self._placed.items())
        return (0 if self._any_order else index, *placed)


def _may_gain_nodes(of_class: ClassCapacity) -> bool:
    """Placing members may make more nodes acceptable to the class."""
    rules = of_class.inter_pod
    return rules is not None and bool(rules.spread or rules.affinity)


def _kinds(state: CapacityState, group: SolveGroup, classes: Sequence[ClassCapacity], rows: Int64) -> list[int]:
    """Numbers that are equal for interchangeable nodes, by index into `rows`."""
    facts: list[list[object]] = [state.free[:, rows].T.tolist(), *(each.alone[rows].tolist() for each in classes)]
    for gang in group.gangs:
        tree = state.trees.get(gang.tree) if gang.constraints else None
        if tree is not None:
            facts.extend(level.of[tree.position[rows]].tolist() for level in tree.levels)
    keys: set[str] = set()
    for rules in [each.inter_pod for each in classes if each.inter_pod is not None]:
        facts.append(rules.caps()[rows].tolist())
        facts.extend(count.per_node[rows].tolist() for count in rules.matching)
        facts.extend(rule.included()[rows].tolist() for rule in rules.spread)
        keys.update(rules.topology_keys)
    for key in sorted(keys):
        domains = state.nodes.domains(key)
        alone = np.bincount(domains.codes, minlength=domains.size) == 1
        names = np.where(alone, -1, np.arange(domains.size))
        names[0] = 0
        facts.append(names[domains.codes[rows]].tolist())
    numbers: dict[str, int] = {}
    return [numbers.setdefault(repr(each), len(numbers)) for each in zip(*facts, strict=True)]
