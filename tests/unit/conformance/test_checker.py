"""The suite's checker: what it finds in answers, and that it finds nothing in those that are right."""

from collections.abc import Callable
from typing import Any

import pytest

from muster.conformance.building import (
    HOSTNAME,
    ZONE,
    alone,
    bound,
    factor,
    gang,
    node,
    nodes_of,
    nominated,
    pack,
    partition,
    pod_class,
    potential_victim,
    reservation,
    sizes,
    spread,
    together,
    tree,
    world,
)
from muster.conformance.checker.answers import INFEASIBLE, NOT_FOUND, PARTIAL, PLACED, violations
from muster.conformance.checker.shape import broken
from muster.conformance.world import World
from muster.gangs.facts import (
    HostPort,
    LevelConstraint,
    PodClass,
    PodTerm,
    SpreadConstraint,
    Taint,
    TaintEffect,
    TopologyTree,
    TreeLevel,
)
from muster.placement.v1 import placement_pb2 as pb

X = pod_class(1)


def answer(group: pb.GangGroup, *assignments: tuple[str, int], outcome: Any = PLACED) -> pb.GroupResult:
    """Runs as (node, count) of the first role of the first gang."""
    result = pb.GroupResult(id=group.id, outcome=outcome)
    for name, count in assignments:
        result.assignments.add(gang=group.gangs[0].id, role=0, node=name, count=count)
    return result


def found(made: World, request: pb.SolveRequest, *results: pb.GroupResult) -> list[str]:
    return violations(made, request, pb.SolveResponse(results=results))


def found_of(made: World, group: pb.GangGroup, *assignments: tuple[str, int]) -> list[str]:
    return found(made, pb.SolveRequest(groups=[group]), answer(group, *assignments))


def test_answers_that_are_right_are_let_pass() -> None:
    made = world([node("a", 4), node("b", 4)], [X], [bound(X, "a", 2)])
    first, second, third = alone((X, 4), id="1"), alone((X, 2), id="2"), alone((X, 9), id="3")
    request = pb.SolveRequest(groups=[first, second, third])
    results = answer(first, ("b", 4)), answer(second, ("a", 2)), answer(third, outcome=INFEASIBLE)
    assert found(made, request, *results) == []


def test_groups_of_a_batch_are_added_up() -> None:
    made = world([node("a", 4)], [X])
    first, second = alone((X, 3), id="1"), alone((X, 2), id="2")
    [told] = found(made, pb.SolveRequest(groups=[first, second]), answer(first, ("a", 3)), answer(second, ("a", 2)))
    assert told == "group 'group of 2': node 'a' has 4000 of 'cpu' and would have to give 5000"


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({"reservations": [reservation("a", X, "p")]}, 3),
        ({"reservations": [reservation("a", X, "p"), reservation("b", X, "q")]}, 3),
        ({"nominated": [nominated("a", 1.5)]}, 2),
        ({"nominated": [nominated("a", 1), nominated("a", 1)]}, 2),
    ],
)
def test_room_that_is_spoken_for_is_not_there(parts: dict[str, Any], fits: int) -> None:
    made = world([node("a", 4)], [X])
    for count in (fits, fits + 1):
        group = alone((X, count))
        told = found(made, pb.SolveRequest(groups=[group], **parts), answer(group, ("a", count)))
        assert bool(told) is (count > fits)


def test_a_reservation_of_a_pod_that_is_seen_counts_once() -> None:
    pods = bound(X, "a", 2)
    made = world([node("a", 4)], [X], [pods])
    group = alone((X, 2))
    request = pb.SolveRequest(groups=[group], reservations=[reservation("a", X, *(pod.uid for pod in pods))])
    assert found(made, request, answer(group, ("a", 2))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda result: result.assignments.add(gang="other", role=0, node="a", count=1),
            "role 0 of gang 'other' was not",
        ),
        (
            lambda result: result.assignments.add(gang="gang", role=1, node="a", count=1),
            "role 1 of gang 'gang' was not",
        ),
        (lambda result: result.assignments.add(gang="gang", role=0, node="a", count=1), "3 members of role 0"),
        (lambda result: result.assignments.add(gang="gang", role=0, node="z", count=1), "there is no node 'z'"),
        (lambda result: result.assignments.add(gang="gang", role=0, node="a", count=0), "an assignment of 0 members"),
        (lambda result: result.ClearField("assignments"), "0 members of gang 'gang' are placed, its minimum is 2"),
        (lambda result: result.victims.add(id="v"), "'v' was not offered for removal"),
    ],
)
def test_answers_that_are_malformed(change: Callable[[pb.GroupResult], object], words: str) -> None:
    made, group = world([node("a", 4)], [X]), alone((X, 2))
    result = answer(group, ("a", 2))
    change(result)
    told = found(made, pb.SolveRequest(groups=[group]), result)
    assert any(words in each for each in told)


@pytest.mark.parametrize(
    ("outcome", "partial", "fine"), [(PARTIAL, True, True), (PARTIAL, False, False), (0, True, False)]
)
def test_outcomes(outcome: Any, partial: bool, fine: bool) -> None:
    made, group = world([node("a", 1)], [X]), alone((X, 2), partial=partial)
    told = found(made, pb.SolveRequest(groups=[group]), answer(group, ("a", 1), outcome=outcome))
    assert (told == []) is fine


def test_who_has_no_place_has_no_runs() -> None:
    made, group = world([node("a", 4)], [X]), alone((X, 2))
    told = found(made, pb.SolveRequest(groups=[group]), answer(group, ("a", 1), outcome=NOT_FOUND))
    assert told == ["group 'group of gang': it is not placed, but has assignments or victims"]


def test_every_gang_of_a_group_has_its_minimum() -> None:
    made = world([node("a", 4)], [X])
    group = together(gang((X, 2), id="first"), gang((X, 2), id="second"))
    told = found_of(made, group, ("a", 2))
    assert told == [f"group '{group.id}': 0 members of gang 'second' are placed, its minimum is 2"]


def test_the_revision_that_was_asked_for() -> None:
    made = world([node("a", 4)], [X])
    request = pb.SolveRequest()
    request.min_revision.kinds["pods"] = 7
    response = pb.SolveResponse()
    response.revision.kinds["pods"] = 6
    assert violations(made, request, response) == ["the answer is of pods 6, at least 7 was asked for"]


@pytest.mark.parametrize(
    ("gone", "whole", "fine"),
    [(2, True, True), (1, True, False), (1, False, True), (2, False, False), (3, True, False)],
)
def test_removal_is_as_it_was_offered(gone: int, whole: bool, fine: bool) -> None:
    made = world([node("a", 4)], [X], [bound(X, "a", 4)])
    group = alone((X, min(gone, 2)))
    request = pb.SolveRequest(groups=[group], potential_victims=[potential_victim("low", ("a", X, 2), spare=1)])
    result = answer(group, ("a", min(gone, 2)))
    removed = result.victims.add(id="low", whole=whole)
    removed.pods.add(node="a", class_id=X.id, count=gone)
    assert (found(made, request, result) == []) is fine


# -- rules between pods


def test_host_ports_are_given_once() -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 80),))
    made = world([node("a"), node("b")], [web])
    assert found_of(made, alone((web, 2)), ("a", 1), ("b", 1)) == []
    assert "a host port of its members is taken on node 'a'" in found_of(made, alone((web, 2)), ("a", 2))[0]


def test_anti_affinity_counts_from_both_sides() -> None:
    hermit = pod_class(1, required_pod_anti_affinity=(PodTerm("noisy", ZONE),))
    noisy = pod_class(1, selected_by=("noisy",))
    machines = [node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "x"}), node("c", labels={ZONE: "y"})]
    made = world(machines, [hermit, noisy], [bound(hermit, "a")])
    assert found_of(made, alone((noisy, 1)), ("c", 1)) == []
    assert "anti-affinity of other pods" in found_of(made, alone((noisy, 1)), ("b", 1))[0]
    made = world(machines, [hermit, noisy], [bound(noisy, "a")])
    assert "anti-affinity of its members" in found_of(made, alone((hermit, 1)), ("b", 1))[0]


def test_the_first_of_those_that_want_to_be_together_may_choose_and_the_others_follow() -> None:
    flock = pod_class(1, selected_by=("s",), required_pod_affinity=(PodTerm("s", ZONE),))
    machines = [node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "x"}), node("c", labels={ZONE: "y"})]
    made = world(machines, [flock])
    assert found_of(made, alone((flock, 3)), ("a", 2), ("b", 1)) == []
    assert "required affinity" in found_of(made, alone((flock, 3)), ("a", 2), ("c", 1))[0]
    made = world(machines, [flock], [bound(flock, "c")])
    assert "required affinity" in found_of(made, alone((flock, 1)), ("a", 1))[0]


def test_an_order_is_looked_for_in_which_spread_members_could_have_come() -> None:
    even = pod_class(1, selected_by=("s",), spread=(SpreadConstraint(1, HOSTNAME, "s"),))
    made = world([node("a"), node("b")], [even])
    assert found_of(made, alone((even, 5)), ("a", 3), ("b", 2)) == []
    assert "differ by more than 1" in found_of(made, alone((even, 4)), ("a", 3), ("b", 1))[0]


def test_who_is_counted_but_not_bound_by_a_spread_may_come_last() -> None:
    even = pod_class(1, selected_by=("s",), spread=(SpreadConstraint(1, HOSTNAME, "s"),))
    counted = pod_class(2, selected_by=("s",))
    made = world([node("a"), node("b")], [even, counted])
    group = alone((counted, 2), (even, 2))
    result = answer(group, ("a", 2))
    for name in "ab":
        result.assignments.add(gang="gang", role=1, node=name, count=1)
    assert found(made, pb.SolveRequest(groups=[group]), result) == []


def test_nodes_that_may_not_be_used() -> None:
    tainted = node("b", taints=(Taint("t", "", TaintEffect.NO_EXECUTE),))
    made = world([node("a", unschedulable=True), tainted, node("c", ready=False)], [X])
    for name, words in (("a", "it is cordoned"), ("b", "it has the taint t"), ("c", "it is not ready")):
        assert words in found_of(made, alone((X, 1)), (name, 1))[0]


# -- constraints

RACKS = {"z0": {"r0": {"a": 4, "b": 4}, "r1": {"c": 4}}, "z1": {"r2": {"d": 4}, "r3": {"e": 4}}}


def shaped(*constraints: LevelConstraint, **members: int) -> list[str]:
    made = world([*nodes_of(RACKS), node("outside", 4)], [X], trees=[tree("zone rack", RACKS)])
    return broken(made, "", constraints, members)


@pytest.mark.parametrize(
    ("constraints", "members", "kept"),
    [
        ([pack("rack", hard=True)], {"a": 2, "b": 3}, True),
        ([pack("rack", hard=True)], {"a": 2, "c": 3}, False),
        ([pack("rack")], {"a": 2, "c": 3}, True),
        ([pack("zone"), pack("rack", hard=True)], {"a": 2, "d": 2}, False),
        ([spread("zone"), pack("rack", hard=True)], {"a": 2, "d": 2}, True),
        ([pack("zone", hard=True), spread("node")], {"a": 2, "c": 3}, True),
        ([spread("rack", hard=True)], {"a": 1, "b": 1, "c": 2, "d": 3}, True),
        ([spread("rack", hard=True)], {"a": 1, "c": 3}, False),
        ([spread("zone"), spread("rack", hard=True)], {"a": 3, "d": 1}, True),
        ([partition("rack", 2, hard=True)], {"a": 2, "c": 3}, True),
        ([partition("rack", 3, hard=True)], {"a": 2, "c": 3}, False),
        ([sizes("node", 2, 3, hard=True)], {"a": 2, "e": 3}, True),
        ([sizes("node", 2, 3, hard=True)], {"a": 1, "e": 3}, False),
        ([factor("rack", 2, hard=True)], {"a": 1, "b": 1, "d": 4}, True),
        ([factor("rack", 2, hard=True)], {"a": 1, "d": 4}, False),
        ([pack("rack", hard=True)], {"outside": 2}, False),
        ([sizes("node", 2, 3, hard=True)], {"outside": 2}, True),
        ([pack("rock", hard=True)], {"a": 2}, False),
    ],
)
def test_hard_constraints(constraints: list[LevelConstraint], members: dict[str, int], kept: bool) -> None:
    assert (shaped(*constraints, **members) == []) is kept


def test_members_that_have_a_place_already_count_for_constraints() -> None:
    made = world(nodes_of(RACKS), [X], [bound(X, "c", 2)], [tree("zone rack", RACKS)])
    group = alone((X, 2), constraints=[pack("rack", hard=True)], placed=[("c", X, 2)])
    assert found_of(made, group, ("c", 2)) == []
    assert "rack: hard pack is broken: 2 in z0/r0, 2 in z0/r1" in found_of(made, group, ("a", 2))[0]


def test_domains_by_labels_are_told_apart_by_those_above() -> None:
    levels = TreeLevel("zone", "zone"), TreeLevel("rack", "rack"), TreeLevel("node")
    machines = [node("a", labels={"zone": "x", "rack": "1"}), node("b", labels={"zone": "y", "rack": "1"})]
    made = world(machines, [X], trees=[TopologyTree("labels", levels, default=True)])
    assert broken(made, "labels", [pack("rack", hard=True)], {"a": 1, "b": 1})
    assert not broken(made, "labels", [pack("rack", hard=True)], {"a": 2})
    assert broken(made, "no such tree", [pack("rack", hard=True)], {"a": 2}) == ["there is no tree 'no such tree'"]


def test_classes_are_named_by_their_content() -> None:
    assert pod_class(1) == pod_class(1)
    assert len({each.id for each in (pod_class(1), pod_class(2), pod_class(1, gpu=1), PodClass("", ()))}) == 4
