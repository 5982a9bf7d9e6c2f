"""Nodes that did not take a gang's members are used only if it has no place without them."""

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
    """The group, whose gangs all avoid these nodes."""
    return replace(asked, gangs=tuple(_avoiding(each, names) for each in asked.gangs))


def _avoiding(asked: SolveGang, names: tuple[str, ...]) -> SolveGang:
    return replace(asked, avoided=names)


def test_they_are_not_used_if_others_do() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    [best] = answers(built, alone("g", ("x", 2)))
    [other] = answers(built, avoiding(alone("g", ("x", 2)), "a"))
    assert (seats(best), seats(other)) == ({"a": 2}, {"b": 2})


def test_they_are_used_if_there_is_no_place_without_them() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    [answer] = answers(built, avoiding(alone("g", ("x", 1), ("xx", 4)), "a", "gone"))
    assert sum(seats(answer).values()) == 5
    [none] = answers(built, avoiding(alone("g", ("xx", 6)), "a"))
    [plain] = answers(built, alone("g", ("xx", 6)))
    assert refusal(none).explanation == refusal(plain).explanation


def test_a_single_pod_and_groups_of_gangs_avoid_them_too() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    single, after = answers(built, avoiding(alone("g", ("x", 1)), "a"), alone("h", ("x", 1)))
    assert (seats(single), seats(after)) == ({"b": 1}, {"a": 1})
    both = group(gang("g", ("x", 1)), gang("h", ("xx", 1)))
    [answer] = answers(built, avoiding(both, "a"))
    assert seats(answer) == {"b": 2}


def test_nobody_is_removed_and_nothing_left_out_as_long_as_they_have_room() -> None:
    built = cluster([node("a", 2), node("b", 2)], CLASSES, [("p", "xx", "b")])
    [answer] = answers(
        built, avoiding(alone("g", ("xx", 1)), "a"), removing=[potential_victim("victim", ("b", "xx", 1))]
    )
    assert isinstance(answer, Placed)
    assert (seats(answer), removals(answer)) == ({"a": 1}, {})
    [answer] = answers(built, avoiding(alone("g", ("x", 2), partial=True), "a"))
    assert not isinstance(answer, PartiallyPlaced)
    assert seats(answer) == {"a": 2}


def test_what_is_taken_is_given_back() -> None:
    built = cluster([node("a", 2), node("b", 8)], CLASSES)
    built.state.refresh()
    before = built.state.free.copy()
    answers(built, avoiding(alone("g", ("x", 3)), "a"), avoiding(alone("h", ("xx", 9)), "b"))
    assert np.array_equal(built.state.free, before)
