"""Gangs that start together wait for the claims of all of them, and start again together if one cannot be made (I1)."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import brought_back, held_back, until
from builders.core.objects import plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Phase, Solve
from muster.coordinator.core.events import BindCallFailed, BindOutcome, BindResult, BindResults
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodFacts

FOREVER = 10**9
PAIR = ("default/a", "default/b")
THREE = ("default/a", "default/b", "default/c")


def grouped(name: str, size: int = 2) -> CoreGang:
    """A gang of the gang group of a and b."""
    return gang(name).of(size).with_group(*PAIR)


def child(name: str, needed: int = 2) -> CoreGang:
    """A gang in a composite of a, b and c, which starts with so many of them."""
    return gang(name).of(1).with_group(*THREE).in_composites(needed, root="")


def create(scenario: Scenario, *built: CoreGang, claiming: str, failing: int) -> None:
    """Creates the gangs at once. Pods of one have claims; the volume of the last one cannot be made so many times."""
    pods: list[PodFacts] = []
    for each in built:
        members = [replace(pod, claims=("data",)) if each.name == claiming else pod for pod in each.pods()]
        if each.name == claiming:
            scenario.volume_failures[members[-1].uid] = failing
        pods += members
    scenario.change(gangs=[each.gang_facts() for each in built], pods=pods)


def bound(scenario: Scenario, *names: str) -> list[int]:
    return [scenario.bound(name) for name in names]


def with_pair(failing: int, *, nodes: dict[str, int] | None = None) -> Scenario:
    """A gang group of which gang b has claims."""
    scenario = Scenario(nodes or {"n": 4})
    create(scenario, grouped("a"), grouped("b"), claiming="b", failing=failing)
    return scenario


def test_i1_no_gang_of_a_group_is_bound_before_the_volumes_of_all_exist() -> None:
    scenario = with_pair(2)
    scenario.run()
    assert bound(scenario, "a", "b") == [0, 0]
    scenario.pass_time(30)
    assert bound(scenario, "a", "b") == [2, 2]
    assert [(each.gangs, len(each.seats), each.claims_first) for each in scenario.binds] == [
        (["test/default/a", "test/default/b"], 4, True)
    ] * 3


def test_gangs_of_a_group_without_claims_are_bound_by_calls_of_their_own() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(grouped("a"), grouped("b"))
    scenario.run()
    assert [(each.gangs, each.claims_first) for each in scenario.binds] == [
        (["test/default/a"], False),
        (["test/default/b"], False),
    ]


def test_i1_i13_a_volume_that_can_never_be_made_leaves_no_gang_of_the_group_running() -> None:
    scenario = with_pair(FOREVER)
    scenario.pass_time(86400)
    assert bound(scenario, "a", "b") == [0, 0]
    assert {scenario.gang(name).phase for name in ("a", "b")} == {Phase.GATHERING}, "both pause"
    assert not scenario.leader.cache.ledger.reserved
    assert "volume is missing" in reason(scenario.gang("a")) or "claims are not ready" in reason(scenario.gang("a"))


def test_i6_a_group_whose_volume_cannot_be_made_there_is_placed_again_as_one() -> None:
    scenario = with_pair(3)
    scenario.pass_time(60)
    assert bound(scenario, "a", "b") == [2, 2]
    assert [sorted(each.id for each in solve.groups[0].gangs) for solve in scenario.solves] == [
        ["test/default/a", "test/default/b"]
    ] * 2


def test_i1_a_group_waits_for_results_that_arrive_apart() -> None:
    scenario = with_pair(0)
    bind = held_back(scenario, Bind)
    failing, *others = sorted(bind.seats, key=lambda seat: seat.name, reverse=True)
    for _ in range(2):
        scenario.tell(BindResults((BindResult(failing.uid, BindOutcome.FAILED, message="no volume yet"),)))
    scenario.now += 60
    scenario.wake()
    for seat in others:
        assert not [effect for effect in scenario.under_way if isinstance(effect, Bind)]
        scenario.tell(BindResults((BindResult(seat.uid, BindOutcome.WITHHELD, message="no volume yet"),)))
    scenario.pass_time(5)
    assert bound(scenario, "a", "b") == [2, 2]
    assert [len(each.seats) for each in scenario.binds] == [4, 4]


def test_i5_seats_of_a_group_are_kept_until_all_pods_have_a_result() -> None:
    scenario = with_pair(0)
    for _ in range(3):
        bind = held_back(scenario, Bind)
        failing, *others = sorted(bind.seats, key=lambda seat: seat.name, reverse=True)
        scenario.tell(BindResults((BindResult(failing.uid, BindOutcome.FAILED, message="no volume yet"),)))
        assert len(scenario.leader.cache.ledger.reserved) == 4, "the others may be bound at any moment"
        withheld = (BindResult(seat.uid, BindOutcome.WITHHELD, message="no volume yet") for seat in others)
        scenario.tell(BindResults(tuple(withheld)))
        if not scenario.under_way:
            scenario.now += 5
            scenario.wake()
    assert len(until(scenario, Solve).groups[0].gangs) == 2, "they are placed again"


def test_i1_pods_of_a_group_whose_call_broke_off_wait_for_the_pause_of_the_others() -> None:
    scenario = with_pair(0)
    for pause in (0.5, 1.0):
        bind = held_back(scenario, Bind)
        failing, *others = sorted(bind.seats, key=lambda seat: seat.name, reverse=True)
        scenario.tell(
            BindResults((BindResult(failing.uid, BindOutcome.FAILED, message="no volume yet"),)),
            BindCallFailed(tuple(seat.uid for seat in others), "connection refused"),
        )
        scenario.now += pause
        scenario.wake()
    assert [len(each.seats) for each in scenario.binds] == [4, 4, 4]


def test_i6_a_call_of_a_group_that_broke_off_is_repeated_as_one() -> None:
    scenario = with_pair(1)
    until(scenario, Bind)
    scenario.break_call(0)
    scenario.pass_time(30)
    assert bound(scenario, "a", "b") == [2, 2]
    assert [len(each.seats) for each in scenario.binds] == [4, 4, 4]


def test_i6_a_group_that_was_bound_in_part_by_a_broken_call_is_finished() -> None:
    scenario = with_pair(0)
    bind = until(scenario, Bind)
    assert not scenario.unready(bind)
    scenario.bind(bind.seats[0])
    scenario.break_call(0)
    scenario.run()
    scenario.pass_time(5)
    assert bound(scenario, "a", "b") == [2, 2]


# -- failover


def test_i1_a_new_leader_binds_no_gang_of_a_group_before_all_volumes_exist() -> None:
    scenario = with_pair(1)
    until(scenario, Bind)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert bound(scenario, "a", "b") == [0, 0]
    scenario.pass_time(30)
    assert bound(scenario, "a", "b") == [2, 2]
    assert len(scenario.solves) == 1


def test_i1_a_new_leader_that_cannot_take_up_one_gang_of_a_group_starts_all_again() -> None:
    scenario = with_pair(0, nodes={"n": 2, "m": 2})
    bind = until(scenario, Bind)
    node = next(seat.node for seat in bind.seats if bind.gang_of(seat.uid) == "test/default/b")
    scenario.crash()
    del scenario.cluster.nodes[node]
    scenario.start()
    scenario.run()
    assert bound(scenario, "a", "b") == [0, 0]
    assert {scenario.gang(name).phase for name in ("a", "b")} == {Phase.QUEUED}


# -- changes while the claims are awaited


def delete(scenario: Scenario) -> None:
    scenario.delete(grouped("b"))


def delete_pods(scenario: Scenario) -> None:
    scenario.change(remove_pods=[pod.uid for pod in grouped("b").pods()])


def delete_a_pod(scenario: Scenario) -> None:
    scenario.change(remove_pods=[grouped("b").pods()[0].uid])


@pytest.mark.parametrize("happens", [delete, delete_pods, delete_a_pod])
def test_i1_a_gang_does_not_start_without_its_partner(happens: Callable[[Scenario], None]) -> None:
    scenario = with_pair(1)
    scenario.run()
    happens(scenario)
    scenario.pass_time(30)
    assert bound(scenario, "a") == [0]
    assert not scenario.leader.cache.ledger.reserved
    assert scenario.gang("a").phase is Phase.GATHERING
    back = grouped("b")
    scenario.change(gangs=[back.gang_facts()], pods=brought_back(back))
    scenario.pass_time(30)
    assert scenario.bound("a") == 2
    assert scenario.bound("b") >= 2


def test_i1_a_removed_node_has_the_whole_group_placed_again() -> None:
    scenario = with_pair(1, nodes={"n": 2, "m": 2})
    scenario.run()
    node = next(iter(scenario.gang("b").seats.values())).seat.node
    scenario.change(remove_nodes=[node])
    scenario.pass_time(30)
    assert bound(scenario, "a", "b") == [0, 0]
    assert {scenario.gang(name).phase for name in ("a", "b")} == {Phase.QUEUED}


def test_a_gang_that_runs_again_does_not_wait_for_a_partner_that_ended() -> None:
    scenario = Scenario({"n": 4})
    scenario.add(grouped("a"), grouped("b"))
    scenario.run()
    gone = [pod.uid for pod in (*grouped("a").pods(), *grouped("b").pods())]
    scenario.now += 100
    scenario.change(remove_pods=gone)
    pods = [replace(pod, claims=("data",)) for pod in brought_back(grouped("a"))]
    scenario.volume_failures[pods[0].uid] = 1
    scenario.change(pods=pods)
    scenario.pass_time(30)
    assert bound(scenario, "a", "b") == [2, 0]


# -- surplus, NonStrict gangs and composites


def test_i7_a_group_starts_without_the_volumes_of_surplus() -> None:
    scenario = Scenario({"n": 4})
    create(scenario, grouped("a"), grouped("b").needing(1), claiming="b", failing=FOREVER)
    scenario.pass_time(300)
    assert bound(scenario, "a", "b") == [2, 1]


def test_i1_nonstrict_gangs_of_a_group_wait_for_the_volumes_of_all() -> None:
    scenario = Scenario({"n": 4})
    create(scenario, grouped("a").non_strict(), grouped("b").non_strict(), claiming="b", failing=4)
    scenario.run()
    assert bound(scenario, "a", "b") == [0, 0]
    scenario.pass_time(60)
    assert bound(scenario, "a", "b") == [2, 2]


@pytest.mark.parametrize(("needed", "runs"), [(2, [1, 0, 1]), (3, [0, 0, 0])])
def test_i1_a_composite_starts_with_enough_children_whose_claims_are_ready(needed: int, runs: list[int]) -> None:
    scenario = Scenario({"n": 3})
    children = [child(name, needed) for name in "abc"]
    create(scenario, *children, claiming="b", failing=FOREVER)
    scenario.run()
    assert bound(scenario, *"abc") == [0, 0, 0]
    scenario.pass_time(300)
    assert bound(scenario, *"abc") == runs


def test_i1_a_child_that_comes_later_waits_for_the_claims_that_its_composite_needs() -> None:
    scenario = Scenario({"n": 3})
    create(scenario, child("a"), child("b"), claiming="b", failing=1)
    until(scenario, Bind)
    scenario.add(child("c"))
    bind = held_back(scenario, Bind)
    scenario.run()
    assert scenario.gang("c").permitted
    assert bound(scenario, *"abc") == [0, 0, 0]
    scenario.tell(BindResults(scenario.bind_all(bind)))
    scenario.pass_time(30)
    assert bound(scenario, *"abc") == [1, 1, 1]


def test_i1_a_child_that_came_later_does_not_start_alone_under_a_new_leader() -> None:
    scenario = Scenario({"n": 1, "m": 1, "o": 2})
    create(scenario, child("a"), child("b"), claiming="b", failing=FOREVER)
    until(scenario, Bind)
    scenario.add(gang("c").of(2).with_group(*THREE).in_composites(2, root=""))
    scenario.run()
    assert scenario.gang("c").permitted
    assert scenario.etcd["test/default/c"].claims_first
    scenario.delete(child("a"))
    scenario.crash()
    for each in ("test/default/b", "test/default/c"):
        seat = scenario.etcd[each].seats[0]
        scenario.intrude(plain_pod(f"on-{seat.node}"), seat.node)
    scenario.start()
    scenario.run()
    assert bound(scenario, "b", "c") == [0, 0]
