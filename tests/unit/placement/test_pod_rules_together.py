"""Pods that mind one another in batches, next to reservations, removals and constraints over the topology."""

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
    away,
    lost,
    member,
    near,
    packed,
    port,
    rack,
    spread,
    wish,
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


def test_p26_tainted_nodes_of_a_rack_are_as_if_absent_and_counted() -> None:
    taint = Taint("dedicated", "other", TaintEffect.NO_SCHEDULE)
    nodes = [replace(each, taints=(taint,)) for each in rack("r0", {"a": 4, "b": 4})] + rack("r0", {"c": 3})
    built = with_racks(cluster(nodes + rack("r1", {"d": 4}), [pod_class("x")]))
    [fits, none] = answers(built, packed(alone("g", ("x", 4))), packed(alone("h", ("x", 4))))
    assert seats(fits) == {"d": 4}
    assert lost(none)["node(s) had untolerated taint {dedicated: other}"] == 2


def test_single_pods_of_one_batch_mind_one_another() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    got = answers(cluster(nodes, [member(**away(RACK))]), *(alone(f"g{index}", ("x", 1)) for index in range(3)))
    assert [isinstance(each, Placed) for each in got] == [True, True, False]
    assert {*seats(got[0]), *seats(got[1])} in ({"a", "c"}, {"b", "c"})


def test_reserved_pods_mind_and_are_minded() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    built = cluster(nodes, [member(**away(RACK))])
    for _ in range(2):  # what was reserved in an earlier solve is forgotten
        [answer] = answers(built, alone("g", ("x", 1)), reserved=[("a", "x", ("u",))])
        assert seats(answer) == {"c": 1}
    [answer] = answers(built, alone("g", ("x", 2)))
    assert isinstance(answer, Placed)


def test_a_class_that_comes_later_keeps_those_away_that_were_there_before() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 9})
    built = cluster(nodes, [member()])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert seats(answer) == {"a": 1}
    lonely = member("lonely", labelled=[], **away(RACK))
    built.apply(Batch(pod_classes=(lonely,), pods=(PodFacts("p", "d", "p", "lonely", node="a"),)))
    [answer] = answers(built, alone("g", ("x", 1)))
    assert seats(answer) == {"b": 1}


def test_what_of_a_partial_gang_may_go_somewhere_goes() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 9})
    [answer] = answers(cluster(nodes, [member(**away(RACK))]), alone("g", ("x", 3), partial=True))
    assert isinstance(answer, PartiallyPlaced)
    assert sum(seats(answer).values()) == 2


def test_room_is_made_where_the_rules_let_members_go() -> None:
    nodes = rack("r0", {"a": 2}) + rack("r1", {"b": 2})
    built = cluster(nodes, [member(**away(RACK)), pod_class("low", 2)], [("l0", "low", "a"), ("l1", "low", "b")])
    victims = [potential_victim("v", ("a", "low", 1), ("b", "low", 1), spare=2)]
    [answer] = answers(built, alone("g", ("x", 2)), removing=victims)
    assert isinstance(answer, Placed)
    assert seats(answer) == {"a": 1, "b": 1}


def test_who_holds_a_port_goes_for_it() -> None:
    classes = [member("x", 1, **port(80)), member("low", 1, labelled=[], **port(80))]
    built = cluster([node("a", 9), node("b", 9)], classes, [("l0", "low", "a"), ("l1", "low", "b")])
    [answer] = answers(built, alone("g", ("x", 1)), removing=[potential_victim("v", ("b", "low", 1), spare=1)])
    assert isinstance(answer, Placed)
    assert seats(answer) == {"b": 1}
    [answer] = answers(built, alone("g", ("x", 1)))
    assert refusal(answer).proved


def test_who_keeps_others_away_goes_for_them() -> None:
    nodes = rack("r0", {"a": 4, "b": 4})
    lonely = member("lonely", labelled=[], **away(RACK, "job"))
    built = cluster(nodes, [lonely, member(**near(RACK))], [("p", "lonely", "a")])
    [answer] = answers(built, alone("g", ("x", 8)), removing=[potential_victim("v", ("a", "lonely", 1))])
    assert isinstance(answer, Placed)
    assert [each.id for each in answer.victims] == ["v"]
    assert seats(answer) == {"a": 4, "b": 4}


def test_hard_pack_and_one_per_node() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 1, "d": 1, "e": 1})
    built = with_racks(cluster(nodes, [member(**away(HOST))]))
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


def test_constraints_and_rules_that_cannot_be_kept_together_are_refused() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 9})
    built = with_racks(cluster(nodes, [member(**away(RACK))]))
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
        member("racks", **away(RACK)),
        member("together", **near(ZONE)),
        member("wish", **wish(-1, RACK)),
    ]
    asked = [alone(each.id, (each.id, 5)) for each in classes]
    asked.append(group(gang("m0", ("zones", 2)), gang("m1", ("racks", 2))))
    expected = [answers(cluster(nodes, classes), each) for each in asked]
    assert all(isinstance(answer, Placed) for [answer] in expected)
    for seed in range(20):
        shuffled = list(nodes)
        Random(seed).shuffle(shuffled)
        assert [answers(cluster(shuffled, classes), each) for each in asked] == expected


def test_wishes_do_not_keep_a_gang_from_the_only_place_there_is() -> None:
    classes = [member("4", 4, **wish(-100, HOST)), member("2", 2, **wish(100, HOST))]
    nodes = rack("r0", {"a": 6, "b": 6})
    for roles in ((("4", 2), ("2", 2)), (("2", 2), ("4", 2))):
        [answer] = answers(cluster(nodes, classes), alone("g", *roles))
        assert seats(answer) == {"a": 2, "b": 2}


def test_single_pods_of_one_batch_are_spread_as_they_wish() -> None:
    nodes = rack("r0", {"a": 9}, zone="z0") + rack("r1", {"b": 9}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE, hard=False))])
    got = answers(built, *(alone(f"g{index}", ("x", 1)) for index in range(4)))
    assert sorted(name for each in got for name in seats(each)) == ["a", "a", "b", "b"]


def test_pods_that_nobody_minds_are_not_followed() -> None:
    built = cluster([node("a")], [pod_class("x"), pod_class("y", 2)], [("p", "y", "a")])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert isinstance(answer, Placed)
    assert not built.capacity.followed
    assert not built.capacity.moves
    assert built.state.of("x").inter_pod is None


def test_room_that_is_kept_is_told_only_where_it_is_in_the_way() -> None:
    nodes = rack("r0", {"a": 1}) + rack("r1", {"b": 1})
    lonely = member("lonely", 0, labelled=[], **away(RACK, "job"))
    built = cluster(nodes, [lonely, member()], [("p", "lonely", "a")])
    kept = [NominatedCapacity("a", (("cpu", 1000),)), NominatedCapacity("b", (("cpu", 1000),))]
    [answer] = answers(built, alone("g", ("x", 1)), nominated=kept)
    assert refusal(answer).explanation.summary.endswith("capacity is nominated for others on 1 node")
