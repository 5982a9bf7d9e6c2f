"""The gang scenarios of the design (G..), run against the core."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Persist, Phase, Solve
from muster.coordinator.core.events import Solved
from muster.gangs.facts import MatchPolicy, PodFacts, PodPhase


def test_g01_a_gang_that_is_too_large_leaves_capacity_to_others() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").needing(5).of(5))
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.add_pods(plain_pod("p"))
    scenario.run()
    assert scenario.cluster.pods["default/p"].node == "n4"
    scenario.pass_time(1)
    assert any("4 of 5 members fit" in note for note in scenario.notes())


def test_g02_a_node_is_added() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").needing(5).of(5))
    scenario.run()
    scenario.change(nodes=[node("n1", 1)])
    scenario.run()
    assert scenario.bound("a") == 5
    assert len(scenario.solves) == 2


def test_a_gang_that_is_declared_in_other_words_is_not_tried_again() -> None:
    scenario = Scenario({"n4": 4})
    declared = gang("a").needing(5).of(5)
    scenario.add(declared)
    scenario.run()
    assert len(scenario.solves) == 1
    scenario.change(gangs=[replace(declared.gang_facts(), terms=("min-available: 5 (pod a-1)",))])
    scenario.run()
    assert len(scenario.solves) == 1
    scenario.change(gangs=[replace(declared.gang_facts(), minimum=4)])
    scenario.run()
    assert scenario.bound("a") == 4


def test_g03_waits_for_its_third_member() -> None:
    scenario = Scenario({"n4": 4})
    three = gang("a").needing(3).of(3)
    scenario.change(gangs=[three.gang_facts()], pods=three.pods()[:2])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert any("2 of 3 members" in note for note in scenario.notes())
    scenario.change(pods=three.pods()[2:])
    scenario.run()
    assert scenario.bound("a") == 3


def test_g04_all_of_a_gang_with_spare_members() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").needing(3).of(4))
    scenario.run()
    assert scenario.bound("a") == 4


def test_g05_the_spare_member_waits_alone() -> None:
    scenario = Scenario({"n3": 3})
    scenario.add(gang("a").needing(3).of(4))
    scenario.run()
    assert scenario.bound("a") == 3
    assert scenario.gang("a").phase is Phase.SATISFIED
    scenario.pass_time(1)
    assert any("1 more of its pods cannot start" in note for note in scenario.notes())
    scenario.change(nodes=[node("n1", 1)])
    scenario.run()
    assert scenario.bound("a") == 4


def test_g06_the_second_gang_follows_the_first() -> None:
    scenario = Scenario({"n10": 10})
    a, b = gang("a").of(6).created(1), gang("b").of(6).created(2)
    scenario.add(a, b)
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (6, 0)
    scenario.delete(a)
    scenario.pass_time(1)
    assert scenario.bound("b") == 6


def test_g07_priority_precedes_age() -> None:
    scenario = Scenario({"n10": 10}, start=False)
    scenario.add(gang("a").of(6).created(1), gang("b").of(6).created(2).with_priority(10))
    scenario.start()
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 6)


def test_g12_a_group_starts_when_all_its_gangs_are_complete() -> None:
    scenario = Scenario({"n10": 10})
    a = gang("A", "a").of(3).with_group("a/A", "b/B")
    b = gang("B", "b").needing(3).of(3).with_group("a/A", "b/B")
    scenario.add(a)
    scenario.change(gangs=[b.gang_facts()], pods=b.pods()[:2])
    scenario.run()
    assert (scenario.bound("A", "a"), scenario.bound("B", "b")) == (0, 0)
    scenario.change(pods=b.pods()[2:])
    scenario.run()
    assert (scenario.bound("A", "a"), scenario.bound("B", "b")) == (3, 3)
    assert len(scenario.solves) == 1, "the group is one solve"


def test_i1_a_partner_recreated_during_the_solve_is_awaited() -> None:
    scenario = Scenario({"n10": 10})
    names = ("default/a", "default/b")
    a, b = gang("a").of(2).with_group(*names), gang("b").of(2).with_group(*names)
    scenario.add(a, b)
    solve = scenario.only(Solve)
    scenario.delete(b)
    anew = b.recreated("2")
    scenario.change(gangs=[anew.gang_facts()], pods=anew.pods()[:1])
    scenario.tell(Solved(solve.solve_id, scenario.first_fit(solve)))
    scenario.under_way.clear()
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (0, 0)
    scenario.change(pods=anew.pods()[1:])
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)


def test_g13_a_partner_without_a_group_starts_alone() -> None:
    scenario = Scenario({"n10": 10})
    scenario.add(gang("A", "a").of(3).with_group("a/A", "b/B"), gang("B", "b").of(3))
    scenario.run()
    scenario.pass_time(1)
    assert (scenario.bound("A", "a"), scenario.bound("B", "b")) == (0, 3)
    assert any(
        'b/B of its gang group does not declare the same group; it must declare ["a/A", "b/B"]' in note
        for note in scenario.notes()
    )


def test_g14_a_group_that_does_not_fit_holds_nothing() -> None:
    scenario = Scenario({"n5": 5})
    scenario.add(
        gang("a").of(3).with_group("default/a", "default/b"), gang("b").of(3).with_group("default/a", "default/b")
    )
    scenario.run()
    assert scenario.bound("a") + scenario.bound("b") == 0


def test_g15_a_malformed_partner_is_named() -> None:
    scenario = Scenario({"n9": 9})
    names = ("default/a", "default/b", "default/c")
    scenario.add(
        gang("a").of(2).with_group(*names),
        gang("b").of(2).with_group(*names).broken('min-available "five" is not a number'),
        gang("c").of(2).with_group(*names),
    )
    scenario.run()
    scenario.pass_time(1)
    assert sum(scenario.bound(name) for name in "abc") == 0
    assert any('default/b of its gang group: min-available "five"' in note for note in scenario.notes())


def test_g16_a_recreated_member_starts_alone() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.run()
    pod = a.pods()[0]
    scenario.change(remove_pods=[pod.uid])
    scenario.run()
    scenario.change(pods=[replace(pod, uid="new")])
    scenario.run()
    assert scenario.cluster.pods["new"].node == "n4"


def came_anew(scenario: Scenario, pods: list[PodFacts]) -> None:
    """Members are deleted and created anew."""
    scenario.change(remove_pods=[pod.uid for pod in pods])
    scenario.run()
    scenario.change(pods=[replace(pod, uid=f"{pod.uid} anew") for pod in pods])
    scenario.run()


def test_g17_later_members_wait_until_waiting_and_running_reach_the_minimum() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").needing(4).of(4).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    scenario.add(a)
    scenario.run()
    scenario.change(remove_pods=[pod.uid for pod in a.pods()[:2]])
    scenario.run()
    came_anew(scenario, a.pods()[2:3])
    assert scenario.bound("a") == 1
    assert scenario.gang("a").phase is Phase.REPAIRING
    scenario.pass_time(1)
    waits = "gang default/a runs with 1 of 4 members; 1 later pod is pending: 2 of 4 members exist"
    assert any(waits in note for note in scenario.notes())
    scenario.change(pods=[replace(pod, uid=f"{pod.uid} anew") for pod in a.pods()[:2]])
    scenario.run()
    assert scenario.bound("a") == 4


def test_g17_a_recreated_member_starts_at_once_while_the_others_run() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").needing(4).of(4).with_match_policy(MatchPolicy.WAITING_AND_RUNNING)
    scenario.add(a)
    scenario.run()
    came_anew(scenario, a.pods()[:1])
    assert scenario.bound("a") == 4


def test_g18_later_members_wait_until_they_reach_the_minimum_alone() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").needing(2).of(4).with_match_policy(MatchPolicy.ONLY_WAITING)
    scenario.add(a)
    scenario.run()
    assert scenario.bound("a") == 4
    came_anew(scenario, a.pods()[:1])
    assert scenario.bound("a") == 3
    came_anew(scenario, a.pods()[1:2])
    assert scenario.bound("a") == 4


def test_g18_a_started_gang_is_still_repaired_pod_by_pod() -> None:
    scenario = Scenario({"n1": 2, "n2": 2})
    a = gang("a").of(2).with_match_policy(MatchPolicy.ONLY_WAITING)
    scenario.add(a)
    scenario.bind_failures[a.pods()[0].uid] = 3
    scenario.run()
    scenario.pass_time(10)
    assert scenario.bound("a") == 2


def test_g19_a_gang_with_bound_pods_and_no_record_counts_as_satisfied() -> None:
    scenario = Scenario({"n5": 5}, start=False)
    a = gang("a").of(5)
    pods = [replace(pod, node="n5", phase=PodPhase.RUNNING) if i < 3 else pod for i, pod in enumerate(a.pods())]
    scenario.change(gangs=[a.gang_facts()], pods=pods)
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 5


def test_g23_g24_pods_and_definition_in_any_order() -> None:
    scenario = Scenario({"n5": 5})
    pods_first, definition_first = gang("a").of(2), gang("b").of(3)
    scenario.change(pods=pods_first.pods())
    scenario.change(gangs=[definition_first.gang_facts()])
    scenario.run()
    assert scenario.bound("a") + scenario.bound("b") == 0
    scenario.change(gangs=[pods_first.gang_facts()])
    for pod in definition_first.pods():
        scenario.change(pods=[pod])
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 3)


def test_g26_a_malformed_gang_waits_until_mended() -> None:
    scenario = Scenario({"n5": 5})
    scenario.add(gang("a").of(5).broken('min-available "five" is not a number'))
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert any('"five"' in note for note in scenario.notes())
    scenario.change(gangs=[gang("a").of(5).gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 5


def test_g30_cycles_count_tries_of_all_members() -> None:
    scenario = Scenario({"n3": 3})
    scenario.add(gang("a").of(4))
    assert scenario.gang("a").attempts.cycle.number == 1
    scenario.run()
    assert (scenario.bound("a"), scenario.gang("a").attempts.cycle.number, scenario.gang("a").attempts.cycle.valid) == (
        0,
        2,
        True,
    )


def test_g30_a_cycle_stays_invalid_while_members_are_missing() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").needing(4).of(5)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:4])
    scenario.run()
    assert (scenario.gang("a").attempts.cycle.number, scenario.gang("a").attempts.cycle.valid) == (1, False)
    scenario.change(nodes=[node("n1", 1)])
    scenario.run()
    assert scenario.bound("a") == 4


def test_g31_a_lower_minimum_starts_the_gang() -> None:
    scenario = Scenario({"n5": 5})
    a = gang("a").of(3)
    scenario.change(gangs=[a.needing(5).gang_facts()], pods=a.pods())
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(gangs=[a.needing(3).gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 3


def test_g32_a_higher_minimum_while_solving_is_respected() -> None:
    scenario = Scenario({"n5": 5})
    a = gang("a").of(3)
    scenario.add(a)
    assert isinstance(scenario.under_way[0], Solve)
    scenario.change(gangs=[a.needing(5).gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.GATHERING


def test_g35_nothing_of_a_former_gang_of_that_name_counts() -> None:
    scenario = Scenario({"n3": 3})
    old = gang("a").of(3)
    scenario.add(old)
    scenario.run()
    assert scenario.bound("a") == 3
    scenario.delete(old)
    scenario.run()
    assert scenario.etcd == {}
    new = gang("a").of(4).recreated("2")
    scenario.add(new)
    scenario.run()
    assert scenario.bound("a") == 0, "the new gang needs four"
    assert scenario.gang("a").phase is Phase.QUEUED


def test_g35_a_gang_recreated_while_the_old_pods_terminate() -> None:
    scenario = Scenario({"n3": 3, "m3": 3})
    old = gang("a").of(3)
    scenario.add(old)
    scenario.run()
    scenario.change(pods=[replace(scenario.cluster.pods[pod.uid], deleting=True) for pod in old.pods()])
    new = gang("a").of(4).recreated("2")
    scenario.change(gangs=[new.gang_facts()], pods=new.pods())
    scenario.run()
    assert sum(1 for pod in new.pods() if scenario.cluster.pods[pod.uid].node) == 0
    scenario.change(remove_pods=[pod.uid for pod in old.pods()])
    scenario.pass_time(1)
    assert scenario.bound("a") == 4


@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_g40_two_sizes_fit_in_every_order_of_creation(order: tuple[int, ...]) -> None:
    scenario = Scenario({"n8": 8, "n4": 4})
    a = gang("a").of(1, cpu=7).and_of(1, cpu=3)
    scenario.change(gangs=[a.gang_facts()])
    for index in order:
        scenario.change(pods=[a.pods()[index]])
    scenario.run()
    assert scenario.bound("a") == 2


def test_g41_the_first_that_fit_start_and_the_others_follow_in_order() -> None:
    scenario = Scenario({f"n{i:02}": 8 for i in range(40)}, start=False)
    gangs = [gang(f"g{i:03}").of(8) for i in range(100)]
    scenario.add(*gangs)
    scenario.start()
    scenario.run()
    assert [scenario.bound(g.name) for g in gangs] == [8] * 40 + [0] * 60
    for index in range(10):
        scenario.delete(gangs[index])
        scenario.pass_time(1)
        assert scenario.bound(gangs[40 + index].name) == 8
    assert sum(scenario.bound(g.name) for g in gangs) == 8 * 40


def test_g42_a_gang_of_5000_is_one_record_and_one_permit() -> None:
    scenario = Scenario({f"n{i:03}": 100 for i in range(50)})
    scenario.add(gang("a").of(5000))
    scenario.do(0)
    persist = scenario.only(Persist)
    assert [len(record.seats) for record in persist.puts] == [5000]
    scenario.run()
    assert scenario.bound("a") == 5000


def test_g48_gated_pods_are_not_present() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(3)
    gated = replace(a.pods()[0], gated=True)
    scenario.change(gangs=[a.gang_facts()], pods=[gated, *a.pods()[1:]])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert any("2 of 3 members can be scheduled (1 gated)" in note for note in scenario.notes())
    scenario.change(pods=[replace(gated, gated=False)])
    scenario.run()
    assert scenario.bound("a") == 3


def test_g49_ended_members_use_no_capacity_and_do_not_count() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(3)
    scenario.add(a)
    scenario.run()
    scenario.change(pods=[replace(scenario.cluster.pods[pod.uid], phase=PodPhase.SUCCEEDED) for pod in a.pods()])
    scenario.add(gang("b").of(3))
    scenario.run()
    assert scenario.bound("b") == 3
    assert scenario.gang("a").member_count == 0


def test_g50_an_infeasible_gang_costs_nothing_without_events() -> None:
    scenario = Scenario({"n1": 1})
    for index in range(200):
        scenario.add(gang(f"g{index}").of(2))
    scenario.run()
    scenario.pass_time(20)
    solved = len(scenario.solves)
    scenario.pass_time(3600)
    assert len(scenario.solves) == solved
