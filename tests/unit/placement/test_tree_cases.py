"""Placement cases on topology trees, by their ids: homogeneous gangs under constraints."""

import random

import pytest

from builders.placement.clusters import answers, refusal, seats
from builders.placement.trees import answer_to, asking, tree_cluster, tree_of
from muster.placement.solve.instance import Answer, Placed

P01 = "r0(a:4,b:4) r1(c:8,d:8)"
P18 = "z0(r0(a:4,b:4) r1(c:4,d:4)) z1(r2(e:8,f:8))"
ZONES = "zone rack node"


def by_rack(answer: Answer, tree: str) -> dict[str, int]:
    facts, _ = tree_of(tree)
    rack = {name: facts.domains[domain].name for name, domain in facts.leaves}
    counts: dict[str, int] = {}
    for name, count in seats(answer).items():
        counts[rack[name]] = counts.get(rack[name], 0) + count
    return counts


def test_p01_pack_on_one_node() -> None:
    assert seats(answer_to(P01, "rack: pack; node: pack", 8)) == {"c": 8}


def test_p02_the_tightest_rack_that_holds_all() -> None:
    assert seats(answer_to(P01, "rack: pack; node: spread", 8)) == {"a": 4, "b": 4}


def test_p03_as_even_as_capacity_allows() -> None:
    assert seats(answer_to("r0(a:3,b:2,c:9) r1(d:1)", "rack: pack; node: spread", 8)) == {"a": 3, "b": 2, "c": 3}


def test_p04_both_racks_if_one_does_not_suffice() -> None:
    assert seats(answer_to("r0(a:2,b:2) r1(c:2,d:2)", "rack: pack", 8)) == {"a": 2, "b": 2, "c": 2, "d": 2}


def test_p05_one_member_short_names_the_best_domain() -> None:
    refused = refusal(answer_to("r0(a:2,b:2) r1(c:2,d:1)", "", 8))
    assert refused.proved
    assert (refused.explanation.fit, refused.explanation.needed) == (7, 8)
    assert (refused.explanation.best_domain, refused.explanation.best_domain_fit) == ("r0", 4)
    assert refused.explanation.remedy == 'it would fit with 1 more node like "a", empty'


def test_p06_a_hard_pack_names_the_best_rack_and_itself() -> None:
    refused = refusal(answer_to("r0(a:2,b:2) r1(c:2,d:2)", "rack: hard pack", 8))
    assert refused.proved
    assert (refused.explanation.best_domain, refused.explanation.best_domain_fit) == ("r0", 4)
    assert refused.explanation.remedy == 'it would fit if the constraint "rack: hard pack" were soft'
    assert refused.explanation.remedy in refused.explanation.summary


def test_p07_two_equal_parts() -> None:
    assert seats(answer_to("r0(a:8) r1(b:8)", "rack: partition(2); node: pack", 8)) == {"a": 4, "b": 4}


def test_p08_parts_as_equal_as_capacity_allows() -> None:
    tree = "r0(a:3,b:3) r1(c:5) r2(d:1)"
    assert by_rack(answer_to(tree, "rack: partition(2)", 8), tree) == {"r0": 4, "r1": 4}


def test_p09_parts_that_would_differ_by_more_than_one() -> None:
    refused = refusal(answer_to("r0(a:8) r1(b:2) r2(c:2)", "rack: hard partition(3)", 9))
    assert refused.proved
    assert 'if the constraint "rack: hard partition(3)" were soft' in refused.explanation.remedy


def test_p10_two_to_four_on_each_node_of_one_server() -> None:
    tree = "s0(a:1,b:1,c:2) s1(d:2,e:2,f:2,g:3)"
    placed = seats(answer_to(tree, "server: pack; node: spread, range(2,4)", 6, levels="server node"))
    assert sorted(placed.values()) == [2, 2, 2]
    assert set(placed) < {"d", "e", "f", "g"}


def test_p11_a_hard_range_that_no_division_meets() -> None:
    refused = refusal(answer_to("s0(a:5,b:1)", "node: hard range(2,4)", 6))
    assert refused.proved
    assert 'if the constraint "node: hard range(2,4)" were soft' in refused.explanation.remedy


def test_p12_multiples_of_the_factor() -> None:
    assert seats(answer_to("r0(a:7,b:6)", "node: factor(4)", 8)) == {"a": 4, "b": 4}


def test_p13_a_hard_factor_above_what_nodes_hold() -> None:
    assert refusal(answer_to("r0(a:3,b:3,c:3)", "node: hard factor(4)", 8)).proved


def test_p15_one_member_per_node() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    tree = f"all({','.join(f'{name}:1' for name in names)})"
    assert seats(answer_to(tree, "node: spread", 26)) == dict.fromkeys(names, 1)


def test_p16_spread_over_three_racks() -> None:
    assert seats(answer_to("r0(a:4) r1(b:4) r2(c:4)", "rack: spread", 4)) == {"a": 2, "b": 1, "c": 1}


def test_p17_later_members_join_placed_ones() -> None:
    assert seats(answer_to("r0(a:4) r1(b:4)", "rack: pack", 2, placed={"b": 2})) == {"b": 2}


def test_p18_each_level_has_its_own_policy() -> None:
    answer = answer_to(P18, "zone: pack; rack: spread; node: pack", 16, levels=ZONES)
    assert seats(answer) == {"a": 4, "b": 4, "c": 4, "d": 4}


def test_p19_the_best_zone_holds_one_too_few() -> None:
    refused = refusal(answer_to(P18, "zone: hard pack", 17, levels=ZONES))
    assert refused.proved
    assert (refused.explanation.best_domain, refused.explanation.best_domain_fit) == ("z0", 16)


def test_p20_small_racks_stay_free() -> None:
    tree = "r0(a:8) " + " ".join(f"s{i}(n{i}:1)" for i in range(50))
    assert seats(answer_to(tree, "rack: pack", 8)) == {"a": 8}


@pytest.mark.parametrize(
    ("constraints", "members"),
    [("rack: pack; node: spread", 8), ("rack: partition(2); node: pack", 12), ("rack: spread, range(2,6)", 11)],
)
def test_p39_the_answer_does_not_depend_on_node_order(constraints: str, members: int) -> None:
    tree = "r0(a:3,b:5,c:2) r1(d:4,e:4) r2(f:1,g:6,h:3)"
    _, free = tree_of(tree)
    names = list(free)
    first = answer_to(tree, constraints, members)
    for seed in range(100):
        random.Random(seed).shuffle(names)
        [answer] = answers(tree_cluster(tree, shuffled=names), asking(constraints, members))
        assert answer == first


def test_p40_two_runs_on_many_equal_nodes_agree() -> None:
    racks = [f"r{rack:03}({','.join(f'n{rack:03}-{i:02}:8' for i in range(20))})" for rack in range(750)]
    on = tree_cluster(" ".join(racks))
    group = asking("rack: pack; node: spread", 512)
    [first], [second] = answers(on, group), answers(on, group)
    assert first == second
    assert isinstance(first, Placed)
    placed = seats(first)
    assert sum(placed.values()) == 512
    assert len({name[:4] for name in placed}) == 4  # 160 fit into a rack


def test_a_hard_factor_holds_for_fewer_members_than_wanted() -> None:
    tree = "r0(a:2,b:2) r1(c:2)"
    refused = refusal(answer_to(tree, "rack: hard factor(3); node: hard range(2,2)", 6, minimum=2))
    assert refused.proved


def test_a_gang_grows_under_hard_packs_of_four_levels() -> None:
    tree = "z0(p0(q0(r0(a:1) r1(b:1,c:1)) q1(r2(d:1) r3(e:1)))) z1(p1(q2(r4(f:3,g:1) r5(h:2))))"
    packs = "zone: hard pack; pod: hard pack; row: hard pack; rack: hard pack"
    answer = answer_to(tree, packs, 3, levels="zone pod row rack node", placed={"g": 1})
    assert seats(answer) == {"f": 2, "g": 1}
