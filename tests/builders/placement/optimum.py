"""Oracle: the optimal placement of a small group under constraints, by enumeration.

It is simple and shares no code with the solver. A placement is described by sizes: how many members of each gang are on
each node, including those placed earlier. All divisions are enumerated node by node; the sizes of each are kept, and
the constraints are evaluated on them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts, PodClass, TopologyTree
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.solve.instance import PartiallyPlaced, Placed

Cost = tuple[int, ...]
"""Smaller is better: members left out, members outside of trees, then gang by gang the levels of its tree from the top:
range, factor, shape.
"""

Sizes = tuple[tuple[int, ...], ...]
"""Members of each gang on each node."""

Path = tuple[str, ...]
"""A domain, as the names from the top to it."""

_SHAPES = (LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION)

FLAT = TopologyTree("flat", default=True)


@dataclass(frozen=True)
class Case:
    """A small cluster and a group. Members placed earlier do not use the nodes' capacity."""

    nodes: Sequence[NodeFacts]
    classes: Sequence[PodClass]
    group: SolveGroup
    trees: Sequence[TopologyTree] = (FLAT,)

    def tree_of(self, gang: SolveGang) -> TopologyTree:
        return next(tree for tree in self.trees if (tree.name == gang.tree if gang.tree else tree.default))


@dataclass(frozen=True)
class Level:
    """The constraints of one level; `depth` is the length of its domains' paths."""

    name: str
    depth: int
    shape: LevelConstraint
    range: LevelConstraint | None
    factor: LevelConstraint | None


def optimum(case: Case) -> Cost | None:
    """The cost of the optimal placement; None if not all minimums fit under the hard constraints."""
    judges = [Evaluator(case, index) for index in range(len(case.group.gangs))]
    by_total: dict[int, list[Sizes]] = {}
    for added in all_sizes(case):
        by_total.setdefault(sum(map(sum, added)), []).append(added)
    for total in sorted(by_total, reverse=True):
        costs = [cost for added in by_total[total] if (cost := _cost(case, judges, added)) is not None]
        if costs:
            return min(costs)
    return None


def most_in_part(case: Case) -> tuple[int, ...] | None:
    """Of partial placements that can be completed, the most members toward minimums: in total, then of each gang,
    earlier gangs first. None if there is no such placement, not even an empty one.
    """
    judges = [Evaluator(case, index) for index in range(len(case.group.gangs))]
    return max((_counted(judges, added) for added in all_sizes(case) if _may_follow(judges, added)), default=None)


def counted_in_part(case: Case, answer: Placed | PartiallyPlaced) -> tuple[int, ...] | None:
    """Members of an answer toward minimums, likewise; None if it cannot be completed."""
    judges = [Evaluator(case, index) for index in range(len(case.group.gangs))]
    added = added_members(case, answer)
    return _counted(judges, added) if _may_follow(judges, added) else None


def cost_of(case: Case, answer: Placed | PartiallyPlaced) -> Cost | None:
    """The cost of an answer; None if it violates a hard constraint or leaves a gang below its minimum."""
    judges = [Evaluator(case, index) for index in range(len(case.group.gangs))]
    return _cost(case, judges, added_members(case, answer))


def terms(case: Case) -> list[str]:
    """Names of the terms of a cost, e.g. "members", "outside", "range", "factor", "pack"."""
    names = ["members", "outside"]
    for gang in case.group.gangs:
        for level in _levels(gang, case.tree_of(gang)):
            names += ["range", "factor", level.shape.policy.name.lower()]
            if level.shape.policy == LevelPolicy.PARTITION:
                names.append("partition")
    return names


class Evaluator:
    """Evaluates the sizes of one gang."""

    def __init__(self, case: Case, index: int) -> None:
        gang = case.group.gangs[index]
        tree = case.tree_of(gang)
        self.minimum = gang.minimum
        self._levels = _levels(gang, tree)
        self._before = [sum(pods.count for pods in gang.placed if pods.node == each.name) for each in case.nodes]
        paths = domain_paths(tree, case.nodes)
        self._outside = [paths[each.name] is None for each in case.nodes]
        depth = len(tree.levels)
        self._paths = [paths[each.name] or tuple(f"outside {each.name}" for _ in range(depth)) for each in case.nodes]
        above = [level for level in self._levels if level.depth < depth]
        self._inside_only = any(
            constraint.hard for level in above for constraint in (level.shape, level.range, level.factor) if constraint
        )

    def outside(self, added: Sequence[int]) -> int:
        """New members on nodes outside of the tree."""
        if not self._levels:
            return 0  # gangs without constraints may use every node
        return sum(count for count, outside in zip(added, self._outside, strict=True) if outside)

    def cost(self, added: Sequence[int]) -> Cost | None:
        """Per level from the top; None if a hard constraint is violated."""
        if self._inside_only and self.outside(added):
            return None
        sizes = [new + old for new, old in zip(added, self._before, strict=True)]
        cost: list[int] = []
        upper = 0
        for level in self._levels:
            of_level = _level_cost(level, self._divisions(sizes, upper, level.depth))
            if of_level is None:
                return None
            cost += of_level
            upper = level.depth
        return tuple(cost)

    def may_become(self, added: Sequence[int]) -> bool:
        """No hard constraint is violated that more members could not repair."""
        if self._inside_only and self.outside(added):
            return False
        sizes = [new + old for new, old in zip(added, self._before, strict=True)]
        upper = 0
        for level in self._levels:
            if not all(_may_become(level, parts) for parts in self._divisions(sizes, upper, level.depth)):
                return False
            upper = level.depth
        return True

    def _divisions(self, sizes: Sequence[int], upper: int, depth: int) -> list[list[int]]:
        """For each domain above with members, the sizes of the domains below that have any."""
        within: dict[Path, dict[Path, int]] = {}
        for path, size in zip(self._paths, sizes, strict=True):
            if size:
                parts = within.setdefault(path[:upper], {})
                parts[path[:depth]] = parts.get(path[:depth], 0) + size
        return [list(parts.values()) for parts in within.values()]


def added_members(case: Case, answer: Placed | PartiallyPlaced) -> Sizes:
    place = {each.name: index for index, each in enumerate(case.nodes)}
    gangs = {gang.id: index for index, gang in enumerate(case.group.gangs)}
    added = [[0] * len(case.nodes) for _ in case.group.gangs]
    for assignment in answer.assignments:
        added[gangs[assignment.gang]][place[assignment.node]] += assignment.count
    return tuple(map(tuple, added))


def _counted(judges: Sequence[Evaluator], added: Sizes) -> tuple[int, ...]:
    of_each = [min(sum(of_gang), evaluator.minimum) for evaluator, of_gang in zip(judges, added, strict=True)]
    return (sum(of_each), *of_each)


def _may_follow(judges: Sequence[Evaluator], added: Sizes) -> bool:
    return all(evaluator.may_become(of_gang) for evaluator, of_gang in zip(judges, added, strict=True))


def _cost(case: Case, judges: Sequence[Evaluator], added: Sizes) -> Cost | None:
    total = outside = 0
    cost: list[int] = []
    for evaluator, of_gang in zip(judges, added, strict=True):
        placed = sum(of_gang)
        if placed < evaluator.minimum:
            return None
        solution_cost = evaluator.cost(of_gang)
        if solution_cost is None:
            return None
        total += placed
        outside += evaluator.outside(of_gang)
        cost += solution_cost
    wanted = sum(role.wanted for gang in case.group.gangs for role in gang.roles)
    return (wanted - total, outside, *cost)


def _level_cost(level: Level, divisions: Sequence[Sequence[int]]) -> list[int] | None:
    used = [size for parts in divisions for size in parts]
    range_, factor, shape = level.range, level.factor, level.shape
    missed = 0
    if range_ is not None:
        missed = sum(max(range_.minimum - size, size - range_.maximum, 0) for size in used)
    uneven = 0 if factor is None else sum(size % factor.count != 0 for size in used)
    if (range_ is not None and range_.hard and missed) or (factor is not None and factor.hard and uneven):
        return None
    if shape.hard and not all(_as_asked(shape, parts) for parts in divisions):
        return None
    squares = sum(size * size for size in used)
    if shape.policy == LevelPolicy.PACK:
        return [missed, uneven, len(used)]
    if shape.policy == LevelPolicy.SPREAD:
        return [missed, uneven, squares]
    off = sum(abs(len(parts) - shape.count) for parts in divisions)
    return [missed, uneven, off, squares]


def _may_become(level: Level, parts: Sequence[int]) -> bool:
    range_, shape = level.range, level.shape
    if range_ is not None and range_.hard and max(parts) > range_.maximum:
        return False
    if not shape.hard or shape.policy == LevelPolicy.SPREAD:
        return True
    return len(parts) <= (1 if shape.policy == LevelPolicy.PACK else shape.count)


def _as_asked(shape: LevelConstraint, parts: Sequence[int]) -> bool:
    """A hard shape holds for the sizes of the domains within one domain above."""
    if shape.policy == LevelPolicy.PACK:
        return len(parts) == 1
    even = max(parts) - min(parts) <= 1
    return even and (shape.policy == LevelPolicy.SPREAD or len(parts) == shape.count)


def _levels(gang: SolveGang, tree: TopologyTree) -> list[Level]:
    """Levels with constraints, from the top."""
    found = []
    hard_pack_below = False
    for depth in range(len(tree.levels), 0, -1):
        name = tree.levels[depth - 1].name
        ours = {each.policy: each for each in gang.constraints if each.level == name}
        if not ours:
            continue
        shapes = [ours[policy] for policy in _SHAPES if policy in ours]
        shape = shapes[0] if shapes else LevelConstraint(name, LevelPolicy.PACK)
        if shape.policy == LevelPolicy.PACK and hard_pack_below:
            shape = LevelConstraint(name, LevelPolicy.PACK, hard=True)
        hard_pack_below = hard_pack_below or (shape.policy == LevelPolicy.PACK and shape.hard)
        found.append(Level(name, depth, shape, ours.get(LevelPolicy.RANGE), ours.get(LevelPolicy.FACTOR)))
    return found[::-1]


def domain_paths(tree: TopologyTree, nodes: Sequence[NodeFacts]) -> Mapping[str, Path | None]:
    """Each node's path from the top to itself; None if it is not in the tree."""
    if len(tree.levels) == 1:
        return {each.name: (each.name,) for each in nodes}
    if not tree.domains:
        return {each.name: _path_by_labels(tree, each) for each in nodes}
    paths: list[Path] = []
    for domain in tree.domains:
        paths.append((*paths[domain.parent], domain.name) if domain.parent >= 0 else (domain.name,))
    leaves = {name: (*paths[domain], name) for name, domain in tree.leaves if domain >= 0}
    return {each.name: leaves.get(each.name) for each in nodes}


def _path_by_labels(tree: TopologyTree, node: NodeFacts) -> Path | None:
    values = [node.labels.get(level.label_key) for level in tree.levels[:-1]]
    named = [value for value in values if value is not None]
    return (*named, node.name) if len(named) == len(values) else None


def all_sizes(case: Case) -> Iterator[Sizes]:
    """All ways to place new members: how many of each gang each node gets."""
    parts = [
        (index, class_id, sum(role.wanted for role in gang.roles if role.class_id == class_id))
        for index, gang in enumerate(case.group.gangs)
        for class_id in dict.fromkeys(role.class_id for role in gang.roles)
    ]
    by_id = {each.id: each for each in case.classes}
    wanted = [count for _, _, count in parts]
    # sizes node by node so far -> how many of each part may have been used for them
    states: dict[tuple[tuple[int, ...], ...], set[tuple[int, ...]]] = {(): {(0,) * len(parts)}}
    for node in case.nodes:
        divisions = [
            counts
            for counts in product(*(range(count + 1) for count in wanted))
            if _fits(node, [(by_id[class_id], count) for (_, class_id, _), count in zip(parts, counts, strict=True)])
        ]
        reached: dict[tuple[tuple[int, ...], ...], set[tuple[int, ...]]] = {}
        for sizes, used_before in states.items():
            for counts in divisions:
                here = [0] * len(case.group.gangs)
                for (gang, _, _), count in zip(parts, counts, strict=True):
                    here[gang] += count
                for used in used_before:
                    after = tuple(a + b for a, b in zip(used, counts, strict=True))
                    if all(a <= most for a, most in zip(after, wanted, strict=True)):
                        reached.setdefault((*sizes, tuple(here)), set()).add(after)
        states = reached
    for sizes in states:
        yield tuple(zip(*sizes, strict=True))


def _fits(node: NodeFacts, members: Sequence[tuple[PodClass, int]]) -> bool:
    offered = dict(node.allocatable)
    for each, count in members:
        if count and any(node.labels.get(key) != value for key, value in each.node_selector):
            return False
        for name, amount in each.requests:
            offered[name] = offered.get(name, 0) - amount * count
    return all(left >= 0 for left in offered.values())
