"""The reason of PodScheduled=False is Unschedulable only where more nodes would help; other waits have their own."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import end, full, held_back, until
from builders.core.objects import node, plain_pod, pod_class, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Evict, Persist, PodCondition, Solve
from muster.coordinator.core.events import BindResults, Persisted, Rules
from muster.coordinator.core.report.reports import PODS_PER_SECOND
from muster.coordinator.core.report.waits import UNSCHEDULABLE, Wait
from muster.gangs.counted_resources import static_volumes
from muster.gangs.facts import (
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PodClass,
    Problem,
    Severity,
)
from muster.gangs.solve import Explanation, SolveOutcome, SolveResult


def conditions_of(scenario: Scenario, uid: str) -> list[PodCondition]:
    """Conditions of the pod, in order."""
    return [each for report in scenario.reports for each in report.conditions if each.uid == uid]


def reasons_of(scenario: Scenario, built: CoreGang) -> set[str]:
    """Reasons of the newest conditions of the gang's pods; "" if one has none."""
    newest = (conditions_of(scenario, pod.uid)[-1:] for pod in built.pods())
    return {conditions[0].reason if conditions else "" for conditions in newest}


def answering(explanation: Explanation, outcome: SolveOutcome = SolveOutcome.INFEASIBLE) -> Callable[[Solve], object]:
    """A placement that finds no place for any group, with this explanation."""

    def solve(request: Solve) -> tuple[SolveResult, ...]:
        return tuple(
            SolveResult(group.id, outcome, explanation=replace(explanation, gang=group.gangs[0].id))
            for group in request.groups
        )

    return solve


def pending(explanation: Explanation, built: CoreGang, outcome: SolveOutcome = SolveOutcome.INFEASIBLE) -> Scenario:
    """The gang has no place, for this reason."""
    scenario = Scenario({"n2": 2})
    scenario.solver = answering(explanation, outcome)  # type: ignore[assignment]
    scenario.add(built)
    scenario.pass_time(1)
    return scenario


def preempting(built: CoreGang) -> Scenario:
    """The gang waits for victims that leave its only node."""
    scenario = full(gang("v").of(4), nodes={"n": 4})
    scenario.add(built)
    scenario.run_effects()
    scenario.pass_time(1)
    assert reasons_of(scenario, built) == {"Preempting"}
    return scenario


def test_a_complete_gang_that_is_short_of_capacity_asks_for_nodes() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}


def test_all_members_of_a_large_gang_ask_in_one_report() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(500)
    scenario.add(a)
    scenario.pass_time(1)
    (report,) = [report for report in scenario.reports if report.conditions]
    assert {each.uid for each in report.conditions} == {pod.uid for pod in a.pods()}
    assert {each.reason for each in report.conditions} == {UNSCHEDULABLE}


def test_all_gangs_of_a_group_ask_for_nodes_although_one_would_fit() -> None:
    scenario = Scenario({"n2": 2})
    small, large = (
        gang("a").of(1).with_group("default/a", "default/b"),
        gang("b").of(4).with_group("default/a", "default/b"),
    )
    scenario.add(small, large)
    scenario.pass_time(1)
    assert reasons_of(scenario, small) == reasons_of(scenario, large) == {UNSCHEDULABLE}


def test_members_beyond_the_minimum_of_a_running_gang_ask_for_nodes() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(2).of(4)
    scenario.add(a)
    scenario.pass_time(2)
    assert scenario.bound("a") == 2
    assert {conditions_of(scenario, uid)[-1].reason for uid in scenario.gang("a").pending} == {UNSCHEDULABLE}


def test_missing_declared_resources_ask_for_nodes() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(2)
    scenario.change(gangs=[replace(a.gang_facts(), resources=(("cpu", 8000),))], pods=a.pods())
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}


def test_an_incomplete_gang_asks_for_nothing_until_it_is_complete() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(4).of(4)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:3])
    scenario.pass_time(1)
    assert {conditions_of(scenario, pod.uid)[-1].reason for pod in a.pods()[:3]} == {"GangIncomplete"}
    scenario.change(pods=a.pods()[3:])
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}
    scenario.change(remove_pods=[a.pods()[3].uid])
    scenario.pass_time(1)
    assert {conditions_of(scenario, pod.uid)[-1].reason for pod in a.pods()[:3]} == {"GangIncomplete"}


def test_a_gang_that_becomes_incomplete_during_a_solve_asks_for_nothing() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(4).of(4)
    scenario.add(a)
    scenario.pass_time(5)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}
    scenario.change(nodes=[node("m", 1)])
    held_back(scenario, Solve)
    scenario.change(remove_pods=[a.pods()[3].uid])
    scenario.pass_time(1)
    assert {conditions_of(scenario, pod.uid)[-1].reason for pod in a.pods()[:3]} == {"GangIncomplete"}


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Problem(Severity.BLOCKING, 'minMember "x" is no number'), "InvalidDeclaration"),
        (Problem(Severity.BLOCKING, "quota is not reserved for it yet", "WaitingForQuota"), "WaitingForQuota"),
        (Problem(Severity.BLOCKING, "PodGroup a does not exist yet", "GangNotDeclared"), "GangNotDeclared"),
        (Problem(Severity.BLOCKING, "of a later version", "Unschedulable"), "InvalidDeclaration"),
    ],
)
def test_a_blocking_problem_has_a_reason_of_its_own(problem: Problem, reason: str) -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.change(gangs=[replace(a.gang_facts(), problems=(problem,))], pods=a.pods())
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {reason}


def test_a_gang_without_its_gang_group_waits_for_that() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4).with_group("default/a", "default/b")
    scenario.add(a)
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {"GangGroupIncomplete"}


def test_a_blocked_pod_has_a_reason_of_its_own() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(3).of(4)
    bad = replace(a.pods()[3], problem="PersistentVolumeClaim data does not exist")
    scenario.change(gangs=[a.gang_facts()], pods=[*a.pods()[:3], bad])
    scenario.pass_time(1)
    assert conditions_of(scenario, bad.uid)[-1].reason == "PodBlocked"
    assert conditions_of(scenario, a.pods()[0].uid)[-1].reason == UNSCHEDULABLE


def test_a_preemptor_asks_for_no_nodes_while_its_victims_leave() -> None:
    p = gang("p").of(4).with_priority(10)
    scenario = preempting(p)
    end(scenario)
    scenario.pass_time(1)
    assert scenario.bound("p") == 4


def test_a_gang_that_is_being_evicted_asks_for_no_nodes() -> None:
    victim = gang("v").of(4)
    scenario = full(victim, nodes={"n": 4})
    scenario.add(gang("p").of(4).with_priority(10))
    held_back(scenario, Evict)
    late = gang("v").of(5).pods()[4]
    scenario.add_pods(late)
    scenario.pass_time(1)
    assert conditions_of(scenario, late.uid)[-1].reason == "WaitingForEviction"


@pytest.mark.parametrize(
    ("seconds", "reason"), [(300.0, "CapacityReserved"), (3000.0, UNSCHEDULABLE), (0.0, UNSCHEDULABLE)]
)
def test_reserved_capacity_is_awaited_if_it_is_free_soon(seconds: float, reason: str) -> None:
    """0: no end is known."""
    scenario = Scenario({"n": 4}, rules=Rules(starvation_after_seconds=5))
    scenario.add_pods(replace(plain_pod("first"), expected_seconds=seconds))
    scenario.run()
    big = gang("big").of(4)
    scenario.add(big)
    scenario.pass_time(2)
    assert reasons_of(scenario, big) == {UNSCHEDULABLE}
    scenario.pass_time(10)
    assert [each.backfill for each in scenario.leader.cache.nominations.values()] == [True]
    assert reasons_of(scenario, big) == {reason}


def test_members_that_hold_a_seat_ask_for_no_nodes() -> None:
    scenario = Scenario({"n": 3})
    a = gang("a").of(5).non_strict(waiting_time_seconds=60)
    scenario.add(a)
    scenario.pass_time(1)
    found = scenario.gang("a")
    assert len(found.seats) == 3
    assert {conditions_of(scenario, uid)[-1].reason for uid in found.seats} == {"CapacityHeld"}
    assert {conditions_of(scenario, uid)[-1].reason for uid in found.pending} == {UNSCHEDULABLE}


def test_a_timed_out_gang_asks_for_no_nodes() -> None:
    scenario = Scenario({"n": 3})
    a = gang("a").of(5).non_strict(waiting_time_seconds=2)
    scenario.add(a)
    scenario.pass_time(10)
    assert reasons_of(scenario, a) == {"GangTimedOut"}


def test_a_timed_out_pod_asks_for_no_nodes_while_new_members_do() -> None:
    scenario = Scenario({"n": 2})
    a = gang("a").needing(4).of(5)
    late = replace(a.pods()[4], timed_out=True)
    scenario.change(gangs=[a.gang_facts()], pods=[*a.pods()[:4], late])
    scenario.pass_time(1)
    assert conditions_of(scenario, a.pods()[0].uid)[-1].reason == UNSCHEDULABLE
    assert conditions_of(scenario, late.uid)[-1].reason == "GangTimedOut"


def test_hard_constraints_alone_ask_for_no_nodes() -> None:
    a = gang("a").of(4)
    scenario = pending(Explanation("4 of 8 fit", class_id="cpu1", only_constraints=True), a)
    assert reasons_of(scenario, a) == {"TopologyUnsatisfied"}


def test_a_tree_whose_config_map_lists_the_nodes_has_no_place_for_added_ones() -> None:
    listed = replace(racks(r0="n2"), definition=ObjectReference("v1", "ConfigMap", "default", "tree", "uid-1"))
    for tree, reason in ((listed, "TopologyUnsatisfied"), (racks(r0="n2"), UNSCHEDULABLE)):
        scenario = Scenario({"n2": 2})
        scenario.change(trees=[tree])
        a = gang("a").of(4).with_topology("rack: hard pack")
        scenario.add(a)
        scenario.pass_time(1)
        assert reasons_of(scenario, a) == {reason}


_ON_A = NodeRequirement("kubernetes.io/hostname", NodeOperator.IN, ("a",))
_IN_POOL = NodeRequirement("pool", NodeOperator.IN, ("gpu",))
_NAMED_A = NodeRequirement("metadata.name", NodeOperator.IN, ("a",))


@pytest.mark.parametrize(
    ("of_class", "reason"),
    [
        ({"node_selector": (("pool", "gpu"),)}, UNSCHEDULABLE),
        ({"node_selector": (("kubernetes.io/hostname", "a"),)}, "NamedNodeUnavailable"),
        ({"required_node_affinity": (NodeSelectorTerm((_ON_A,)),)}, "NamedNodeUnavailable"),
        ({"required_node_affinity": (NodeSelectorTerm((), (_NAMED_A,)),)}, "NamedNodeUnavailable"),
        ({"required_node_affinity": (NodeSelectorTerm((_ON_A,)), NodeSelectorTerm((_IN_POOL,)))}, UNSCHEDULABLE),
        ({"volumes": ((NodeSelectorTerm((_ON_A,)),),)}, "NamedNodeUnavailable"),
        ({"volumes": ((NodeSelectorTerm((_IN_POOL,)),),)}, UNSCHEDULABLE),
    ],
)
def test_pods_that_name_their_nodes_ask_for_none(of_class: dict[str, object], reason: str) -> None:
    pinned = PodClass("pinned", pod_class().requests, **of_class)  # type: ignore[arg-type]
    a = gang("a").of(1)
    scenario = Scenario({"n2": 2})
    scenario.solver = answering(Explanation("0/1 nodes", class_id="pinned"))  # type: ignore[assignment]
    scenario.change(classes=[pinned], gangs=[a.gang_facts()], pods=[replace(a.pods()[0], class_id="pinned")])
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {reason}


@pytest.mark.parametrize(
    ("explanation", "reason"),
    [
        (Explanation(short_by=((static_volumes("local", "Filesystem", "RWO", 1), 1),)), "VolumesUnavailable"),
        (Explanation(filtered_nodes=(("node(s) didn't match pod affinity rules", 3),)), "PodAffinityUnsatisfied"),
        (
            Explanation(filtered_nodes=(("Insufficient cpu", 1), ("node(s) didn't match pod affinity rules", 3))),
            UNSCHEDULABLE,
        ),
        (Explanation(filtered_nodes=(("node(s) didn't match pod anti-affinity rules", 3),)), UNSCHEDULABLE),
        (Explanation(filtered_nodes=(("node(s) were unschedulable", 3),)), UNSCHEDULABLE),
        (Explanation("there are no nodes"), UNSCHEDULABLE),
    ],
)
def test_what_placement_lacks_decides_whether_nodes_help(explanation: Explanation, reason: str) -> None:
    a = gang("a").of(4)
    scenario = pending(replace(explanation, class_id="cpu1"), a)
    assert reasons_of(scenario, a) == {reason}


def test_a_placement_that_cannot_tell_asks_for_no_nodes() -> None:
    a = gang("a").of(4)
    scenario = pending(Explanation("first-fit does not support hard constraints"), a, SolveOutcome.NOT_FOUND)
    assert reasons_of(scenario, a) == {"NoPlacementFound"}
    scenario = pending(Explanation("3 of 4 members fit", class_id="cpu1"), a, SolveOutcome.NOT_FOUND)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}


def test_a_placement_that_is_away_asks_for_no_nodes() -> None:
    scenario = Scenario({"n2": 2})
    scenario.solver = lambda _solve: ()
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(1)
    assert reasons_of(scenario, a) == {"PlacementFailed"}


def test_a_failed_attempt_does_not_change_what_a_gang_waits_for() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(1)
    scenario.solver = lambda _solve: ()
    more = a.of(5)
    scenario.change(pods=more.pods()[4:])
    scenario.pass_time(30)
    assert reasons_of(scenario, more) == {UNSCHEDULABLE}


def test_a_failed_attempt_of_a_preemptor_without_its_nomination_is_reported() -> None:
    p = gang("p").of(4).with_priority(10)
    scenario = preempting(p)
    scenario.solver = lambda _solve: ()
    scenario.change(nodes=[node("n", 3)])
    end(scenario)
    scenario.pass_time(30)
    assert reasons_of(scenario, p) == {"PlacementFailed"}


def test_members_that_are_being_bound_ask_for_nodes_no_longer() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(5)
    assert reasons_of(scenario, a) == {UNSCHEDULABLE}
    scenario.change(nodes=[node("m", 4)])
    bind = held_back(scenario, Bind)
    scenario.pass_time(2)
    assert reasons_of(scenario, a) == {"Starting"}
    scenario.tell(BindResults(scenario.bind_all(bind)))
    scenario.pass_time(2)
    assert scenario.bound("a") == 4


def test_members_whose_permit_is_being_written_ask_for_nodes_no_longer() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(5)
    scenario.change(nodes=[node("m", 4)])
    permit = held_back(scenario, Persist)
    scenario.pass_time(2)
    assert reasons_of(scenario, a) == {"Starting"}
    scenario.persist(permit)
    scenario.tell(Persisted(permit.persist_id))
    scenario.run()
    assert scenario.bound("a") == 4


def test_a_gang_that_starts_at_once_gets_no_condition() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(4)
    scenario.add(a)
    until(scenario, Bind)
    scenario.run()
    scenario.pass_time(5)
    assert not [report for report in scenario.reports if report.conditions]


def test_another_wait_is_reported_without_another_event() -> None:
    scenario = full(gang("v").of(4), nodes={"n": 4})
    p = gang("p").of(4).with_priority(10)
    scenario.solver, solver = answering(Explanation("0 of 4 fit", class_id="cpu1")), scenario.solver  # type: ignore[assignment]
    scenario.add(p)
    scenario.pass_time(1)
    assert reasons_of(scenario, p) == {UNSCHEDULABLE}
    scenario.reports.clear()
    scenario.solver = solver
    scenario.change(nodes=[node("m", 1)])
    scenario.run_effects()
    scenario.pass_time(70)
    assert reasons_of(scenario, p) == {"Preempting"}
    events = [event.reason for report in scenario.reports for event in report.events]
    assert "FailedScheduling" not in events


def test_reasons_that_alternate_are_written_at_a_bounded_rate() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").needing(200).of(200)
    scenario.add(a)
    scenario.pass_time(5)
    scenario.reports.clear()
    last = a.pods()[-1]
    for round_ in range(100):
        if round_ % 2:
            scenario.add_pods(last)
        else:
            scenario.change(remove_pods=[last.uid])
        scenario.pass_time(0.6)
    written = sum(len(report.conditions) for report in scenario.reports)
    assert written <= PODS_PER_SECOND * 61 + 2 * 200


def test_waits_have_reasons_of_their_own() -> None:
    others = [wait.reason for wait in Wait if not wait.nodes_help]
    assert len(others) == len(set(others)), "each of them one"
    assert all(reason.isalpha() and reason[0].isupper() for reason in others)
    assert not {"Unschedulable", "SchedulingGated"}.intersection(others), "which autoscalers and users know"


def test_no_nodes_are_asked_for_while_another_gang_of_the_group_is_incomplete() -> None:
    scenario = Scenario({"n2": 2})
    short = gang("a").of(1).needing_free_cpu(4).with_group("default/a", "default/b")
    incomplete = gang("b").of(2).with_group("default/a", "default/b")
    scenario.change(gangs=[each.gang_facts() for each in (short, incomplete)])
    scenario.change(pods=[*short.pods(), incomplete.pods()[0]])
    scenario.pass_time(1)
    assert reasons_of(scenario, short) == {Wait.INCOMPLETE.reason}
    scenario.change(pods=incomplete.pods()[1:])
    scenario.pass_time(1)
    assert reasons_of(scenario, short) == {UNSCHEDULABLE}
