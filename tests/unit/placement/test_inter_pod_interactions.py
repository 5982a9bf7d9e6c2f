"""Inter-pod rules in batches and together with reservations, preemption and topology constraints."""

from random import Random

from msgspec.structs import replace

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
    seats,
)
from builders.placement.inter_pod_rules import (
    HOST,
    RACK,
    ZONE,
    affinity,
    anti_affinity,
    filtered,
    host_port,
    member,
    packed,
    preferred_affinity,
    rack,
    spread,
    with_racks,
)
from muster.gangs.facts import Batch, PodFacts, Taint, TaintEffect
from muster.gangs.solve import NominatedCapacity
from muster.placement.solve.instance import NotPlaced, PartiallyPlaced, Placed


def test_p25_the_rack_of_the_selector_is_packed_though_another_is_larger() -> None:
    nodes = rack("r0", {"a": 9}, pool="x") + rack("r1", {"b": 2, "c": 2}, pool="y")
    built = with_racks(cluster(nodes, [pod_class("x", selector={"pool": "y"})]))
    [answer] = answers(built, packed(alone("g", ("x", 4))))
    assert seats(answer) == {"b": 2, "c": 2}


def test_p26_tainted_nodes_of_a_rack_are_unusable_and_counted() -> None:
    taint = Taint("dedicated", "other", TaintEffect.NO_SCHEDULE)
    nodes = [replace(each, taints=(taint,)) for each in rack("r0", {"a": 4, "b": 4})] + rack("r0", {"c": 3})
    built = with_racks(cluster(nodes + rack("r1", {"d": 4}), [pod_class("x")]))
    [fits, none] = answers(built, packed(alone("g", ("x", 4))), packed(alone("h", ("x", 4))))
    assert seats(fits) == {"d": 4}
    assert filtered(none)["node(s) had untolerated taint {dedicated: other}"] == 2


def test_single_pods_of_one_batch_respect_each_others_rules() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    got = answers(
        cluster(nodes, [member(**anti_affinity(RACK))]), *(alone(f"g{index}", ("x", 1)) for index in range(3))
    )
    assert [isinstance(each, Placed) for each in got] == [True, True, False]
    assert {*seats(got[0]), *seats(got[1])} in ({"a", "c"}, {"b", "c"})


def test_reserved_pods_count_in_both_directions() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    built = cluster(nodes, [member(**anti_affinity(RACK))])
    for _ in range(2):  # reservations of an earlier solve are rolled back
        [answer] = answers(built, alone("g", ("x", 1)), reserved=[("a", "x", ("u",))])
        assert seats(answer) == {"c": 1}
    [answer] = answers(built, alone("g", ("x", 2)))
    assert isinstance(answer, Placed)


def test_anti_affinity_of_a_later_class_rejects_earlier_classes() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 9})
    built = cluster(nodes, [member()])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert seats(answer) == {"a": 1}
    lonely = member("lonely", labelled=[], **anti_affinity(RACK))
    built.apply(Batch(pod_classes=(lonely,), pods=(PodFacts("p", "d", "p", "lonely", node="a"),)))
    [answer] = answers(built, alone("g", ("x", 1)))
    assert seats(answer) == {"b": 1}


def test_a_partial_group_places_the_members_that_fit() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    [answer] = answers(cluster(nodes, [member(**anti_affinity(RACK))]), alone("g", ("x", 3), partial=True))
    assert isinstance(answer, PartiallyPlaced)
    assert sum(seats(answer).values()) == 2


def test_victims_are_selected_where_rules_accept_members() -> None:
    nodes = rack("r0", {"a": 2}) + rack("r1", {"b": 2})
    built = cluster(
        nodes, [member(**anti_affinity(RACK)), pod_class("low", 2)], [("l0", "low", "a"), ("l1", "low", "b")]
    )
    victims = [potential_victim("v", ("a", "low", 1), ("b", "low", 1), spare=2)]
    [answer] = answers(built, alone("g", ("x", 2)), removing=victims)
    assert isinstance(answer, Placed)
    assert seats(answer) == {"a": 1, "b": 1}


def test_the_holder_of_a_host_port_is_preempted() -> None:
    classes = [member("x", 1, **host_port(80)), member("low", 1, labelled=[], **host_port(80))]
    built = cluster([node("a", 9), node("b", 9)], classes, [("l0", "low", "a"), ("l1", "low", "b")])
    [answer] = answers(built, alone("g", ("x", 1)), removing=[potential_victim("v", ("b", "low", 1), spare=1)])
    assert isinstance(answer, Placed)
    assert seats(answer) == {"b": 1}
    [answer] = answers(built, alone("g", ("x", 1)))
    assert refusal(answer).proved


def test_a_pod_with_anti_affinity_is_preempted() -> None:
    nodes = rack("r0", {"a": 4, "b": 4})
    lonely = member("lonely", labelled=[], **anti_affinity(RACK, "job"))
    built = cluster(nodes, [lonely, member(**affinity(RACK))], [("p", "lonely", "a")])
    [answer] = answers(built, alone("g", ("x", 8)), removing=[potential_victim("v", ("a", "lonely", 1))])
    assert isinstance(answer, Placed)
    assert [each.id for each in answer.victims] == ["v"]
    assert seats(answer) == {"a": 4, "b": 4}


def test_hard_pack_and_one_per_node() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 1, "d": 1, "e": 1})
    built = with_racks(cluster(nodes, [member(**anti_affinity(HOST))]))
    [answer] = answers(built, packed(alone("g", ("x", 3))))
    assert seats(answer) == dict.fromkeys("cde", 1)
    [answer] = answers(built, packed(alone("g", ("x", 4))))
    assert refusal(answer).proved


def test_hard_pack_and_spread_over_zones_within_the_rack() -> None:
    nodes = [
        *rack("r0", {"a": 9}, zone="z0"),
        *rack("r1", {"b": 2}, zone="z0"),
        *rack("r1", {"c": 2}, zone="z1"),
    ]
    built = with_racks(cluster(nodes, [member(**spread(ZONE))]))
    [answer] = answers(built, packed(alone("g", ("x", 4))))
    assert seats(answer) == {"b": 2, "c": 2}
    [answer] = answers(built, packed(alone("g", ("x", 5))))
    assert isinstance(answer, NotPlaced)


def test_contradicting_constraints_and_rules_are_not_placed() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 9})
    built = with_racks(cluster(nodes, [member(**anti_affinity(RACK))]))
    [answer] = answers(built, packed(alone("g", ("x", 2))))
    refused = refusal(answer)
    assert refused.proved
    assert "keeps the hard constraints" in refused.explanation.summary or refused.explanation.fit < 2


def test_p39_the_order_of_nodes_does_not_matter() -> None:
    nodes = [
        each
        for index in range(6)
        for each in rack(f"r{index}", {f"n{index}{n}": 1 + (index + n) % 3 for n in range(3)}, zone=f"z{index % 3}")
    ]
    classes = [
        member("zones", **spread(ZONE)),
        member("racks", **anti_affinity(RACK)),
        member("together", **affinity(ZONE)),
        member("preferred_affinity", **preferred_affinity(-1, RACK)),
    ]
    asked = [alone(each.id, (each.id, 5)) for each in classes]
    asked.append(group(gang("m0", ("zones", 2)), gang("m1", ("racks", 2))))
    expected = [answers(cluster(nodes, classes), each) for each in asked]
    assert all(isinstance(answer, Placed) for [answer] in expected)
    for seed in range(20):
        shuffled = list(nodes)
        Random(seed).shuffle(shuffled)
        assert [answers(cluster(shuffled, classes), each) for each in asked] == expected


def test_preferences_do_not_prevent_the_only_placement() -> None:
    classes = [member("4", 4, **preferred_affinity(-100, HOST)), member("2", 2, **preferred_affinity(100, HOST))]
    nodes = rack("r0", {"a": 6, "b": 6})
    for roles in ((("4", 2), ("2", 2)), (("2", 2), ("4", 2))):
        [answer] = answers(cluster(nodes, classes), alone("g", *roles))
        assert seats(answer) == {"a": 2, "b": 2}


def test_single_pods_of_one_batch_follow_their_preferences() -> None:
    nodes = rack("r0", {"a": 9}, zone="z0") + rack("r1", {"b": 9}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE, hard=False))])
    got = answers(built, *(alone(f"g{index}", ("x", 1)) for index in range(4)))
    assert sorted(name for each in got for name in seats(each)) == ["a", "a", "b", "b"]


def test_pods_that_no_rule_selects_are_not_tracked() -> None:
    built = cluster([node("a")], [pod_class("x"), pod_class("y", 2)], [("p", "y", "a")])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert isinstance(answer, Placed)
    assert not built.capacity.followed
    assert not built.capacity.moves
    assert built.state.of("x").inter_pod is None


def test_nominated_capacity_is_reported_only_where_it_blocks() -> None:
    nodes = rack("r0", {"a": 1}) + rack("r1", {"b": 1})
    lonely = member("lonely", 0, labelled=[], **anti_affinity(RACK, "job"))
    built = cluster(nodes, [lonely, member()], [("p", "lonely", "a")])
    kept = [NominatedCapacity("a", (("cpu", 1000),)), NominatedCapacity("b", (("cpu", 1000),))]
    [answer] = answers(built, alone("g", ("x", 1)), nominated=kept)
    assert refusal(answer).explanation.summary.endswith("capacity is nominated for others on 1 node")
