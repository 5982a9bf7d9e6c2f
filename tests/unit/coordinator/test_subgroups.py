"""Gangs with subgroups: solve requests, validation of answers, and later members."""

from collections import Counter, defaultdict
from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from builders.core.objects import racks
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Phase, RejectionReason, Solve
from muster.coordinator.core.gang.subgroups import MAX_SUBGROUPS
from muster.coordinator.core.report.reasons import reason, warnings
from muster.gangs.facts import LevelConstraint, LevelPolicy, MatchPolicy
from muster.gangs.selectors import EVERYTHING_SELECTED, Operator, Requirement
from muster.gangs.solve import Assignment, Explanation, SolveOutcome, SolveResult


def in_racks(nodes: dict[str, int], **of_rack: str) -> Scenario:
    scenario = Scenario(nodes)
    scenario.change(trees=[racks(**of_rack)])
    return scenario


def racks_of(scenario: Scenario, name: str) -> dict[str, set[str]]:
    """Racks of the bound pods of each subgroup."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for pod in scenario.cluster.pods.values():
        if pod.gang == f"test/default/{name}" and pod.node:
            found[pod.label_set].add(scenario.cluster.rack_of(pod.node))
    return dict(found)


def bound_of(scenario: Scenario, name: str) -> Counter[str]:
    """Bound pods by subgroup."""
    pods = scenario.cluster.pods.values()
    return Counter(pod.label_set for pod in pods if pod.gang == f"test/default/{name}" and pod.node)


def undivided(a: CoreGang) -> CoreGang:
    """The gang with the same pods, and without subgroups."""
    return changed(a, subgroups=())


def why(scenario: Scenario, name: str) -> str:
    return reason(scenario.gang(name))


def notes(scenario: Scenario) -> list[str]:
    """Warnings about declarations."""
    events = [event for report in scenario.reports for event in report.events]
    return [event.note for event in events if event.reason == "GangDeclaration"]


def test_each_subgroup_starts_in_one_rack() -> None:
    scenario = in_racks({"a": 3, "b": 1, "c": 2, "d": 2}, r0="a b", r1="c d")
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.run()
    assert bound_of(scenario, "a") == {"subgroup:0": 4, "subgroup:1": 4}
    assert all(len(each) == 1 for each in racks_of(scenario, "a").values())
    assert set.union(*racks_of(scenario, "a").values()) == {"r0", "r1"}


def test_a_gang_waits_if_a_subgroup_fits_no_rack() -> None:
    scenario = in_racks({"a": 4, "b": 1, "c": 2, "d": 1}, r0="a b", r1="c d")
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.QUEUED


def test_the_request_has_a_gang_per_subgroup_and_composites_with_their_domains() -> None:
    scenario = in_racks({"a": 4, "c": 4}, r0="a", r1="c")
    scenario.add(gang("a").of(9).in_subgroups(4, 4).with_topology("node: spread"))
    [group] = scenario.only(Solve).groups
    assert [each.id for each in group.gangs] == ["test/default/a#parts/0", "test/default/a#parts/1", "test/default/a"]
    assert [each.minimum for each in group.gangs] == [4, 4, 1]
    assert [each.level for each in group.composites] == ["", "rack", "rack"]
    assert group.composites[0].minimum == 3


def test_subgroups_that_ask_for_nothing_but_members_need_no_composites() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    scenario.add(gang("a").in_subgroups(4, 4, rack=False))
    [group] = scenario.only(Solve).groups
    assert len(group.gangs) == 2
    assert not group.composites
    scenario.run()
    assert scenario.bound("a") == 8


def test_an_incomplete_subgroup_keeps_the_gang_waiting() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    scenario.add(gang("a").needing(7).in_subgroups(4, 3, size=4))
    scenario.run()
    assert scenario.bound("a") == 0
    assert "4 of 7 members are in complete subgroups" in why(scenario, "a")


def test_as_many_subgroups_start_as_are_needed_and_the_others_later() -> None:
    scenario = in_racks({"a": 2, "c": 2, "e": 1}, r0="a", r1="c", r2="e")
    scenario.add(
        gang("a").needing(4).in_subgroups(2, 2, 2, minimum=2).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    )
    scenario.run()
    assert sorted(bound_of(scenario, "a").values()) == [2, 2]
    scenario.change(nodes=[replace(scenario.cluster.nodes["e"], allocatable=scenario.cluster.nodes["a"].allocatable)])
    scenario.run()
    assert sorted(bound_of(scenario, "a").values()) == [2, 2, 2]


def test_too_few_complete_subgroups_keep_the_gang_waiting() -> None:
    scenario = in_racks({"a": 9}, r0="a")
    scenario.add(gang("a").needing(2).in_subgroups(2, 1, size=2, minimum=2))
    scenario.run()
    assert scenario.bound("a") == 0
    assert 'subgroups "parts" have the 2 members that each needs' in why(scenario, "a")


def test_a_member_that_is_created_again_returns_to_the_rack_of_its_subgroup() -> None:
    scenario = in_racks({"a": 4, "c": 8}, r0="a", r1="c")
    a = gang("a").in_subgroups(4, 4)
    scenario.add(a)
    scenario.run()
    before = racks_of(scenario, "a")
    lost = next(pod for pod in scenario.cluster.pods.values() if scenario.cluster.rack_of(pod.node) == "r0")
    scenario.change(remove_pods=[lost.uid])
    scenario.change(pods=[replace(lost, uid=f"{lost.uid}-again", node="", phase=a.pods()[0].phase)])
    scenario.run()
    assert racks_of(scenario, "a") == before
    assert scenario.bound("a") == 8


def test_a_later_member_that_fits_starts_although_another_subgroup_has_no_place() -> None:
    scenario = in_racks({"a": 2, "c": 3}, r0="a", r1="c")
    a = gang("a").needing(4).in_subgroups(3, 3, size=2)
    pods = a.pods()
    scenario.change(gangs=[a.gang_facts()], pods=[pods[0], pods[1], pods[3], pods[4]])
    scenario.run()
    assert scenario.bound("a") == 4
    scenario.change(pods=[pods[2], pods[5]])
    scenario.run()
    assert sorted(bound_of(scenario, "a").values()) == [2, 3]
    assert all(len(each) == 1 for each in racks_of(scenario, "a").values())


def test_an_answer_that_divides_a_subgroup_over_racks_is_rejected() -> None:
    scenario = in_racks({"a": 4, "c": 4}, r0="a", r1="c")

    def wrong(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        seats = [Assignment(each.id, 0, node, 2) for each in group.gangs for node in ("a", "c")]
        return (SolveResult(group.id, SolveOutcome.PLACED, tuple(seats)),)

    scenario.solver = wrong
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.run()
    assert scenario.bound("a") == 0
    assert set(scenario.gang("a").attempts.rejections) == {RejectionReason.CONSTRAINT}


@pytest.mark.parametrize(("divided", "bound"), [((4, 4), 8), ((6, 2), 0)])
def test_hard_constraints_of_subgroups_are_requested_and_checked(divided: tuple[int, int], bound: int) -> None:
    scenario = in_racks({"a": 6, "c": 6}, r0="a", r1="c")
    of_four = LevelConstraint("rack", LevelPolicy.FACTOR, hard=True, count=4)

    def answer(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        [part] = group.gangs
        assert part.constraints == (of_four,)
        seats = [Assignment(part.id, 0, node, count) for node, count in zip("ac", divided, strict=True)]
        return (SolveResult(group.id, SolveOutcome.PLACED, tuple(seats)),)

    scenario.solver = answer
    a = gang("a").in_subgroups(8, size=4, rack=False)
    [parts] = a.gang_facts().subgroups
    sliced = replace(a.gang_facts(), subgroups=(replace(parts, constraints=(of_four,)),))
    scenario.change(gangs=[sliced], pods=a.pods())
    scenario.run()
    assert scenario.bound("a") == bound
    assert bool(scenario.gang("a").attempts.rejections) is not bool(bound)


def test_an_answer_without_a_needed_subgroup_is_rejected() -> None:
    scenario = in_racks({"a": 8}, r0="a")

    def wrong(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        return (SolveResult(group.id, SolveOutcome.PLACED, (Assignment(group.gangs[0].id, 0, "a", 4),)),)

    scenario.solver = wrong
    scenario.add(gang("a").needing(4).in_subgroups(4, 4, minimum=2))
    scenario.run()
    assert scenario.bound("a") == 0


def test_an_explanation_names_the_subgroup() -> None:
    scenario = in_racks({"a": 4}, r0="a")

    def none(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        explanation = Explanation("1 of 4 members fit", group.gangs[1].id)
        return (SolveResult(group.id, SolveOutcome.INFEASIBLE, explanation=explanation),)

    scenario.solver = none
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.run()
    assert 'subgroup "parts/1": 1 of 4 members fit' in why(scenario, "a")


def test_a_level_that_the_tree_lacks_is_named() -> None:
    scenario = Scenario({"a": 8})
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.run()
    assert "rack" in why(scenario, "a")
    scenario.change(trees=[racks(r0="a")])
    scenario.run()
    assert scenario.bound("a") == 8


def test_hard_constraints_besides_pack_are_not_supported_for_the_whole() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    scenario.add(gang("a").in_subgroups(4, 4).with_topology("rack: hard spread"))
    scenario.run()
    assert 'constraint "rack: hard spread" is not supported for a gang with subgroups' in why(scenario, "a")


def test_a_hard_pack_of_the_whole_holds_for_all_subgroups() -> None:
    scenario = in_racks({"a": 4, "b": 4, "c": 7}, r0="a b", r1="c")
    scenario.add(gang("a").in_subgroups(4, 4, rack=False).with_topology("rack: hard pack"))
    scenario.run()
    assert set.union(*racks_of(scenario, "a").values()) == {"r0"}


def test_too_many_subgroups_are_named() -> None:
    scenario = in_racks({"a": 200}, r0="a")
    scenario.add(gang("a").in_subgroups(*[1] * (MAX_SUBGROUPS + 1)))
    scenario.run()
    assert scenario.bound("a") == 0
    assert f"{MAX_SUBGROUPS + 1} subgroups, but at most {MAX_SUBGROUPS} are supported" in why(scenario, "a")


def test_a_gang_with_subgroups_preempts_for_one_rack_each() -> None:
    scenario = in_racks({"a": 4, "c": 4}, r0="a", r1="c")
    scenario.add(gang("low").of(8).with_priority(0))
    scenario.run()
    scenario.add(gang("high").in_subgroups(4, 4).with_priority(10))
    scenario.run()
    assert scenario.bound("high") == 8
    assert all(len(each) == 1 for each in racks_of(scenario, "high").values())


def test_a_new_leader_completes_subgroups_in_their_racks() -> None:
    scenario = in_racks({"a": 4, "c": 4}, r0="a", r1="c")
    scenario.add(gang("a").in_subgroups(4, 4))
    scenario.do(0)
    assert scenario.etcd == {} and scenario.gang("a").group.persist_id is not None
    scenario.do(0)
    assert scenario.etcd
    scenario.crash()
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 8
    assert all(len(each) == 1 for each in racks_of(scenario, "a").values())


def test_a_member_that_leaves_its_subgroup_is_placed_by_its_new_labels() -> None:
    scenario = in_racks({"a": 4}, r0="a")
    a = gang("a").needing(2).in_subgroups(1, 1)
    scenario.add(a)
    moved = scenario.cluster.pods[a.pods()[1].uid]
    scenario.change(pods=[replace(moved, label_set="")])
    scenario.run()
    assert bound_of(scenario, "a") == {"subgroup:0": 1, "": 1}


def test_an_answer_for_subgroups_that_were_edited_since_is_not_used() -> None:
    scenario = in_racks({"a": 3, "c": 1}, r0="a", r1="c")
    a = gang("a").needing(2).of(4).in_subgroups(2, 2, size=1, rack=False)
    scenario.add(a)
    scenario.change(gangs=[a.in_subgroups(2, 2, size=2).gang_facts()])
    scenario.run()
    assert bound_of(scenario, "a") == {"subgroup:0": 2}
    assert not scenario.gang("a").attempts.rejections


def test_an_answer_for_a_gang_that_was_divided_since_is_not_used() -> None:
    scenario = in_racks({"a": 3, "c": 1}, r0="a", r1="c")
    a = gang("a").needing(4).in_subgroups(2, 2)
    scenario.add(undivided(a))
    scenario.change(gangs=[a.gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(gangs=[undivided(a).gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 4


def test_a_non_strict_gang_with_subgroups_says_why_it_starts_whole() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    scenario.add(gang("a").non_strict().in_subgroups(4, 4))
    [warning] = warnings(scenario.gang("a"))
    assert "mode NonStrict has no effect: gang default/a has subgroups" in warning


def test_pods_in_subgroups_of_two_policies_are_named_once_whenever_they_are_created() -> None:
    scenario = in_racks({"a": 8}, r0="a")
    a = gang("a").needing(2).in_subgroups(2, 2)
    [parts] = a.gang_facts().subgroups
    second = EVERYTHING_SELECTED.narrowed([Requirement("subgroup", Operator.IN, ("1",))])
    overlapping = (parts, replace(parts, name="others", labels=second, keys=()))
    pods = a.pods()
    scenario.change(gangs=[replace(a.gang_facts(), subgroups=overlapping)], pods=pods[:2])
    scenario.run()
    assert not notes(scenario)
    for later in pods[2:]:
        scenario.change(pods=[later])
        scenario.run()
    [note] = notes(scenario)
    assert note.startswith('pod "a-2" is in a subgroup of policy "parts" and in one of policy "others": only the first')
    assert scenario.bound("a") == 4


@pytest.mark.parametrize("restarts", [False, True], ids=["during a term", "after failover"])
def test_i1_members_that_others_bound_start_no_gang_without_its_subgroups(restarts: bool) -> None:
    """Another scheduler bound the minimum, but no whole subgroup; a member without one waits."""
    scenario = Scenario({"n": 4})
    a = gang("a").needing(1).of(3).in_subgroups(2, size=2, minimum=1, rack=False)
    first, second, alone = a.pods()
    scenario.change(gangs=[a.gang_facts()], pods=[first, replace(alone, label_set="")])
    scenario.bind_elsewhere(first.uid, "n")
    if restarts:
        scenario.crash()
        scenario.start()
    scenario.run()
    assert scenario.bound("a") == 1
    assert not scenario.gang("a").permitted
    assert "0 of 1 subgroups" in why(scenario, "a")
    scenario.change(pods=[second])
    scenario.run()
    assert scenario.bound("a") == 3


def test_i1_a_gang_without_pending_members_that_lacks_subgroups_blocks_its_group() -> None:
    """Another scheduler bound the minimum, but of one subgroup only."""
    scenario = Scenario({"n": 4})
    names = ("default/a", "default/b")
    a = gang("a").needing(1).of(1).in_subgroups(1, size=1, minimum=2, rack=False).with_group(*names)
    [member] = a.pods()
    scenario.change(gangs=[a.gang_facts()], pods=[member])
    scenario.bind_elsewhere(member.uid, "n")
    scenario.add(gang("b").of(1).with_group(*names))
    scenario.run()
    assert scenario.bound("b") == 0
    assert "1 of 2 subgroups" in why(scenario, "b")
