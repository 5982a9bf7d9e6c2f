"""Groups without a place are asked about again when somebody could make room who could not before."""

from builders.core.actions import answered, asks_for_room, held_back, until
from builders.core.objects import gang, node, plain_pod
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import BindResults, NotPersisted, SolveFailed
from muster.coordinator.core.preemption.plan import MAX_RECORDS
from muster.gangs.facts import DisruptionBudget, RepairPolicy
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult, VictimGang


def test_a_gang_that_was_being_bound_makes_room_when_it_is() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(4))
    bind = held_back(story, Bind)
    story.add(gang("p").of(4).priority(10).created(9))
    story.run_effects()
    assert story.bound("p") == 0
    story.tell(BindResults(tuple(story.bind(seat) for seat in bind.seats)))
    story.run_effects()
    assert story.bound("p") == 4


def test_a_disruption_budget_that_allows_more_lets_victims_go() -> None:
    story = Story({"n": 4})
    story.change(budgets=[DisruptionBudget("default/b", 0)])
    story.add(gang("a").of(4).budget("default/b"))
    story.run_effects()
    story.add(gang("p").of(4).priority(10).created(9))
    story.run_effects()
    assert story.bound("p") == 0
    story.change(budgets=[DisruptionBudget("default/b", 4)])
    story.run_effects()
    assert story.bound("p") == 4


def test_a_question_that_placement_did_not_answer_is_asked_again() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(4))
    story.run_effects()
    story.add(gang("p").of(4).priority(10).created(9))
    question = held_back(story, Solve, asks_for_room)
    story.tell(SolveFailed(question.solve_id, "placement is away"))
    story.run_effects()
    assert story.bound("p") == 0
    story.pass_time(3)
    assert story.bound("p") == 4


def test_placement_that_gave_up_looking_may_find_victims() -> None:
    story = Story({"n": 4})
    story.add(gang("a").of(4))
    story.run_effects()
    honest = story.solver

    def gives_up(solve: Solve) -> tuple[SolveResult, ...]:
        return tuple(
            SolveResult(result.id, SolveOutcome.NOT_FOUND) if result.outcome is SolveOutcome.INFEASIBLE else result
            for result in honest(solve)
        )

    story.solver = gives_up
    story.add(gang("p").of(4).priority(10).created(9))
    story.pass_time(20)
    assert story.bound("p") == 4


def test_i8_what_goes_elsewhere_does_not_disturb_the_room_that_is_kept() -> None:
    story = Story({"n": 4})
    story.add(gang("runs").of(4).priority(9))
    story.run()
    story.add(gang("head").of(4).created(5))
    story.pass_time(31)
    assert story.leader.cache.kept
    story.change(nodes=[node("k", 2)])
    story.run_effects()
    story.add_pods(plain_pod("urgent", priority=5))
    story.run_effects()
    assert story.cluster.pods["default/urgent"].node == "k"
    assert story.leader.cache.kept


def test_i8_a_gang_that_accumulates_gets_room_kept_too() -> None:
    story = Story({"n": 4})
    small = [plain_pod(f"s{index}") for index in range(4)]
    story.add_pods(*small)
    story.run_effects()
    story.add(gang("big").of(1, cpu=4).created(1).non_strict())
    story.pass_time(31)
    for index, pod in enumerate(small):
        story.change(remove_pods=[pod.uid])
        story.add_pods(plain_pod(f"t{index}", age=50))
        story.run_effects()
    assert story.bound("big") == 1


def test_i6_lost_members_are_lost_for_the_next_leader_too() -> None:
    story = Story({"n": 4, "m": 4})
    story.add(gang("a").of(8).repair(RepairPolicy.EVICT))
    seats = until(story, Bind).seats
    for seat in seats[:4]:
        story.bind(seat)
    story.crash()
    (left,) = {seat.node for seat in seats[4:]}
    for index in range(4):
        story.intrude(plain_pod(f"x{index}"), left)
    story.start()
    story.run_effects()
    assert len(story.gang("a").lost) == 4
    story.change(nodes=[node("k", 1)])
    story.run_effects()
    assert len(story.gang("a").lost) == 3
    story.crash()
    story.start()
    story.run_effects()
    assert len(story.gang("a").lost) == 3
    assert story.gang("a").phase is Phase.REPAIRING


def evicts_everybody(solve: Solve) -> tuple[SolveResult, ...]:
    (group,) = solve.groups
    if not solve.potential_victims:
        return (SolveResult(group.id, SolveOutcome.INFEASIBLE),)
    assignments = tuple(Assignment(group.gangs[0].id, 0, f"n{index}", 10) for index in range(15))
    removed = tuple(VictimGang(each.id, True, each.pods) for each in solve.potential_victims)
    return (SolveResult(group.id, SolveOutcome.PLACED, assignments, victims=removed),)


def test_a_plan_with_more_victims_than_a_transaction_takes() -> None:
    story = Story({f"n{index}": 10 for index in range(15)})
    story.add_pods(*[plain_pod(f"l{index}") for index in range(150)])
    story.run_effects()
    honest, story.solver = story.solver, evicts_everybody
    story.add(gang("p").of(150).priority(10).created(9))
    story.do(0)
    story.do(0)
    writes = [effect for effect in story.under_way if isinstance(effect, Persist)]
    assert len(writes) > 1
    assert all(len(write.puts) <= MAX_RECORDS for write in writes)
    story.solver = honest
    story.run_effects()
    assert story.bound("p") == 150


def test_i9_a_plan_of_which_a_part_cannot_be_recorded_evicts_nobody() -> None:
    story = Story({f"n{index}": 10 for index in range(15)})
    story.add_pods(*[plain_pod(f"l{index}") for index in range(150)])
    story.run_effects()
    story.solver = evicts_everybody
    story.add(gang("p").of(150).priority(10).created(9))
    story.tell(answered(story, held_back(story, Solve, asks_for_room)))
    first = held_back(story, Persist)
    story.tell(NotPersisted(first.persist_id, "too large"))
    story.solver = lambda solve: tuple(SolveResult(group.id, SolveOutcome.INFEASIBLE) for group in solve.groups)
    story.run_effects()
    assert all(pod.node for pod in story.cluster.pods.values() if not pod.gang)
    assert not story.leader.cache.kept
