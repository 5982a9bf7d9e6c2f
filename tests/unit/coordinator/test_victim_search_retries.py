"""The search for victims is repeated when there are new potential victims."""

from builders.core.actions import answered, asks_for_room, held_back, until
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import BindResults, NotPersisted, SolveFailed
from muster.coordinator.core.preemption.plan import MAX_RECORDS
from muster.gangs.facts import DisruptionBudget, RepairPolicy
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult, VictimGang


def test_a_gang_becomes_a_potential_victim_once_bound() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(4))
    bind = held_back(scenario, Bind)
    scenario.add(gang("p").of(4).with_priority(10).created(9))
    scenario.run_effects()
    assert scenario.bound("p") == 0
    scenario.tell(BindResults(tuple(scenario.bind(seat) for seat in bind.seats)))
    scenario.run_effects()
    assert scenario.bound("p") == 4


def test_a_budget_that_allows_more_evictions_repeats_the_victim_search() -> None:
    scenario = Scenario({"n": 4})
    scenario.change(budgets=[DisruptionBudget("default/b", 0)])
    scenario.add(gang("a").of(4).with_budget("default/b"))
    scenario.run_effects()
    scenario.add(gang("p").of(4).with_priority(10).created(9))
    scenario.run_effects()
    assert scenario.bound("p") == 0
    scenario.change(budgets=[DisruptionBudget("default/b", 4)])
    scenario.run_effects()
    assert scenario.bound("p") == 4


def test_an_unanswered_victim_search_is_repeated() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(4))
    scenario.run_effects()
    scenario.add(gang("p").of(4).with_priority(10).created(9))
    question = held_back(scenario, Solve, asks_for_room)
    scenario.tell(SolveFailed(question.solve_id, "placement is away"))
    scenario.run_effects()
    assert scenario.bound("p") == 0
    scenario.pass_time(3)
    assert scenario.bound("p") == 4


def test_a_search_without_result_may_still_find_victims() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("a").of(4))
    scenario.run_effects()
    honest = scenario.solver

    def gives_up(solve: Solve) -> tuple[SolveResult, ...]:
        return tuple(
            SolveResult(result.id, SolveOutcome.NOT_FOUND) if result.outcome is SolveOutcome.INFEASIBLE else result
            for result in honest(solve)
        )

    scenario.solver = gives_up
    scenario.add(gang("p").of(4).with_priority(10).created(9))
    scenario.pass_time(20)
    assert scenario.bound("p") == 4


def test_i8_a_placement_elsewhere_keeps_the_reservation() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(gang("runs").of(4).with_priority(9))
    scenario.run()
    scenario.add(gang("head").of(4).created(5))
    scenario.pass_time(31)
    assert scenario.leader.cache.nominations
    scenario.change(nodes=[node("k", 2)])
    scenario.run_effects()
    scenario.add_pods(plain_pod("urgent", priority=5))
    scenario.run_effects()
    assert scenario.cluster.pods["default/urgent"].node == "k"
    assert scenario.leader.cache.nominations


def test_i8_a_non_strict_gang_gets_a_reservation_too() -> None:
    scenario = Scenario({"n": 4})
    small = [plain_pod(f"s{index}") for index in range(4)]
    scenario.add_pods(*small)
    scenario.run_effects()
    scenario.add(gang("big").of(1, cpu=4).created(1).non_strict())
    scenario.pass_time(31)
    for index, pod in enumerate(small):
        scenario.change(remove_pods=[pod.uid])
        scenario.add_pods(plain_pod(f"t{index}", age=50))
        scenario.run_effects()
    assert scenario.bound("big") == 1


def test_i6_the_next_leader_knows_lost_members() -> None:
    scenario = Scenario({"n": 4, "m": 4})
    scenario.add(gang("a").of(8).with_repair_policy(RepairPolicy.EVICT))
    seats = until(scenario, Bind).seats
    for seat in seats[:4]:
        scenario.bind(seat)
    scenario.crash()
    (left,) = {seat.node for seat in seats[4:]}
    for index in range(4):
        scenario.intrude(plain_pod(f"x{index}"), left)
    scenario.start()
    scenario.run_effects()
    assert len(scenario.gang("a").lost) == 4
    scenario.change(nodes=[node("k", 1)])
    scenario.run_effects()
    assert len(scenario.gang("a").lost) == 3
    scenario.crash()
    scenario.start()
    scenario.run_effects()
    assert len(scenario.gang("a").lost) == 3
    assert scenario.gang("a").phase is Phase.REPAIRING


def evicts_everybody(solve: Solve) -> tuple[SolveResult, ...]:
    (group,) = solve.groups
    if not solve.potential_victims:
        return (SolveResult(group.id, SolveOutcome.INFEASIBLE),)
    assignments = tuple(Assignment(group.gangs[0].id, 0, f"n{index}", 10) for index in range(15))
    removed = tuple(VictimGang(each.id, True, each.pods) for each in solve.potential_victims)
    return (SolveResult(group.id, SolveOutcome.PLACED, assignments, victims=removed),)


def test_a_plan_with_more_victims_than_fit_a_transaction() -> None:
    scenario = Scenario({f"n{index}": 10 for index in range(15)})
    scenario.add_pods(*[plain_pod(f"l{index}") for index in range(150)])
    scenario.run_effects()
    honest, scenario.solver = scenario.solver, evicts_everybody
    scenario.add(gang("p").of(150).with_priority(10).created(9))
    scenario.do(0)
    scenario.do(0)
    writes = [effect for effect in scenario.under_way if isinstance(effect, Persist)]
    assert len(writes) > 1
    assert all(len(write.puts) <= MAX_RECORDS for write in writes)
    scenario.solver = honest
    scenario.run_effects()
    assert scenario.bound("p") == 150


def test_i9_a_plan_that_cannot_be_recorded_completely_evicts_nothing() -> None:
    scenario = Scenario({f"n{index}": 10 for index in range(15)})
    scenario.add_pods(*[plain_pod(f"l{index}") for index in range(150)])
    scenario.run_effects()
    scenario.solver = evicts_everybody
    scenario.add(gang("p").of(150).with_priority(10).created(9))
    scenario.tell(answered(scenario, held_back(scenario, Solve, asks_for_room)))
    first = held_back(scenario, Persist)
    scenario.tell(NotPersisted(first.persist_id, "too large"))
    scenario.solver = lambda solve: tuple(SolveResult(group.id, SolveOutcome.INFEASIBLE) for group in solve.groups)
    scenario.run_effects()
    assert all(pod.node for pod in scenario.cluster.pods.values() if not pod.gang)
    assert not scenario.leader.cache.nominations
