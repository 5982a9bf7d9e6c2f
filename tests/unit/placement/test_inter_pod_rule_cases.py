"""Scenarios of inter-pod rules: affinity, anti-affinity, spreading, host ports, volumes; and their filter reasons."""

from typing import Any

import pytest
from msgspec.structs import replace

from builders.placement.clusters import alone, answers, cluster, node, refusal, seats
from builders.placement.inter_pod_rules import (
    EVERY_IP,
    HOST,
    RACK,
    ZONE,
    affinity,
    anti_affinity,
    by_label,
    filtered,
    host_port,
    member,
    preferred_affinity,
    rack,
    spread,
)
from builders.placement.trees import asking
from muster.gangs.facts import (
    Batch,
    HostPort,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodFacts,
    SpreadConstraint,
    Taint,
    TaintEffect,
    TopologyTree,
    TreeLevel,
)
from muster.placement.solve.instance import Placed


def test_p27_one_per_node_and_no_more_members_than_nodes() -> None:
    one_each = member(**anti_affinity(HOST))
    nodes = rack("r0", {"a": 9, "b": 9, "c": 9, "d": 9})
    [answer] = answers(cluster(nodes, [one_each]), alone("g", ("x", 4)))
    assert seats(answer) == dict.fromkeys("abcd", 1)
    [answer] = answers(cluster(nodes[:3], [one_each]), alone("g", ("x", 4)))
    assert refusal(answer).proved
    assert filtered(answer) == {"node(s) didn't match pod anti-affinity rules": 3}
    explained = refusal(answer).explanation
    assert (explained.fit, explained.needed, explained.short_by) == (3, 4, ())


def test_p28_spread_over_zones() -> None:
    nodes = rack("r0", {"a": 8}, zone="z0") + rack("r1", {"b": 4, "c": 4}, zone="z1")
    [answer] = answers(cluster(nodes, [member(**spread(ZONE))]), alone("g", ("x", 5)))
    assert sorted(by_label(answer, nodes, ZONE).values()) == [2, 3]


def test_p29_all_in_the_rack_of_the_pod_with_affinity() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 3, "d": 3})
    server = member("server", labelled=["server"])
    built = cluster(nodes, [server, member(**affinity(RACK, "server"))], [("s", "server", "c")])
    [answer, too_many] = answers(built, alone("g", ("x", 4)), alone("h", ("x", 2)))
    assert by_label(answer, nodes, RACK) == {"r1": 4}
    assert filtered(too_many) == {"node(s) didn't match pod affinity rules": 2, "Insufficient cpu": 2}


def test_p30_a_host_port_is_used_once_per_node() -> None:
    server = member(**host_port(8080))
    [answer] = answers(cluster([node("a"), node("b")], [server]), alone("g", ("x", 3)))
    assert refusal(answer).proved
    assert filtered(answer) == {"node(s) didn't have free ports for the requested pod ports": 2}
    [answer] = answers(cluster([node("a"), node("b")], [server]), alone("g", ("x", 2)))
    assert seats(answer) == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (("TCP", EVERY_IP, 80), ("TCP", "10.0.0.1", 80), False),
        (("TCP", "10.0.0.1", 80), ("TCP", EVERY_IP, 80), False),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), False),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), True),
        (("UDP", EVERY_IP, 80), ("TCP", EVERY_IP, 80), True),
        (("TCP", EVERY_IP, 81), ("TCP", EVERY_IP, 80), True),
    ],
)
def test_ports_conflict_by_protocol_address_and_number(
    held: tuple[str, str, int], wanted: tuple[str, str, int], free: bool
) -> None:
    there = member("there", labelled=[], host_ports=(HostPort(*held),))
    built = cluster([node("a")], [there, member(host_ports=(HostPort(*wanted),))], [("p", "there", "a")])
    [answer] = answers(built, alone("g", ("x", 1)))
    assert isinstance(answer, Placed) is free


def test_i12_many_host_ports_are_compared_by_number() -> None:
    compared = 0

    class Port(HostPort, frozen=True):
        def __getattribute__(self, name: str) -> object:
            nonlocal compared
            compared += name == "port"
            return super().__getattribute__(name)

    classes = [
        member(f"c{first}", host_ports=tuple(Port("TCP", EVERY_IP, first + each) for each in range(500)))
        for first in range(1, 5001, 500)
    ]
    built = cluster([node("a", 20)], classes)
    [answer] = answers(built, alone("g", *((f"c{first}", 1) for first in range(1, 5001, 500))))
    assert seats(answer) == {"a": 10}
    assert compared < 10 * 10 * 500 * 10, "not each with each: that would be 25,000,000"


def test_two_classes_with_the_same_host_port_share_no_node() -> None:
    built = cluster([node("a", 9), node("b", 2)], [member("x", 1, **host_port(80)), member("y", 3, **host_port(80))])
    [answer] = answers(built, alone("g", ("x", 1), ("y", 1)))
    assert {assignment.node: assignment.role for assignment in answer.assignments} == {"a": 1, "b": 0}  # type: ignore[union-attr]


def test_a_volume_keeps_its_pod_in_its_zone() -> None:
    nodes = rack("r0", {"a": 0.5}, zone="z0") + rack("r1", {"b": 9}, zone="z1") + rack("r2", {"c": 0.5}, zone="z1")
    in_z0 = NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, ("z0",)),))
    [answer] = answers(cluster(nodes, [member(volumes=((in_z0,),))]), alone("g", ("x", 1)))
    assert refusal(answer).proved
    # resources are checked first: c lacks cpu, and only b is filtered by the volume
    assert filtered(answer) == {"Insufficient cpu": 2, "node(s) had volume node affinity conflict": 1}


def test_anti_affinity_of_bound_pods_rejects_members_without_rules() -> None:
    lonely = member("lonely", labelled=[], **anti_affinity(RACK, "job"))
    nodes = rack("r0", {"a": 4, "b": 4}) + rack("r1", {"c": 1})
    built = cluster(nodes, [lonely, member()], [("p", "lonely", "a")])
    [answer, none] = answers(built, alone("g", ("x", 1)), alone("h", ("x", 1)))
    assert seats(answer) == {"c": 1}
    assert filtered(none) == {"node(s) didn't satisfy existing pods anti-affinity rules": 2, "Insufficient cpu": 1}


def test_one_per_rack_takes_the_tightest_node_of_each() -> None:
    nodes = rack("r0", {"a": 9, "b": 2}) + rack("r1", {"c": 3, "d": 1}) + rack("r2", {"e": 5})
    built = cluster(nodes, [member(**anti_affinity(RACK))])
    [answer] = answers(built, alone("g", ("x", 3)))
    assert seats(answer) == {"b": 1, "d": 1, "e": 1}
    [answer] = answers(built, alone("g", ("x", 4)))
    assert refusal(answer).proved
    assert filtered(answer) == {"node(s) didn't match pod anti-affinity rules": 4, "Insufficient cpu": 1}


def test_self_affine_members_share_the_smallest_rack_that_holds_them() -> None:
    nodes = rack("r0", {"a": 9, "b": 9}) + rack("r1", {"c": 2, "d": 3}) + rack("r2", {"e": 4})
    built = cluster(nodes, [member(**affinity(RACK))])
    [answer] = answers(built, alone("g", ("x", 5)))
    assert seats(answer) == {"c": 2, "d": 3}
    [answer] = answers(built, alone("g", ("x", 19)))
    assert refusal(answer).proved


def test_roles_with_affinity_to_another_role_follow_it() -> None:
    nodes = rack("r0", {"a": 9}) + rack("r1", {"b": 5, "c": 5}) + rack("r2", {"d": 3})
    server, worker = member("server", 5, labelled=["server"]), member("worker", 1, **affinity(RACK, "server"))
    [answer] = answers(cluster(nodes, [server, worker]), alone("g", ("worker", 5), ("server", 1)))
    assert by_label(answer, nodes, RACK) == {"r1": 6}


def test_roles_with_mutual_anti_affinity_get_separate_racks() -> None:
    nodes = rack("r0", {"a": 4}) + rack("r1", {"b": 2})
    red = member("red", labelled=["red"], **anti_affinity(RACK, "blue"))
    blue = member("blue", labelled=["blue"])
    [answer] = answers(cluster(nodes, [red, blue]), alone("g", ("blue", 4), ("red", 2)))
    assert {assignment.role: assignment.node for assignment in answer.assignments} == {0: "a", 1: "b"}  # type: ignore[union-attr]
    [answer] = answers(cluster(nodes, [red, blue]), alone("g", ("blue", 3), ("red", 3)))
    assert refusal(answer).proved


def test_a_full_zone_limits_the_others_to_max_skew() -> None:
    nodes = rack("r0", {"a": 1}, zone="z0") + rack("r1", {"b": 9}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE, 2))])
    [answer] = answers(built, alone("g", ("x", 4)))
    assert seats(answer) == {"a": 1, "b": 3}
    [answer] = answers(built, alone("g", ("x", 5)))
    assert refusal(answer).proved
    assert filtered(answer) == {"Insufficient cpu": 1, "node(s) didn't match pod topology spread constraints": 1}


def test_min_domains_counts_a_missing_domain_as_empty() -> None:
    nodes = rack("r0", {"a": 9}, zone="z0") + rack("r1", {"b": 9}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE, 2, min_domains=3))])
    [answer] = answers(built, alone("g", ("x", 5), minimum=1))
    assert seats(answer) == {"a": 2, "b": 2}


def test_nodes_without_the_label_have_their_own_reason() -> None:
    built = cluster([*rack("r0", {"a": 1}, zone="z0"), node("b", 9)], [member(**spread(ZONE))])
    [answer] = answers(built, alone("g", ("x", 2)))
    missing = "node(s) didn't match pod topology spread constraints (missing required label)"
    assert filtered(answer) == {"Insufficient cpu": 1, missing: 1}


def test_spread_over_nodes_and_zones_at_once() -> None:
    nodes = rack("r0", {"a": 9, "b": 9, "c": 9}, zone="z0") + rack("r1", {"d": 9, "e": 9}, zone="z1")
    both = (SpreadConstraint(1, ZONE, "job"), SpreadConstraint(1, HOST, "job"))
    [answer] = answers(cluster(nodes, [member(spread=both)]), alone("g", ("x", 8)))
    assert by_label(answer, nodes, ZONE) == {"z0": 4, "z1": 4}
    assert sorted(seats(answer).values()) == [1, 1, 2, 2, 2]


def test_deleting_pods_do_not_count_for_spreading_but_hold_resources() -> None:
    nodes = rack("r0", {"a": 2}, zone="z0") + rack("r1", {"b": 2}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE))])
    built.apply(Batch(pods=(PodFacts("p", "d", "p", "x", node="a", deleting=True),)))
    [answer] = answers(built, alone("g", ("x", 3)))
    assert seats(answer) == {"a": 1, "b": 2}


def test_preferred_anti_affinity_is_satisfied_while_nodes_last() -> None:
    nodes = rack("r0", {"a": 9, "b": 9, "c": 9})
    [answer] = answers(cluster(nodes, [member(**preferred_affinity(-100, HOST))]), alone("g", ("x", 5)))
    assert sorted(seats(answer).values()) == [1, 2, 2]


def test_preferred_affinity_is_weaker_than_taints() -> None:
    tainted = [
        replace(each, taints=(Taint("spot", "", TaintEffect.PREFER_NO_SCHEDULE),)) for each in rack("r0", {"a": 9})
    ]
    nodes = [*tainted, *rack("r1", {"b": 9}), *rack("r2", {"c": 8})]
    classes = [member("server", labelled=["server"]), member(**preferred_affinity(100, RACK, "server"))]
    [answer] = answers(cluster(nodes, classes, [("s", "server", "a")]), alone("g", ("x", 1)))
    assert seats(answer) == {"c": 1}
    [answer] = answers(cluster(nodes, classes, [("s", "server", "b")]), alone("g", ("x", 1)))
    assert seats(answer) == {"b": 1}


def test_schedule_anyway_is_not_required() -> None:
    nodes = rack("r0", {"a": 1}, zone="z0") + rack("r1", {"b": 9}, zone="z1")
    built = cluster(nodes, [member(**spread(ZONE, hard=False))])
    [answer] = answers(built, alone("g", ("x", 5)))
    assert seats(answer) == {"a": 1, "b": 4}


@pytest.mark.parametrize(
    ("rules", "wanted", "remedy"),
    [
        (anti_affinity(HOST), 5, 'it would fit with 2 more nodes like "a", empty'),
        (host_port(80), 4, 'it would fit with 1 more node like "a", empty'),
        (anti_affinity(RACK), 3, "it would fit if its pod anti-affinity were preferred, not required"),
        (affinity(RACK), 13, "it would fit if its pod affinity were preferred, not required"),
        (spread(RACK), 12, "it would fit if its topology spread constraints were ScheduleAnyway"),
        (affinity(RACK, "nobody"), 2, "it would fit if its pod affinity were preferred, not required"),
    ],
)
def test_the_remedy_is_a_relaxed_rule_or_more_nodes(rules: dict[str, Any], wanted: int, remedy: str) -> None:
    nodes = rack("r0", {"a": 9, "b": 2}) + rack("r1", {"c": 4})
    [answer] = answers(cluster(nodes, [member(**rules)]), alone("g", ("x", wanted)))
    assert refusal(answer).explanation.remedy == remedy


@pytest.mark.parametrize("rules", [anti_affinity(HOST), host_port(80)])
def test_master_and_workers_need_a_node_each(rules: dict[str, Any]) -> None:
    nodes = rack("r0", {f"n{index:02}": 9 for index in range(40)})
    classes = [member("master", 4, **rules), member("worker", 1, **rules)]
    [answer] = answers(cluster(nodes, classes), alone("g", ("master", 1), ("worker", 39)))
    assert sorted(seats(answer).values()) == [1] * 40
    [answer] = answers(cluster(nodes, classes), alone("g", ("master", 1), ("worker", 40)))
    assert refusal(answer).proved
    assert refusal(answer).explanation.fit == 40


@pytest.mark.parametrize("soft", ["rack: pack", "rack: pack; node: spread", "rack: partition(2)"])
def test_soft_constraints_are_relaxed_for_inter_pod_rules(soft: str) -> None:
    nodes = [each for index in range(30) for each in rack(f"r{index:02}", {f"n{index:02}": 9})]
    tree = TopologyTree("racks", (TreeLevel("rack", RACK), TreeLevel("node")), default=True)
    on = cluster(nodes, [member(**spread(RACK))])
    on.apply(Batch(trees=(tree,)))
    [answer] = answers(on, asking(soft, 240))
    assert by_label(answer, nodes, RACK) == {f"r{index:02}": 8 for index in range(30)}
