"""Avoided nodes are used only if there is no placement without them."""

import numpy as np
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
    removals,
    seats,
)
from muster.gangs.solve import SolveGang, SolveGroup
from muster.placement.solve.instance import PartiallyPlaced, Placed

CLASSES = [pod_class("x"), pod_class("xx", 2)]


def avoiding(asked: SolveGroup, *names: str) -> SolveGroup:
    """The group with these avoided nodes for all its gangs."""
    return replace(asked, gangs=tuple(_avoiding(each, names) for each in asked.gangs))


def _avoiding(asked: SolveGang, names: tuple[str, ...]) -> SolveGang:
    return replace(asked, avoided=names)


def test_avoided_nodes_are_not_used_if_others_suffice() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    [best] = answers(built, alone("g", ("x", 2)))
    [other] = answers(built, avoiding(alone("g", ("x", 2)), "a"))
    assert (seats(best), seats(other)) == ({"a": 2}, {"b": 2})


def test_avoided_nodes_are_used_as_a_last_resort() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    [answer] = answers(built, avoiding(alone("g", ("x", 1), ("xx", 4)), "a", "gone"))
    assert sum(seats(answer).values()) == 5
    [none] = answers(built, avoiding(alone("g", ("xx", 6)), "a"))
    [plain] = answers(built, alone("g", ("xx", 6)))
    assert refusal(none).explanation == refusal(plain).explanation


def test_single_pods_and_gang_groups_avoid_nodes_too() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    single, after = answers(built, avoiding(alone("g", ("x", 1)), "a"), alone("h", ("x", 1)))
    assert (seats(single), seats(after)) == ({"b": 1}, {"a": 1})
    both = group(gang("g", ("x", 1)), gang("h", ("xx", 1)))
    [answer] = answers(built, avoiding(both, "a"))
    assert seats(answer) == {"b": 2}


def test_avoided_nodes_are_used_before_preemption() -> None:
    built = cluster([node("a", 2), node("b", 2)], CLASSES, [("p", "xx", "b")])
    [answer] = answers(
        built, avoiding(alone("g", ("xx", 1)), "a"), removing=[potential_victim("victim", ("b", "xx", 1))]
    )
    assert isinstance(answer, Placed)
    assert (seats(answer), removals(answer)) == ({"a": 1}, {})
    [answer] = answers(built, avoiding(alone("g", ("x", 2), partial=True), "a"))
    assert not isinstance(answer, PartiallyPlaced)
    assert seats(answer) == {"a": 2}


def test_withheld_capacity_of_avoided_nodes_is_restored() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    built.state.refresh()
    before = built.state.free.copy()
    answers(built, avoiding(alone("g", ("x", 3)), "a"), avoiding(alone("h", ("xx", 9)), "b"))
    assert np.array_equal(built.state.free, before)
