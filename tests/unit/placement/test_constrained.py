"""Heterogeneous gangs and gang groups under topology constraints: placements and explanations."""

import random

import pytest

from builders.placement.clusters import (
    answers,
    cluster,
    node,
    pod_class,
    potential_victim,
    refusal,
    removals,
    seats,
    seats_of,
)
from builders.placement.trees import tree_cluster, tree_of
from muster.gangs.facts import Batch, NodeFacts, TopologyTree, TreeDomain, TreeLevel
from muster.gangs.solve import PodsOnNode, PotentialVictim, Role, SolveGang, SolveGroup
from muster.placement.explain.explainer import Explainer
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.constrained import place_constrained
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced, Placed, parts_of
from muster.placement.state.cluster import Cluster
from muster.topology.constraints import parse_constraints

LARGE = pod_class("large", 3)
CLASSES = (LARGE, pod_class("two", 2))


def mixed(
    constraints: str,
    *roles: tuple[str, int],
    name: str = "g",
    minimum: int | None = None,
    tree: str = "",
    placed: dict[str, int] | None = None,
) -> SolveGang:
    """A gang with roles as (class, wanted); members in `placed` are of class x."""
    wanted = sum(count for _, count in roles)
    return SolveGang(
        name,
        wanted if minimum is None else minimum,
        tuple(Role(*role) for role in roles),
        tree,
        parse_constraints(constraints) if constraints else (),
        tuple(PodsOnNode(on, "x", count) for on, count in (placed or {}).items()),
    )


def answer_on(tree: str, *gangs: SolveGang, levels: str = "rack node", partial: bool = False) -> Answer:
    [answer] = answers(tree_cluster(tree, levels, classes=CLASSES), SolveGroup("g", gangs, partial))
    return answer


def test_p21_both_roles_fit_in_one_rack() -> None:
    answer = answer_on("r0(a:3) r1(b:3,c:1) r2(d:9)", mixed("rack: pack", ("large", 1), ("x", 1)))
    assert (seats_of(answer, 0), seats_of(answer, 1)) == ({"b": 1}, {"c": 1})


def test_p22_pods_without_gpu_requests_avoid_gpu_nodes_in_the_rack() -> None:
    nodes = [node("gpu", 64, gpu=8), node("plain-0", 64), node("plain-1", 64), node("other", 64)]
    racks = (TreeDomain("r0", 0), TreeDomain("r1", 0))
    leaves = (("gpu", 0), ("plain-0", 0), ("plain-1", 0), ("other", 1))
    tree = TopologyTree("t", (TreeLevel("rack"), TreeLevel("node")), racks, leaves, default=True)
    built = cluster(nodes, [pod_class("x", 8, gpu=2), pod_class("y", 32)])
    built.apply(Batch(trees=(tree,)))
    [answer] = answers(built, SolveGroup("g", (mixed("rack: pack", ("x", 4), ("y", 4)),)))
    assert seats_of(answer, 0) == {"gpu": 4}
    assert seats_of(answer, 1) == {"plain-0": 2, "plain-1": 2}


def test_p24_perfect_packing_within_one_rack() -> None:
    classes = [pod_class(str(cpu), cpu) for cpu in (3, 4, 5, 6)]
    built = tree_cluster("r0(a:9,b:9,c:12) r1(d:10,e:10,f:10)", classes=classes)
    asked = mixed("rack: hard pack", ("6", 1), ("5", 2), ("4", 2), ("3", 2))
    [answer] = answers(built, SolveGroup("g", (asked,)))
    assert set(seats(answer)) == {"d", "e", "f"}


def test_sizes_count_members_of_all_classes() -> None:
    answer = answer_on("r0(a:9) r1(b:9) r2(c:9)", mixed("rack: partition(3)", ("large", 2), ("x", 4)))
    assert seats(answer) == {"a": 2, "b": 2, "c": 2}


def test_placed_members_of_any_class_count() -> None:
    answer = answer_on("r0(a:9) r1(b:9)", mixed("rack: partition(2)", ("large", 1), ("two", 1), placed={"a": 2}))
    assert seats(answer) == {"b": 2}


def test_an_infeasible_hard_pack_over_classes_is_proved_and_explained() -> None:
    refused = refusal(answer_on("r0(a:4) r1(b:4)", mixed("rack: hard pack", ("large", 1), ("two", 1))))
    assert refused.proved
    assert refused.explanation.remedy == 'it would fit if the constraint "rack: hard pack" were soft'
    assert (refused.explanation.fit, refused.explanation.needed) == (1, 2)


def test_lack_of_capacity_is_not_attributed_to_constraints() -> None:
    refused = refusal(answer_on("r0(a:4) r1(b:4)", mixed("rack: pack", ("large", 3))))
    assert refused.proved
    assert "soft" not in refused.explanation.remedy


def test_without_budget_nothing_is_proved() -> None:
    built = tree_cluster("r0(a:4,b:4) r1(c:4,d:4)", classes=CLASSES)
    built.state.refresh()
    group = SolveGroup("g", (mixed("rack: hard partition(2); node: hard factor(2)", ("large", 3), ("two", 1)),))
    answer = place_constrained(built.state, group, parts_of(group), Explainer(built.state), Budget(0))
    assert isinstance(answer, NotPlaced)
    assert not answer.proved
    assert refusal(answers(built, group)[0]).proved


def test_p34_nodes_outside_of_the_tree_are_a_last_resort() -> None:
    built = tree_cluster("r0(a:2,b:2)", classes=CLASSES)
    built.apply(Batch(nodes=(node("stray", 9),)))
    soft, hard = mixed("rack: pack", ("two", 1), ("x", 2)), mixed("rack: hard pack", ("two", 1), ("x", 3))
    assert set(seats(answers(built, SolveGroup("g", (soft,)))[0])) <= {"a", "b"}
    assert refusal(answers(built, SolveGroup("g", (hard,)))[0]).proved
    [answer] = answers(built, SolveGroup("g", (mixed("rack: pack", ("two", 1), ("x", 3)),)))
    assert seats(answer)["stray"] == 1


def test_p36_no_nodes_is_infeasible_and_proved() -> None:
    built = cluster([], [pod_class("x"), *CLASSES])
    assert refusal(answers(built, SolveGroup("g", (mixed("node: hard pack", ("two", 1), ("x", 2)),)))[0]).proved


def test_each_gang_of_a_group_has_its_own_constraints() -> None:
    together = mixed("rack: hard pack", ("x", 4), name="together")
    apart = mixed("rack: hard partition(2)", ("x", 4), name="apart")
    answer = answer_on("r0(a:4,b:2) r1(c:2)", together, apart)
    assert isinstance(answer, Placed)
    of = {
        name: {assignment.node: assignment.count for assignment in answer.assignments if assignment.gang == name}
        for name in ("together", "apart")
    }
    assert sum(of["together"].values()) == 4
    assert set(of["together"]) <= {"a", "b"}
    assert of["apart"]["c"] == 2
    assert sum(of["apart"].values()) == 4


def test_gangs_of_a_group_may_use_different_trees() -> None:
    racks, _ = tree_of("r0(a:2,b:2) r1(c:2,d:2)")
    rows = TopologyTree(
        "rows",
        (TreeLevel("row"), TreeLevel("node")),
        (TreeDomain("w0", 0), TreeDomain("w1", 0)),
        (("a", 0), ("c", 0), ("b", 1), ("d", 1)),
    )
    built = tree_cluster("r0(a:2,b:2) r1(c:2,d:2)", classes=CLASSES)
    built.apply(Batch(trees=(racks, rows)))
    in_rack = mixed("rack: hard pack", ("x", 2), name="in-rack")
    in_row = mixed("row: hard pack", ("x", 3), name="in-row", tree="rows")
    [answer] = answers(built, SolveGroup("g", (in_rack, in_row)))
    assert isinstance(answer, Placed)
    nodes = {
        gang: {assignment.node for assignment in answer.assignments if assignment.gang == gang}
        for gang in ("in-rack", "in-row")
    }
    assert nodes["in-rack"] <= {"a", "b"} or nodes["in-rack"] <= {"c", "d"}
    assert nodes["in-row"] in ({"a", "c"}, {"b", "d"})


def test_first_roles_come_before_best_fit() -> None:
    answer = answer_on("r0(a:1,b:2)", mixed("node: hard pack", ("two", 1), ("x", 1), minimum=1))
    assert seats_of(answer, 0) == {"b": 1}


def test_unconstrained_gangs_leave_the_tree_to_constrained_ones() -> None:
    built = tree_cluster("r0(a:2,b:2) r1(c:1) r2(d:1)", classes=CLASSES)
    built.apply(Batch(nodes=(node("stray", 2),)))
    free, packed = mixed("", ("two", 1), name="free"), mixed("rack: pack", ("x", 4), name="packed")
    [answer] = answers(built, SolveGroup("g", (free, packed)))
    assert seats(answer) == {"stray": 1, "a": 2, "b": 2}


def two_trees() -> Cluster:
    built = tree_cluster("r0(a:2,b:3) r1(c:1)", classes=CLASSES)
    rows = (TreeDomain("w0", 0), TreeDomain("w1", 0))
    leaves = (("a", 0), ("b", 1), ("c", 0))
    built.apply(Batch(trees=(TopologyTree("rows", (TreeLevel("row"), TreeLevel("node")), rows, leaves),)))
    return built


def test_gangs_on_different_trees_are_tried_in_several_orders() -> None:
    """The first gang would take the node that the other one needs."""
    first = mixed("node: hard pack", ("x", 2), name="first")
    other = mixed("row: hard pack; node: hard range(1,2)", ("x", 3), name="other", tree="rows")
    [answer] = answers(two_trees(), SolveGroup("g", (first, other)))
    assert isinstance(answer, Placed)


def test_unconstrained_gangs_are_solved_with_constrained_ones() -> None:
    free, packed = mixed("", ("x", 3), name="free"), mixed("row: hard pack", ("x", 4), name="packed", tree="rows")
    assert refusal(answers(two_trees(), SolveGroup("g", (free, packed)))[0]).proved


def test_failure_on_different_trees_proves_nothing() -> None:
    first = mixed("node: hard pack", ("x", 3), name="first")
    other = mixed("row: hard pack; node: hard pack", ("x", 3), name="other", tree="rows")
    assert not refusal(answers(two_trees(), SolveGroup("g", (first, other)))[0]).proved


def test_a_partial_placement_can_be_completed_later() -> None:
    tree = "r0(a:4,b:1) r1(c:3,d:3)"
    asked = mixed("rack: hard pack", ("large", 2), ("x", 4))
    answer = answer_on(tree, asked, partial=True)
    assert isinstance(answer, PartiallyPlaced)
    assert set(seats(answer)) in ({"a", "b"}, {"c", "d"})


def test_a_partial_placement_respects_a_hard_partition() -> None:
    tree = "r0(a:1) r1(b:2) r2(c:2)"
    answer = answer_on(tree, mixed("rack: hard partition(2)", ("large", 1), ("x", 5)), partial=True)
    assert isinstance(answer, PartiallyPlaced)
    assert seats(answer) == {"b": 2, "c": 2}


def test_a_partial_homogeneous_gang_stays_in_one_rack() -> None:
    answer = answer_on("r0(a:4,b:1) r1(c:3,d:3)", mixed("rack: hard pack", ("x", 8)), partial=True)
    assert isinstance(answer, PartiallyPlaced)
    assert seats(answer) == {"c": 3, "d": 3}


def test_a_partial_placement_maximises_members_toward_minimums() -> None:
    few, many = mixed("node: pack", ("large", 1), name="few"), mixed("node: pack", ("x", 4), name="many")
    answer = answer_on("r0(a:3)", few, many, partial=True)
    assert isinstance(answer, PartiallyPlaced)
    assert {assignment.gang for assignment in answer.assignments} == {"many"}


def test_p38_victims_free_one_rack() -> None:
    """Both gangs hold four seats, but only the second one holds them in one rack."""
    low = [
        potential_victim("across", ("a", "x", 2), ("c", "x", 2)),
        potential_victim("in-one", ("a", "x", 2), ("b", "x", 2)),
    ]
    built = full("r0(a:4,b:2) r1(c:2,d:0)", low)
    [answer] = answers(built, SolveGroup("g", (mixed("rack: hard pack", ("x", 4)),)), removing=low)
    assert removals(answer) == {"in-one": (True, {"a": 2, "b": 2})}
    [answer] = answers(built, SolveGroup("g", (mixed("rack: pack", ("x", 4)),)), removing=low)
    assert removals(answer) == {"across": (True, {"a": 2, "c": 2})}, "nobody goes for a soft constraint"


def test_p38_no_victims_on_nodes_that_hard_constraints_exclude() -> None:
    """The first gang's seats are on a node outside of the tree."""
    low = [potential_victim("outside", ("stray", "x", 4)), potential_victim("inside", ("a", "x", 4))]
    built = full("r0(a:4)", low, node("stray", 4))
    [answer] = answers(built, SolveGroup("g", (mixed("rack: hard pack", ("x", 4)),)), removing=low)
    assert removals(answer) == {"inside": (True, {"a": 4})}


def test_p38_victims_are_in_the_domain_of_placed_members() -> None:
    low = [potential_victim("elsewhere", ("b", "x", 3)), potential_victim("here", ("a", "x", 3))]
    built = full("r0(a:5) r1(b:3)", low, also=(("mate/0", "x", "a"), ("mate/1", "x", "a")))
    growing = mixed("rack: hard pack", ("x", 3), placed={"a": 2})
    [answer] = answers(built, SolveGroup("g", (growing,)), removing=low)
    assert removals(answer) == {"here": (True, {"a": 3})}


def full(
    text: str, gangs: list[PotentialVictim], *others: NodeFacts, also: tuple[tuple[str, str, str], ...] = ()
) -> Cluster:
    """The gangs' pods on the nodes of a tree and on others; `also`: further pods as (uid, class, node)."""
    tree, free = tree_of(text)
    bound = [
        (f"{gang.id}/{pods.node}/{number}", pods.class_id, pods.node)
        for gang in gangs
        for pods in gang.pods
        for number in range(pods.count)
    ]
    built = cluster([*(node(name, cpu) for name, cpu in free.items()), *others], [pod_class("x")], [*bound, *also])
    built.apply(Batch(trees=(tree,)))
    return built


def many_racks(nodes: int) -> tuple[str, str]:
    racks = [
        f"r{rack:02}(" + ",".join(f"n{rack:02}-{i}:{4 + (rack + i) % 5}" for i in range(nodes)) + ")"
        for rack in range(24)
    ]
    zones = [f"z{zone}({' '.join(racks[8 * zone : 8 * zone + 8])})" for zone in range(3)]
    return " ".join(zones), "zone rack node"


LARGE_GANGS = [
    "zone: pack; rack: spread; node: pack",
    "zone: hard pack; rack: spread",
    "rack: hard partition(6); node: spread",
    "rack: partition(5), factor(4)",
    "node: hard range(1,3)",
    "zone: hard spread; rack: pack",
]


@pytest.mark.parametrize("constraints", LARGE_GANGS)
def test_heuristics_satisfy_hard_constraints_of_large_gangs(constraints: str) -> None:
    tree, levels = many_racks(8)
    answer = answer_on(tree, mixed(constraints, ("large", 30), ("two", 12), ("x", 48)), levels=levels)
    placed = seats(answer)
    assert sum(placed.values()) == 90
    assert max(placed.values()) <= 3 or "range" not in constraints
    zones, racks = _by(placed, 1), _by(placed, 3)
    if "zone: pack" in constraints or "zone: hard pack" in constraints:
        assert len(zones) == 1
        assert len(racks) == 8
    if "partition(6)" in constraints:
        assert sorted(racks.values()) == [15] * 6
    if "zone: hard spread" in constraints:
        assert sorted(zones.values()) == [30] * 3


@pytest.mark.parametrize(
    ("constraints", "remedy"),
    [
        ("rack: hard pack", 'it would fit if the constraint "rack: hard pack" were soft'),
        ("node: hard range(1,1)", 'it would fit if the constraint "node: hard range(1,1)" were soft'),
    ],
)
def test_infeasibility_of_a_large_gang_is_proved_by_counting(constraints: str, remedy: str) -> None:
    tree, levels = many_racks(2)
    refused = refusal(answer_on(tree, mixed(constraints, ("large", 20), ("two", 20), ("x", 30)), levels=levels))
    assert refused.proved
    assert refused.explanation.remedy == remedy


@pytest.mark.parametrize(("constraints", "picky"), [("rack: hard pack", 15), ("rack: hard partition(2)", 25)])
def test_too_few_seats_of_one_class_are_proved_by_counting(constraints: str, picky: int) -> None:
    """Each rack holds ten members of the picky class."""
    tree, free = tree_of(" ".join(f"r{rack}(fast-{rack}:50,slow-{rack}:50)" for rack in range(3)))
    nodes = [node(name, cpu, labels={"disk": name[:4]}) for name, cpu in free.items()]
    built = cluster(nodes, [pod_class("x"), LARGE, pod_class("picky", 5, selector={"disk": "fast"})])
    built.apply(Batch(trees=(tree,)))
    asked = mixed(constraints, ("picky", picky), ("large", 16), ("x", 20), minimum=picky + 35)
    assert refusal(answers(built, SolveGroup("g", (asked,)))[0]).proved


def test_a_partial_large_gang_stays_in_one_rack() -> None:
    tree, levels = many_racks(2)
    asked = mixed("rack: hard pack", ("large", 20), ("two", 20), ("x", 30))
    answer = answer_on(tree, asked, levels=levels, partial=True)
    assert isinstance(answer, PartiallyPlaced)
    assert len(_by(seats(answer), 3)) == 1
    assert sum(seats(answer).values()) >= 8


def test_a_large_gang_avoids_nodes_with_a_penalty() -> None:
    domains = tuple(TreeDomain(f"r{rack}", 0) for rack in range(8))
    names = [(f"{kind}-{rack}", rack) for rack in range(8) for kind in ("gpu", "plain")]
    tree = TopologyTree("t", (TreeLevel("rack"), TreeLevel("node")), domains, tuple(names), default=True)
    nodes = [node(name, 40, gpu=8 if "gpu" in name else 0) for name, _ in names]
    built = cluster(nodes, [pod_class("x"), *CLASSES])
    built.apply(Batch(trees=(tree,)))
    [answer] = answers(built, SolveGroup("g", (mixed("rack: spread", ("large", 40), ("two", 40), ("x", 40)),)))
    assert seats(answer) == {f"plain-{rack}": 15 for rack in range(8)}


def _by(placed: dict[str, int], length: int) -> dict[str, int]:
    """By rack, the first three letters of a node; or by zone, of eight racks each."""
    counts: dict[str, int] = {}
    for name, count in placed.items():
        key = name[:3] if length == 3 else str(int(name[1:3]) // 8)
        counts[key] = counts.get(key, 0) + count
    return counts


@pytest.mark.parametrize("constraints", LARGE_GANGS)
def test_p39_heterogeneous_answers_do_not_depend_on_node_order(constraints: str) -> None:
    tree, levels = many_racks(2)
    names = list(tree_of(tree, levels)[1])
    asked = SolveGroup("g", (mixed(constraints, ("large", 4), ("two", 2), ("x", 6)),))
    found = set()
    for seed in range(4):
        random.Random(seed).shuffle(names)
        [answer] = answers(tree_cluster(tree, levels, classes=CLASSES, shuffled=names), asked)
        assert isinstance(answer, Placed)
        found.add(answer.assignments)
    assert len(found) == 1
