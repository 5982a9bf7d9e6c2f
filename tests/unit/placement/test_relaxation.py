"""Proposed changes in explanations are correct: the tests apply them."""

import random
import re

import pytest
from msgspec.structs import replace

from builders.placement.clusters import alone, answers, cluster, gang, group, node, pod_class, refusal
from builders.placement.inter_pod_rules import RACK, anti_affinity, member, rack, spread
from builders.placement.trees import answer_to, asking, tree_cluster, tree_of
from muster.gangs.facts import Batch, TopologyTree, TreeLevel
from muster.gangs.solve import Explanation
from muster.placement.solve.instance import NotPlaced
from muster.topology.constraints import contradictions, parse_constraints

LEVELS = ("rack", "node")


def explanation_of(notation: str, constraints: str, members: int, placed: dict[str, int] | None = None) -> Explanation:
    return refusal(answer_to(notation, constraints, members, placed=placed)).explanation


def test_the_best_domain_holds_at_most_the_wanted_members() -> None:
    explanation = explanation_of("r0(a:4,b:4) r1(c:4)", "node: hard pack", 6)
    assert explanation.summary == (
        "4 of 6 members fit under the hard constraints; 6 of them fit in r0; "
        'it would fit if the constraint "node: hard pack" were soft'
    )
    assert explanation.best_domain_fit == 6


def test_nodes_outside_of_the_tree_are_not_the_best_domain() -> None:
    listed, _ = tree_of("r0(a:1)")
    on = cluster([node("a", 1), node("b", 9), node("c", 9)], [pod_class("x")])
    on.apply(Batch(trees=(listed,)))
    [answer] = answers(on, asking("rack: hard pack", 2))
    assert refusal(answer).explanation.summary == (
        "1 of 2 members fit under the hard constraints; 1 of them fit in r0; "
        "2 nodes with free capacity are not in the tree; "
        'it would fit if the constraint "rack: hard pack" were soft'
    )


def test_the_explanation_names_the_rack_of_placed_members() -> None:
    explanation = explanation_of("r0(a:1) r1(b:2)", "rack: hard pack", 2, placed={"a": 1})
    assert (explanation.best_domain, explanation.best_domain_fit) == ("r0", 1)
    assert "; members are placed in r0 already, where 1 more would fit; " in explanation.summary
    explanation = explanation_of("r0(a:0) r1(b:2)", "rack: hard pack; node: pack", 2, placed={"a": 1})
    assert "; members are placed in r0 already, where 0 more would fit; " in explanation.summary
    explanation = explanation_of("r0(a:1) r1(b:2)", "rack: hard pack", 2, placed={"a": 1, "b": 1})
    assert "; members are placed in 2 domains already, among them r0 and r1; " in explanation.summary


def test_more_nodes_help_a_packed_gang_in_its_best_domain() -> None:
    explanation = explanation_of("r0(a:4,b:2) r1(c:4)", "rack: hard pack", 11)
    assert explanation.remedy == 'it would fit with 2 more nodes like "a", empty, in r0'
    assert explanation.summary == (
        "6 of 11 members fit under the hard constraints; without them 10 of 11 members fit; "
        "short of 1 cpu for the next; 0/3 nodes are available: 3 Insufficient cpu"
    )
    assert explanation_of("r0(a:1) r1(b:1)", "rack: hard pack; node: hard factor(2)", 4).remedy == (
        '2 more of its members would fit with 2 more nodes like "a", empty'
    )


def test_filtered_nodes_are_proposed_if_there_are_no_others() -> None:
    listed, _ = tree_of("r0(a:4)")
    on = cluster([node("a", 4, unschedulable=True)], [pod_class("x")])
    on.apply(Batch(trees=(listed,)))
    [answer] = answers(on, asking("rack: hard pack", 2))
    assert refusal(answer).explanation.remedy == (
        '2 more of its members would fit if its pods could use the node lost to "node(s) were unschedulable"'
    )


def test_all_hard_constraints_relaxed_if_no_single_one_helps() -> None:
    explanation = explanation_of("r0(a:4,b:3) r1(c:4)", "rack: hard pack; node: hard pack", 9)
    assert explanation.remedy == "it would fit if none of its constraints were hard"


def test_relaxation_of_constraints_that_conflict_with_pod_rules() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 9})
    tree = TopologyTree("racks", (TreeLevel("rack", RACK), TreeLevel("node")), default=True)
    on = cluster(nodes, [member(**spread(RACK))])
    on.apply(Batch(trees=(tree,)))
    [answer] = answers(on, asking("rack: hard pack", 4))
    explanation = refusal(answer).explanation
    assert explanation.remedy == 'it would fit if the constraint "rack: hard pack" were soft'
    assert explanation.summary.endswith(f"; {explanation.remedy}")


def test_no_nodes_in_one_rack_are_proposed_under_anti_affinity() -> None:
    nodes = rack("r0", {"a": 1}) + rack("r1", {"b": 1})
    on = cluster(nodes, [member(**anti_affinity(RACK))])
    on.apply(Batch(trees=(TopologyTree("racks", (TreeLevel("rack", RACK), TreeLevel("node")), default=True),)))
    [answer] = answers(on, asking("rack: hard pack", 3))
    assert not refusal(answer).explanation.remedy.startswith("it would fit")


def test_the_explanation_names_the_part_that_lacks_capacity() -> None:
    [answer] = answers(cluster([node("a", 4)], [pod_class("x", 1), pod_class("z", 3)]), alone("g", ("x", 6), ("z", 3)))
    assert refusal(answer).explanation.remedy == ('2 more of its members would fit with 1 more node like "a", empty')


def test_the_explanation_of_constraints_that_conflict_between_gangs() -> None:
    on = tree_cluster("z0(r0(a:6)) z1(r1(b:2,c:3))", "zone rack node", classes=[pod_class("y", 2)])
    apart = parse_constraints("zone: hard spread; rack: hard partition(2); node: hard partition(2)")
    asked = group(
        replace(gang("g0", ("x", 1)), constraints=parse_constraints("zone: hard spread; node: factor(2)")),
        replace(gang("g1", ("y", 1), ("x", 5)), constraints=apart),
    )
    [answer] = answers(on, asked)
    explanation = refusal(answer).explanation
    assert explanation.gang == "g1"
    assert explanation.summary == (
        "no placement was found that satisfies all hard constraints; it would fit if none of its constraints were hard"
    )


def test_the_first_gang_that_lacks_capacity_is_explained() -> None:
    asked = group(gang("a", ("x", 4)), gang("b", ("x", 4)))
    [answer] = answers(cluster([node("n", 2)], [pod_class("x")]), asked)
    assert refusal(answer).explanation.remedy == ('2 more of its members would fit with 1 more node like "n", empty')


@pytest.mark.parametrize("seed", range(8))
def test_proposed_relaxations_and_nodes_help(seed: int) -> None:
    rng, tried = random.Random(seed), 0
    while tried < 15:
        racks = _racks(rng)
        constraints, members = _constraints(rng), rng.randint(2, 10)
        if contradictions(parse_constraints(constraints), LEVELS, members, members):
            continue
        answer = answer_to(_written(racks), constraints, members)
        if not isinstance(answer, NotPlaced):
            continue
        tried += 1
        remedy = answer.explanation.remedy
        only = "constraint" in remedy
        assert answer.explanation.only_constraints is only, "autoscalers are asked for nodes otherwise"
        if soft := re.fullmatch(r'it would fit if the constraint "(\w+): hard (.*)" were soft', remedy):
            softer = constraints.replace(f"{soft[1]}: hard {soft[2]}", f"{soft[1]}: {soft[2]}")
            assert not isinstance(answer_to(_written(racks), softer, members), NotPlaced)
        elif remedy == "it would fit if none of its constraints were hard":
            softer = constraints.replace("hard ", "")
            assert not isinstance(answer_to(_written(racks), softer, members), NotPlaced)
        elif more := re.fullmatch(r'it would fit with (\d+) more nodes? like "n(\d+)", empty, in r(\d)', remedy):
            size = dict(each for rack in racks for each in rack)[f"n{more[2]}"]
            racks[int(more[3])] += [(f"new{number}", size) for number in range(int(more[1]))]
            assert not isinstance(answer_to(_written(racks), constraints, members), NotPlaced)
        else:
            assert not remedy.startswith("it would fit"), remedy


def _racks(rng: random.Random) -> list[list[tuple[str, int]]]:
    names = iter(range(9))
    return [
        [(f"n{next(names)}", rng.randint(0, 4)) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))
    ]


def _written(racks: list[list[tuple[str, int]]]) -> str:
    rows = (",".join(f"{name}:{free}" for name, free in rack) for rack in racks)
    return " ".join(f"r{index}({row})" for index, row in enumerate(rows))


def _constraints(rng: random.Random) -> str:
    low = rng.randint(1, 2)
    policies = ("pack", "spread", "partition(2)", f"range({low},{low + 2})", f"factor({low + 1})")
    first = f"{rng.choice(LEVELS)}: hard {rng.choice(policies)}"
    level = "node" if first.startswith("rack") else "rack"
    return f"{first}; {level}: {rng.choice(('', 'hard '))}{rng.choice(policies)}" if rng.random() < 0.5 else first
