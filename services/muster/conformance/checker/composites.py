"""Checks composites: how many of their children are placed, and that their members share a domain."""

from collections.abc import Mapping

from muster.conformance.checker.topology import OUTSIDE, paths, tree_of
from muster.conformance.cluster import Cluster
from muster.placement.v1 import placement_pb2 as pb


def gangs_that_may_be_missing(group: pb.GangGroup) -> set[str]:
    """Ids of gangs in composites, which need not be placed on their own account."""
    return {gang.id for gang in group.gangs if gang.composite}


def violated_composites(cluster: Cluster, group: pb.GangGroup, result: pb.GroupResult) -> list[str]:
    """Violations by the members that the result places, one sentence each."""
    nodes: dict[str, dict[str, int]] = {gang.id: {} for gang in group.gangs}
    for each in result.assignments:
        nodes[each.gang][each.node] = nodes[each.gang].get(each.node, 0) + each.count
    problems: list[str] = []
    complete: set[int] = set()
    for number in range(len(group.composites), 0, -1):
        composite = group.composites[number - 1]
        below = _gangs_below(group, number)
        children = sum(bool(nodes[gang.id]) for gang in group.gangs if gang.composite == number)
        children += sum(at in complete for at, each in enumerate(group.composites, 1) if each.parent == number)
        members = sum(sum(nodes[gang].values()) for gang in below)
        found = _domain_violation(cluster, composite, [nodes[gang] for gang in below])
        if children < composite.minimum:
            found.append(f"{children} children are placed, but it needs {composite.minimum}")
        if members < composite.minimum_members:
            found.append(f"{members} members are placed, but it needs {composite.minimum_members}")
        if not found:
            complete.add(number)
        elif members or not composite.parent:
            problems += [f"composite {number}: {each}" for each in found]
    return problems


def _gangs_below(group: pb.GangGroup, number: int) -> list[str]:
    inside = {number}
    for at, each in enumerate(group.composites, 1):
        if each.parent in inside:
            inside.add(at)
    return [gang.id for gang in group.gangs if gang.composite in inside]


def _domain_violation(cluster: Cluster, composite: pb.Composite, sizes: list[Mapping[str, int]]) -> list[str]:
    used = {node for each in sizes for node in each}
    tree = tree_of(cluster, composite.tree)
    if not composite.level or not used or tree is None:
        return []
    found = paths(cluster, tree)
    depth = [level.name for level in tree.levels].index(composite.level) + 1
    outside = [f"node {node!r} is outside the tree" for node in sorted(used) if found[node][0].startswith(OUTSIDE)]
    domains = {found[node][:depth] for node in used.union(composite.placed) if node in found}
    several = [f"its members are in {len(domains)} domains of level {composite.level}"] if len(domains) > 1 else []
    return outside + several
