"""Rejected answers are harmless, counted by reason and reported."""

from collections.abc import Callable

import pytest

from builders.core.objects import node, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import AnswerRejected, Effect, RejectionReason, Solve
from muster.coordinator.core.events import Solved, SolveFailed
from muster.coordinator.core.report.reasons import reason
from muster.gangs.solve import Assignment, SolveGang, SolveOutcome, SolveResult, VictimGang

Lie = Callable[[SolveGang], tuple[Assignment, ...]]


class Hearing(Scenario):
    """A scenario that keeps what is told of answers."""

    def __init__(self, nodes: dict[str, int]) -> None:
        self.rejected: list[AnswerRejected] = []
        super().__init__(nodes)

    def take(self, effect: Effect) -> None:
        if isinstance(effect, AnswerRejected):
            self.rejected.append(effect)
        super().take(effect)


def assignment(asked: SolveGang, on: str, count: int, role: int = 0, of: str = "") -> Assignment:
    return Assignment(of or asked.id, role, on, count)


LIES: dict[str, tuple[Lie, RejectionReason]] = {
    "an unknown node": (lambda asked: (assignment(asked, "nowhere", 4),), RejectionReason.UNKNOWN),
    "too many on a node": (lambda asked: (assignment(asked, "small", 4),), RejectionReason.INSUFFICIENT_CAPACITY),
    "a pod twice": (lambda asked: (assignment(asked, "a", 4), assignment(asked, "a", 4)), RejectionReason.MALFORMED),
    "a role that was not asked": (lambda asked: (assignment(asked, "a", 4, role=3),), RejectionReason.MALFORMED),
    "a gang that was not asked": (lambda asked: (assignment(asked, "a", 4, of="x/y/z"),), RejectionReason.MALFORMED),
    "fewer than nobody": (
        lambda asked: (assignment(asked, "a", -4), assignment(asked, "a", 8)),
        RejectionReason.MALFORMED,
    ),
    "half a gang": (lambda asked: (assignment(asked, "a", 2),), RejectionReason.INCOMPLETE),
    "nobody": (lambda _: (), RejectionReason.INCOMPLETE),
    "a closed node": (lambda asked: (assignment(asked, "closed", 4),), RejectionReason.FILTERED),
    "two racks for one": (
        lambda asked: (assignment(asked, "a", 2), assignment(asked, "b", 2)),
        RejectionReason.CONSTRAINT,
    ),
}


def test_a_result_with_an_invalid_field_is_rejected_by_name() -> None:
    scenario = Hearing({"a": 8})
    scenario.solver = lambda solve: tuple(
        SolveResult(each.id, SolveOutcome.NOT_FOUND, invalid="revision: it states none for pods")
        for each in solve.groups
    )
    scenario.add(gang("g").of(4))
    scenario.run_effects()
    (reported,) = scenario.rejected
    assert reported.reason == RejectionReason.MALFORMED
    assert "could not be used: revision: it states none for pods" in reason(scenario.gang("g"))


def lied_to() -> Hearing:
    scenario = Hearing({"a": 8, "b": 8, "small": 2})
    scenario.change(nodes=[node("closed", 8, unschedulable=True)], trees=[racks(r0="a small closed", r1="b")])
    return scenario


@pytest.mark.parametrize("what", LIES)
def test_i3_a_wrong_answer_is_rejected_counted_and_reported(what: str) -> None:
    lie, why = LIES[what]
    scenario = lied_to()

    def lies(solve: Solve) -> tuple[SolveResult, ...]:
        return tuple(SolveResult(each.id, SolveOutcome.PLACED, lie(each.gangs[0])) for each in solve.groups)

    scenario.solver = lies
    scenario.add(gang("g").of(4).with_topology("rack: hard pack"))
    scenario.run_effects()
    assert not scenario.leader.cache.ledger.reserved
    assert not scenario.etcd
    (reported,) = scenario.rejected
    assert (reported.gang, reported.reason, reported.count) == ("test/default/g", why, 1)
    assert scenario.gang("g").attempts.rejections == {why: 1}
    assert scenario.leader.rejections.counts == {why: 1}
    assert "could not be used" in reason(scenario.gang("g"))
    scenario.pass_time(1)
    assert scenario.rejected[-1].count == len(scenario.rejected) > 1
    scenario.solver = scenario.first_fit
    scenario.pass_time(10)
    assert scenario.bound("g") == 4
    assert reason(scenario.gang("g")) == ""


def test_no_word_about_a_gang_is_counted() -> None:
    scenario = lied_to()
    scenario.solver = lambda _: ()
    scenario.add(gang("g").of(4))
    scenario.run_effects()
    assert scenario.gang("g").attempts.rejections == {RejectionReason.MISSING: 1}


def test_undecodable_answers_are_counted() -> None:
    scenario = lied_to()
    scenario.add(gang("g").of(4))
    scenario.tell(
        SolveFailed(
            scenario.only(Solve).solve_id, "its answer cannot be decoded: it is not a SolveResponse", unreadable=True
        )
    )
    assert scenario.gang("g").attempts.rejections == {RejectionReason.UNDECODABLE: 1}


def test_an_outage_of_placement_is_not_a_rejection() -> None:
    scenario = lied_to()
    scenario.add(gang("g").of(4))
    scenario.tell(SolveFailed(scenario.only(Solve).solve_id, "UNAVAILABLE"))
    assert not scenario.gang("g").attempts.rejections


def test_conflicts_of_concurrent_solves_are_counted_separately() -> None:
    scenario = lied_to()
    scenario.scale(2)
    scenario.add(gang("one").of(8))
    scenario.add(gang("two").of(8).created(1))
    for solve in [effect for effect in scenario.under_way if isinstance(effect, Solve)]:
        scenario.under_way.remove(solve)
        (group,) = solve.groups
        assignments = (Assignment(group.gangs[0].id, 0, "a", 8),)
        scenario.tell(Solved(solve.solve_id, (SolveResult(group.id, SolveOutcome.PLACED, assignments),)))
    assert scenario.gang("two").attempts.rejections == {RejectionReason.CONFLICT: 1}


def test_victims_that_were_not_offered_are_rejected() -> None:
    scenario = lied_to()
    scenario.add(gang("low").of(16))
    scenario.run()

    def wrong(solve: Solve) -> tuple[SolveResult, ...]:
        if not solve.potential_victims:
            return scenario.first_fit(solve)
        return tuple(
            SolveResult(each.id, SolveOutcome.PLACED, (assignment(each.gangs[0], "a", 8),), victims=())
            for each in solve.groups
        )

    scenario.solver = wrong
    scenario.add(gang("high").of(8).with_priority(5))
    scenario.run_effects()
    assert scenario.bound("low") == 16
    assert scenario.bound("high") == 0
    assert scenario.gang("high").attempts.rejections == {RejectionReason.INVALID_VICTIMS: 1}
    scenario.solver = scenario.first_fit
    scenario.pass_time(10)
    assert scenario.bound("high") == 8


def test_i9_nothing_is_evicted_for_nodes_that_a_hard_constraint_excludes() -> None:
    scenario = lied_to()
    scenario.add(gang("low").of(16))
    scenario.run()

    def torn(solve: Solve) -> tuple[SolveResult, ...]:
        if not solve.potential_victims:
            return scenario.first_fit(solve)
        (group,), (low,) = solve.groups, solve.potential_victims
        assignments = (assignment(group.gangs[0], "a", 4), assignment(group.gangs[0], "b", 4))
        return (SolveResult(group.id, SolveOutcome.PLACED, assignments, victims=(VictimGang(low.id, True, low.pods),)),)

    scenario.solver = torn
    scenario.add(gang("high").of(8).with_priority(5).with_topology("rack: hard pack"))
    scenario.run_effects()
    assert scenario.bound("low") == 16
    assert scenario.gang("high").attempts.rejections == {RejectionReason.INVALID_VICTIMS: 1}
    scenario.solver = scenario.first_fit
    scenario.pass_time(10)
    assert scenario.bound("high") == 8
