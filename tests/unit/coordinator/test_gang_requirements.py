"""Requirements of a gang as a whole: equal pods, minimum resources, succeeded members, default levels."""

import pytest
from msgspec.structs import replace

from builders.core.actions import end, evicted, full, until
from builders.core.objects import class_with_volume, node, plain_pod, pod_class, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.cache.cache import MAX_OUTDATED
from muster.coordinator.core.effects import Effect, GangChanged, Persist, Phase, Solve
from muster.coordinator.core.report import reports
from muster.dialects.dialect import Dialect, PodMarks
from muster.dialects.registry import Registry
from muster.dialects.sources import gang_facts
from muster.gangs.facts import GangFacts, LevelConstraint, LevelPolicy, MatchPolicy, PodFacts, PodPhase


def succeed(scenario: Scenario, name: str, *numbers: int) -> None:
    """Pods of a gang have done their work."""
    pods = [scenario.cluster.pods[f"default/{name}-{number}@1"] for number in numbers]
    scenario.change(pods=[replace(pod, phase=PodPhase.SUCCEEDED) for pod in pods])


# -- members that succeeded


def some_done(*, counting: bool) -> Scenario:
    """A gang of 4 of which 3 have succeeded and one waits; it has no permit."""
    scenario = Scenario(nodes={})
    built = gang("a").of(4)
    scenario.add(built.counting_succeeded() if counting else built)
    scenario.change(nodes=[node("far", 4, unschedulable=True)])
    for number in range(3):
        scenario.shared_nodes.add("far")
        pod = scenario.cluster.pods[f"default/a-{number}@1"]
        scenario.change(pods=[replace(pod, node="far", phase=PodPhase.SUCCEEDED)])
    scenario.run()
    return scenario


def test_members_that_succeeded_count_once_the_others_cannot_reach_the_minimum() -> None:
    scenario = some_done(counting=True)
    scenario.change(nodes=[node("n", 1)])
    scenario.run()
    assert scenario.bound("a") == 1


def test_without_that_the_gang_lacks_members() -> None:
    scenario = some_done(counting=False)
    scenario.change(nodes=[node("n", 1)])
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.gang("a").group.not_ready == "1 of 4 members exist (3 ended)"


def test_while_the_others_can_reach_the_minimum_those_that_succeeded_do_not_count() -> None:
    scenario = some_done(counting=True)
    more = [replace(pod, name=f"{pod.name}-new", uid=f"{pod.uid}/new") for pod in gang("a").of(3).pods()]
    scenario.change(nodes=[node("n", 3)], pods=more)
    scenario.run()
    assert scenario.bound("a") == 0, "4 are there, and only 3 fit"
    scenario.change(nodes=[node("n", 4)])
    scenario.pass_time(5)
    assert scenario.bound("a") == 4


def test_the_reason_counts_succeeded_members_separately() -> None:
    scenario = Scenario(nodes={"n": 4})
    built = gang("a").of(4).needing(6).counting_succeeded()
    scenario.add(built)
    scenario.shared_nodes.add("n")
    pod = scenario.cluster.pods["default/a-0@1"]
    scenario.change(pods=[replace(pod, node="n", phase=PodPhase.SUCCEEDED)])
    scenario.run()
    assert scenario.gang("a").group.not_ready == "3 of 5 members exist, besides 1 that succeeded"


def test_a_started_gang_whose_policy_asks_again_counts_those_that_succeeded() -> None:
    built = gang("a").of(4).counting_succeeded().with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    scenario = full(built, nodes={"n": 4})
    succeed(scenario, "a", 0, 1)
    late = replace(built.pods()[3], name="a-late", uid="late")
    scenario.change(remove_pods=["default/a-3@1"], pods=[late])
    scenario.pass_time(5)
    assert scenario.cluster.pods["late"].node == "n"
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_members_beyond_the_remaining_minimum_are_spare() -> None:
    scenario = full(gang("a").of(5).needing(4).counting_succeeded(), nodes={"n": 5})
    succeed(scenario, "a", 0, 1)
    scenario.change(nodes=[node("n", 3)])
    scenario.add(gang("p").of(1).with_priority(10))
    scenario.run_effects()
    end(scenario)
    assert (scenario.bound("a"), scenario.bound("p")) == (2, 1)
    assert scenario.gang("a").permitted, "2 that succeeded and 2 that run are the minimum"


# -- pods of one kind


def test_a_gang_of_equal_pods_waits_while_one_asks_something_else() -> None:
    scenario = Scenario(nodes={"n": 8})
    scenario.add(gang("a").of(3, cpu=1).and_of(1, cpu=2).of_equal_pods())
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    reported = "its pods must be equal, but a-3 differs from a-0 in cpu: 2, not 1"
    assert any(reported in note for note in scenario.notes())
    odd = scenario.cluster.pods["default/a-3@1"]
    scenario.change(pods=[replace(odd, class_id=pod_class(1).id)])
    scenario.run()
    assert scenario.bound("a") == 4


def test_all_that_differ_are_named() -> None:
    scenario = Scenario(nodes={"n": 32})
    scenario.add(gang("a").of(3, cpu=1).and_of(7, cpu=2).of_equal_pods())
    scenario.run()
    why = scenario.gang("a").group.not_ready or ""
    assert why.endswith("a-3 differs from a-0 in cpu: 2, not 1; so do a-4, a-5, a-6, a-7 and 2 more")


def test_a_different_node_selector_is_reported() -> None:
    scenario = Scenario(nodes={"n": 8})
    choosy = replace(pod_class(1), id="choosy", node_selector=(("zone", "a"),))
    scenario.cluster.classes["choosy"] = choosy
    scenario.start()
    built = gang("a").of(2).of_equal_pods()
    one, other = built.pods()
    scenario.change(gangs=[built.gang_facts()], pods=[one, replace(other, class_id="choosy")])
    scenario.run()
    assert (scenario.gang("a").group.not_ready or "").endswith("but a-1 differs from a-0 in its node selector")


def test_pods_of_one_kind_have_volumes_of_their_own() -> None:
    scenario = Scenario(nodes={"n": 8})
    built = gang("a").of(2).of_equal_pods()
    one, other = built.pods()
    scenario.change(gangs=[built.gang_facts()], pods=[one, replace(other, class_id=class_with_volume(1).id)])
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_gang_that_runs_may_be_resized() -> None:
    scenario = full(gang("a").of(3, cpu=2).of_equal_pods(), nodes={"n": 6})
    pod = scenario.cluster.pods["default/a-0@1"]
    scenario.change(pods=[replace(pod, class_id=pod_class(1).id)])
    late = replace(gang("a").of(1, cpu=1).pods()[0], name="late", uid="late")
    scenario.add_pods(late)
    scenario.run()
    assert scenario.bound("a") == 4


# -- so much free in all


def test_a_gang_waits_until_so_much_is_free_in_the_whole_cluster() -> None:
    scenario = full(gang("b").of(3), nodes={"n": 4, "m": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert not any(isinstance(effect, Solve) and effect.groups[0].id.endswith("/a") for effect in scenario.solves)
    assert any("its minimum resources are not free in the cluster: 6 cpu (5 free)" in note for note in scenario.notes())
    scenario.change(remove_pods=["default/b-0@1"])
    scenario.run()
    assert scenario.bound("a") == 2


def test_freed_capacity_reconciles_few_of_the_gangs_that_wait_for_more() -> None:
    scenario = full(gang("b").of(3), nodes={"n": 4, "m": 4})
    scenario.add(*(gang(f"w{number:03}").of(1).needing_free_cpu(90) for number in range(300)))
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.pass_time(1)
    changed: set[str] = set()
    take = scenario.take

    def note(effect: Effect) -> None:
        if isinstance(effect, GangChanged):
            changed.add(effect.gang)
        take(effect)

    scenario.take = note  # type: ignore[method-assign]
    scenario.change(remove_pods=["default/b-0@1"])
    assert any(id_.endswith("/a") for id_ in changed)
    assert len(changed) <= MAX_OUTDATED + 2
    scenario.run()
    assert scenario.bound("a") == 2


def test_an_unschedulable_node_has_no_free_capacity() -> None:
    scenario = Scenario(nodes={"n": 4})
    scenario.change(nodes=[node("closed", 8, unschedulable=True), node("away", 8, ready=False)])
    scenario.add(gang("a").of(2).needing_free_cpu(6))
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(nodes=[node("away", 8)])
    scenario.run()
    assert scenario.bound("a") == 2


def test_requests_of_members_are_left_to_placement_which_may_preempt() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    scenario.add(gang("a").of(4).needing_free_cpu(4).with_priority(10))
    scenario.run_effects()
    assert evicted(scenario) == {"b"}


def test_nothing_is_preempted_for_more_than_the_members_request() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(5).with_priority(10))
    scenario.pass_time(60)
    assert not evicted(scenario)
    assert scenario.gang("a").phase is Phase.GATHERING


def test_capacity_held_by_the_gang_counts_as_free() -> None:
    scenario = Scenario(nodes={"n": 3})
    scenario.add(gang("a").of(4).non_strict().needing_free_cpu(3))
    scenario.run()
    assert scenario.gang("a").phase is Phase.WAITING
    scenario.change(nodes=[node("m", 1)])
    scenario.pass_time(5)
    assert scenario.bound("a") == 4


def test_capacity_given_to_partners_does_not_revoke_the_permit() -> None:
    scenario = Scenario(nodes={"n": 4})
    both = [gang(name).of(2).with_group("default/a", "default/b").needing_free_cpu(3) for name in "ab"]
    scenario.add(*both)
    scenario.run()
    assert [scenario.bound(name) for name in "ab"] == [2, 2]
    assert len(scenario.solves) == 1


def test_capacity_taken_by_others_meanwhile_does_not_revoke_the_permit() -> None:
    scenario = Scenario(nodes={"n": 4})
    scenario.add(gang("a").of(2).needing_free_cpu(4))
    until(scenario, Persist)
    scenario.intrude(plain_pod("stranger"), "n")
    scenario.run()
    assert scenario.bound("a") == 2
    assert len(scenario.solves) == 1


def test_a_gang_that_has_started_does_not_wait_for_it_again() -> None:
    scenario = full(gang("a").of(2).needing(1).needing_free_cpu(4), nodes={"n": 4})
    assert scenario.bound("a") == 2
    scenario.add(gang("b").of(1))
    scenario.run()
    scenario.add_pods(replace(gang("a").of(1).pods()[0], name="late", uid="late"))
    scenario.run()
    assert scenario.bound("a") == 3


# -- every other level


def solved_constraints(scenario: Scenario) -> tuple[LevelConstraint, ...]:
    return scenario.solves[-1].groups[0].gangs[0].constraints


def test_a_constraint_on_all_other_levels_applies_to_each() -> None:
    scenario = Scenario(nodes={"a1": 2, "b1": 2})
    scenario.change(trees=[racks(ra="a1", rb="b1")])
    scenario.add(gang("a").of(2).with_topology("node: spread; *: hard pack"))
    scenario.run()
    assert solved_constraints(scenario) == (
        LevelConstraint("node", LevelPolicy.SPREAD),
        LevelConstraint("rack", LevelPolicy.PACK, hard=True),
    )
    assert {pod.node for pod in scenario.cluster.pods.values()} in ({"a1"}, {"b1"})


def test_without_a_tree_all_levels_are_those_of_nodes() -> None:
    scenario = Scenario(nodes={"n": 2})
    scenario.add(gang("a").of(2).with_topology("*: pack"))
    scenario.run()
    assert solved_constraints(scenario) == (LevelConstraint("node", LevelPolicy.PACK),)


def test_a_tree_created_later_uses_its_own_levels() -> None:
    scenario = Scenario(nodes={"a1": 1, "b1": 1})
    scenario.add(gang("a").of(2).with_topology("node: spread; *: hard pack").needing(2).created(1))
    scenario.change(trees=[racks(ra="a1", rb="b1")])
    facts = scenario.cluster.gangs["test/default/a"]
    assert scenario.gang("a").constraints[1].level == "rack", facts
    scenario.run()
    assert scenario.bound("a") == 0, "no rack has room for both"


def test_contradictions_on_all_other_levels_are_reported() -> None:
    scenario = Scenario(nodes={"a1": 2})
    scenario.change(trees=[racks(ra="a1")])
    scenario.add(gang("a").of(3).with_topology("*: hard factor(2)"))
    scenario.run()
    assert 'constraint "rack: hard factor(2)" cannot be met' in (scenario.gang("a").group.not_ready or "")


def test_an_answer_that_violates_all_other_levels_is_rejected() -> None:
    scenario = Scenario(nodes={"a1": 1, "b1": 1})
    scenario.change(trees=[racks(ra="a1", rb="b1")])
    honest = scenario.solver

    def careless(solve: Solve) -> object:
        careless_groups = tuple(
            replace(group, gangs=tuple(replace(each, constraints=()) for each in group.gangs)) for group in solve.groups
        )
        return honest(replace(solve, groups=careless_groups))

    scenario.solver = careless  # type: ignore[assignment]
    scenario.add(gang("a").of(2).with_topology("node: spread; *: hard pack"))
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.gang("a").attempts.rejections


# -- who never preempts, and what events are called


def test_nothing_is_evicted_for_a_gang_declared_never_to_preempt() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    scenario.add(gang("a").of(4).with_priority(10).declaring_no_preemption())
    scenario.pass_time(60)
    assert not evicted(scenario)


def test_a_gang_that_says_so_only_later_stops_a_plan() -> None:
    scenario = full(gang("b").of(4), nodes={"n": 4})
    built = gang("a").of(4).with_priority(10)
    scenario.add(built)
    scenario.do(0)  # it has no place
    while not any(record.nominated for effect in scenario.under_way for record in getattr(effect, "puts", ())):
        scenario.do(0)
    scenario.change(gangs=[built.declaring_no_preemption().gang_facts()])
    scenario.run_effects()
    assert not evicted(scenario)
    assert scenario.bound("b") == 4


@pytest.mark.parametrize(("dialect", "reason"), [("test", "FailedScheduling"), ("batchish", "Unschedulable")])
def test_events_have_the_reason_that_users_of_the_dialect_know(
    monkeypatch: pytest.MonkeyPatch, dialect: str, reason: str
) -> None:
    batchish = Dialect(
        name="batchish",
        marks=PodMarks(naming=""),
        membership=lambda marks: None,
        read=lambda declaration: gang_facts("batchish", declaration),
        event_reason="Unschedulable",
    )
    monkeypatch.setattr(reports, "event_reason", Registry([batchish]).event_reason)
    scenario = Scenario(nodes={"n": 1})
    facts = GangFacts(f"{dialect}/default/a", dialect, "default", "a", "1", minimum=2)
    pods = [PodFacts(f"uid-{number}", "default", f"a-{number}", pod_class(1).id, gang=facts.id) for number in range(2)]
    scenario.change(gangs=[facts], pods=pods)
    scenario.pass_time(1)
    assert {event.reason for report in scenario.reports for event in report.events} == {reason}
