"""Victim selection: the preemption scenarios by their ids, and the rest of the contract."""

import random

import pytest

from builders.placement.clusters import (
    alone,
    answers,
    cluster,
    gang,
    group,
    node,
    pod_class,
    potential_victim,
    refusal,
    removals,
    seats,
)
from muster.gangs.facts import NodeFacts
from muster.gangs.solve import NominatedCapacity, PodsOnNode, PotentialVictim, VictimGang
from muster.placement.solve.instance import NotPlaced, PartiallyPlaced, Placed
from muster.placement.state.cluster import Cluster

CLASSES = [pod_class("x"), pod_class("xx", 2), pod_class("big", 8), pod_class("a", selector={"zone": "a"})]


def full(*nodes: NodeFacts, gangs: list[PotentialVictim]) -> Cluster:
    """A cluster of the nodes with all pods of the gangs bound."""
    bound = [
        (f"{each.id}/{index}/{number}", pods.class_id, pods.node)
        for each in gangs
        for index, pods in enumerate(each.pods)
        for number in range(pods.count)
    ]
    return cluster(nodes, CLASSES, bound)


def test_g43_one_whole_gang_rather_than_one_member_of_four() -> None:
    nodes = [node(f"n{i}", 2) for i in range(4)] + [node("rest", 4, unschedulable=True)]
    ones = [potential_victim(f"four-{i}", (f"n{i}", "x", 1), ("rest", "x", 1)) for i in range(4)]
    gangs = [*ones, potential_victim("one", *((f"n{i}", "x", 1) for i in range(4)))]
    [answer] = answers(full(*nodes, gangs=gangs), alone("g", ("x", 4)), removing=gangs)
    assert removals(answer) == {"one": (True, {"n0": 1, "n1": 1, "n2": 1, "n3": 1})}
    assert seats(answer) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}


def test_g44_no_victims_for_a_gang_that_can_never_fit() -> None:
    gangs = [potential_victim("low", ("a", "x", 4))]
    [answer] = answers(full(node("a", 4), gangs=gangs), alone("g", ("x", 5)), removing=gangs)
    refused = refusal(answer)
    assert refused.proved
    assert (refused.explanation.fit, refused.explanation.needed) == (4, 5)
    assert refused.explanation.summary.startswith("even if all potential victims were evicted: 4 of 5 members fit")


def test_g45_spare_pods_are_preempted_first_and_their_gang_stays() -> None:
    gangs = [potential_victim("single", ("a", "x", 2)), potential_victim("wide", ("a", "x", 4), spare=2)]
    [answer] = answers(full(node("a", 6), gangs=gangs), alone("g", ("x", 2)), removing=gangs)
    assert removals(answer) == {"wide": (False, {"a": 2})}


def test_g45_only_spare_pods_that_free_a_seat_are_preempted() -> None:
    nodes = [node("a", 2, labels={"zone": "a"}), node("b", 2)]
    gangs = [potential_victim("wide", ("b", "x", 2), ("a", "x", 2), spare=1)]
    [answer] = answers(full(*nodes, gangs=gangs), alone("g", ("a", 1)), removing=gangs)
    assert removals(answer) == {"wide": (False, {"a": 1})}


def test_a_gang_that_fits_has_no_victims() -> None:
    gangs = [potential_victim("low", ("a", "x", 3))]
    [answer] = answers(full(node("a", 4), gangs=gangs), alone("g", ("x", 1)), removing=gangs)
    assert removals(answer) == {}


def test_a_higher_level_is_preempted_only_if_lower_ones_do_not_suffice() -> None:
    gangs = [
        potential_victim("high", ("a", "x", 4), level=2),
        potential_victim("low-1", ("b", "x", 2)),
        potential_victim("low-2", ("c", "x", 2)),
        potential_victim("spare", ("a", "x", 4), level=1, spare=4),
    ]
    built = full(node("a", 8), node("b", 2), node("c", 2), gangs=gangs)
    [low] = answers(built, alone("g", ("x", 4)), removing=gangs)
    assert set(removals(low)) == {"low-1", "low-2"}
    [middle] = answers(built, alone("g", ("x", 5)), removing=gangs)
    assert removals(middle) == {"low-1": (True, {"b": 2}), "spare": (False, {"a": 3})}
    [high] = answers(built, alone("g", ("big", 1)), removing=gangs)
    assert set(removals(high)) == {"high", "spare"}


@pytest.mark.parametrize(
    ("members", "victims"),
    [
        (1, {"a#"}),
        (2, {"a#parts/1"}),
        (3, {"a#", "a#parts/1"}),
        (5, {"a#", "a#parts/1", "b#parts/2"}),
        (6, {"a#", "a#parts/1", "a"}),
    ],
)
def test_pods_then_subgroups_then_the_rest_of_gangs_are_victims(members: int, victims: set[str]) -> None:
    """Gangs with subgroups that they can spare, as the coordinator lists them."""
    gangs = [
        potential_victim("a#", ("n", "x", 1), spare=1),
        potential_victim("a#parts/1", ("n", "x", 2)),
        potential_victim("a", ("n", "x", 3), level=1),
        potential_victim("b#parts/2", ("n", "x", 2)),
        potential_victim("b", ("n", "x", 2), level=1),
        potential_victim("c", ("n", "x", 4), level=1),
    ]
    [answer] = answers(full(node("n", 14), gangs=gangs), alone("g", ("x", members)), removing=gangs)
    assert set(removals(answer)) == victims


def test_of_equally_few_gangs_the_first_in_the_request_are_victims() -> None:
    gangs = [potential_victim(name, (name, "x", 2)) for name in ("d", "b", "a", "c")]
    built = full(*(node(name, 2) for name in "abcd"), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 4)), removing=gangs)
    assert set(removals(answer)) == {"d", "b"}


def test_of_equally_few_spare_pods_those_listed_first_are_victims() -> None:
    gangs = [potential_victim("first", ("a", "x", 1), spare=1), potential_victim("second", ("a", "x", 1), spare=1)]
    [answer] = answers(full(node("a", 2), gangs=gangs), alone("g", ("x", 1)), removing=gangs)
    assert set(removals(answer)) == {"first"}


def test_a_node_that_is_nearly_free_loses_fewer_spare_pods_than_a_full_one() -> None:
    gangs = [potential_victim("wide", ("full", "x", 8), ("half", "x", 4), spare=12)]
    built = full(node("full", 8), node("half", 8), gangs=gangs)
    [answer] = answers(built, alone("g", ("big", 1)), removing=gangs)
    assert removals(answer) == {"wide": (False, {"half": 4})}


def test_many_gangs_are_preempted_where_enumeration_would_not_end() -> None:
    # nodes of 8 held by 8 gangs each, of which only those on the last four nodes hold two nodes
    gangs = [potential_victim(f"lone-{n}-{i}", (f"n{n:02}", "x", 1)) for n in range(36) for i in range(8)]
    gangs += [
        potential_victim(f"both-{n}-{i}", (f"p{n}", "x", 1), (f"q{n}", "x", 1)) for n in range(2) for i in range(8)
    ]
    nodes = [node(f"n{n:02}", 8) for n in range(36)] + [node(f"{side}{n}", 8) for n in range(2) for side in "pq"]
    [answer] = answers(full(*nodes, gangs=gangs), alone("g", ("big", 2)), removing=gangs)
    assert sum(removed.whole for removed in _removed(answer)) <= 16
    assert sum(seats(answer).values()) == 2


def test_a_whole_victim_lists_all_pods_even_useless_and_unknown_ones() -> None:
    gangs = [potential_victim("low", ("gone", "x", 2), ("a", "x", 2), ("a", "x", 0), ("b", "x", 1))]
    built = full(node("a", 2), node("b", 1, unschedulable=True), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 2)), removing=gangs)
    listed = (PodsOnNode("gone", "x", 2), PodsOnNode("a", "x", 2), PodsOnNode("b", "x", 1))
    assert _removed(answer) == (VictimGang("low", True, listed),)


def test_victims_free_no_more_than_is_in_use() -> None:
    gangs = [
        potential_victim("honest", ("a", "x", 2)),
        potential_victim("liar", ("a", "xx", 1000), ("b", "x", 2**32 - 1), spare=9),
    ]
    built = cluster([node("a", 4), node("b", 4)], CLASSES, [("p", "x", "a"), ("q", "x", "a")])
    [fits] = answers(built, alone("g", ("x", 8)), removing=gangs)
    assert set(removals(fits)) == {"honest"}
    [never] = answers(built, alone("g", ("x", 9)), removing=gangs)
    assert refusal(never).explanation.fit == 8


def test_an_oversubscribed_node_frees_no_more_than_its_allocatable() -> None:
    built = cluster([node("a", 4)], CLASSES, [(f"p{i}", "xx", "a") for i in range(4)])
    gangs = [potential_victim("low", ("a", "xx", 4), spare=4)]
    [answer] = answers(built, alone("g", ("x", 1)), removing=gangs)
    assert removals(answer) == {"low": (False, {"a": 3})}
    [never] = answers(built, alone("g", ("x", 5)), removing=gangs)
    assert refusal(never).explanation.fit == 4


def test_nominated_capacity_does_not_count_as_in_use() -> None:
    built = cluster([node("a", 4)], CLASSES, [("p", "x", "a"), ("q", "x", "a")])
    kept, liar = [NominatedCapacity("a", (("cpu", 2000),))], [potential_victim("liar", ("a", "x", 4), spare=4)]
    [fits] = answers(built, alone("g", ("x", 2)), nominated=kept, removing=liar)
    assert seats(fits) == {"a": 2}
    [never] = answers(built, alone("g", ("x", 3)), nominated=kept, removing=liar)
    assert refusal(never).explanation.fit == 2


def test_capacity_freed_by_victims_may_be_nominated_already() -> None:
    gangs = [potential_victim("low", ("a", "x", 4), ("b", "x", 4))]
    built = full(node("a", 4), node("b", 4), gangs=gangs)
    kept = [NominatedCapacity("a", (("cpu", 4000),))]
    [fits] = answers(built, alone("g", ("x", 4)), nominated=kept, removing=gangs)
    assert seats(fits) == {"b": 4}
    [never] = answers(built, alone("g", ("x", 5)), nominated=kept, removing=gangs)
    assert refusal(never).explanation.fit == 4


def test_heterogeneous_members_need_few_victim_gangs() -> None:
    gangs = [potential_victim(f"v{i}", (f"n{i}", "x", 8)) for i in range(4)] + [potential_victim("w", ("m", "x", 4))]
    built = full(*(node(f"n{i}", 8) for i in range(4)), node("m", 4), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 3), ("big", 1)), removing=gangs)
    assert set(removals(answer)) == {"v0", "v1"}
    [smaller] = answers(built, alone("g", ("x", 3), ("xx", 2)), removing=gangs)
    assert set(removals(smaller)) == {"v0"}


def test_members_above_the_minimum_use_free_capacity_without_victims() -> None:
    gangs = [potential_victim(name, (name, "x", 4)) for name in "ab"]
    built = full(node("a", 4), node("b", 4), node("c", 1), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 9), minimum=3), removing=gangs)
    assert removals(answer) == {"a": (True, {"a": 4})}
    assert seats(answer) == {"a": 4, "c": 1}


def test_both_gangs_of_a_group_get_their_minimum() -> None:
    gangs = [potential_victim(f"v{i}", ("a", "x", 1)) for i in range(6)]
    built = full(node("a", 6), gangs=gangs)
    [answer] = answers(built, group(gang("p", ("x", 2)), gang("q", ("xx", 1))), removing=gangs)
    assert set(removals(answer)) == {"v0", "v1", "v2", "v3"}


def test_a_partial_group_without_sufficient_victims_uses_what_is_free() -> None:
    gangs = [potential_victim("low", ("a", "x", 2))]
    built = full(node("a", 4), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 5), partial=True), removing=gangs)
    assert isinstance(answer, PartiallyPlaced)
    assert seats(answer) == {"a": 2}
    [whole] = answers(built, alone("g", ("x", 4), partial=True), removing=gangs)
    assert removals(whole) == {"low": (True, {"a": 2})}


def test_a_single_pod_may_preempt() -> None:
    gangs = [potential_victim("low", ("a", "x", 2))]
    [answer] = answers(full(node("a", 2), gangs=gangs), alone("g", ("x", 1)), removing=gangs)
    assert removals(answer) == {"low": (True, {"a": 2})}


def test_reserved_pods_may_be_victims() -> None:
    built = cluster([node("a", 2)], CLASSES)
    held = [("a", "x", ("p", "q"))]
    [answer] = answers(
        built, alone("g", ("x", 1)), reserved=held, removing=[potential_victim("r", ("a", "x", 2), spare=2)]
    )
    assert removals(answer) == {"r": (False, {"a": 1})}


def test_p39_the_order_of_nodes_does_not_change_the_victims() -> None:
    nodes = [node(f"n{i:02}", 4 + i % 3) for i in range(12)]
    chance = random.Random(3)
    slots = [each.name for each in nodes for _ in range(dict(each.allocatable)["cpu"] // 1000)]
    chance.shuffle(slots)
    gangs = [
        potential_victim(f"v{i}", *((name, "x", 1) for name in slots[i::8]), level=i % 2, spare=i % 3) for i in range(8)
    ]
    asked = [alone("g", ("x", 7)), alone("g", ("xx", 5), ("x", 3)), alone("g", ("xx", 9), minimum=8)]
    expected = [answers(full(*nodes, gangs=gangs), each, removing=gangs) for each in asked]
    assert all(isinstance(answer, Placed) for [answer] in expected)
    for _ in range(20):
        chance.shuffle(nodes)
        assert [answers(full(*nodes, gangs=gangs), each, removing=gangs) for each in asked] == expected


@pytest.mark.parametrize("levels", [1, 100])
def test_starving_gangs_get_the_pods_that_end_first(levels: int) -> None:
    """All pods are spare; one level per gang, by expected completion."""
    nodes = [node(f"n{i:03}", 8) for i in range(100)]
    gangs = [potential_victim(f"v{i:03}", (f"n{i:03}", "x", 8), level=i % levels, spare=8) for i in range(100)]
    [answer] = answers(full(*nodes, gangs=gangs), alone("g", ("big", 3)), removing=gangs)
    assert set(removals(answer)) == {"v000", "v001", "v002"}


def _removed(answer: object) -> tuple[VictimGang, ...]:
    assert isinstance(answer, Placed)
    return answer.victims


def test_spare_pods_of_many_gangs_before_few_whole_gangs() -> None:
    # 60 gangs of 8 can spare 120; each whole gang frees 6 more
    slots = [f"n{i % 24:02}" for i in range(480)]
    random.Random(5).shuffle(slots)
    gangs = [potential_victim(f"v{i:02}", *((name, "x", 1) for name in slots[i::60]), spare=2) for i in range(60)]
    built = full(*(node(f"n{i:02}", 20) for i in range(24)), gangs=gangs)
    [answer] = answers(built, alone("g", ("x", 150)), removing=gangs)
    filtered = {gone.id: (gone.whole, sum(pods.count for pods in gone.pods)) for gone in _removed(answer)}
    assert sorted(count for _, count in filtered.values()) == [2] * 55 + [8] * 5
    assert all(whole == (count == 8) for whole, count in filtered.values())


def test_large_heterogeneous_groups_have_no_unneeded_victims() -> None:
    # too many sets and members to try all, each node is held by two gangs
    gangs = [potential_victim(f"v{i:02}", *((f"n{i:02}", "x", 4), (f"n{(i + 1) % 40:02}", "x", 4))) for i in range(40)]
    built = full(*(node(f"n{i:02}", 8) for i in range(40)), gangs=gangs)
    [answer] = answers(built, alone("g", ("big", 5), ("xx", 20), ("x", 10)), removing=gangs)
    gone = {removed.id for removed in _removed(answer)}
    assert all(removed.whole for removed in _removed(answer))
    for name in gone:
        [fewer] = answers(
            built, alone("g", ("big", 5), ("xx", 20), ("x", 10)), removing=[g for g in gangs if g.id in gone - {name}]
        )
        assert isinstance(fewer, NotPlaced)


def test_spare_pods_go_in_the_order_of_the_request_whichever_nodes_they_are_on() -> None:
    wide = potential_victim("wide", ("b", "x", 1), ("a", "x", 1), ("b", "x", 1), ("a", "x", 3), spare=3)
    built = full(node("a", 4), node("b", 2), gangs=[wide])
    found = [removals(answers(built, alone("g", ("x", count)), removing=[wide])[0]) for count in (1, 2, 3)]
    assert found == [{"wide": (False, each)} for each in ({"b": 1}, {"b": 1, "a": 1}, {"b": 2, "a": 1})]


def shrunk(*gangs: PotentialVictim, members: int) -> dict[str, int]:
    """How many spare pods each of these gangs loses on a full node."""
    built = full(node("a", sum(pods.count for each in gangs for pods in each.pods)), gangs=list(gangs))
    [answer] = answers(built, alone("g", ("x", members)), removing=gangs)
    assert not any(gone.whole for gone in _removed(answer))
    return {gone.id: sum(pods.count for pods in gone.pods) for gone in _removed(answer)}


def elastic(name: str, spare: int, level: int = 0) -> PotentialVictim:
    """A gang with a minimum of 2."""
    return potential_victim(name, ("a", "x", spare + 2), spare=spare, level=level)


def test_one_gang_shrinks_rather_than_two_that_are_listed_before() -> None:
    assert shrunk(elastic("one", 1), elastic("two", 2), members=2) == {"two": 2}
    assert shrunk(elastic("one", 1), elastic("other", 1), elastic("three", 3), members=3) == {"three": 3}
    assert shrunk(elastic("two", 2), elastic("other", 2), members=2) == {"two": 2}


def test_the_gang_that_would_lose_fewest_pods_is_spared_if_others_suffice() -> None:
    assert shrunk(elastic("one", 1), elastic("two", 2), elastic("three", 3), members=5) == {"two": 2, "three": 3}


def test_no_more_pods_of_a_higher_level_are_taken_for_fewer_gangs_to_shrink() -> None:
    gangs = [potential_victim("low", ("a", "x", 1), spare=1), elastic("high", 2, level=1)]
    [answer] = answers(full(node("a", 5), gangs=gangs), alone("g", ("x", 2)), removing=gangs)
    assert {gone.id: sum(pods.count for pods in gone.pods) for gone in _removed(answer)} == {"low": 1, "high": 1}


def test_no_more_pods_are_taken_for_fewer_gangs_to_shrink() -> None:
    nodes = [node("a", 2), node("b", 2), node("c", 4)]
    ones = [potential_victim(f"one-{on}", (on, "xx", 1), ("c", "x", 1), spare=1) for on in ("a", "b")]
    small = potential_victim("small", ("c", "x", 2), spare=2)
    [answer] = answers(full(*nodes, gangs=[*ones, small]), alone("g", ("xx", 1)), removing=[*ones, small])
    assert removals(answer) == {"one-a": (False, {"a": 1})}


def test_pods_outside_the_spare_entries_are_preempted_with_their_gang_only() -> None:
    nodes = [node("a", 2, labels={"zone": "a"}), node("b", 2)]
    gangs = [potential_victim("wide", ("b", "x", 2), ("a", "x", 2), spare=2, spare_entries=1)]
    built = full(*nodes, gangs=gangs)
    [answer] = answers(built, alone("g", ("a", 1)), removing=gangs)
    assert removals(answer) == {"wide": (True, {"a": 2, "b": 2})}
    [answer] = answers(built, alone("g", ("x", 1)), removing=gangs)
    assert removals(answer) == {"wide": (False, {"b": 1})}
