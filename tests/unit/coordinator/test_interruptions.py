"""Changes by users, nodes and other schedulers while gangs are pending, bound or recovered."""

from msgspec.structs import replace

from builders.core.objects import node, plain_pod, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    BindResults,
    NotPersisted,
    Snapshot,
    Solved,
    ViewLost,
)
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodClass, PodPhase
from muster.gangs.solve import SolveOutcome, SolveResult

NAMES = ("default/a", "default/b")


# -- events that could let an unschedulable gang start (I7)


def test_i7_a_waiting_pod_that_becomes_smaller_is_tried_again() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(1, cpu=4)
    scenario.add(a)
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(pods=[replace(a.pods()[0], class_id=pod_class(3).id)])
    scenario.run()
    assert scenario.bound("a") == 1


def test_i7_a_member_bound_by_another_scheduler_leaves_fewer_to_place() -> None:
    scenario = Scenario({"n2": 2, "m1": 1})
    scenario.intrude(plain_pod("x"), "m1")
    a = gang("a").of(3)
    scenario.add(a)
    scenario.run()
    assert scenario.bound("a") == 0
    scenario.change(nodes=[node("hers", 1, unschedulable=True)])
    scenario.bind_elsewhere(a.pods()[0].uid, "hers")
    scenario.run()
    assert scenario.bound("a") == 3


def test_i7_a_seat_abandoned_for_another_node_frees_capacity() -> None:
    scenario = Scenario({"n2": 2})
    a, b = gang("a").of(2).created(1), gang("b").of(1).created(2)
    scenario.add(a, b)
    scenario.do(0)
    scenario.do(0)
    scenario.under_way = [effect for effect in scenario.under_way if not isinstance(effect, Bind)]
    scenario.run_effects()
    assert scenario.gang("b").phase is Phase.QUEUED
    scenario.change(nodes=[node("hers", 2, unschedulable=True)])
    scenario.run_effects()
    for pod in a.pods():
        scenario.bind_elsewhere(pod.uid, "hers")
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("b") == 1


def test_i7_a_resized_running_pod_frees_capacity() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(1, cpu=4))
    scenario.run()
    scenario.add(gang("b").of(1, cpu=2))
    scenario.run()
    assert scenario.bound("b") == 0
    (running,) = (pod for pod in scenario.cluster.pods.values() if pod.node)
    scenario.change(pods=[replace(running, class_id=pod_class(2).id)])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("b") == 1


def test_i3_a_pod_resized_while_being_bound_uses_its_new_requests() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(1, cpu=2)
    scenario.add(a)
    scenario.do(0)
    scenario.change(pods=[replace(a.pods()[0], class_id=pod_class(3).id)])
    scenario.add(gang("b").of(1, cpu=2))
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (1, 0)


def test_i7_a_pod_resized_while_being_permitted_leaves_capacity_to_others() -> None:
    scenario = Scenario({"n3": 3})
    a, b = gang("a").of(1, cpu=3).created(1), gang("b").of(1, cpu=2).created(2)
    scenario.add(a, b)
    scenario.do(0)
    persist = next(effect for effect in scenario.under_way if isinstance(effect, Persist))
    scenario.under_way.remove(persist)
    scenario.run_effects()
    assert scenario.gang("b").phase is Phase.QUEUED
    scenario.change(pods=[replace(a.pods()[0], class_id=pod_class(1).id)])
    scenario.under_way.append(persist)
    scenario.run()
    scenario.pass_time(1)
    assert (scenario.bound("a"), scenario.bound("b")) == (1, 1)


def test_i7_a_member_that_placement_saw_bound_before_was_counted_twice() -> None:
    """Placement knows more than the coordinator: another scheduler bound the member, which then has two seats there."""
    scenario = Scenario({"n2": 2})
    a, b = gang("a").of(1).created(1), gang("b").of(1).created(2)
    scenario.add(a)
    scenario.do(0)
    scenario.lagging = True
    scenario.bind_elsewhere(a.pods()[0].uid, "n2")
    scenario.lagging = False
    scenario.add(b)
    solve = next(effect for effect in scenario.under_way if isinstance(effect, Solve))
    scenario.under_way.remove(solve)
    scenario.tell(Solved(solve.solve_id, (SolveResult(b.id, SolveOutcome.INFEASIBLE),)))
    scenario.deliver()
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("b") == 1


def test_i7_an_unused_seat_is_available_to_gangs_behind_it() -> None:
    scenario = Scenario({"n3": 3}, start=False)
    a, b = gang("a").needing(2).of(3).created(1), gang("b").of(1).created(2)
    scenario.add(a, b)
    scenario.start()
    solve = scenario.only(Solve)
    assert [asked.id for asked in solve.groups] == [a.id, b.id]
    answer = scenario.first_fit(solve)
    scenario.change(remove_pods=[a.pods()[2].uid])
    scenario.under_way.clear()
    scenario.tell(Solved(solve.solve_id, answer))
    scenario.run()
    scenario.pass_time(1)
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 1)


def test_i4_a_pod_that_is_given_to_another_gang_while_it_is_bound_stays_until_then() -> None:
    scenario = Scenario({"n4": 4})
    a, b = gang("a").of(2), gang("b").needing(2).of(1)
    scenario.add(a, b)
    scenario.do(0)
    scenario.do(0)
    bind = scenario.only(Bind)
    moved = a.pods()[0].uid
    scenario.change(pods=[replace(scenario.cluster.pods[moved], gang=b.id)])
    assert moved in scenario.gang("a").seats
    assert moved in scenario.leader.cache.ledger.reserved, "I3: it may be bound at any moment"
    scenario.under_way.clear()
    scenario.tell(BindResults(tuple(scenario.bind(seat) for seat in bind.seats)))
    scenario.run()
    scenario.pass_time(1)
    assert moved in scenario.gang("b").bound
    assert scenario.gang("a").phase is Phase.REPAIRING, "one of its two pods is not its own any more"
    assert scenario.gang("b").phase is Phase.SATISFIED


def test_a_pod_that_belongs_elsewhere_is_not_placed_again_by_its_former_gang() -> None:
    scenario = Scenario({"n4": 4})
    a, b = gang("a").of(2), gang("b").needing(2).of(1)
    scenario.add(a, b)
    scenario.do(0)
    scenario.do(0)
    moved = a.pods()[0].uid
    scenario.bind_failures[moved] = 3
    scenario.change(pods=[replace(scenario.cluster.pods[moved], gang=b.id)])
    scenario.run()
    scenario.pass_time(10)
    assert moved in scenario.gang("b").bound
    assert scenario.gang("a").phase is Phase.REPAIRING, "one of its two pods is not its own any more"
    assert moved not in scenario.gang("a").pods


def test_the_record_says_with_whom_a_gang_started_whatever_it_declares_later() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.bind_failures[a.pods()[0].uid] = 3
    scenario.do(0)
    scenario.do(0)
    scenario.change(gangs=[a.with_group(*NAMES).gang_facts()])
    scenario.pass_time(10)
    assert scenario.bound("a") == 2
    assert scenario.etcd[a.id].group == ()


def test_a_permit_for_later_members_that_is_refused_does_not_make_a_gang_repair() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").needing(2).of(3)
    scenario.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    scenario.run()
    scenario.change(pods=a.pods()[2:])
    scenario.do(0)
    persist = scenario.only(Persist)
    scenario.under_way.clear()
    scenario.tell(NotPersisted(persist.persist_id, "too large"))
    scenario.run()
    assert Phase.REPAIRING not in scenario.phases[a.id]
    assert "too large" in reason(scenario.gang("a"))


def test_a_permit_that_is_refused_again_and_again_costs_little() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(4))
    for _ in range(50):
        scenario.do(0)
        for effect in [effect for effect in scenario.under_way if isinstance(effect, Persist)]:
            scenario.under_way.remove(effect)
            scenario.tell(NotPersisted(effect.persist_id, "too large"))
        assert not scenario.under_way, "it is not tried again at once"
        scenario.now += 10
        scenario.wake()
    assert "too large" in reason(scenario.gang("a"))
    scenario.now += 1
    scenario.wake()
    assert len(scenario.solves) <= 51


def test_a_node_overcommitted_in_an_unrequested_resource_is_used() -> None:
    """Others' pods use more gpus than the node has left: that is no reason against pods that ask none."""
    scenario = Scenario({})
    gpus = PodClass(id="gpus", requests=(("gpu", 2),))
    scenario.cluster.classes["gpus"] = gpus
    scenario.start()
    small = replace(node("n4", 4), allocatable=(("cpu", 4000), ("gpu", 1), ("pods", 110)))
    stranger = replace(plain_pod("x"), class_id="gpus", node="n4", ours=False, phase=PodPhase.RUNNING)
    scenario.cluster.cpu = lambda pod: dict(scenario.cluster.classes[pod.class_id].requests).get("cpu", 0)  # type: ignore[method-assign]
    scenario.change(nodes=[small], pods=[stranger])
    scenario.add(gang("a").of(2))
    scenario.run_effects(most=100)
    assert scenario.bound("a") == 2


# -- recovery, and reports that are late or repeated


def test_g35_a_record_of_a_former_gang_of_that_name_is_void_after_a_restart() -> None:
    scenario = Scenario({"n3": 3})
    old = gang("a").of(3)
    scenario.add(old)
    scenario.run()
    scenario.crash()
    scenario.delete(old)
    new = gang("a").of(4).recreated("2")
    scenario.add(new)
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 0, "the new gang needs four"
    assert scenario.etcd == {}


def test_a_failed_bind_reported_twice_counts_once() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.do(0)
    scenario.do(0)
    (seat, *_) = scenario.only(Bind).seats
    for _ in range(5):
        scenario.tell(BindResults((BindResult(seat.uid, BindOutcome.FAILED, message="500"),)))
    assert scenario.gang("a").phase is Phase.BINDING
    assert seat.uid in scenario.gang("a").seats


def test_a_result_of_an_earlier_seat_says_nothing_about_a_new_one() -> None:
    scenario = Scenario({"n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.do(0)
    uid = a.pods()[0].uid
    scenario.tell(BindResults((BindResult(uid, BindOutcome.BOUND, "n2"),)))
    scenario.run()
    assert scenario.cluster.pods[uid].node == "n2", "it was sent nevertheless"


def test_nothing_is_solved_on_a_view_that_is_lost() -> None:
    scenario = Scenario({"n2": 2})
    scenario.run()
    scenario.tell(ViewLost("cluster-state is away"))
    scenario.add(gang("a").of(2))
    assert scenario.solves == []
    scenario.tell(Snapshot(scenario.cluster.whole()))
    scenario.run()
    assert scenario.bound("a") == 2


def test_i6_partly_started_gangs_precede_all_others() -> None:
    scenario = Scenario({"n2": 2, "m2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.do(0)
    scenario.do(0)
    seat = scenario.only(Bind).seats[0]
    for _ in range(3):
        scenario.tell(BindResults((BindResult(seat.uid, BindOutcome.FAILED, message="500"),)))
        scenario.under_way = [effect for effect in scenario.under_way if not isinstance(effect, Solve)]
        scenario.now += 5
        if seat.uid in scenario.gang("a").seats:
            scenario.wake()
    assert scenario.gang("a").phase is Phase.REPAIRING
    scenario.add(gang("important").of(2).with_priority(100))
    assert scenario.gang("a").group.key < scenario.gang("important").group.key


# -- pods of other schedulers


def test_a_pod_bound_by_another_scheduler_is_not_queued() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add_pods(replace(plain_pod("p"), node="n4", phase=PodPhase.RUNNING))
    scenario.run()
    assert scenario.phases["plain/default/p"][-1] is Phase.SATISFIED


def test_a_gang_bound_completely_by_another_scheduler_is_not_queued() -> None:
    scenario = Scenario({"n4": 4})
    a = gang("a").of(2)
    scenario.change(gangs=[a.gang_facts()], pods=[replace(pod, node="n4", phase=PodPhase.RUNNING) for pod in a.pods()])
    scenario.run()
    assert scenario.gang("a").phase is Phase.SATISFIED


def test_after_a_restore_of_the_api_server_solves_ask_for_revisions_that_exist() -> None:
    scenario = Scenario({"n4": 4})
    scenario.add(gang("a").of(2))
    scenario.run()
    scenario.restore()
    scenario.add(gang("b").of(2))
    assert scenario.solves[-1].min_revision["pods"] == scenario.cluster.revision
    scenario.run()
    assert scenario.bound("b") == 2
