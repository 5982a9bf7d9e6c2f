"""Results of placement with an invalid field are replaced by results that name the field."""

import pytest

from muster.coordinator.answer_fields import checked
from muster.gangs.solve import (
    Assignment,
    PodsOnNode,
    PotentialVictim,
    Role,
    SolveGang,
    SolveGroup,
    SolveOutcome,
    SolveRequest,
    SolveResult,
    VictimGang,
)

GROUP = SolveGroup("g", (SolveGang("g", 1, (Role("x", 2),)),))
REQUEST = SolveRequest(
    {"pods": 7}, (), (GROUP,), potential_victims=(PotentialVictim("low", 0, 1, (PodsOnNode("a", "x", 2),)),)
)
SEATS = (Assignment("g", 0, "a", 2),)
PLACED = SolveResult("g", SolveOutcome.PLACED, SEATS)


def victims(*gangs: VictimGang) -> SolveResult:
    return SolveResult("g", SolveOutcome.PLACED, SEATS, victims=gangs)


def on_a(count: int, node: str = "a") -> tuple[PodsOnNode, ...]:
    return (PodsOnNode(node, "x", count),)


INVALID: dict[str, tuple[tuple[SolveResult, ...], str]] = {
    "a result twice": ((PLACED, PLACED), "results: the group is listed twice"),
    "a victim that was not offered": (
        (victims(VictimGang("high", True, on_a(1))),),
        'victims: gang "high" is not among the potential victims of the request',
    ),
    "a victim twice": (
        (victims(VictimGang("low", False, on_a(1)), VictimGang("low", False, on_a(1))),),
        'victims: gang "low" is listed twice',
    ),
    "more pods than were offered": (
        (victims(VictimGang("low", True, on_a(3))),),
        'victims: 3 pods of gang "low" on node "a" are listed, 2 are potential victims',
    ),
    "pods elsewhere": (
        (victims(VictimGang("low", True, on_a(1, "b"))),),
        'victims: 1 pods of gang "low" on node "b" are listed, 0 are potential victims',
    ),
    "assignments of a group that is not placed": (
        (SolveResult("g", SolveOutcome.NOT_FOUND, SEATS),),
        "assignments: 1 are listed, and the outcome is OUTCOME_NOT_FOUND",
    ),
    "a part of a group that is placed whole": (
        (SolveResult("g", SolveOutcome.PARTIAL, SEATS),),
        "outcome: it is OUTCOME_PARTIAL, and the group is not partial",
    ),
    "out of time, and a proof": (
        (SolveResult("g", SolveOutcome.INFEASIBLE, out_of_time=True),),
        "out_of_time: it is set, and the outcome is OUTCOME_INFEASIBLE",
    ),
}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_field_is_named(what: str) -> None:
    results, message = INVALID[what]
    assert checked(REQUEST, results, {"pods": 7}) == (SolveResult("g", SolveOutcome.NOT_FOUND, invalid=message),)


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ({}, "revision: it states none for pods, and at least 7 was requested"),
        ({"pods": 6}, "revision: it is based on pods 6, and at least 7 was requested"),
    ],
)
def test_an_answer_from_an_older_state_or_without_a_revision_is_invalid(revision: dict[str, int], message: str) -> None:
    (result,) = checked(REQUEST, (PLACED,), revision)
    assert result.invalid == message
    assert not result.assignments


def test_valid_results_are_unchanged_and_those_of_other_groups_left_out() -> None:
    valid = victims(VictimGang("low", True, on_a(2)))
    other = SolveResult("another", SolveOutcome.PLACED, SEATS)
    assert checked(REQUEST, (valid, other), {"pods": 8, "nodes": 1}) == (valid,)
