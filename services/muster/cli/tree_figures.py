"""What is in the domains of a topology tree: nodes, and what is free on them."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from muster.cli.cluster import Cluster
from muster.gangs.facts import NodeFacts, TopologyTree
from muster.topology.ranks import Path, natural_order
from muster.topology.trees import Whereabouts, is_listed


@dataclass
class Room:
    """Of nodes together; only those that take pods, which are ready and not cordoned, have anything free."""

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
    """A domain, or a node, by its path from the top of the tree."""

    path: Path
    level: str
    room: Room


@dataclass(frozen=True)
class TreeFigures:
    """A tree with its domains, each followed by those in it, in the natural order of names."""

    tree: TopologyTree
    domains: tuple[Domain, ...]
    whole: Room
    outside: Room
    """Nodes that are not in the tree."""
    absent: tuple[str, ...]
    """Nodes of the tree that are not in the cluster."""


def tree_figures(tree: TopologyTree, cluster: Cluster, *, with_nodes: bool) -> TreeFigures:
    """What is in the tree; nodes one by one only if asked for."""
    where = Whereabouts(tree)
    rooms: dict[Path, Room] = {path: Room() for path in _listed(tree)}
    whole, outside = Room(), Room()
    for node in cluster.nodes.values():
        path, free = where.path(node.name, node.labels), cluster.free(node)
        if path is None:
            outside.add(node, free)
            continue
        whole.add(node, free)
        above = (*path, node.name) if with_nodes else path
        for depth in range(1, len(above) + 1):
            rooms.setdefault(above[:depth], Room()).add(node, free)
    domains = tuple(
        Domain(path, tree.levels[len(path) - 1].name, rooms[path])
        for path in sorted(rooms, key=lambda path: [natural_order(name) for name in path])
    )
    absent = tuple(sorted(where.absent(cluster.nodes), key=natural_order))
    return TreeFigures(tree, domains, whole, outside, absent)


def _listed(tree: TopologyTree) -> Iterator[Path]:
    """Domains that the tree lists, also those without nodes."""
    paths: list[Path] = []
    if is_listed(tree):
        for domain in tree.domains:
            paths.append((*(paths[domain.parent] if domain.parent >= 0 else ()), domain.name))
    yield from paths
