"""Capacity of the domains of a topology tree: nodes, allocatable and free resources."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.cli.cluster_state import Cluster
from muster.gangs.facts import NodeFacts, TopologyTree
from muster.topology.ranks import Path, natural_order
from muster.topology.trees import TreePaths, is_listed


@dataclass
class DomainCapacity:
    """Sum over nodes. Only schedulable nodes, which are ready and not cordoned, have free resources."""

    nodes: int = 0
    usable: int = 0
    free: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)

    def add(self, node: NodeFacts, free: dict[str, int]) -> None:
        usable = node.ready and not node.unschedulable
        self.nodes += 1
        self.usable += usable
        for resource, number in node.allocatable:
            self.allocatable[resource] = self.allocatable.get(resource, 0) + number
            self.free[resource] = self.free.get(resource, 0) + (max(0, free[resource]) if usable else 0)


@dataclass(frozen=True)
class Domain:
    """A domain or a node, by its path from the root of the tree."""

    path: Path
    level: str
    capacity: DomainCapacity


@dataclass(frozen=True)
class TreeCapacity:
    """A tree with its domains, each followed by its subdomains, in the natural order of names."""

    tree: TopologyTree
    domains: tuple[Domain, ...]
    whole: DomainCapacity
    outside: DomainCapacity
    """Nodes that are not in the tree."""
    absent: tuple[str, ...]
    """Names of nodes that the tree lists and the cluster does not have."""


def tree_capacity(tree: TopologyTree, cluster: Cluster, *, with_nodes: bool) -> TreeCapacity:
    """Capacity of every domain of the tree, and with `with_nodes` of every node."""
    where = TreePaths(tree)
    capacities: dict[Path, DomainCapacity] = {path: DomainCapacity() for path in _listed(tree)}
    whole, outside = DomainCapacity(), DomainCapacity()
    for node in cluster.nodes.values():
        path, free = where.path(node.name, node.labels), cluster.free(node)
        if path is None:
            outside.add(node, free)
            continue
        whole.add(node, free)
        counted = (*path, node.name) if with_nodes else path
        for depth in range(1, len(counted) + 1):
            capacities.setdefault(counted[:depth], DomainCapacity()).add(node, free)
    domains = tuple(
        Domain(path, tree.levels[len(path) - 1].name, capacities[path])
        for path in sorted(capacities, key=lambda path: [natural_order(name) for name in path])
    )
    absent = tuple(sorted(where.absent(cluster.nodes), key=natural_order))
    return TreeCapacity(tree, domains, whole, outside, absent)


def _listed(tree: TopologyTree) -> Iterator[Path]:
    """Domains that the tree lists, including those without nodes."""
    paths: list[Path] = []
    if is_listed(tree):
        for domain in tree.domains:
            paths.append((*(paths[domain.parent] if domain.parent >= 0 else ()), domain.name))
    yield from paths
