"""Partial placements, and capacity nominated for others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import (
    alone,
    amounts,
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
from muster.gangs.facts import NodeFacts
from muster.gangs.quantity import MAX_AMOUNT
from muster.gangs.solve import Assignment, NominatedCapacity, SolveGroup
from muster.placement.solve.instance import Answer, NotPlaced, PartiallyPlaced, Placed

CLASSES = [pod_class("x"), pod_class("xx", 2), pod_class("xxx", 3), pod_class("big", 8)]


def partly(answer: Answer) -> PartiallyPlaced:
    assert isinstance(answer, PartiallyPlaced), answer
    return answer


def by_gang(assignments: tuple[Assignment, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for assignment in assignments:
        counts[assignment.gang] = counts.get(assignment.gang, 0) + assignment.count
    return counts


# -- partial placements


def test_g09_a_partial_answer_explains_the_missing_members() -> None:
    built = cluster([node("a", 4)], CLASSES)
    [some] = answers(built, alone("g", ("x", 5), partial=True))
    [none] = answers(built, alone("g", ("x", 5)))
    assert seats(some) == {"a": 4}
    assert partly(some).explanation == refusal(none).explanation


def test_a_partial_group_that_fits_is_placed_whole() -> None:
    [answer] = answers(cluster([node("a", 4)], CLASSES), alone("g", ("x", 6), minimum=4, partial=True))
    assert isinstance(answer, Placed)
    assert seats(answer) == {"a": 4}


@pytest.mark.parametrize("roles", [[("big", 2)], [("big", 1), ("xxx", 1)]])
def test_a_partial_group_without_any_fitting_member_is_infeasible(roles: list[tuple[str, int]]) -> None:
    [answer] = answers(cluster([node("a", 2)], CLASSES), alone("g", *roles, partial=True))
    assert refusal(answer).proved


def test_g08_partial_reservations_count_for_later_groups() -> None:
    asked = [alone(name, ("x", 4), partial=True) for name in "abc"]
    first, second, third = answers(cluster([node("n", 5)], CLASSES), *asked)
    assert isinstance(first, Placed)
    assert seats(partly(second)) == {"n": 1}
    assert isinstance(third, NotPlaced)


def test_a_partial_group_equal_to_a_failed_one_is_placed_in_part() -> None:
    asked = [alone("a", ("x", 5)), alone("b", ("x", 5), partial=True), alone("c", ("x", 5))]
    first, second, third = answers(cluster([node("n", 4)], CLASSES), *asked)
    assert refusal(first).explanation.fit == 4
    assert seats(partly(second)) == {"n": 4}
    assert partly(second).explanation.gang == "b"
    assert refusal(third).explanation.fit == 0


def test_earlier_gangs_and_roles_come_first() -> None:
    built = cluster([node("n", 5)], CLASSES)
    [gangs] = answers(built, group(gang("a", ("x", 4)), gang("b", ("x", 3)), partial=True))
    assert by_gang(partly(gangs).assignments) == {"a": 4, "b": 1}
    [roles] = answers(built, alone("g", ("xx", 2), ("x", 4), partial=True))
    assert (seats_of(roles, 0), seats_of(roles, 1)) == ({"n": 1}, {"n": 3})  # as many, of which one of the first role
    [equal] = answers(built, alone("g", ("x", 3), ("x", 3), partial=True))
    assert (seats_of(equal, 0), seats_of(equal, 1)) == ({"n": 3}, {"n": 2})


def test_minimums_of_all_gangs_come_before_members_above_them() -> None:
    built = cluster([node("n", 4)], [*CLASSES, pod_class("picky", selector={"zone": "mars"})])
    asked = group(gang("a", ("x", 4), minimum=1), gang("b", ("xx", 1), ("picky", 1)), partial=True)
    [answer] = answers(built, asked)
    assert by_gang(partly(answer).assignments) == {"a": 2, "b": 1}


def test_the_largest_partial_placement_requires_a_search() -> None:
    # either order by itself leaves out a 3 or a 2: 3+2 on each of two nodes of 5, and one 3 too many
    built = cluster([node("a", 5), node("b", 5), node("c", 2)], CLASSES)
    [answer] = answers(built, alone("g", ("xxx", 3), ("xx", 3), partial=True))
    assert sum(seats(answer).values()) == 5


def seated_at_most(free: list[int], members: list[int]) -> int:
    if not members:
        return 0
    first, *others = members
    best = seated_at_most(free, others)
    for index in range(len(free)):
        if free[index] >= first:
            left = [have - first * (at == index) for at, have in enumerate(free)]
            best = max(best, 1 + seated_at_most(left, others))
    return best


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(["x", "xx", "xxx"]), st.integers(1, 3)), min_size=1, max_size=2),
)
def test_i7_a_partial_placement_has_the_most_members(free: list[int], roles: list[tuple[str, int]]) -> None:
    nodes = [node(f"n{i}", cpu) for i, cpu in enumerate(free)]
    [answer] = answers(cluster(nodes, CLASSES), alone("g", *roles, partial=True))
    members = [{"x": 1, "xx": 2, "xxx": 3}[class_id] for class_id, count in roles for _ in range(count)]
    most = seated_at_most(free, members)
    placed = 0 if isinstance(answer, NotPlaced) else sum(assignment.count for assignment in answer.assignments)
    assert placed == most
    assert isinstance(answer, Placed) == (most == len(members))
    used = dict.fromkeys((each.name for each in nodes), 0)
    for assignment in () if isinstance(answer, NotPlaced) else answer.assignments:
        used[assignment.node] += assignment.count * {"x": 1, "xx": 2, "xxx": 3}[roles[assignment.role][0]]
    assert all(used[each.name] <= cpu for each, cpu in zip(nodes, free, strict=True))


# -- nominated capacity


def nominated_on(name: str, cpu: float = 0, **others: int) -> NominatedCapacity:
    return NominatedCapacity(name, amounts(cpu, **others))


def place(nodes: list[NodeFacts], asked: SolveGroup, *nominated: NominatedCapacity) -> Answer:
    [answer] = answers(cluster(nodes, CLASSES), asked, nominated=nominated)
    return answer


def test_nominated_capacity_is_withheld_from_all_groups() -> None:
    built = cluster([node("a", 4), node("b", 4)], CLASSES)
    first, second = answers(
        built, alone("g", ("x", 4)), alone("h", ("x", 1)), nominated=[nominated_on("a", 3), nominated_on("b", 1)]
    )
    assert seats(first) == {"a": 1, "b": 3}
    assert isinstance(second, NotPlaced)
    [after] = answers(built, alone("g", ("x", 8)))
    assert seats(after) == {"a": 4, "b": 4}


@pytest.mark.parametrize(
    ("nominated", "fits"),
    [
        ([nominated_on("a", 1), nominated_on("a", 1)], 2),
        ([nominated_on("a", 100)], 0),
        ([nominated_on("a", pods=2)], 1),
        ([nominated_on("a", gpu=5)], 3),
        ([nominated_on("nowhere", 4)], 3),
        ([NominatedCapacity("a", (("no such thing", 5),))], 3),
        ([NominatedCapacity("a", (("cpu", MAX_AMOUNT),)) for _ in range(3000)], 0),
    ],
)
def test_nominated_amounts_are_summed_and_never_add_capacity(nominated: list[NominatedCapacity], fits: int) -> None:
    answer = place([node("a", 4, pods=3)], alone("g", ("x", 5), partial=True), *nominated)
    placed = 0 if isinstance(answer, NotPlaced) else sum(seats(answer).values())
    assert placed == fits


def test_reservations_and_nominated_capacity_both_count() -> None:
    built = cluster([node("a", 4)], CLASSES)
    [answer] = answers(built, alone("g", ("x", 3)), reserved=[("a", "x", ("p",))], nominated=[nominated_on("a", 1)])
    assert refusal(answer).explanation.fit == 2


def test_the_explanation_mentions_nominated_capacity() -> None:
    nodes = [node("a", 4), node("b", 4), node("c", 0.5), node("d", 4, unschedulable=True)]
    explanation = refusal(
        place(nodes, alone("g", ("x", 5)), nominated_on("a", 4), nominated_on("c", 0.5), nominated_on("d", 4))
    ).explanation
    assert explanation.summary == (
        "4 of 5 members fit; short of 1 cpu for the next; 0/4 nodes are available: 3 Insufficient cpu, "
        "1 node(s) were unschedulable; capacity is nominated for others on 1 node"
    )
    without = refusal(place(nodes, alone("g", ("x", 9)))).explanation
    assert "kept" not in without.summary


def test_the_explanation_of_heterogeneous_gangs_mentions_it_too() -> None:
    nodes = [node("a", 4), node("b", 8)]
    explanation = refusal(place(nodes, alone("g", ("x", 1), ("big", 1)), nominated_on("b", 1))).explanation
    assert explanation.class_id == "big"
    assert explanation.summary.endswith("; capacity is nominated for others on 1 node")
