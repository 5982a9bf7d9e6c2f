"""What is in the domains of a tree: every node once on each level, room only where pods may go."""

from collections import Counter
from typing import Any

from muster.cli.cluster import Cluster
from muster.cli.format import amount
from muster.cli.tree_figures import Room, tree_figures
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
    figures = tree_figures(tree, there, with_nodes=with_nodes)
    return [
        ("/".join(each.path), each.level, each.room.nodes, each.room.free.get("cpu", 0)) for each in figures.domains
    ]


def test_domains_in_natural_order_with_what_pods_leave_free() -> None:
    assert domains(TREE, cluster()) == [("r2", "rack", 2, 10_000), ("r3", "rack", 0, 0), ("r10", "rack", 1, 8000)]


def test_nodes_stand_below_their_domains() -> None:
    assert domains(TREE, cluster(), with_nodes=True) == [
        ("r2", "rack", 2, 10_000),
        ("r2/b", "node", 1, 2000),
        ("r2/c", "node", 1, 8000),
        ("r3", "rack", 0, 0),
        ("r10", "rack", 1, 8000),
        ("r10/a", "node", 1, 8000),
    ]


def test_p34_nodes_of_only_one_of_tree_and_cluster_are_told_apart() -> None:
    figures = tree_figures(TREE, cluster(), with_nodes=False)
    assert figures.absent == ("gone",)
    assert (figures.whole.nodes, figures.outside.nodes) == (3, 1)
    assert figures.outside.free == {"cpu": 8000, "pods": 110}


def test_nodes_that_take_no_pods_have_nothing_free() -> None:
    offers = (("cpu", 8000),)
    there = cluster(
        b=NodeFacts("b", allocatable=offers, unschedulable=True), c=NodeFacts("c", allocatable=offers, ready=False)
    )
    (r2, *_) = tree_figures(TREE, there, with_nodes=False).domains
    assert r2.room == Room(nodes=2, usable=0, free={"cpu": 0}, allocatable={"cpu": 16_000})


def test_a_node_with_more_on_it_than_it_has_takes_nothing_from_others() -> None:
    there = cluster(b=NodeFacts("b", allocatable=(("cpu", 1000),)))
    assert domains(TREE, there)[0] == ("r2", "rack", 2, 8000)


def test_labels_say_where_nodes_are() -> None:
    labelled = {name: NodeFacts(name, labels={"rack": "r"}, allocatable=(("cpu", 1000),)) for name in ("a", "b")}
    figures = tree_figures(label_tree({"rack": "rack"}), cluster(**labelled), with_nodes=False)
    assert [(each.path, each.room.nodes) for each in figures.domains] == [(("r",), 2)]
    assert (figures.outside.nodes, figures.absent) == (2, ())


def test_a_flat_tree_has_no_domains_but_all_nodes() -> None:
    figures = tree_figures(flat_tree(), cluster(), with_nodes=False)
    assert (figures.domains, figures.whole.nodes, figures.outside.nodes) == ((), 4, 0)


def test_amounts_are_written_as_users_write_them() -> None:
    written = [amount("cpu", 1500), amount("cpu", 96_000), amount("cpu", 15_000_000_000)]
    assert written == ["1.5", "96", "15000000"]
    gibi = 1 << 30
    assert [amount("memory", 64 * gibi), amount("memory", 3 * gibi // 2), amount("memory", 12)] == [
        "64Gi",
        "1.5Gi",
        "12",
    ]
    assert amount("hugepages-2Mi", gibi) == "1Gi"
    assert amount("nvidia.com/gpu", 8) == "8"
