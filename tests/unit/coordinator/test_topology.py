"""Gangs with topology constraints: solve requests, contradictions, and retries when a tree changes."""

from msgspec.structs import replace

from builders.core.actions import answered, asks_for_room, end, evicted, full, held_back, until_planned
from builders.core.objects import node, plain_pod, racks
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import EventType, Phase, Solve
from muster.coordinator.core.report.explain import would_help
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import (
    LevelConstraint,
    LevelPolicy,
    ObjectReference,
    Problem,
    Severity,
    TopologyTree,
    TreeLevel,
)
from muster.gangs.solve import Assignment, Explanation, PodsOnNode, SolveGang, SolveOutcome, SolveResult


def in_racks(nodes: dict[str, int], **of_rack: str) -> Scenario:
    """A cluster with a default tree of racks."""
    scenario = Scenario(nodes)
    scenario.change(trees=[racks(**of_rack)])
    return scenario


def solved_gang(solve: Solve) -> SolveGang:
    """The one gang that it is about."""
    ((one,),) = (group.gangs for group in solve.groups)
    return one


def runs_on(scenario: Scenario, name: str) -> set[str]:
    """Nodes of the gang's bound pods."""
    return {pod.node for pod in scenario.cluster.pods.values() if pod.gang == f"test/default/{name}" and pod.node}


def test_the_solve_request_contains_tree_constraints_and_placed_members() -> None:
    scenario = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    a = gang("a").needing(2).of(3).with_topology("rack: hard pack; node: range(1,8)", tree="racks")
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    scenario.run()
    scenario.add_pods(a.pods()[2])
    question = solved_gang(scenario.only(Solve))
    assert question.tree == "racks"
    assert question.constraints == a.gang_facts().constraints
    (there,) = runs_on(scenario, "a")
    assert question.placed == (PodsOnNode(there, "cpu1", 2),)
    scenario.run()
    assert runs_on(scenario, "a") == {there}


def test_without_constraints_the_request_omits_placed_members() -> None:
    scenario = Scenario({"a": 4})
    a = gang("a").needing(2).of(3)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    scenario.run()
    scenario.add_pods(a.pods()[2])
    assert solved_gang(scenario.only(Solve)).placed == ()


def test_gangs_that_differ_in_constraints_only_do_not_speak_for_each_other() -> None:
    scenario = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    scenario.add(
        gang("whole").of(6).with_topology("rack: hard pack"),
        gang("any").of(6).created(1),
        gang("more").of(6).created(2),
    )
    scenario.run()
    assert (scenario.bound("whole"), scenario.bound("any"), scenario.bound("more")) == (0, 6, 0)


def test_p14_contradictory_constraints_are_reported_without_a_solve() -> None:
    scenario = in_racks({"a": 8, "b": 8}, r0="a b")
    scenario.add(gang("a").of(6).with_topology("node: range(3,4), factor(5)"))
    scenario.run()
    assert not scenario.solves
    assert scenario.gang("a").phase is Phase.GATHERING
    assert "range(3,4)" in reason(scenario.gang("a"))
    assert "factor(5)" in reason(scenario.gang("a"))


def test_contradictions_of_an_incomplete_gang_are_reported() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    a = gang("a").needing(6).of(6).with_topology("rack: pack, spread")
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:1])
    scenario.run()
    assert "contradict" in reason(scenario.gang("a"))


def test_an_unsatisfiable_number_waits_for_a_member_count_that_satisfies_it() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    a = gang("a").needing(3).of(4).with_topology("node: hard factor(4)")
    scenario.change(gangs=[replace(a.gang_facts(), total=3)], pods=a.pods()[:3])
    scenario.run()
    assert "factor(4)" in reason(scenario.gang("a"))
    scenario.add_pods(a.pods()[3])
    scenario.run()
    assert scenario.bound("a") == 4


def test_p36_an_unknown_level_or_tree_is_reported_with_the_known_ones() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    scenario.add(gang("a").of(2).with_topology("zone: pack"), gang("b").of(2).with_topology("rack: pack", tree="tori"))
    scenario.run()
    assert not scenario.solves
    assert "rack, node" in reason(scenario.gang("a"))
    assert 'level that topology tree "racks" does not have: its levels are rack, node' in reason(scenario.gang("a"))


def test_a_gang_is_queued_when_its_tree_is_created() -> None:
    scenario = Scenario({"a": 4, "b": 4})
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.run()
    assert "its levels are node" in reason(scenario.gang("a"))
    scenario.change(trees=[racks(r0="a", r1="b")])
    scenario.run()
    assert scenario.bound("a") == 4


def test_i7_a_gang_that_had_no_place_is_tried_again_when_its_tree_changes() -> None:
    scenario = in_racks({"a": 2, "b": 2}, r0="a", r1="b")
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(trees=[racks(r0="a b")])
    scenario.run()
    assert scenario.bound("a") == 4


def test_a_snapshot_without_a_tree_takes_it_away() -> None:
    scenario = in_racks({"a": 4}, r0="a")
    scenario.cluster.trees.clear()
    scenario.blink()
    scenario.add(gang("a").of(2).with_topology("rack: pack"))
    scenario.run()
    assert "its levels are node" in reason(scenario.gang("a"))


def test_a_gang_may_not_start_by_a_tree_that_went_while_its_permit_was_written() -> None:
    scenario = in_racks({"a": 4}, r0="a")
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.do(0)
    scenario.change(remove_trees=["racks"])
    scenario.run()
    assert scenario.bound("a") == 0
    assert not scenario.leader.cache.ledger.reserved
    scenario.change(trees=[racks(r0="a")])
    scenario.run()
    assert scenario.bound("a") == 4


def test_later_members_that_no_division_allows_wait_and_the_gang_runs() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    a = gang("a").needing(4).of(6).with_topology("node: hard factor(4)")
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:4])
    scenario.run()
    scenario.add_pods(a.pods()[4])
    scenario.run()
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert "later pod is pending" in reason(scenario.gang("a"))
    assert "factor(4)" in reason(scenario.gang("a"))


def test_a_lost_member_is_placed_again_next_to_the_others() -> None:
    scenario = in_racks({"a1": 2, "a2": 3, "b": 4}, ra="a1 a2", rb="b")
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.change(nodes=[node("b", 4, unschedulable=True)])
    scenario.bind_failures["default/a-0@1"] = 3
    scenario.pass_time(30)
    assert runs_on(scenario, "a") <= {"a1", "a2"}
    assert scenario.bound("a") == 4


def test_an_answer_against_a_hard_constraint_is_not_taken() -> None:
    scenario = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    asked_for = "rack: hard pack"

    def anywhere(solve: Solve) -> tuple[SolveResult, ...]:
        (group,) = solve.groups
        assignments = (Assignment(group.gangs[0].id, 0, "a", 2), Assignment(group.gangs[0].id, 0, "b", 2))
        return (SolveResult(group.id, SolveOutcome.PLACED, assignments),)

    scenario.solver = anywhere
    scenario.add(gang("a").of(4).with_topology(asked_for))
    scenario.run()
    assert scenario.bound("a") == 0
    assert not scenario.leader.cache.ledger.reserved
    assert asked_for in reason(scenario.gang("a"))
    scenario.solver = scenario.first_fit
    scenario.pass_time(2)
    assert scenario.bound("a") == 4


def test_the_levels_of_a_tree_may_be_labels_of_nodes() -> None:
    scenario = Scenario()
    scenario.change(
        nodes=[node("a", 4, labels={"r": "0"}), node("b", 4, labels={"r": "1"}), node("c", 2, labels={"r": "1"})],
        trees=[TopologyTree("by-label", (TreeLevel("rack", "r"), TreeLevel("node")), default=True)],
    )

    def apart(solve: Solve) -> tuple[SolveResult, ...]:
        (group,) = solve.groups
        first, second = nodes
        assignments = (Assignment(group.gangs[0].id, 0, first, 2), Assignment(group.gangs[0].id, 0, second, 2))
        return (SolveResult(group.id, SolveOutcome.PLACED, assignments),)

    nodes = ["a", "b"]
    scenario.solver = apart
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.run()
    assert scenario.bound("a") == 0
    nodes[:] = ["b", "c"]
    scenario.pass_time(2)
    assert runs_on(scenario, "a") == {"b", "c"}


def test_explain_contains_the_relaxation_of_placement() -> None:
    scenario = in_racks({"a": 2, "b": 2}, r0="a", r1="b")
    remedy = 'it would fit if the constraint "rack: hard pack" were soft'
    why = Explanation("2 of 4 members fit in the best rack", best_domain="r0", best_domain_fit=2, remedy=remedy)
    scenario.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why) for group in solve.groups
    )
    scenario.add(gang("a").of(4).with_topology("rack: hard pack"))
    scenario.run()
    assert would_help(scenario.gang("a"))[0] == remedy


def test_explain_tells_which_gang_of_a_group_the_remedy_is_for() -> None:
    scenario = in_racks({"a": 2}, r0="a")
    a, b = gang("a").of(2), gang("b").of(4)
    why = Explanation("2 of 4 members fit", gang=b.id, remedy='it would fit with 1 more node like "a", empty')
    scenario.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why) for group in solve.groups
    )
    scenario.add(a.with_group("default/a", "default/b"), b.with_group("default/a", "default/b"))
    scenario.run()
    assert would_help(scenario.gang("a"))[0] == f"gang {b.id.split('/', 1)[1]}: {why.remedy}"
    assert would_help(scenario.gang("b"))[0] == why.remedy


def test_plain_pods_ask_for_no_tree() -> None:
    scenario = in_racks({"a": 2}, r0="a")
    scenario.add_pods(plain_pod("p"))
    assert (solved_gang(scenario.only(Solve)).tree, solved_gang(scenario.only(Solve)).constraints) == ("", ())


def test_i9_nothing_is_evicted_for_capacity_that_a_changed_tree_excludes() -> None:
    scenario = full(gang("v").of(4), nodes={"a": 2, "b": 2})
    scenario.change(trees=[racks(r0="a b")])
    scenario.add(gang("p").of(4).with_topology("rack: hard pack").with_priority(10))
    until_planned(scenario)
    scenario.change(trees=[racks(r0="a", r1="b")])
    scenario.run_effects()
    assert evicted(scenario) == set()
    scenario.change(trees=[racks(r0="a b")])
    scenario.run_effects()
    assert evicted(scenario) == {"v"}
    end(scenario)
    assert scenario.bound("p") == 4


def test_capacity_chosen_by_an_earlier_tree_is_not_reserved() -> None:
    scenario = full(gang("v").of(4), nodes={"a": 2, "b": 2})
    scenario.change(trees=[racks(r0="a b")])
    scenario.add(gang("p").of(4).with_topology("rack: hard pack").with_priority(10))
    question = held_back(scenario, Solve, asks_for_room)
    answer = answered(scenario, question)
    scenario.change(trees=[racks(r0="a", r1="b")])
    scenario.tell(answer)
    scenario.run_effects()
    assert evicted(scenario) == set()


# -- what is wrong with trees

CONFIG_MAP = ObjectReference("v1", "ConfigMap", "muster", "racks", "uid-1")


def wrong_tree(*messages: str) -> TopologyTree:
    problems = tuple(Problem(Severity.WARNING, message) for message in messages)
    return replace(racks(r0="a"), definition=CONFIG_MAP, problems=problems)


def tree_events(scenario: Scenario) -> list[str]:
    """Notes of the events on the ConfigMap."""
    events = [event for report in scenario.reports for event in report.events if event.regarding == CONFIG_MAP]
    assert all((event.type, event.reason) == (EventType.WARNING, "TopologyTree") for event in events)
    return [event.note for event in events]


def test_i10_problems_of_a_tree_are_events_on_its_definition() -> None:
    scenario = Scenario({"a": 4})
    scenario.change(trees=[wrong_tree("node x is in two domains", "node y does not exist")])
    scenario.pass_time(2)
    assert tree_events(scenario) == ["node x is in two domains", "node y does not exist"]
    scenario.pass_time(1000)
    assert len(tree_events(scenario)) == 2


def test_a_transient_problem_is_not_reported() -> None:
    scenario = Scenario({"a": 4})
    scenario.change(trees=[wrong_tree("node x does not exist")])
    scenario.change(trees=[wrong_tree()])
    scenario.pass_time(100)
    assert tree_events(scenario) == []


def test_a_returning_problem_is_reported_again_and_node_changes_at_intervals() -> None:
    scenario = Scenario({"a": 4})
    for number in range(10):
        scenario.change(trees=[wrong_tree(f"{number} nodes do not exist")])
        scenario.pass_time(5)
    assert len(tree_events(scenario)) == 2
    scenario.change(trees=[wrong_tree()])
    scenario.pass_time(60)
    scenario.change(trees=[wrong_tree("0 nodes do not exist")])
    scenario.pass_time(60)
    assert tree_events(scenario).count("0 nodes do not exist") == 2


def test_a_rejected_tree_is_reported_at_once() -> None:
    scenario = Scenario({"a": 4})
    scenario.change(trees=[wrong_tree("node x does not exist")])
    scenario.pass_time(2)
    scenario.change(trees=[wrong_tree("node x does not exist", "node y does not exist")])
    refused = Problem(Severity.BLOCKING, "node a is in the tree twice")
    scenario.change(trees=[replace(wrong_tree("node x does not exist"), problems=(refused,))])
    scenario.pass_time(2)
    assert tree_events(scenario) == ["node x does not exist", "node a is in the tree twice"]


def test_the_next_leader_reports_problems_of_a_tree_again() -> None:
    scenario = Scenario({"a": 4})
    scenario.change(trees=[wrong_tree("node x is in two domains")])
    scenario.pass_time(2)
    scenario.crash()
    scenario.start()
    scenario.add(gang("g").of(4).with_topology("rack: hard pack"))
    scenario.pass_time(2)
    assert tree_events(scenario) == ["node x is in two domains"] * 2
    assert scenario.bound("g") == 4


def test_a_nonstrict_gang_with_hard_constraints_holds_nothing_until_it_fits() -> None:
    scenario = in_racks({"a": 4}, r0="a")
    n = gang("n").of(5).non_strict(60).with_topology("rack: hard pack")
    scenario.change(gangs=[n.gang_facts()], pods=n.pods())
    assert not scenario.only(Solve).groups[0].partial
    scenario.run()
    assert not scenario.gang("n").seats
    scenario.pass_time(1)
    assert any('has the hard constraint "rack: hard pack"' in note for note in scenario.notes())
    scenario.change(gangs=[replace(n.gang_facts(), constraints=())])
    scenario.run()
    assert len(scenario.gang("n").seats) == 4
    scenario.change(gangs=[n.gang_facts()])
    scenario.run()
    assert not scenario.gang("n").seats
    assert not scenario.leader.cache.ledger.reserved


def test_an_optional_constraint_is_asked_only_of_a_tree_that_has_its_level() -> None:
    scenario = Scenario({"a": 4, "b": 4})
    wish = (LevelConstraint("rack", LevelPolicy.PACK, optional=True),)
    first, second = (replace(gang(name).of(2).gang_facts(), constraints=wish) for name in ("first", "second"))
    scenario.change(gangs=[first], pods=gang("first").of(2).pods())
    assert solved_gang(scenario.only(Solve)).constraints == ()
    scenario.run()
    assert scenario.bound("first") == 2
    scenario.change(trees=[racks(r0="a", r1="b")])
    scenario.change(gangs=[second], pods=gang("second").of(2).pods())
    assert solved_gang(scenario.only(Solve)).constraints == wish
