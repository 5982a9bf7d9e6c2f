"""status.nominatedNodeName: members that hold capacity have its node, for as long as they hold it."""

from collections import Counter

import pytest
from msgspec.structs import replace

from builders.core.actions import end, full, held_back
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase
from muster.coordinator.core.events import Rules


def nodes_of(scenario: Scenario, built: CoreGang) -> list[str]:
    """Nominated nodes of the gang's pods as they are written, in order; "" if a pod has none, or is gone."""
    pods = [scenario.cluster.pods.get(pod.uid) for pod in built.pods()]
    return [pod.nominated_node if pod is not None else "" for pod in pods]


def holding() -> tuple[Scenario, CoreGang]:
    """A NonStrict gang of 5 that holds 3 seats."""
    scenario = Scenario({"n": 3})
    built = gang("a").of(5).non_strict(waiting_time_seconds=60)
    scenario.add(built)
    scenario.pass_time(1)
    return scenario, built


def preempting(size: int = 4) -> tuple[Scenario, CoreGang]:
    """A preemptor that waits for its victims, on two nodes."""
    scenario = full(gang("v").of(size), nodes={"m": size // 2, "n": size // 2})
    built = gang("p").of(size).with_priority(10)
    scenario.add(built)
    scenario.run_effects()
    scenario.pass_time(1)
    return scenario, built


def test_members_that_hold_a_seat_have_its_node() -> None:
    scenario, built = holding()
    seats = {uid: held.seat.node for uid, held in scenario.gang("a").seats.items()}
    assert nodes_of(scenario, built) == [seats.get(pod.uid, "") for pod in built.pods()]
    assert Counter(nodes_of(scenario, built)) == {"n": 3, "": 2}


def test_a_timeout_takes_the_nominated_nodes_away() -> None:
    scenario, built = holding()
    scenario.pass_time(61)
    assert scenario.gang("a").phase is Phase.TIMED_OUT
    assert set(nodes_of(scenario, built)) == {""}


def test_a_lost_node_takes_its_nominations_away() -> None:
    scenario, built = holding()
    scenario.change(remove_nodes=["n"], nodes=[node("m", 1)])
    scenario.pass_time(2)
    assert Counter(nodes_of(scenario, built)) == {"m": 1, "": 4}


def test_all_members_of_a_preemptor_have_a_node_of_their_victims_in_one_report() -> None:
    scenario, built = preempting(200)
    assert Counter(nodes_of(scenario, built)) == {"m": 100, "n": 100}
    (report,) = [each for each in scenario.reports if each.gang == built.id and each.conditions]
    assert len(report.conditions) == 200


def test_members_keep_their_nominated_nodes_when_another_member_is_replaced() -> None:
    scenario = full(gang("v").of(4), nodes={"m": 2, "n": 2})
    built = gang("p").needing(4).of(5).with_priority(10)
    scenario.add(built)
    scenario.run_effects()
    scenario.pass_time(1)
    before = dict(zip([pod.uid for pod in built.pods()], nodes_of(scenario, built), strict=True))
    assert sorted(before.values()) == ["", "m", "m", "n", "n"]
    first = next(uid for uid, found in before.items() if found)
    scenario.reports.clear()
    scenario.change(remove_pods=[first])
    scenario.pass_time(2)
    after = dict(zip([pod.uid for pod in built.pods()], nodes_of(scenario, built), strict=True))
    assert {uid: after[uid] for uid, found in before.items() if found and uid != first} == {
        uid: found for uid, found in before.items() if found and uid != first
    }
    assert Counter(after.values()) == Counter(before.values()) - Counter([before[first], ""]) + Counter(
        [before[first], ""]
    )


def test_further_members_have_no_node_of_those_that_keep_theirs() -> None:
    scenario = full(gang("v").of(4), nodes={"m": 2, "n": 2})
    built = gang("p").needing(4).of(4).with_priority(10)
    scenario.add(built)
    scenario.run_effects()
    scenario.pass_time(1)
    larger = built.of(6)
    scenario.add_pods(*larger.pods()[4:])
    scenario.pass_time(2)
    assert Counter(nodes_of(scenario, larger)) == {"m": 2, "n": 2, "": 2}


def test_a_preemptor_that_gives_up_has_no_nominated_nodes() -> None:
    scenario, built = preempting()
    scenario.pass_time(302)
    assert not scenario.leader.cache.nominations
    assert set(nodes_of(scenario, built)) == {""}


def test_nominated_nodes_of_two_preemptors_are_never_more_than_their_capacity() -> None:
    scenario = full(gang("v").of(4), nodes={"m": 2, "n": 2})
    first, second = gang("p").of(2).with_priority(10), gang("q").of(2).with_priority(9).created(1)
    scenario.add(first, second)
    for _ in range(40):
        scenario.pass_time(0.3)
        assert not [
            name
            for name, count in (Counter(nodes_of(scenario, first) + nodes_of(scenario, second))).items()
            if name and count > 2
        ]
    end(scenario)
    scenario.pass_time(2)
    assert scenario.bound("p") == scenario.bound("q") == 2


@pytest.mark.parametrize(("seconds", "count"), [(300.0, 4), (3000.0, 0), (0.0, 0)])
def test_reserved_capacity_that_is_free_soon_is_nominated(seconds: float, count: int) -> None:
    scenario = Scenario({"n": 4}, rules=Rules(starvation_after_seconds=5))
    scenario.add_pods(replace(plain_pod("first"), expected_seconds=seconds))
    scenario.run()
    big = gang("big").of(4)
    scenario.add(big)
    scenario.pass_time(12)
    assert scenario.leader.cache.nominations
    assert Counter(nodes_of(scenario, big))["n"] == count


def test_members_that_are_bound_slowly_have_the_node_of_their_seat() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(5)
    scenario.change(nodes=[node("m", 4)])
    bind = held_back(scenario, Bind)
    scenario.pass_time(2)
    seats = {seat.uid: seat.node for seat in bind.seats}
    assert nodes_of(scenario, a) == [seats[pod.uid] for pod in a.pods()]


def test_a_gang_that_starts_at_once_has_no_nominated_nodes() -> None:
    scenario = Scenario({"n": 4})
    a = gang("a").of(4)
    scenario.add(a)
    scenario.pass_time(5)
    assert scenario.bound("a") == 4
    assert not [each for report in scenario.reports for each in report.conditions]


def test_i5_a_new_leader_removes_nominated_nodes_whose_capacity_is_gone() -> None:
    scenario, built = holding()
    scenario.crash()
    scenario.change(nodes=[node("n", 1)])
    scenario.start()
    scenario.pass_time(2)
    assert Counter(nodes_of(scenario, built)) == {"n": 1, "": 4}


def test_i5_a_new_leader_removes_nominated_nodes_of_gangs_that_it_cannot_try() -> None:
    scenario, built = holding()
    scenario.crash()
    scenario.start()
    assert scenario.under_way, "placement does not answer"
    held, scenario.under_way = scenario.under_way, []
    scenario.pass_time(2)
    assert set(nodes_of(scenario, built)) == {""}
    scenario.under_way = held
    scenario.pass_time(2)
    assert Counter(nodes_of(scenario, built)) == {"n": 3, "": 2}


def test_i5_a_new_leader_confirms_the_nominated_nodes_of_a_plan() -> None:
    scenario, built = preempting()
    before = nodes_of(scenario, built)
    scenario.crash()
    scenario.start()
    scenario.pass_time(2)
    assert nodes_of(scenario, built) == before
    end(scenario)
    scenario.pass_time(2)
    assert scenario.bound("p") == 4


def test_i5_a_restored_backup_brings_no_nominated_nodes_back() -> None:
    scenario, built = holding()
    backup = scenario.cluster.copy()
    scenario.change(remove_nodes=["n"])
    scenario.pass_time(2)
    assert set(nodes_of(scenario, built)) == {""}
    backup.nodes.clear()
    scenario.restore(backup)
    scenario.pass_time(2)
    assert set(nodes_of(scenario, built)) == {""}
