"""Topology trees as arrays: domains, their order, and changes of the cluster."""

import random
from itertools import pairwise

import pytest

from builders.placement.clusters import answers, cluster, node, pod_class, refusal, seats
from builders.placement.trees import answer_to, asking, tree_cluster, tree_of
from muster.gangs.facts import Batch, NodeFacts, TopologyTree, TreeLevel
from muster.placement.state.cluster import Cluster
from muster.placement.state.trees import MAX_TIERS, Tree

BY_LABELS = TopologyTree("labels", (TreeLevel("zone", "z"), TreeLevel("rack", "r"), TreeLevel("node")), default=True)


def labelled(*nodes: tuple[str, str, str]) -> Cluster:
    """Nodes as (name, zone, rack), with capacity for two members each; "" for no label."""
    built = cluster([labelled_node(*each) for each in nodes], [pod_class("x")])
    built.apply(Batch(trees=(BY_LABELS,)))
    return built


def labelled_node(name: str, zone: str, rack: str) -> NodeFacts:
    return node(name, 2, labels={key: value for key, value in (("z", zone), ("r", rack)) if value})


def tree(on: Cluster, name: str = "") -> Tree:
    found = on.state.trees.get(name)
    assert found is not None
    return found


def domains(of: Tree, level: int, on: Cluster) -> dict[str, list[str]]:
    """Path of each domain and its nodes."""
    starts = of.levels[level].starts.tolist()
    names = [on.nodes.name(row) for row in of.rows.tolist()]
    return {of.path(level, index): names[first:last] for index, (first, last) in enumerate(pairwise(starts))}


def test_domains_are_slices_in_the_order_of_their_names() -> None:
    on = tree_cluster("z1(r2(e:8,f:8)) z0(r1(c:4,d:4) r0(b:4,a:4))", "zone rack node")
    assert domains(tree(on), 1, on) == {"z0/r0": ["a", "b"], "z0/r1": ["c", "d"], "z1/r2": ["e", "f"]}
    assert list(domains(tree(on), 0, on)) == ["z0", "z1"]


def test_racks_of_one_name_in_two_zones_are_two() -> None:
    on = labelled(("a", "z0", "r"), ("b", "z1", "r"), ("c", "z0", "r"))
    assert domains(tree(on), 1, on) == {"z0/r": ["a", "c"], "z1/r": ["b"]}


def test_a_node_without_a_label_is_outside() -> None:
    on = labelled(("a", "z0", "r0"), ("b", "", "r0"), ("c", "z0", ""), ("d", "z0", "r0"))
    found = tree(on)
    assert found.inside == 2
    assert domains(found, 1, on) == {"z0/r0": ["a", "d"], "(outside)/b": ["b"], "(outside)/c": ["c"]}


def test_nodes_outside_of_a_tree_of_one_level_come_last() -> None:
    listed, _ = tree_of("a:4,b:4", "node")
    on = cluster([node("a", 4), node("b", 4), node("c", 2)], [pod_class("x")])
    on.apply(Batch(trees=(listed,)))
    assert tree(on).inside == 2
    [within] = answers(on, asking("node: pack", 2))
    assert seats(within) == {"a": 2}
    [beyond] = answers(on, asking("node: hard partition(3)", 3))
    assert seats(beyond) == {"a": 1, "b": 1, "c": 1}


def test_a_changed_label_moves_the_node() -> None:
    on = labelled(("a", "z0", "r0"), ("b", "z0", "r1"))
    assert list(domains(tree(on), 1, on)) == ["z0/r0", "z0/r1"]
    on.apply(Batch(nodes=(labelled_node("b", "z0", "r0"),)))
    assert domains(tree(on), 1, on) == {"z0/r0": ["a", "b"]}


def test_nodes_are_added_and_removed() -> None:
    on = labelled(("a", "z0", "r0"), ("b", "z0", "r1"))
    assert len(tree(on).rows) == 2
    on.apply(Batch(nodes=(labelled_node("c", "z0", "r0"),), removed_nodes=("b",)))
    assert domains(tree(on), 1, on) == {"z0/r0": ["a", "c"]}


def test_a_changed_tree_takes_effect_at_the_next_solve() -> None:
    on = tree_cluster("r0(a:2,b:2) r1(c:2,d:2)")
    [before] = answers(on, asking("rack: hard pack", 6))
    assert refusal(before).proved
    changed, _ = tree_of("r0(a:2,b:2,c:2) r1(d:2)")
    on.apply(Batch(trees=(changed,)))
    [after] = answers(on, asking("rack: hard pack", 6))
    assert set(seats(after)) == {"a", "b", "c"}


def test_the_default_tree_and_named_trees() -> None:
    on = labelled(("a", "z0", "r0"), ("b", "z0", "r1"))
    other = TopologyTree("other", (TreeLevel("row", "r"), TreeLevel("node")))
    on.apply(Batch(trees=(other,)))
    assert tree(on).facts.name == "labels"
    assert tree(on, "other").level_names == ("row", "node")
    assert on.state.trees.get("none") is None
    on.apply(Batch(removed_trees=("labels",)))
    assert tree(on).level_names == ("node",)


class TestOutside:
    """P34: nodes outside of the tree."""

    def test_p34_names_of_nodes_that_do_not_exist_are_ignored(self) -> None:
        on = tree_cluster("r0(a:4,b:4)")
        facts, _ = tree_of("r0(a:4,b:4,ghost:9) r1(phantom:9)")
        on.apply(Batch(trees=(facts,)))
        [answer] = answers(on, asking("rack: pack", 8))
        assert seats(answer) == {"a": 4, "b": 4}

    @pytest.mark.parametrize("members", [3, 4])
    def test_p34_a_node_in_no_domain_is_used_last(self, members: int) -> None:
        on = tree_cluster("r0(a:1,b:2)")
        on.apply(Batch(nodes=(node("stray", 9, memory=0),)))
        [answer] = answers(on, asking("rack: pack; node: spread", members))
        assert ("stray" in seats(answer)) == (members > 3)

    @pytest.mark.parametrize(
        "constraints", ["rack: hard pack", "rack: hard range(1,9)", "rack: spread, hard factor(4)"]
    )
    def test_p34_it_is_not_used_under_a_hard_constraint_above_the_nodes(self, constraints: str) -> None:
        on = tree_cluster("r0(a:1,b:2)")
        on.apply(Batch(nodes=(node("stray", 9, memory=0),)))
        [answer] = answers(on, asking(constraints, 4))
        assert refusal(answer).proved

    def test_p34_it_is_used_under_a_hard_constraint_on_nodes(self) -> None:
        on = tree_cluster("r0(a:1,b:2)")
        on.apply(Batch(nodes=(node("stray", 9, memory=0),)))
        [answer] = answers(on, asking("node: hard range(1,3)", 5))
        assert seats(answer)["stray"] == 2


def test_arrays_do_not_depend_on_the_order_of_nodes() -> None:
    text = "z0(r0(a:1,b:1) r1(c:1)) z1(r2(d:1,e:1) r3(f:1))"
    names = ["a", "b", "c", "d", "e", "f"]
    on = tree_cluster(text, "zone rack node")
    expected = domains(tree(on), 1, on)
    for seed in range(20):
        random.Random(seed).shuffle(names)
        on = tree_cluster(text, "zone rack node", shuffled=names)
        assert domains(tree(on), 1, on) == expected


def test_node_preferences_break_ties_after_constraints() -> None:
    # Nodes with a GPU have a penalty; one rack with GPUs is better than two without.
    on = tree_cluster("r0(a:2) r1(b:2) r2(c:4)")
    on.apply(Batch(nodes=(node("c", 4, memory=0, gpu=1), node("d", 4, memory=0, gpu=1))))
    [packed] = answers(on, asking("rack: pack", 4))
    assert seats(packed) == {"c": 4}
    [spread] = answers(on, asking("rack: partition(2)", 4))
    assert seats(spread) == {"a": 2, "b": 2}


def test_surplus_members_are_placed_within_hard_constraints() -> None:
    answer = answer_to("r0(a:4,b:4) r1(c:5,d:5)", "rack: hard pack; node: hard factor(4)", 12, minimum=4)
    assert seats(answer) == {"a": 4, "b": 4}


def test_i11_tiers_of_few_sets_of_levels_are_kept() -> None:
    levels = tuple(f"l{number}" for number in range(10))
    on = cluster([node("a", 2, labels=dict.fromkeys(levels, "x"))], [pod_class("x")])
    deep = TopologyTree("labels", (*(TreeLevel(each, each) for each in levels), TreeLevel("node")), default=True)
    on.apply(Batch(trees=(deep,)))
    of = tree(on)
    for chosen in range(1, 2 ** len(levels)):
        upper = [level for level in range(len(levels)) if chosen >> level & 1]
        assert len(of.tiers([*upper, len(levels)], 1).below) == len(upper)
    assert len(vars(of)["_tiers"]) <= MAX_TIERS
