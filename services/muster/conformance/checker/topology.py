"""Checks hard topology constraints: how the members of a gang are divided over the domains of a tree."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from muster.conformance.cluster import Cluster
from muster.gangs.facts import LevelConstraint, LevelPolicy, NodeFacts, TopologyTree

Path = tuple[str, ...]
"""Domains from the top level down to the node."""

OUTSIDE: Final = "(outside the tree)"
_SIZES: Final = (LevelPolicy.RANGE, LevelPolicy.FACTOR)


def tree_of(cluster: Cluster, name: str) -> TopologyTree | None:
    """The tree of that name; "" is the default tree or, without one, a tree of nodes only."""
    if name:
        return cluster.trees.get(name)
    return next((tree for tree in cluster.trees.values() if tree.default), TopologyTree(""))


def paths(cluster: Cluster, tree: TopologyTree) -> dict[str, Path]:
    """The path of each node; a node outside the tree is a domain of its own at every level."""
    above = tree.levels[:-1]
    listed = dict(tree.leaves) if tree.leaves else {}
    found = {}
    for name, node in cluster.nodes.items():
        if any(level.label_key for level in above):
            path = _by_labels(tree, node)
        else:
            path = _by_domains(tree, listed[name]) if name in listed else None
        single_gang = tuple(f"{OUTSIDE} {name}" for _ in above)
        found[name] = (*(single_gang if path is None and above else path or ()), name)
    return found


def members_by_domain(sizes: Mapping[str, int], found: Mapping[str, Path], depth: int) -> dict[Path, int]:
    """Members by domain at a depth of the tree, from members by node."""
    by_domain: Counter[Path] = Counter()
    for node, count in sizes.items():
        by_domain[found[node][: depth + 1]] += count
    return {domain: count for domain, count in by_domain.items() if count}


def violated_constraints(
    cluster: Cluster,
    tree_name: str,
    constraints: Iterable[LevelConstraint],
    sizes: Mapping[str, int],
    judged: Container[LevelPolicy] = tuple(LevelPolicy),
) -> list[str]:
    """Violations of hard constraints by members by node; only the policies in `judged` are checked."""
    tree = tree_of(cluster, tree_name)
    if tree is None:
        return [f"there is no tree {tree_name!r}"]
    depth_of = {level.name: depth for depth, level in enumerate(tree.levels)}
    by_depth: dict[int, list[LevelConstraint]] = {}
    for constraint in constraints:
        if constraint.level not in depth_of:
            return [f"there is no level {constraint.level!r}"]
        by_depth.setdefault(depth_of[constraint.level], []).append(constraint)
    hard = _hard(by_depth)
    found = paths(cluster, tree)
    problems = []
    if any(depth < len(tree.levels) - 1 for depth in hard):
        problems += [f"node {node!r} is outside the tree" for node in sizes if found[node][0].startswith(OUTSIDE)]
    above = -1
    for depth in sorted(by_depth):
        domains = members_by_domain(sizes, found, depth)
        parents = {path[: above + 1] for path in domains}
        for parent in sorted(parents):
            inside = {path: count for path, count in domains.items() if path[: above + 1] == parent}
            problems += [
                f"{_describe(each)} is violated{_within(parent)}: {_sizes(inside)}"
                for each in hard.get(depth, ())
                if each.policy in judged and not _satisfied(each, list(inside.values()))
            ]
        above = depth
    return problems


def _hard(by_depth: Mapping[int, Sequence[LevelConstraint]]) -> dict[int, list[LevelConstraint]]:
    """Hard constraints by depth. A level with sizes but no shape is packed; a hard pack makes packs above it hard."""
    hard: dict[int, list[LevelConstraint]] = {}
    packs_below = False
    for depth in sorted(by_depth, reverse=True):
        constraints = list(by_depth[depth])
        if all(each.policy in _SIZES for each in constraints):
            constraints.append(LevelConstraint(constraints[0].level, LevelPolicy.PACK))
        found = [each for each in constraints if each.hard or (packs_below and each.policy is LevelPolicy.PACK)]
        if found:
            hard[depth] = found
        packs_below = packs_below or any(each.policy is LevelPolicy.PACK for each in found)
    return hard


def _satisfied(constraint: LevelConstraint, counts: Sequence[int]) -> bool:
    even = max(counts) - min(counts) <= 1
    match constraint.policy:
        case LevelPolicy.PACK:
            return len(counts) == 1
        case LevelPolicy.SPREAD:
            return even
        case LevelPolicy.PARTITION:
            return len(counts) == constraint.count and even
        case LevelPolicy.RANGE:
            return all(constraint.minimum <= count <= constraint.maximum for count in counts)
        case LevelPolicy.FACTOR:
            return all(count % constraint.count == 0 for count in counts)


def _by_labels(tree: TopologyTree, node: NodeFacts) -> Path | None:
    values = tuple(node.labels.get(level.label_key) for level in tree.levels[:-1])
    return None if None in values else tuple(value for value in values if value is not None)


def _by_domains(tree: TopologyTree, domain: int) -> Path:
    path: Path = ()
    while domain >= 0:
        path = (tree.domains[domain].name, *path)
        domain = tree.domains[domain].parent
    return path


def _describe(constraint: LevelConstraint) -> str:
    return f"{constraint.level}: hard {constraint.policy.name.lower()}"


def _within(parent: Path) -> str:
    return f" in {'/'.join(parent)}" if parent else ""


def _sizes(domains: Mapping[Path, int]) -> str:
    return ", ".join(f"{count} in {'/'.join(path)}" for path, count in sorted(domains.items()))
