"""What happens to gangs when users, nodes and other schedulers get in the way at the wrong moment."""

from msgspec.structs import replace

from builders.core.objects import gang, node, plain_pod, pod_class
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    BindResults,
    NotPersisted,
    Persisted,
    Snapshot,
    Solved,
    ViewLost,
)
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodClass, PodPhase
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult

NAMES = ("default/a", "default/b")


# -- what could let a parked gang start (I7)


def test_i7_a_waiting_pod_that_becomes_smaller_is_tried_again() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(1, cpu=4)
    story.add(a)
    story.run()
    assert story.bound("a") == 0
    story.change(pods=[replace(a.pods()[0], class_id=pod_class(3).id)])
    story.run()
    assert story.bound("a") == 1


def test_i7_a_member_bound_by_somebody_else_leaves_fewer_to_place() -> None:
    story = Story({"n2": 2, "m1": 1})
    story.intrude(plain_pod("x"), "m1")
    a = gang("a").of(3)
    story.add(a)
    story.run()
    assert story.bound("a") == 0
    story.change(nodes=[node("hers", 1, unschedulable=True)])
    story.bind_elsewhere(a.pods()[0].uid, "hers")
    story.run()
    assert story.bound("a") == 3


def test_i7_a_seat_that_is_left_for_another_node_is_room_for_others() -> None:
    story = Story({"n2": 2})
    a, b = gang("a").of(2).created(1), gang("b").of(1).created(2)
    story.add(a, b)
    story.do(0)
    story.do(0)
    story.under_way = [effect for effect in story.under_way if not isinstance(effect, Bind)]
    story.run_effects()
    assert story.gang("b").phase is Phase.QUEUED
    story.change(nodes=[node("hers", 2, unschedulable=True)])
    story.run_effects()
    for pod in a.pods():
        story.bind_elsewhere(pod.uid, "hers")
    story.run()
    story.pass_time(1)
    assert story.bound("b") == 1


def test_i7_a_running_pod_that_is_resized_makes_room() -> None:
    story = Story({"n4": 4})
    story.add(gang("a").of(1, cpu=4))
    story.run()
    story.add(gang("b").of(1, cpu=2))
    story.run()
    assert story.bound("b") == 0
    (running,) = (pod for pod in story.cluster.pods.values() if pod.node)
    story.change(pods=[replace(running, class_id=pod_class(2).id)])
    story.run()
    story.pass_time(1)
    assert story.bound("b") == 1


def test_i3_a_pod_resized_while_it_is_bound_takes_the_new_room() -> None:
    story = Story({"n4": 4})
    a = gang("a").of(1, cpu=2)
    story.add(a)
    story.do(0)
    story.change(pods=[replace(a.pods()[0], class_id=pod_class(3).id)])
    story.add(gang("b").of(1, cpu=2))
    story.run()
    assert (story.bound("a"), story.bound("b")) == (1, 0)


def test_i7_a_pod_resized_while_it_is_permitted_leaves_room_to_others() -> None:
    story = Story({"n3": 3})
    a, b = gang("a").of(1, cpu=3).created(1), gang("b").of(1, cpu=2).created(2)
    story.add(a, b)
    story.do(0)
    persist = next(effect for effect in story.under_way if isinstance(effect, Persist))
    story.under_way.remove(persist)
    story.run_effects()
    assert story.gang("b").phase is Phase.QUEUED
    story.change(pods=[replace(a.pods()[0], class_id=pod_class(1).id)])
    story.under_way.append(persist)
    story.run()
    story.pass_time(1)
    assert (story.bound("a"), story.bound("b")) == (1, 1)


def test_i7_a_member_that_placement_saw_bound_before_was_counted_twice() -> None:
    """Placement knows more than the coordinator: another scheduler bound the member, which then has two seats there."""
    story = Story({"n2": 2})
    a, b = gang("a").of(1).created(1), gang("b").of(1).created(2)
    story.add(a)
    story.do(0)
    story.lagging = True
    story.bind_elsewhere(a.pods()[0].uid, "n2")
    story.lagging = False
    story.add(b)
    solve = next(effect for effect in story.under_way if isinstance(effect, Solve))
    story.under_way.remove(solve)
    story.tell(Solved(solve.solve_id, (SolveResult(b.id, SolveOutcome.INFEASIBLE),)))
    story.deliver()
    story.run()
    story.pass_time(1)
    assert story.bound("b") == 1


def test_i7_a_seat_that_nobody_takes_any_more_goes_to_those_behind_it() -> None:
    story = Story({"n3": 3}, start=False)
    a, b = gang("a").minimum(2).of(3).created(1), gang("b").of(1).created(2)
    story.add(a, b)
    story.start()
    solve = story.only(Solve)
    assert [asked.id for asked in solve.groups] == [a.id, b.id]
    answer = story.first_fit(solve)
    story.change(remove_pods=[a.pods()[2].uid])
    story.under_way.clear()
    story.tell(Solved(solve.solve_id, answer))
    story.run()
    story.pass_time(1)
    assert (story.bound("a"), story.bound("b")) == (2, 1)


def test_i4_a_pod_that_is_given_to_another_gang_while_it_is_bound_stays_until_then() -> None:
    story = Story({"n4": 4})
    a, b = gang("a").of(2), gang("b").minimum(2).of(1)
    story.add(a, b)
    story.do(0)
    story.do(0)
    bind = story.only(Bind)
    moved = a.pods()[0].uid
    story.change(pods=[replace(story.cluster.pods[moved], gang=b.id)])
    assert moved in story.gang("a").seats
    assert moved in story.leader.cache.ledger.reserved, "I3: it may be bound at any moment"
    story.under_way.clear()
    story.tell(BindResults(tuple(story.bind(seat) for seat in bind.seats)))
    story.run()
    story.pass_time(1)
    assert moved in story.gang("b").bound
    assert story.gang("a").phase is story.gang("b").phase is Phase.SATISFIED


def test_a_pod_that_belongs_elsewhere_is_not_placed_again_by_its_former_gang() -> None:
    story = Story({"n4": 4})
    a, b = gang("a").of(2), gang("b").minimum(2).of(1)
    story.add(a, b)
    story.do(0)
    story.do(0)
    moved = a.pods()[0].uid
    story.bind_failures[moved] = 3
    story.change(pods=[replace(story.cluster.pods[moved], gang=b.id)])
    story.run()
    story.pass_time(10)
    assert moved in story.gang("b").bound
    assert story.gang("a").phase is Phase.SATISFIED
    assert moved not in story.gang("a").pods


def test_the_record_says_with_whom_a_gang_started_whatever_it_declares_later() -> None:
    story = Story({"n4": 4})
    a = gang("a").of(2)
    story.add(a)
    story.bind_failures[a.pods()[0].uid] = 3
    story.do(0)
    story.do(0)
    story.change(gangs=[a.with_group(*NAMES).gang_facts()])
    story.pass_time(10)
    assert story.bound("a") == 2
    assert story.etcd[a.id].group == ()


def test_a_permit_for_later_members_that_is_refused_does_not_make_a_gang_repair() -> None:
    story = Story({"n4": 4})
    a = gang("a").minimum(2).of(3)
    story.change(gangs=[a.gang_facts()], pods=a.pods()[:2])
    story.run()
    story.change(pods=a.pods()[2:])
    story.do(0)
    persist = story.only(Persist)
    story.under_way.clear()
    story.tell(NotPersisted(persist.persist_id, "too large"))
    story.run()
    assert Phase.REPAIRING not in story.phases[a.id]
    assert "too large" in reason(story.gang("a"))


def test_a_permit_that_is_refused_again_and_again_costs_little() -> None:
    story = Story({"n4": 4})
    story.add(gang("a").of(4))
    for _ in range(50):
        story.do(0)
        for effect in [effect for effect in story.under_way if isinstance(effect, Persist)]:
            story.under_way.remove(effect)
            story.tell(NotPersisted(effect.persist_id, "too large"))
        assert not story.under_way, "it is not tried again at once"
        story.now += 10
        story.wake()
    assert "too large" in reason(story.gang("a"))
    story.now += 1
    story.wake()
    assert len(story.solves) <= 51


def test_a_node_overcommitted_in_what_a_gang_does_not_ask_is_used() -> None:
    """Others' pods use more gpus than the node has left: that is no reason against pods that ask none."""
    story = Story({})
    gpus = PodClass(id="gpus", requests=(("gpu", 2),))
    story.cluster.classes["gpus"] = gpus
    story.start()
    small = replace(node("n4", 4), allocatable=(("cpu", 4000), ("gpu", 1), ("pods", 110)))
    stranger = replace(plain_pod("x"), class_id="gpus", node="n4", ours=False, phase=PodPhase.RUNNING)
    story.cluster.cpu = lambda pod: dict(story.cluster.classes[pod.class_id].requests).get("cpu", 0)  # type: ignore[method-assign]
    story.change(nodes=[small], pods=[stranger])
    story.add(gang("a").of(2))
    story.run_effects(most=100)
    assert story.bound("a") == 2


# -- while the permit is written


def test_i1_a_pod_deleted_while_the_permit_is_written_revokes_it() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(3)
    story.add(a)
    story.do(0)
    story.change(remove_pods=[a.pods()[0].uid])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0, "two of three are not a start"
    assert story.etcd == {}
    assert any("2 of 3 members" in note for note in story.notes())
    story.change(pods=[replace(a.pods()[0], uid="again")])
    story.run()
    assert story.bound("a") == 3


def test_g32_a_higher_minimum_while_the_permit_is_written_is_respected() -> None:
    story = Story({"n5": 5})
    a = gang("a").of(3)
    story.add(a)
    story.do(0)
    story.change(gangs=[a.minimum(5).gang_facts()])
    story.run()
    assert story.bound("a") == 0
    assert story.gang("a").phase is Phase.GATHERING
    assert story.etcd == {}


def test_i1_a_partner_deleted_while_the_permit_is_written_revokes_it() -> None:
    story = Story({"n5": 5})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    story.add(a, b)
    story.do(0)
    story.delete(b)
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0
    assert any("b of its gang group does not exist" in note for note in story.notes())
    story.add(b.anew("2"))
    story.run()
    assert (story.bound("a"), story.bound("b")) == (2, 2)


def test_i2_a_revoked_permit_does_not_take_the_record_of_a_gang_declared_anew() -> None:
    story = Story({"n2": 2, "m2": 2})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    story.add(a, b)
    story.do(0)
    first = story.only(Persist)
    story.delete(b)
    story.change(remove_nodes=["m2"])
    story.change(nodes=[node("k2", 2)])
    story.add(gang("b").of(2).anew("2"))  # on its own now
    solve = next(effect for effect in story.under_way if isinstance(effect, Solve))
    story.under_way.remove(solve)
    story.tell(Solved(solve.solve_id, (SolveResult(b.id, SolveOutcome.PLACED, (Assignment(b.id, 0, "k2", 2),)),)))
    story.under_way.remove(first)
    story.persist(first)
    story.tell(Persisted(first.persist_id))
    story.run()
    assert story.bound("b") == 2
    assert b.id in story.etcd


def test_i7_a_partner_declared_anew_while_the_permit_is_refused_joins() -> None:
    story = Story({"n5": 5})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    story.add(a, b)
    story.do(0)
    persist = story.only(Persist)
    story.under_way.clear()
    story.delete(b)
    story.add(b.anew("2"))
    story.tell(NotPersisted(persist.persist_id, "too large"))
    story.run()
    story.pass_time(1)
    assert (story.bound("a"), story.bound("b")) == (2, 2)


def test_a_permit_refused_after_its_gang_is_gone_harms_nobody() -> None:
    story = Story({"n5": 5})
    a = gang("a").of(6)
    story.solver = lambda solve: tuple(
        SolveResult(asked.id, SolveOutcome.PLACED, (Assignment(asked.id, 0, "n5", 2),)) for asked in solve.groups
    )
    story.add(gang("a").of(2))
    story.do(0)
    persist = story.only(Persist)
    story.under_way.clear()
    story.delete(gang("a").of(2))
    story.solver = story.first_fit
    story.add(a.anew("2"))
    story.run()
    story.tell(NotPersisted(persist.persist_id, "too large"))
    story.run()
    story.change(nodes=[node("n6", 6)])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 6


# -- recovery, and news that is late or comes twice


def test_g35_a_record_of_a_former_gang_of_that_name_is_void_after_a_restart() -> None:
    story = Story({"n3": 3})
    old = gang("a").of(3)
    story.add(old)
    story.run()
    story.crash()
    story.delete(old)
    new = gang("a").of(4).anew("2")
    story.add(new)
    story.start()
    story.run()
    assert story.bound("a") == 0, "the new gang needs four"
    assert story.etcd == {}


def test_a_failed_bind_that_is_told_twice_counts_once() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(2)
    story.add(a)
    story.do(0)
    story.do(0)
    (seat, *_) = story.only(Bind).seats
    for _ in range(5):
        story.tell(BindResults((BindResult(seat.uid, BindOutcome.FAILED, message="500"),)))
    assert story.gang("a").phase is Phase.BINDING
    assert seat.uid in story.gang("a").seats


def test_a_result_of_an_earlier_seat_says_nothing_about_a_new_one() -> None:
    story = Story({"n2": 2})
    a = gang("a").of(2)
    story.add(a)
    story.do(0)
    uid = a.pods()[0].uid
    story.tell(BindResults((BindResult(uid, BindOutcome.BOUND, "n2"),)))
    story.run()
    assert story.cluster.pods[uid].node == "n2", "it was sent nevertheless"


def test_nothing_is_solved_on_a_view_that_is_lost() -> None:
    story = Story({"n2": 2})
    story.run()
    story.tell(ViewLost("cluster-state is away"))
    story.add(gang("a").of(2))
    assert story.solves == []
    story.tell(Snapshot(story.cluster.whole()))
    story.run()
    assert story.bound("a") == 2


def test_i6_what_is_half_started_goes_before_all_others() -> None:
    story = Story({"n2": 2, "m2": 2})
    a = gang("a").of(2)
    story.add(a)
    story.do(0)
    story.do(0)
    seat = story.only(Bind).seats[0]
    for _ in range(3):
        story.tell(BindResults((BindResult(seat.uid, BindOutcome.FAILED, message="500"),)))
        story.under_way = [effect for effect in story.under_way if not isinstance(effect, Solve)]
        story.now += 5
        if seat.uid in story.gang("a").seats:
            story.wake()
    assert story.gang("a").phase is Phase.REPAIRING
    story.add(gang("important").of(2).priority(100))
    assert story.gang("a").group.key < story.gang("important").group.key


# -- what is not ours to decide


def test_a_pod_that_somebody_else_bound_is_not_queued() -> None:
    story = Story({"n4": 4})
    story.add_pods(replace(plain_pod("p"), node="n4", phase=PodPhase.RUNNING))
    story.run()
    assert story.phases["plain/default/p"][-1] is Phase.SATISFIED


def test_a_gang_that_somebody_else_bound_whole_is_not_queued() -> None:
    story = Story({"n4": 4})
    a = gang("a").of(2)
    story.change(gangs=[a.gang_facts()], pods=[replace(pod, node="n4", phase=PodPhase.RUNNING) for pod in a.pods()])
    story.run()
    assert story.gang("a").phase is Phase.SATISFIED
