"""Level rules: a gang's constraints in the solver's form, whether a placement satisfies them, and at what cost.

There is one rule per constrained level and one for the nodes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import takewhile
from typing import Final

import numpy as np
from msgspec import structs

from muster.gangs.byte_cache import cached_by_number
from muster.gangs.capacity import Int64
from muster.gangs.facts import LevelConstraint, LevelPolicy
from muster.gangs.solve import SolveGroup
from muster.placement.kernels.bounds import COUNTS, FIELDS, HARD, LEAST, LEVEL, MOST, PARTS, SHAPE, STEP
from muster.placement.kernels.costs import OF_NODES, measure
from muster.placement.state.trees import Tree

UNBOUNDED: Final = 2**31 - 1
_SHAPES: Final = (LevelPolicy.PACK, LevelPolicy.SPREAD, LevelPolicy.PARTITION)


class Shape(IntEnum):
    """Division of members over the domains of a level within one domain above."""

    PACK = 1
    SPREAD = 2
    PARTITION = 3


@dataclass(frozen=True)
class Rule:
    """The constraints of one level. Sizes of used domains are `least` to `most`, multiples of `step`.

    `level` is an index into the tree's levels. `counts`: the shape was declared, not defaulted to keep nodes free.
    """

    level: int
    shape: Shape = Shape.PACK
    shape_is_hard: bool = False
    parts: int = 0
    least: int = 1
    most: int = UNBOUNDED
    range_is_hard: bool = False
    step: int = 1
    step_is_hard: bool = False
    counts: bool = True

    @cached_property
    def _hash(self) -> int:
        return hash(astuple(self))

    def __hash__(self) -> int:
        """Cached, since rules are looked up in every solve."""
        return self._hash

    @property
    def has_range(self) -> bool:
        return self.least > 1 or self.most < UNBOUNDED

    @property
    def has_step(self) -> bool:
        return self.step > 1

    @property
    def is_hard(self) -> bool:
        """Some constraint of the rule is hard."""
        return self.shape_is_hard or self.range_is_hard or self.step_is_hard

    @cached_property
    def division(self) -> tuple[int, bool, int, int, int]:
        """Shape, whether it is hard, parts, least and step: the inputs of a division."""
        return int(self.shape), self.shape_is_hard, self.parts, self.least, self.step


@cached_by_number(4096)
def table_of(rules: tuple[Rule, ...]) -> Int64:
    """The rules in the format of kernels, int64[rules, fields]; the last is the rule of the nodes."""
    table = np.zeros((len(rules), FIELDS), np.int64)
    for at, rule in enumerate(rules):
        table[at, [SHAPE, HARD, COUNTS, PARTS]] = rule.shape, rule.shape_is_hard, rule.counts, rule.parts
        table[at, [LEVEL, LEAST, MOST, STEP]] = rule.level, rule.least, rule.most, rule.step
    table[-1, LEVEL] = OF_NODES
    return table


@cached_by_number(4096)
def rules_of(constraints: tuple[LevelConstraint, ...], level_names: tuple[str, ...]) -> tuple[Rule, ...]:
    """Rules, top level first; the last is the rule of the nodes. The constraints must not contradict one another."""
    rules: dict[int, Rule] = {}
    for each in constraints:
        level = level_names.index(each.level)
        rules[level] = _with(rules.get(level, Rule(level)), each)
    nodes = len(level_names) - 1
    rules.setdefault(nodes, Rule(nodes, counts=False))
    in_order = [rules[level] for level in sorted(rules)]
    lowest_one = max((at for at, rule in enumerate(in_order) if _is_one_domain(rule)), default=0)
    return tuple(
        replace(rule, shape_is_hard=True) if at < lowest_one and rule.shape is Shape.PACK else rule
        for at, rule in enumerate(in_order)
    )


@cached_by_number(4096)
def relaxed(rules: tuple[Rule, ...]) -> tuple[tuple[Rule, ...], ...]:
    """Relaxations: the rules with soft ranges and factors as hard ones, then with one less at a time, least important
    first. The last has none of them.
    """
    relaxations = [rules]
    for at in range(len(rules) - 1, -1, -1):
        rule = rules[at]
        if rule.has_step and not rule.step_is_hard:
            rule = replace(rule, step=1)
            rules = (*rules[:at], rule, *rules[at + 1 :])
            relaxations.append(rules)
        if rule.has_range and not rule.range_is_hard:
            rules = (*rules[:at], replace(rule, least=1, most=UNBOUNDED), *rules[at + 1 :])
            relaxations.append(rules)
    return tuple(relaxations)


def _with(rule: Rule, constraint: LevelConstraint) -> Rule:
    hard = constraint.hard
    match constraint.policy:
        case LevelPolicy.PACK:
            return replace(rule, shape=Shape.PACK, shape_is_hard=hard)
        case LevelPolicy.SPREAD:
            return replace(rule, shape=Shape.SPREAD, shape_is_hard=hard)
        case LevelPolicy.PARTITION:
            return replace(rule, shape=Shape.PARTITION, shape_is_hard=hard, parts=constraint.count)
        case LevelPolicy.RANGE:
            return replace(rule, least=constraint.minimum, most=constraint.maximum, range_is_hard=hard)
        case LevelPolicy.FACTOR:
            return replace(rule, step=constraint.count, step_is_hard=hard)


def _is_one_domain(rule: Rule) -> bool:
    return rule.shape is Shape.PACK and rule.shape_is_hard


def packed_levels(rules: Sequence[Rule]) -> list[int]:
    """Levels, from the top down, at which all members must be in one domain."""
    return [rule.level for rule in takewhile(_is_one_domain, rules)]


def inside_only(rules: Sequence[Rule]) -> bool:
    """The rules exclude nodes outside of the tree."""
    return any(rule.is_hard for rule in rules[:-1])


def only_hard(group: SolveGroup) -> SolveGroup:
    """The group without soft constraints that do not affect hard ones.

    Hard shapes apply within each domain of constrained levels above. Therefore such levels stay, with their shapes, and
    only soft ranges and factors are removed.
    """
    gangs = (structs.replace(gang, constraints=_hard_constraints(gang.constraints)) for gang in group.gangs)
    return structs.replace(group, gangs=tuple(gangs))


def _hard_constraints(constraints: Sequence[LevelConstraint]) -> tuple[LevelConstraint, ...]:
    if not any(each.hard and each.policy in _SHAPES for each in constraints):
        return tuple(each for each in constraints if each.hard)
    remaining = [each for each in constraints if each.hard or each.policy in _SHAPES]
    levels = dict.fromkeys(each.level for each in constraints)
    shaped = {each.level for each in remaining}
    return *remaining, *(LevelConstraint(level, LevelPolicy.PACK) for level in levels if level not in shaped)


Cost = tuple[int, ...]
"""Smaller is better. Per level, top first: members above or below the range, domains that miss the factor, and the
shape: domains used, sum of squared sizes, or surplus or missing parts and the sum of squared sizes.
"""


def holds(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """`counts` members on `nodes` satisfy all hard rules; `nodes` are ascending indexes into the tree's rows."""
    return all(_holds(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def may_hold(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> bool:
    """Hard rules that `counts` members on `nodes` violate can still be satisfied by placing more members."""
    return not any(_is_unsatisfiable(rule, *measured) for rule, measured in _measured(rules, tree, nodes, counts))


def cost_of(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Cost:
    """The cost of `counts` members on `nodes`, ascending indexes into the tree's rows."""
    cost: list[int] = []
    for rule, (few, many, odd, used, off, squares, _, _) in _measured(rules, tree, nodes, counts):
        cost += few + many, odd
        if rule.shape is Shape.PACK:
            cost.append(used)
        elif rule.shape is Shape.PARTITION:
            cost += off, squares
        else:
            cost.append(squares)
    return tuple(cost)


def _measured(rules: Sequence[Rule], tree: Tree, nodes: Int64, counts: Int64) -> Iterator[tuple[Rule, list[int]]]:
    """The result of `measure` for each declared rule."""
    counting, declared = _asked(tuple(rules), len(tree.levels))
    found = measure(declared, tree.of, np.ascontiguousarray(nodes), np.ascontiguousarray(counts))
    return zip(counting, found.tolist(), strict=True)


@cached_by_number(4096)
def _asked(rules: tuple[Rule, ...], levels: int) -> tuple[tuple[Rule, ...], Int64]:
    """The declared rules, as they are and in the format of `measure`."""
    counting = tuple(rule for rule in rules if rule.counts)
    declared = np.zeros((len(counting), 5), np.int64)
    for at, rule in enumerate(counting):
        level = rule.level if rule.level < levels else OF_NODES
        declared[at] = level, rule.least, rule.most, rule.step, rule.parts
    return counting, declared


def _holds(
    rule: Rule, few: int, many: int, odd: int, used: int, off: int, squares: int, difference: int, most_parts: int
) -> bool:
    if (rule.range_is_hard and few + many) or (rule.step_is_hard and odd):
        return False
    if not rule.shape_is_hard:
        return True
    if rule.shape is Shape.PACK:
        return most_parts <= 1
    return difference <= 1 and (rule.shape is Shape.SPREAD or not off)


def _is_unsatisfiable(
    rule: Rule, few: int, many: int, odd: int, used: int, off: int, squares: int, difference: int, most_parts: int
) -> bool:
    if rule.range_is_hard and many:
        return True
    limited = rule.shape_is_hard and rule.shape is not Shape.SPREAD
    return limited and most_parts > (1 if rule.shape is Shape.PACK else rule.parts)
