"""Capacity of domains: every node counts once per level, and only schedulable nodes have free capacity."""

from collections import Counter
from typing import Any

from muster.cli.cluster_state import Cluster
from muster.cli.domain_capacity import DomainCapacity, tree_capacity
from muster.gangs.facts import Amounts, NodeFacts, TopologyTree
from muster.topology.sakkara import read_tree
from muster.topology.trees import flat_tree, label_tree

TREE = read_tree({"tree": '{"r10": {"a": {}}, "r2": {"b": {}, "c": {}, "gone": {}}, "r3": {}}'})


def cluster(**changed: Any) -> Cluster:
    """Four nodes of 8 cpus; two pods of 3 cpus on b."""
    names = ("a", "b", "c", "x")
    nodes = {name: NodeFacts(name, allocatable=(("cpu", 8000), ("pods", 110))) for name in names}
    requests: dict[str, Amounts] = {"k": (("cpu", 3000), ("nvidia.com/gpu", 1), ("pods", 1))}
    return Cluster(nodes={**nodes, **changed}, requests=requests, seated={"b": Counter(k=2)})


def domains(tree: TopologyTree, there: Cluster, *, with_nodes: bool = False) -> list[tuple[str, str, int, int]]:
    """Path, level, nodes and free cpu."""
    found = tree_capacity(tree, there, with_nodes=with_nodes).domains
    return [("/".join(each.path), each.level, each.capacity.nodes, each.capacity.free.get("cpu", 0)) for each in found]


def test_domains_are_in_natural_order_with_free_capacity() -> None:
    assert domains(TREE, cluster()) == [("r2", "rack", 2, 10_000), ("r3", "rack", 0, 0), ("r10", "rack", 1, 8000)]


def test_nodes_are_below_their_domains() -> None:
    assert domains(TREE, cluster(), with_nodes=True) == [
        ("r2", "rack", 2, 10_000),
        ("r2/b", "node", 1, 2000),
        ("r2/c", "node", 1, 8000),
        ("r3", "rack", 0, 0),
        ("r10", "rack", 1, 8000),
        ("r10/a", "node", 1, 8000),
    ]


def test_p34_nodes_outside_the_tree_and_absent_nodes_are_counted() -> None:
    capacity = tree_capacity(TREE, cluster(), with_nodes=False)
    assert capacity.absent == ("gone",)
    assert (capacity.whole.nodes, capacity.outside.nodes) == (3, 1)
    assert capacity.outside.free == {"cpu": 8000, "pods": 110}


def test_unschedulable_nodes_have_no_free_capacity() -> None:
    offers = (("cpu", 8000),)
    there = cluster(
        b=NodeFacts("b", allocatable=offers, unschedulable=True), c=NodeFacts("c", allocatable=offers, ready=False)
    )
    (r2, *_) = tree_capacity(TREE, there, with_nodes=False).domains
    assert r2.capacity == DomainCapacity(nodes=2, usable=0, free={"cpu": 0}, allocatable={"cpu": 16_000})


def test_an_overcommitted_node_does_not_reduce_others() -> None:
    there = cluster(b=NodeFacts("b", allocatable=(("cpu", 1000),)))
    assert domains(TREE, there)[0] == ("r2", "rack", 2, 8000)


def test_labels_place_nodes_in_domains() -> None:
    labelled = {name: NodeFacts(name, labels={"rack": "r"}, allocatable=(("cpu", 1000),)) for name in ("a", "b")}
    capacity = tree_capacity(label_tree({"rack": "rack"}), cluster(**labelled), with_nodes=False)
    assert [(each.path, each.capacity.nodes) for each in capacity.domains] == [(("r",), 2)]
    assert (capacity.outside.nodes, capacity.absent) == (2, ())


def test_a_flat_tree_has_all_nodes_and_no_domains() -> None:
    capacity = tree_capacity(flat_tree(), cluster(), with_nodes=False)
    assert (capacity.domains, capacity.whole.nodes, capacity.outside.nodes) == ((), 4, 0)
