"""The checker of the conformance suite finds violations in answers, and none in correct ones."""

from collections.abc import Callable
from typing import Any

import pytest

from muster.conformance.builders import (
    HOSTNAME,
    ZONE,
    bound,
    cluster,
    factor,
    gang,
    gang_group,
    node,
    nodes_of,
    nominated,
    pack,
    partition,
    pod_class,
    potential_victim,
    reservation,
    single_gang,
    sizes,
    spread,
    tree,
)
from muster.conformance.checker.responses import INFEASIBLE, NOT_FOUND, PARTIAL, PLACED, violations
from muster.conformance.checker.topology import violated_constraints
from muster.conformance.cluster import Cluster
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
    """Assignments as (node, count) of the first role of the first gang."""
    result = pb.GroupResult(id=group.id, outcome=outcome)
    for name, count in assignments:
        result.assignments.add(gang=group.gangs[0].id, role=0, node=name, count=count)
    return result


def found(made: Cluster, request: pb.SolveRequest, *results: pb.GroupResult) -> list[str]:
    return violations(made, request, pb.SolveResponse(results=results))


def found_of(made: Cluster, group: pb.GangGroup, *assignments: tuple[str, int]) -> list[str]:
    return found(made, pb.SolveRequest(groups=[group]), answer(group, *assignments))


def test_correct_answers_have_no_violations() -> None:
    made = cluster([node("a", 4), node("b", 4)], [X], [bound(X, "a", 2)])
    first, second, third = single_gang((X, 4), id="1"), single_gang((X, 2), id="2"), single_gang((X, 9), id="3")
    request = pb.SolveRequest(groups=[first, second, third])
    results = answer(first, ("b", 4)), answer(second, ("a", 2)), answer(third, outcome=INFEASIBLE)
    assert found(made, request, *results) == []


@pytest.mark.parametrize(("outcome", "violations_found"), [(NOT_FOUND, 0), (INFEASIBLE, 1), (PLACED, 1)])
def test_only_groups_that_are_not_found_ran_out_of_time(outcome: Any, violations_found: int) -> None:
    made = cluster([node("a", 4)], [X])
    group = single_gang((X, 1))
    result = answer(group, *([("a", 1)] if outcome == PLACED else []), outcome=outcome)
    result.out_of_time = True
    assert len(found(made, pb.SolveRequest(groups=[group]), result)) == violations_found


def test_groups_of_a_batch_share_capacity() -> None:
    made = cluster([node("a", 4)], [X])
    first, second = single_gang((X, 3), id="1"), single_gang((X, 2), id="2")
    [describe] = found(made, pb.SolveRequest(groups=[first, second]), answer(first, ("a", 3)), answer(second, ("a", 2)))
    assert describe == "group 'group of 2': node 'a' has 4000 of 'cpu' allocatable, but 5000 in use"


@pytest.mark.parametrize(
    ("parts", "fits"),
    [
        ({"reservations": [reservation("a", X, "p")]}, 3),
        ({"reservations": [reservation("a", X, "p"), reservation("b", X, "q")]}, 3),
        ({"nominated": [nominated("a", 1.5)]}, 2),
        ({"nominated": [nominated("a", 1), nominated("a", 1)]}, 2),
    ],
)
def test_reserved_and_nominated_capacity_is_unavailable(parts: dict[str, Any], fits: int) -> None:
    made = cluster([node("a", 4)], [X])
    for count in (fits, fits + 1):
        group = single_gang((X, count))
        describe = found(made, pb.SolveRequest(groups=[group], **parts), answer(group, ("a", count)))
        assert bool(describe) is (count > fits)


def test_a_reservation_of_a_bound_pod_counts_once() -> None:
    pods = bound(X, "a", 2)
    made = cluster([node("a", 4)], [X], [pods])
    group = single_gang((X, 2))
    request = pb.SolveRequest(groups=[group], reservations=[reservation("a", X, *(pod.uid for pod in pods))])
    assert found(made, request, answer(group, ("a", 2))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda result: result.assignments.add(gang="other", role=0, node="a", count=1),
            "role 0 of gang 'other' is not",
        ),
        (
            lambda result: result.assignments.add(gang="gang", role=1, node="a", count=1),
            "role 1 of gang 'gang' is not",
        ),
        (lambda result: result.assignments.add(gang="gang", role=0, node="a", count=1), "3 members of role 0"),
        (lambda result: result.assignments.add(gang="gang", role=0, node="z", count=1), "node 'z' does not exist"),
        (lambda result: result.assignments.add(gang="gang", role=0, node="a", count=0), "an assignment of 0 members"),
        (lambda result: result.ClearField("assignments"), "0 members of gang 'gang' are placed, but its minimum is 2"),
        (lambda result: result.victims.add(id="v"), "'v' is not a potential victim"),
    ],
)
def test_malformed_answers(change: Callable[[pb.GroupResult], object], words: str) -> None:
    made, group = cluster([node("a", 4)], [X]), single_gang((X, 2))
    result = answer(group, ("a", 2))
    change(result)
    describe = found(made, pb.SolveRequest(groups=[group]), result)
    assert any(words in each for each in describe)


@pytest.mark.parametrize(
    ("outcome", "partial", "fine"), [(PARTIAL, True, True), (PARTIAL, False, False), (0, True, False)]
)
def test_outcomes(outcome: Any, partial: bool, fine: bool) -> None:
    made, group = cluster([node("a", 1)], [X]), single_gang((X, 2), partial=partial)
    describe = found(made, pb.SolveRequest(groups=[group]), answer(group, ("a", 1), outcome=outcome))
    assert (describe == []) is fine


def test_an_unplaced_group_has_no_assignments() -> None:
    made, group = cluster([node("a", 4)], [X]), single_gang((X, 2))
    describe = found(made, pb.SolveRequest(groups=[group]), answer(group, ("a", 1), outcome=NOT_FOUND))
    assert describe == ["group 'group of gang': the group is not placed, but has assignments or victims"]


def test_every_gang_of_a_group_has_its_minimum() -> None:
    made = cluster([node("a", 4)], [X])
    group = gang_group(gang((X, 2), id="first"), gang((X, 2), id="second"))
    describe = found_of(made, group, ("a", 2))
    assert describe == [f"group '{group.id}': 0 members of gang 'second' are placed, but its minimum is 2"]


def test_an_answer_older_than_min_revision() -> None:
    made = cluster([node("a", 4)], [X])
    request = pb.SolveRequest()
    request.min_revision.kinds["pods"] = 7
    response = pb.SolveResponse()
    response.revision.kinds["pods"] = 6
    assert violations(made, request, response) == ["the answer is based on pods 6, min_revision is 7"]


@pytest.mark.parametrize(
    ("gone", "whole", "fine"),
    [(2, True, True), (1, True, False), (1, False, True), (2, False, False), (3, True, False)],
)
def test_victims_are_within_potential_victims(gone: int, whole: bool, fine: bool) -> None:
    made = cluster([node("a", 4)], [X], [bound(X, "a", 4)])
    group = single_gang((X, min(gone, 2)))
    request = pb.SolveRequest(groups=[group], potential_victims=[potential_victim("low", ("a", X, 2), spare=1)])
    result = answer(group, ("a", min(gone, 2)))
    removed = result.victims.add(id="low", whole=whole)
    removed.pods.add(node="a", class_id=X.id, count=gone)
    assert (found(made, request, result) == []) is fine


# -- inter-pod rules


def test_a_host_port_is_used_once_per_node() -> None:
    web = pod_class(1, host_ports=(HostPort("TCP", "0.0.0.0", 80),))
    made = cluster([node("a"), node("b")], [web])
    assert found_of(made, single_gang((web, 2)), ("a", 1), ("b", 1)) == []
    assert "a host port of its members is taken on node 'a'" in found_of(made, single_gang((web, 2)), ("a", 2))[0]


def test_anti_affinity_in_both_directions() -> None:
    hermit = pod_class(1, required_pod_anti_affinity=(PodTerm("noisy", ZONE),))
    noisy = pod_class(1, label_set="noisy")
    machines = [node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "x"}), node("c", labels={ZONE: "y"})]
    made = cluster(machines, [hermit, noisy], [bound(hermit, "a")])
    assert found_of(made, single_gang((noisy, 1)), ("c", 1)) == []
    assert "anti-affinity of other pods" in found_of(made, single_gang((noisy, 1)), ("b", 1))[0]
    made = cluster(machines, [hermit, noisy], [bound(noisy, "a")])
    assert "anti-affinity of its members" in found_of(made, single_gang((hermit, 1)), ("b", 1))[0]


def test_the_first_self_affine_pod_chooses_the_domain() -> None:
    flock = pod_class(1, label_set="s", required_pod_affinity=(PodTerm("s", ZONE),))
    machines = [node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "x"}), node("c", labels={ZONE: "y"})]
    made = cluster(machines, [flock])
    assert found_of(made, single_gang((flock, 3)), ("a", 2), ("b", 1)) == []
    assert "required affinity" in found_of(made, single_gang((flock, 3)), ("a", 2), ("c", 1))[0]
    made = cluster(machines, [flock], [bound(flock, "c")])
    assert "required affinity" in found_of(made, single_gang((flock, 1)), ("a", 1))[0]


def test_spread_members_are_accepted_if_some_order_satisfies_the_skew() -> None:
    even = pod_class(1, label_set="s", spread=(SpreadConstraint(1, HOSTNAME, "s"),))
    made = cluster([node("a"), node("b")], [even])
    assert found_of(made, single_gang((even, 5)), ("a", 3), ("b", 2)) == []
    assert "exceeds max skew 1" in found_of(made, single_gang((even, 4)), ("a", 3), ("b", 1))[0]


def test_a_counted_pod_without_the_constraint_may_be_placed_last() -> None:
    even = pod_class(1, label_set="s", spread=(SpreadConstraint(1, HOSTNAME, "s"),))
    counted = pod_class(2, label_set="s")
    made = cluster([node("a"), node("b")], [even, counted])
    group = single_gang((counted, 2), (even, 2))
    result = answer(group, ("a", 2))
    for name in "ab":
        result.assignments.add(gang="gang", role=1, node=name, count=1)
    assert found(made, pb.SolveRequest(groups=[group]), result) == []


def test_nodes_that_reject_members() -> None:
    tainted = node("b", taints=(Taint("t", "", TaintEffect.NO_EXECUTE),))
    made = cluster([node("a", unschedulable=True), tainted, node("c", ready=False)], [X])
    for name, words in (("a", "it is cordoned"), ("b", "it has the taint t"), ("c", "it is not ready")):
        assert words in found_of(made, single_gang((X, 1)), (name, 1))[0]


# -- constraints

RACKS = {"z0": {"r0": {"a": 4, "b": 4}, "r1": {"c": 4}}, "z1": {"r2": {"d": 4}, "r3": {"e": 4}}}


def shaped(*constraints: LevelConstraint, **members: int) -> list[str]:
    made = cluster([*nodes_of(RACKS), node("outside", 4)], [X], trees=[tree("zone rack", RACKS)])
    return violated_constraints(made, "", constraints, members)


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


def test_placed_members_count_for_constraints() -> None:
    made = cluster(nodes_of(RACKS), [X], [bound(X, "c", 2)], [tree("zone rack", RACKS)])
    group = single_gang((X, 2), constraints=[pack("rack", hard=True)], placed=[("c", X, 2)])
    assert found_of(made, group, ("c", 2)) == []
    assert "rack: hard pack is violated: 2 in z0/r0, 2 in z0/r1" in found_of(made, group, ("a", 2))[0]


def test_label_domains_are_distinguished_by_their_parents() -> None:
    levels = TreeLevel("zone", "zone"), TreeLevel("rack", "rack"), TreeLevel("node")
    machines = [node("a", labels={"zone": "x", "rack": "1"}), node("b", labels={"zone": "y", "rack": "1"})]
    made = cluster(machines, [X], trees=[TopologyTree("labels", levels, default=True)])
    assert violated_constraints(made, "labels", [pack("rack", hard=True)], {"a": 1, "b": 1})
    assert not violated_constraints(made, "labels", [pack("rack", hard=True)], {"a": 2})
    assert violated_constraints(made, "no such tree", [pack("rack", hard=True)], {"a": 2}) == [
        "there is no tree 'no such tree'"
    ]


def test_class_ids_are_content_hashes() -> None:
    assert pod_class(1) == pod_class(1)
    assert len({each.id for each in (pod_class(1), pod_class(2), pod_class(1, gpu=1), PodClass("", ()))}) == 4
