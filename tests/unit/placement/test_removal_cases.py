"""Who goes so that a gang has a place: the preemption scenarios by their ids, and what else the contract says."""

from builders.placement import (
    alone,
    answers,
    cluster,
    node,
    pod_class,
    refusal,
    removable,
    removals,
    seats,
)
from muster.gangs.facts import NodeFacts
from muster.gangs.placing import Removable
from muster.placement.cluster import Cluster


def full(*nodes: NodeFacts, gangs: list[Removable]) -> Cluster:
    """The nodes with the pods of the gangs on them, of classes x (1 cpu), xx (2) and big (8)."""
    classes = [pod_class("x"), pod_class("xx", 2), pod_class("big", 8), pod_class("a1", selector={"name": "a1"})]
    bound = [
        (f"{each.id}/{index}/{number}", pods.class_id, pods.node)
        for each in gangs
        for index, pods in enumerate(each.pods)
        for number in range(pods.count)
    ]
    return cluster(nodes, classes, bound)


def test_g43_one_gang_goes_whole_rather_than_four_that_lose_a_member_each() -> None:
    ones = [removable(f"four-{i}", (f"n{i}", "x", 1), ("rest", "x", 1)) for i in range(4)]
    gangs = [*ones, removable("one", *((f"n{i}", "x", 1) for i in range(4)))]
    nodes = [node(f"n{i}", 2) for i in range(4)] + [node("rest", 4, unschedulable=True)]
    built = full(*nodes, gangs=[*gangs, removable("other", *((f"n{i}", "x", 0) for i in range(4)))])
    [answer] = answers(built, alone("g", ("x", 4)), removing=gangs)
    assert removals(answer) == {"one": (True, {"n0": 1, "n1": 1, "n2": 1, "n3": 1})}
    assert seats(answer) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}


def test_g44_nothing_goes_for_a_gang_that_can_never_fit() -> None:
    gangs = [removable("low", ("a", "x", 4))]
    [answer] = answers(full(node("a", 4), gangs=gangs), alone("g", ("x", 5)), removing=gangs)
    refused = refusal(answer)
    assert refused.proved
    assert (refused.explanation.fit, refused.explanation.needed) == (4, 5)
    assert refused.explanation.summary.startswith("even if all that may be removed were gone: 4 of 5 members fit")


def test_g45_spare_members_go_first_and_their_gang_stays() -> None:
    gangs = [removable("single", ("a", "x", 2)), removable("wide", ("a", "x", 4), spare=2)]
    [answer] = answers(full(node("a", 6), gangs=gangs), alone("g", ("x", 2)), removing=gangs)
    assert removals(answer) == {"wide": (False, {"a": 2})}


def test_what_fits_removes_nothing() -> None:
    gangs = [removable("low", ("a", "x", 3))]
    [answer] = answers(full(node("a", 4), gangs=gangs), alone("g", ("x", 1)), removing=gangs)
    assert removals(answer) == {}
