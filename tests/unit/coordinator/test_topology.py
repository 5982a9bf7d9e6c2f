"""Gangs that go by a topology tree: what is asked for them, what is not, and when they are tried again."""

from msgspec.structs import replace

from builders.core.actions import answered, asks_for_room, end, evicted, full, held_back, until_planned
from builders.core.objects import gang, node, plain_pod, racks
from builders.core.world import Story
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


def in_racks(nodes: dict[str, int], **of_rack: str) -> Story:
    """A cluster with a default tree of racks."""
    story = Story(nodes)
    story.change(trees=[racks(**of_rack)])
    return story


def asked(solve: Solve) -> SolveGang:
    """The one gang that it is about."""
    ((one,),) = (group.gangs for group in solve.groups)
    return one


def runs_on(story: Story, name: str) -> set[str]:
    """Nodes of the gang's bound pods."""
    return {pod.node for pod in story.cluster.pods.values() if pod.gang == f"test/default/{name}" and pod.node}


def test_the_question_says_tree_and_constraints_and_who_has_a_place() -> None:
    story = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    a = gang("a").minimum(2).of(3).divided("rack: hard pack; node: range(1,8)", tree="racks")
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    story.run()
    story.add_pods(a.pods()[2])
    question = asked(story.only(Solve))
    assert question.tree == "racks"
    assert question.constraints == a.gang_facts().constraints
    (there,) = runs_on(story, "a")
    assert question.placed == (PodsOnNode(there, "cpu1", 2),)
    story.run()
    assert runs_on(story, "a") == {there}


def test_without_constraints_nobody_is_told_who_has_a_place() -> None:
    story = Story({"a": 4})
    a = gang("a").minimum(2).of(3)
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    story.run()
    story.add_pods(a.pods()[2])
    assert asked(story.only(Solve)).placed == ()


def test_gangs_that_differ_in_constraints_only_do_not_speak_for_each_other() -> None:
    story = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    story.add(
        gang("whole").of(6).divided("rack: hard pack"), gang("any").of(6).created(1), gang("more").of(6).created(2)
    )
    story.run()
    assert (story.bound("whole"), story.bound("any"), story.bound("more")) == (0, 6, 0)


def test_p14_contradictory_constraints_are_told_before_anybody_is_asked() -> None:
    story = in_racks({"a": 8, "b": 8}, r0="a b")
    story.add(gang("a").of(6).divided("node: range(3,4), factor(5)"))
    story.run()
    assert not story.solves
    assert story.gang("a").phase is Phase.GATHERING
    assert "range(3,4)" in reason(story.gang("a"))
    assert "factor(5)" in reason(story.gang("a"))


def test_contradictions_are_told_also_of_a_gang_that_is_not_complete() -> None:
    story = in_racks({"a": 8}, r0="a")
    a = gang("a").minimum(6).of(6).divided("rack: pack, spread")
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:1])
    story.run()
    assert "contradict" in reason(story.gang("a"))


def test_a_number_that_no_member_count_can_meet_waits_until_one_comes_that_can() -> None:
    story = in_racks({"a": 8}, r0="a")
    a = gang("a").minimum(3).of(4).divided("node: hard factor(4)")
    story.change(gangs=[replace(a.gang_facts(), total=3)], pods=a.pods()[:3])
    story.run()
    assert "factor(4)" in reason(story.gang("a"))
    story.add_pods(a.pods()[3])
    story.run()
    assert story.bound("a") == 4


def test_p36_a_level_or_tree_that_does_not_exist_is_told_with_those_that_do() -> None:
    story = in_racks({"a": 8}, r0="a")
    story.add(gang("a").of(2).divided("zone: pack"), gang("b").of(2).divided("rack: pack", tree="tori"))
    story.run()
    assert not story.solves
    assert "rack, node" in reason(story.gang("a"))
    assert 'level that topology tree "racks" does not have: its levels are rack, node' in reason(story.gang("a"))


def test_a_gang_is_tried_when_its_tree_comes() -> None:
    story = Story({"a": 4, "b": 4})
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.run()
    assert "its levels are node" in reason(story.gang("a"))
    story.change(trees=[racks(r0="a", r1="b")])
    story.run()
    assert story.bound("a") == 4


def test_i7_a_gang_that_had_no_place_is_tried_again_when_its_tree_changes() -> None:
    story = in_racks({"a": 2, "b": 2}, r0="a", r1="b")
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.run()
    assert story.bound("a") == 0
    story.change(trees=[racks(r0="a b")])
    story.run()
    assert story.bound("a") == 4


def test_a_snapshot_without_a_tree_takes_it_away() -> None:
    story = in_racks({"a": 4}, r0="a")
    story.cluster.trees.clear()
    story.blink()
    story.add(gang("a").of(2).divided("rack: pack"))
    story.run()
    assert "its levels are node" in reason(story.gang("a"))


def test_a_gang_may_not_start_by_a_tree_that_went_while_its_permit_was_written() -> None:
    story = in_racks({"a": 4}, r0="a")
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.do(0)
    story.change(remove_trees=["racks"])
    story.run()
    assert story.bound("a") == 0
    assert not story.leader.cache.ledger.reserved
    story.change(trees=[racks(r0="a")])
    story.run()
    assert story.bound("a") == 4


def test_later_members_that_no_division_allows_wait_and_the_gang_runs() -> None:
    story = in_racks({"a": 8}, r0="a")
    a = gang("a").minimum(4).of(6).divided("node: hard factor(4)")
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:4])
    story.run()
    story.add_pods(a.pods()[4])
    story.run()
    assert story.gang("a").phase is Phase.SATISFIED
    assert "later pod is pending" in reason(story.gang("a"))
    assert "factor(4)" in reason(story.gang("a"))


def test_a_lost_member_is_placed_again_next_to_the_others() -> None:
    story = in_racks({"a1": 2, "a2": 3, "b": 4}, ra="a1 a2", rb="b")
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.change(nodes=[node("b", 4, unschedulable=True)])
    story.bind_failures["default/a-0@1"] = 3
    story.pass_time(30)
    assert runs_on(story, "a") <= {"a1", "a2"}
    assert story.bound("a") == 4


def test_an_answer_against_a_hard_constraint_is_not_taken() -> None:
    story = in_racks({"a": 4, "b": 4}, r0="a", r1="b")
    asked_for = "rack: hard pack"

    def anywhere(solve: Solve) -> tuple[SolveResult, ...]:
        (group,) = solve.groups
        assignments = (Assignment(group.gangs[0].id, 0, "a", 2), Assignment(group.gangs[0].id, 0, "b", 2))
        return (SolveResult(group.id, SolveOutcome.PLACED, assignments),)

    story.solver = anywhere
    story.add(gang("a").of(4).divided(asked_for))
    story.run()
    assert story.bound("a") == 0
    assert not story.leader.cache.ledger.reserved
    assert asked_for in reason(story.gang("a"))
    story.solver = story.first_fit
    story.pass_time(2)
    assert story.bound("a") == 4


def test_the_levels_of_a_tree_may_be_labels_of_nodes() -> None:
    story = Story()
    story.change(
        nodes=[node("a", 4, labels={"r": "0"}), node("b", 4, labels={"r": "1"}), node("c", 2, labels={"r": "1"})],
        trees=[TopologyTree("by-label", (TreeLevel("rack", "r"), TreeLevel("node")), default=True)],
    )

    def apart(solve: Solve) -> tuple[SolveResult, ...]:
        (group,) = solve.groups
        first, second = nodes
        assignments = (Assignment(group.gangs[0].id, 0, first, 2), Assignment(group.gangs[0].id, 0, second, 2))
        return (SolveResult(group.id, SolveOutcome.PLACED, assignments),)

    nodes = ["a", "b"]
    story.solver = apart
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.run()
    assert story.bound("a") == 0
    nodes[:] = ["b", "c"]
    story.pass_time(2)
    assert runs_on(story, "a") == {"b", "c"}


def test_explain_tells_what_placement_says_would_make_it_fit() -> None:
    story = in_racks({"a": 2, "b": 2}, r0="a", r1="b")
    remedy = 'it would fit if the constraint "rack: hard pack" were soft'
    why = Explanation("2 of 4 members fit in the best rack", best_domain="r0", best_domain_fit=2, remedy=remedy)
    story.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why) for group in solve.groups
    )
    story.add(gang("a").of(4).divided("rack: hard pack"))
    story.run()
    assert would_help(story.gang("a"))[0] == remedy


def test_explain_tells_which_gang_of_a_group_the_remedy_is_for() -> None:
    story = in_racks({"a": 2}, r0="a")
    a, b = gang("a").of(2), gang("b").of(4)
    why = Explanation("2 of 4 members fit", gang=b.id, remedy='it would fit with 1 more node like "a", empty')
    story.solver = lambda solve: tuple(
        SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=why) for group in solve.groups
    )
    story.add(a.with_group("default/a", "default/b"), b.with_group("default/a", "default/b"))
    story.run()
    assert would_help(story.gang("a"))[0] == f"gang {b.id.split('/', 1)[1]}: {why.remedy}"
    assert would_help(story.gang("b"))[0] == why.remedy


def test_plain_pods_ask_for_no_tree() -> None:
    story = in_racks({"a": 2}, r0="a")
    story.add_pods(plain_pod("p"))
    assert (asked(story.only(Solve)).tree, asked(story.only(Solve)).constraints) == ("", ())


def test_i9_nobody_is_evicted_for_room_that_a_changed_tree_makes_useless() -> None:
    story = full(gang("v").of(4), nodes={"a": 2, "b": 2})
    story.change(trees=[racks(r0="a b")])
    story.add(gang("p").of(4).divided("rack: hard pack").priority(10))
    until_planned(story)
    story.change(trees=[racks(r0="a", r1="b")])
    story.run_effects()
    assert evicted(story) == set()
    story.change(trees=[racks(r0="a b")])
    story.run_effects()
    assert evicted(story) == {"v"}
    end(story)
    assert story.bound("p") == 4


def test_room_that_was_asked_for_by_an_earlier_tree_is_not_kept() -> None:
    story = full(gang("v").of(4), nodes={"a": 2, "b": 2})
    story.change(trees=[racks(r0="a b")])
    story.add(gang("p").of(4).divided("rack: hard pack").priority(10))
    question = held_back(story, Solve, asks_for_room)
    answer = answered(story, question)
    story.change(trees=[racks(r0="a", r1="b")])
    story.tell(answer)
    story.run_effects()
    assert evicted(story) == set()


# -- what is wrong with trees

CONFIG_MAP = ObjectReference("v1", "ConfigMap", "muster", "racks", "uid-1")


def wrong_tree(*messages: str) -> TopologyTree:
    problems = tuple(Problem(Severity.WARNING, message) for message in messages)
    return replace(racks(r0="a"), definition=CONFIG_MAP, problems=problems)


def tree_events(story: Story) -> list[str]:
    """What was told on the ConfigMap."""
    events = [event for report in story.reports for event in report.events if event.regarding == CONFIG_MAP]
    assert all((event.type, event.reason) == (EventType.WARNING, "TopologyTree") for event in events)
    return [event.note for event in events]


def test_i10_what_is_wrong_with_a_tree_is_an_event_on_what_defines_it() -> None:
    story = Story({"a": 4})
    story.change(trees=[wrong_tree("node x is in two domains", "node y does not exist")])
    story.pass_time(2)
    assert tree_events(story) == ["node x is in two domains", "node y does not exist"]
    story.pass_time(1000)
    assert len(tree_events(story)) == 2


def test_a_problem_that_passes_at_once_is_not_told() -> None:
    story = Story({"a": 4})
    story.change(trees=[wrong_tree("node x does not exist")])
    story.change(trees=[wrong_tree()])
    story.pass_time(100)
    assert tree_events(story) == []


def test_a_problem_that_comes_back_is_told_again_and_nodes_that_come_and_go_are_told_in_turn() -> None:
    story = Story({"a": 4})
    for number in range(10):
        story.change(trees=[wrong_tree(f"{number} nodes do not exist")])
        story.pass_time(5)
    assert len(tree_events(story)) == 2
    story.change(trees=[wrong_tree()])
    story.pass_time(60)
    story.change(trees=[wrong_tree("0 nodes do not exist")])
    story.pass_time(60)
    assert tree_events(story).count("0 nodes do not exist") == 2


def test_that_a_tree_is_refused_is_told_at_once_whatever_was_told_before() -> None:
    story = Story({"a": 4})
    story.change(trees=[wrong_tree("node x does not exist")])
    story.pass_time(2)
    story.change(trees=[wrong_tree("node x does not exist", "node y does not exist")])
    refused = Problem(Severity.BLOCKING, "node a is in the tree twice")
    story.change(trees=[replace(wrong_tree("node x does not exist"), problems=(refused,))])
    story.pass_time(2)
    assert tree_events(story) == ["node x does not exist", "node a is in the tree twice"]


def test_problems_of_a_tree_are_told_again_by_the_next_leader_and_hold_up_nobody() -> None:
    story = Story({"a": 4})
    story.change(trees=[wrong_tree("node x is in two domains")])
    story.pass_time(2)
    story.crash()
    story.start()
    story.add(gang("g").of(4).divided("rack: hard pack"))
    story.pass_time(2)
    assert tree_events(story) == ["node x is in two domains"] * 2
    assert story.bound("g") == 4


def test_a_non_strict_gang_that_must_have_a_shape_holds_nothing_until_all_of_it_fits() -> None:
    story = in_racks({"a": 4}, r0="a")
    n = gang("n").of(5).non_strict(60).divided("rack: hard pack")
    story.change(gangs=[n.gang_facts()], pods=n.pods())
    assert not story.only(Solve).groups[0].partial
    story.run()
    assert not story.gang("n").seats
    story.pass_time(1)
    assert any('has the hard constraint "rack: hard pack"' in note for note in story.notes())
    story.change(gangs=[replace(n.gang_facts(), constraints=())])
    story.run()
    assert len(story.gang("n").seats) == 4
    story.change(gangs=[n.gang_facts()])
    story.run()
    assert not story.gang("n").seats
    assert not story.leader.cache.ledger.reserved


def test_an_optional_constraint_is_asked_only_of_a_tree_that_has_its_level() -> None:
    story = Story({"a": 4, "b": 4})
    wish = (LevelConstraint("rack", LevelPolicy.PACK, optional=True),)
    first, second = (replace(gang(name).of(2).gang_facts(), constraints=wish) for name in ("first", "second"))
    story.change(gangs=[first], pods=gang("first").of(2).pods())
    assert asked(story.only(Solve)).constraints == ()
    story.run()
    assert story.bound("first") == 2
    story.change(trees=[racks(r0="a", r1="b")])
    story.change(gangs=[second], pods=gang("second").of(2).pods())
    assert asked(story.only(Solve)).constraints == wish
