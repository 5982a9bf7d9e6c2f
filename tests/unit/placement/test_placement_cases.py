"""Placement cases without topology, by their ids, and other cases of packing, roles and groups."""

import random

import pytest

from builders.placement.clusters import (
    GPU,
    alone,
    answers,
    cluster,
    gang,
    group,
    node,
    pod_class,
    refusal,
    seats,
    seats_of,
)
from muster.gangs.facts import (
    Batch,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    Taint,
    TaintEffect,
)
from muster.gangs.node_filters import AFFINITY
from muster.gangs.solve import Assignment, SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, Placed


def test_p05_one_short_is_infeasible_and_counted() -> None:
    nodes = [node("a", 2), node("b", 2), node("c", 2), node("d", 1)]
    [answer] = answers(cluster(nodes, [pod_class("x")]), alone("g", ("x", 8)))
    refused = refusal(answer)
    assert refused.proved
    assert (refused.explanation.fit, refused.explanation.needed) == (7, 8)
    assert refused.explanation.short_by == (("cpu", 1000),)


def test_p15_one_member_per_node() -> None:
    names = "abcdefghijklmnopqrstuvwxyz"
    [answer] = answers(cluster([node(name, 1) for name in names], [pod_class("x")]), alone("g", ("x", 26)))
    assert seats(answer) == dict.fromkeys(names, 1)


def test_p21_two_roles_on_nodes_of_two_sizes() -> None:
    classes = [pod_class("x", 7), pod_class("y", 3)]
    for roles in ((("x", 1), ("y", 1)), (("y", 1), ("x", 1))):
        [answer] = answers(cluster([node("big", 8), node("small", 4)], classes), alone("g", *roles))
        assert seats(answer) == {"big": 1, "small": 1}
        assert seats_of(answer, [role[0] for role in roles].index("x")) == {"big": 1}


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
@pytest.mark.parametrize("nodes", [("n8", "n4"), ("n4", "n8")])
def test_g40_both_sizes_are_placed_in_any_order(order: tuple[str, str], nodes: tuple[str, str]) -> None:
    cpu = {"n8": 8, "n4": 4}
    built = cluster([node(name, cpu[name]) for name in nodes], [pod_class("x", 7), pod_class("y", 3)])
    [answer] = answers(built, alone("g", *((name, 1) for name in order)))
    assert seats_of(answer, order.index("x")) == {"n8": 1}
    assert seats_of(answer, order.index("y")) == {"n4": 1}


def test_p22_pods_without_gpu_requests_avoid_gpu_nodes() -> None:
    nodes = [node("gpu", 64, gpu=8), node("plain-1", 64), node("plain-2", 64)]
    classes = [pod_class("x", 8, gpu=2), pod_class("y", 32)]
    [answer] = answers(cluster(nodes, classes), alone("g", ("x", 4), ("y", 4)))
    assert seats_of(answer, 0) == {"gpu": 4}
    assert seats_of(answer, 1) == {"plain-1": 2, "plain-2": 2}


def test_p23_packing_where_greedy_fails_on_two_nodes() -> None:
    classes = [pod_class("4", 4), pod_class("2", 2)]
    for roles in ((("4", 2), ("2", 2)), (("2", 2), ("4", 2))):
        [answer] = answers(cluster([node("a", 6), node("b", 6)], classes), alone("g", *roles))
        assert seats(answer) == {"a": 2, "b": 2}


def test_p24_perfect_packing_of_three_nodes() -> None:
    classes = [pod_class(str(cpu), cpu) for cpu in (3, 4, 5, 6)]
    roles = [("6", 1), ("5", 2), ("4", 2), ("3", 2)]
    for seed in range(10):
        random.Random(seed).shuffle(roles)
        [answer] = answers(cluster([node(name, 10) for name in "abc"], classes), alone("g", *roles))
        assert sum(seats(answer).values()) == 7


def test_p24_one_more_is_proved_infeasible() -> None:
    classes = [pod_class(str(cpu), cpu) for cpu in (4, 7)]
    # 28 of 30 cpu are requested, so only a search can decide: each 7 leaves 3, where no 4 fits
    [answer] = answers(cluster([node(name, 10) for name in "abc"], classes), alone("g", ("7", 2), ("4", 3)))
    assert refusal(answer).proved


def test_p25_node_selector_outweighs_a_larger_rack() -> None:
    nodes = [node("r0-a", 64, labels={"rack": "r0"}), node("r1-a", 4, labels={"rack": "r1"})]
    [answer] = answers(cluster(nodes, [pod_class("x", selector={"rack": "r1"})]), alone("g", ("x", 4)))
    assert seats(answer) == {"r1-a": 4}


def test_p26_tainted_nodes_are_filtered_and_counted() -> None:
    taint = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
    nodes = [node("a", 2), node("b", 2), node("c", 8, taints=[taint]), node("d", 8, taints=[taint])]
    built = cluster(nodes, [pod_class("x")])
    [placed, refused] = answers(built, alone("fits", ("x", 4)), alone("not", ("x", 4)))
    assert seats(placed) == {"a": 2, "b": 2}
    assert refusal(refused).explanation.filtered_nodes == (
        ("Insufficient cpu", 2),
        ("node(s) had untolerated taint {gpu: true}", 2),
    )


def test_p31_earlier_groups_reduce_capacity_for_later_ones() -> None:
    built = cluster([node("a", 8)], [pod_class("x")])
    first, second, third = answers(built, alone("g1", ("x", 5)), alone("g2", ("x", 4)), alone("g3", ("x", 3)))
    assert seats(first) == {"a": 5}
    assert refusal(second).proved
    assert refusal(second).explanation.fit == 3
    assert seats(third) == {"a": 3}


def test_p32_a_reservation_of_a_bound_pod_counts_once() -> None:
    built = cluster([node("a", 8)], [pod_class("x", 2)], bound=[("seen", "x", "a")])
    built.state.refresh()
    built.reserve([("a", "x", ("seen", "unseen")), ("gone", "x", ("other",))])
    assert int(built.state.of("x").fits.sum()) == 2
    built.state.rollback(0)
    assert int(built.state.of("x").fits.sum()) == 3


def test_p32_a_pod_bound_to_another_node_counts_there() -> None:
    built = cluster([node("a", 4), node("b", 4)], [pod_class("x", 2)], bound=[("p", "x", "b")])
    built.state.refresh()
    built.reserve([("a", "x", ("p",))])
    assert built.state.of("x").fits[built.nodes.row("a")] == 2


def test_p36_no_nodes_is_infeasible() -> None:
    [answer] = answers(cluster([], [pod_class("x")]), alone("g", ("x", 2)))
    assert refusal(answer).proved
    assert refusal(answer).explanation.summary == "0 of 2 members fit; no nodes available to schedule pods"


def _tricky() -> tuple[list[NodeFacts], list[SolveGroup]]:
    nodes = [node(f"n{i:02}", 4 + i % 5, gpu=8 * (i % 3 == 0), labels={"rack": f"r{i % 4}"}) for i in range(20)]
    groups = [
        alone("a", ("x", 9)),
        alone("b", ("y", 3), ("z", 2), ("x", 4)),
        group(gang("c1", ("g", 3)), gang("c2", ("y", 6), minimum=2)),
        *(alone(f"s{i}", ("x", 1)) for i in range(5)),
        alone("d", ("r", 30)),
    ]
    return nodes, groups


def test_p39_the_answer_does_not_depend_on_node_order() -> None:
    classes = [
        pod_class("x"),
        pod_class("y", 2),
        pod_class("z", 5),
        pod_class("g", 1, gpu=4),
        pod_class("r", 1, selector={"rack": "r1"}),
    ]
    nodes, groups = _tricky()
    expected = answers(cluster(nodes, classes), *groups)
    for seed in range(100):
        random.Random(seed).shuffle(nodes)
        half = len(nodes) // 2
        built = cluster(nodes[:half], classes)
        built.apply(Batch(nodes=(node("stranger", 100), *nodes[half:])))
        built.apply(Batch(removed_nodes=("stranger",)))
        assert answers(built, *groups) == expected


def test_p40_two_runs_on_many_equal_nodes_agree() -> None:
    nodes = [node(f"n{i:05}", 8) for i in range(15_000)]
    built = cluster(nodes, [pod_class("x")])
    first, again = answers(built, alone("g", ("x", 512))), answers(built, alone("g", ("x", 512)))
    assert first == again
    assert seats(first[0]) == {f"n{i:05}": 8 for i in range(64)}


# -- best fit


def test_best_fit_takes_the_tightest_node_that_holds_the_gang() -> None:
    built = cluster([node("large", 64), node("tight", 9), node("small", 7)], [pod_class("x")])
    [answer] = answers(built, alone("g", ("x", 8)))
    assert seats(answer) == {"tight": 8}


def test_a_gang_larger_than_any_node_uses_the_fewest_nodes() -> None:
    built = cluster([node("a", 8), node("b", 8), node("c", 3), node("d", 2), node("e", 2)], [pod_class("x")])
    [answer] = answers(built, alone("g", ("x", 18)))
    assert seats(answer) == {"a": 8, "b": 8, "d": 2}


def test_ties_are_broken_by_free_capacity_then_by_name() -> None:
    nodes = [node("c", 8, memory=64), node("b", 8, memory=64), node("a", 8, memory=128)]
    [answer] = answers(cluster(nodes, [pod_class("x", 8)]), alone("g", ("x", 1)))
    assert seats(answer) == {"b": 1}


def test_single_pods_fill_the_tightest_node_first() -> None:
    built = cluster([node("a", 4), node("b", 2), node("c", 3)], [pod_class("x"), pod_class("other", 2)])
    together = answers(built, *(alone(f"g{i}", ("x", 1)) for i in range(10)))
    assert [next(iter(seats(answer))) for answer in together[:9]] == list("bbcccaaaa")
    assert isinstance(together[9], NotPlaced)


def test_taints_and_node_preferences_outweigh_best_fit() -> None:
    avoided = Taint("old", "", TaintEffect.PREFER_NO_SCHEDULE)
    wish = PreferredNodeTerm(1, NodeSelectorTerm(labels=(NodeRequirement("disk", NodeOperator.EXISTS),)))
    nodes = [node("old", 3, taints=[avoided]), node("plain", 4), node("wished", 64, labels={"disk": "ssd"})]
    built = cluster(nodes, [pod_class("x", preferred=[wish])])
    [answer] = answers(built, alone("g", ("x", 70)))
    assert seats(answer) == {"wished": 64, "plain": 4, "old": 2}


def test_cordoned_and_unready_nodes_are_not_used() -> None:
    built = cluster([node("a", 8, unschedulable=True), node("b", 8, ready=False), node("c", 1)], [pod_class("x")])
    [answer] = answers(built, alone("g", ("x", 2)))
    assert refusal(answer).explanation.filtered_nodes == (
        ("Insufficient cpu", 1),
        ("node(s) were not ready", 1),
        ("node(s) were unschedulable", 1),
    )


def test_unknown_resources_block_and_unrequested_ones_do_not() -> None:
    built = cluster(
        [node("a", 4)],
        [pod_class("x", 1), pod_class("hog", 6), pod_class("free", 0), pod_class("gpu", 1, gpu=1)],
        bound=[("hog", "hog", "a")],
    )
    no_cpu, oversubscribed, gpu = answers(
        built, alone("free", ("free", 3)), alone("x", ("x", 1)), alone("gpu", ("gpu", 2))
    )
    assert seats(no_cpu) == {"a": 3}
    assert refusal(oversubscribed).explanation.short_by == (("cpu", 1000),)
    assert (GPU, 2) in refusal(gpu).explanation.short_by


# -- minimums, roles and groups


def test_members_above_the_minimum_are_placed_if_they_fit() -> None:
    built = cluster([node("a", 4), node("b", 2)], [pod_class("x")])
    [answer] = answers(built, alone("g", ("x", 9), minimum=3))
    assert sum(seats(answer).values()) == 6


def test_all_members_are_placed_if_possible() -> None:
    classes = [pod_class("3", 3), pod_class("5", 5)]
    [answer] = answers(cluster([node("a", 5), node("b", 6)], classes), alone("g", ("3", 2), ("5", 1), minimum=2))
    assert sum(seats(answer).values()) == 3


def test_earlier_roles_are_preferred_if_not_all_fit() -> None:
    built = cluster([node("a", 6)], [pod_class("first", 2), pod_class("second", 1)])
    [answer] = answers(built, alone("g", ("first", 3), ("second", 3), minimum=3))
    assert seats_of(answer, 0) == {"a": 3}
    assert seats_of(answer, 1) == {}


def test_later_roles_fill_the_minimum_if_the_first_cannot() -> None:
    built = cluster([node("a", 6)], [pod_class("first", 4), pod_class("second", 1)])
    [answer] = answers(built, alone("g", ("first", 1), ("second", 6), minimum=6))
    assert seats_of(answer, 1) == {"a": 6}


def test_two_roles_of_one_class_get_their_members_in_order() -> None:
    built = cluster([node("a", 2), node("b", 3)], [pod_class("x")])
    [answer] = answers(built, alone("g", ("x", 2), ("x", 2)))
    assert sum(seats_of(answer, 0).values()) == 2
    assert sum(seats_of(answer, 1).values()) == 2


def test_a_group_is_placed_whole_or_not_at_all() -> None:
    built = cluster([node("a", 5)], [pod_class("x")])
    whole, after = answers(built, group(gang("a", ("x", 3)), gang("b", ("x", 3))), alone("c", ("x", 5)))
    assert refusal(whole).explanation.gang == "b"
    assert (refusal(whole).explanation.fit, refusal(whole).explanation.needed) == (2, 3)
    assert seats(after) == {"a": 5}


def test_surplus_members_do_not_displace_another_gangs_minimum() -> None:
    built = cluster([node("a", 5)], [pod_class("x"), pod_class("y")])
    [equal, mixed] = answers(built, group(gang("a", ("x", 5), minimum=1), gang("b", ("x", 2))), alone("none", ("x", 1)))
    assert {each.gang: each.count for each in _assignments(equal)} == {"a": 3, "b": 2}
    assert isinstance(mixed, NotPlaced)
    [unequal] = answers(built, group(gang("a", ("x", 5), minimum=1), gang("b", ("y", 2))))
    assert {each.gang: each.count for each in _assignments(unequal)} == {"a": 3, "b": 2}


def _assignments(answer: Answer) -> tuple[Assignment, ...]:
    assert isinstance(answer, Placed)
    return answer.assignments


def test_g30_the_explanation_names_the_class_that_fits_nowhere() -> None:
    built = cluster([node("a", 8)], [pod_class("x"), pod_class("picky", selector={"zone": "mars"})])
    [answer] = answers(built, alone("g", ("x", 3), ("picky", 1)))
    explanation = refusal(answer).explanation
    assert refusal(answer).proved
    assert (explanation.class_id, explanation.fit, explanation.needed) == ("picky", 3, 4)
    assert explanation.filtered_nodes == ((AFFINITY, 1),)


def test_a_group_too_large_for_exact_search_is_not_found() -> None:
    # 7s leave 3 on each node, where no 4 fits; counting does not show it
    nodes = [node(f"n{i:03}", 10) for i in range(100)]
    classes = [pod_class("4", 4), pod_class("7", 7)]
    [answer] = answers(cluster(nodes, classes), alone("g", ("7", 80), ("4", 41)))
    assert not refusal(answer).proved
    assert refusal(answer).explanation.fit < 121
