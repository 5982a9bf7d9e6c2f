"""Whether members are divided over a topology tree as their gang's hard constraints demand: answers are checked.

What is checked is what holds however a solver may read the rules: how many domains are used, and how equally, is only
judged where everything is in one domain above.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from muster.coordinator.core.gang import Gang
from muster.coordinator.core.trees import Trees
from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts
from muster.topology.constraints import in_words
from muster.topology.ranks import Path

Sizes = Mapping[Path, Counter[Path]]
"""Members by domain, in each of the domains of the constrained level above."""


def broken_constraint(
    gang: Gang,
    trees: Trees,
    nodes: Mapping[str, NodeFacts],
    before: Counter[str],
    after: Counter[str],
    *,
    whole: bool,
) -> str | None:
    """The first hard constraint that does not hold, in words; None: all do. `before` and `after` are members by node.

    What was broken before, by nodes that went elsewhere or members that ended, is not held against the answer. Unless
    `whole`, more members are to come, and only what they cannot mend counts.
    """
    tree = trees.get(gang.facts.tree) if gang.facts is not None else None
    if tree is None:
        return None
    levels = [level.name for level in tree.levels]
    constrained = sorted({levels.index(each.level) for each in gang.constraints if each.level in levels})
    paths = {node: trees.path(tree, nodes[node]) for node in after if node in nodes}
    for each in gang.constraints:
        if not each.hard or each.level not in levels or not (whole or each.policy is LevelPolicy.PACK):
            continue
        level = levels.index(each.level)
        above = max((index for index in constrained if index < level), default=-1)
        if _holds(each, _sizes(after, paths, above, level)):
            continue
        if not before or _holds(each, _sizes(before, paths, above, level)):
            return f'it divides the members in a way that "{in_words(each)}" forbids'
    return None


def _sizes(members: Counter[str], paths: Mapping[str, Path], above: int, level: int) -> Sizes:
    sizes: defaultdict[Path, Counter[Path]] = defaultdict(Counter)
    for node, count in members.items():
        if (path := paths.get(node)) is not None:
            sizes[path[: above + 1]][path[: level + 1]] += count
    return sizes


def _holds(constraint: LevelConstraint, sizes: Sizes) -> bool:
    every = [size for domains in sizes.values() for size in domains.values()]
    match constraint.policy:
        case LevelPolicy.PACK:
            return all(len(domains) == 1 for domains in sizes.values())
        case LevelPolicy.SPREAD:
            return len(sizes) > 1 or _even(every)
        case LevelPolicy.PARTITION:
            return len(sizes) > 1 or (len(every) == constraint.count and _even(every))
        case LevelPolicy.RANGE:
            return all(constraint.minimum <= size <= constraint.maximum for size in every)
        case LevelPolicy.FACTOR:
            return all(size % max(1, constraint.count) == 0 for size in every)


def _even(sizes: Iterable[int]) -> bool:
    sizes = list(sizes)
    return not sizes or max(sizes) - min(sizes) <= 1
