"""Gang scenarios in which something fails or comes too late: nodes, binds, answers, the coordinator itself."""

import pytest
from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import gang, node, plain_pod, pod_class
from builders.core.world import Story
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import Solved
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodPhase, PodTerm
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult


@pytest.mark.parametrize(("selected", "affine"), [(True, True), (False, True), (True, False)])
def test_i7_a_scheduled_pod_that_affinity_selects_wakes_gangs_with_affinity(selected: bool, affine: bool) -> None:
    story = Story({"n1": 4}, start=False)
    store = replace(pod_class(1), id="store", selected_by=("app=store",) if selected else ())
    affinity = (PodTerm("app=store", "kubernetes.io/hostname"),) if affine else ()
    client = replace(pod_class(1), id="client", required_pod_affinity=affinity)
    for each in (store, client):
        story.cluster.classes[each.id] = each
    story.start()
    built = gang("a").of(5)
    story.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id="client") for pod in built.pods()])
    story.run()
    assert len(story.solves) == 1
    story.change(pods=[replace(plain_pod("store"), class_id="store", ours=False, node="n1", phase=PodPhase.RUNNING)])
    story.run()
    assert len(story.solves) == (2 if selected and affine else 1)


def test_g38_a_pod_that_somebody_else_bound_takes_room_there_and_not_where_it_was_planned() -> None:
    story = Story({"n1": 1, "n2": 1})
    story.lagging = True
    story.add(gang("a").of(1))
    story.deliver()
    [seat] = until(story, Bind).seats
    other = next(name for name in ("n1", "n2") if name != seat.node)
    story.bind_elsewhere(seat.uid, other)
    story.run_effects()  # binding tells it before the cluster does
    assert {each.node: each.pod_uids for each in story.leader.cache.ledger.reservations()} == {other: (seat.uid,)}
    story.deliver()
    assert not story.leader.cache.ledger.reservations()


@pytest.mark.parametrize("binds", [0, 3, 8])
def test_g20_g21_a_crash_after_the_permit(binds: int) -> None:
    """I6: whatever was bound when the coordinator died, the rest follows on the decided nodes."""
    story = Story({"n1": 4, "n2": 4})
    story.add(gang("a").of(8))
    story.do(0)  # solve
    story.do(0)  # persist
    bind = story.only(Bind)
    decided = {seat.uid: seat.node for seat in bind.seats}
    story.crash()
    for seat in bind.seats[:binds]:
        story.bind(seat)
    story.start()
    story.run()
    assert {uid: story.cluster.pods[uid].node for uid in decided} == decided
    assert story.gang("a").phase is Phase.SATISFIED
    assert not story.etcd[story.gang("a").id].seats


def test_a_record_that_names_classes_of_another_version_is_taken_up() -> None:
    story = Story({"n1": 4})
    story.add(gang("a").of(4))
    story.do(0)
    story.do(0)
    record = story.etcd["test/default/a"]
    story.crash()
    story.etcd["test/default/a"] = replace(record, seats=tuple(replace(seat, class_id="?") for seat in record.seats))
    story.start()
    assert Phase.REPAIRING not in story.phases["test/default/a"]
    story.run()
    assert story.bound("a") == 4


def test_g21_seats_that_others_took_are_placed_again() -> None:
    story = Story({"n1": 4, "n2": 4})
    story.add(gang("a").of(8))
    story.do(0)
    story.do(0)
    bind = story.only(Bind)
    story.crash()
    for seat in bind.seats[:4]:
        story.bind(seat)
    other = bind.seats[-1].node
    intruders = [replace(plain_pod(f"x{i}"), node=other, ours=False, phase=PodPhase.RUNNING) for i in range(2)]
    story.change(nodes=[node("n3", 2)], pods=intruders)
    story.start()
    story.run()
    assert story.bound("a") == 8
    assert Phase.REPAIRING in story.phases["test/default/a"]


def test_g36_a_node_cordoned_after_the_solve_is_not_used() -> None:
    story = Story({"n3": 3})
    story.add(gang("a").of(3))
    solve = story.under_way.pop(0)
    assert isinstance(solve, Solve)
    answer = story.first_fit(solve)
    story.change(nodes=[node("n3", 3, unschedulable=True), node("n4", 3)])
    story.tell(Solved(solve.solve_id, answer))
    assert story.bound("a") == 0
    story.pass_time(1)
    assert {pod.node for pod in story.cluster.pods.values()} == {"n4"}


def test_a_node_that_vanishes_while_the_permit_is_written_revokes_it() -> None:
    """I1: nothing is bound yet, so the gang is placed whole again."""
    story = Story({"n3": 3})
    story.add(gang("a").of(3))
    story.do(0)
    story.change(remove_nodes=["n3"])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 0
    assert story.gang("a").phase is Phase.QUEUED
    assert story.etcd == {}
    story.change(nodes=[node("n4", 3)])
    story.run()
    assert story.bound("a") == 3


def test_g37_a_bind_that_fails_is_tried_again_and_then_placed_elsewhere() -> None:
    story = Story({"n1": 2, "n2": 2})
    a = gang("a").of(2)
    story.add(a)
    story.bind_failures[a.pods()[0].uid] = 3
    story.run()
    assert story.bound("a") == 1
    story.pass_time(10)
    assert story.bound("a") == 2
    assert story.gang("a").phase is Phase.SATISFIED
    assert any("is placed again" in note for note in story.notes())


def test_g37_nodes_on_which_a_pod_could_not_be_bound_are_avoided_until_all_had_their_turn() -> None:
    story = Story({"n1": 1, "n2": 1, "n3": 1})

    def first_that_is_not_avoided(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        [asked] = group.gangs
        name = min(story.cluster.nodes, key=lambda name: (name in asked.avoided, name))
        return (SolveResult(group.id, SolveOutcome.PLACED, (Assignment(asked.id, 0, name, 1),)),)

    story.solver = first_that_is_not_avoided
    a = gang("a").of(1)
    story.add(a)
    story.bind_failures[a.pods()[0].uid] = 12
    story.pass_time(120)
    avoided = [solve.groups[0].gangs[0].avoided for solve in story.solves]
    assert avoided == [(), ("n1",), ("n1", "n2"), ("n1", "n2", "n3"), ("n1",)]
    assert story.cluster.pods[a.pods()[0].uid].node == "n2"
    story.pass_time(60)
    assert not story.gang("a").bind.avoided_nodes, "the trouble is over"


def test_g37_a_pod_that_can_never_be_bound_is_tried_less_and_less() -> None:
    """And the trouble of one is forgotten when it is gone: it is not told of others that are bound later."""
    story = Story({"n1": 2, "n2": 2})
    a = gang("a").minimum(2).of(2)
    failing = a.pods()[0].uid
    story.add(a)
    story.bind_failures[failing] = 1000
    story.pass_time(120)
    assert 12 <= 1000 - story.bind_failures[failing] <= 30
    assert "500: try again" in reason(story.gang("a"))
    story.change(remove_pods=[failing])
    story.run()
    assert not story.gang("a").bind.failure


def test_g38_a_pod_bound_by_somebody_else_is_accepted() -> None:
    story = Story({"n1": 2, "n2": 2})
    a = gang("a").of(2)
    story.add(a)
    story.do(0)
    story.do(0)
    bind = story.only(Bind)
    other = "n2" if bind.seats[0].node == "n1" else "n1"
    story.cluster.put_pod(replace(story.cluster.pods[bind.seats[0].uid], node=other, phase=PodPhase.RUNNING))
    story.run()
    assert story.gang("a").phase is Phase.SATISFIED
    assert any(f"was bound to {other} by another scheduler" in note for note in story.notes())
    story.change(pods=[story.cluster.pods[bind.seats[0].uid]])
    assert not story.leader.cache.ledger.reserved


def test_g39_a_stranger_on_a_reserved_seat_moves_the_reservation() -> None:
    story = Story({"n1": 2, "n2": 2})
    story.add(gang("a").of(2))
    story.do(0)
    persist = story.only(Persist)
    taken = persist.puts[0].seats[0].node
    story.change(pods=[replace(plain_pod("x"), node=taken, ours=False, phase=PodPhase.RUNNING)])
    story.run()
    story.pass_time(1)
    assert story.bound("a") == 2
    assert min(story.cluster.free().values()) >= 0


def test_i7_an_edit_during_a_solve_is_not_missed() -> None:
    story = Story({"n3": 3})
    a = gang("a").of(4)
    story.add(a)
    solve = story.only(Solve)
    too_early = story.first_fit(solve)
    story.under_way.clear()
    story.change(gangs=[a.minimum(3).gang_facts()])
    story.tell(Solved(solve.solve_id, too_early))
    story.run()
    assert story.bound("a") == 3


def test_i7_room_that_comes_during_a_solve_is_not_missed() -> None:
    story = Story({"n3": 3})
    story.add(gang("a").of(3))
    story.run()
    story.add(gang("b").of(3))
    solve = story.only(Solve)
    too_early = story.first_fit(solve)
    story.under_way.clear()
    story.delete(gang("a").of(3))
    story.tell(Solved(solve.solve_id, too_early))
    story.run()
    assert story.bound("b") == 3


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ([Assignment("test/default/a", 0, "nowhere", 2)], "node nowhere does not exist"),
        ([Assignment("test/default/a", 0, "n1", 3)], "it seats 3 pods"),
        ([Assignment("test/default/a", 0, "n1", 1)], "which needs 2"),
        ([Assignment("test/default/a", 7, "n1", 2)], "it seats role 7"),
        ([Assignment("test/default/x", 0, "n1", 2)], 'of gang "test/default/x"'),
        ([Assignment("test/default/a", 0, "n0", 2)], "node n0 has 1000 cpu free"),
        ([], "which needs 2"),
    ],
)
def test_i3_an_answer_that_lies_is_refused(assignments: list[Assignment], why: str) -> None:
    story = Story({"n1": 4, "n0": 1})
    story.add(gang("a").of(2))
    story.solver = lambda solve: tuple(SolveResult(g.id, SolveOutcome.PLACED, tuple(assignments)) for g in solve.groups)
    story.run()
    story.pass_time(0.6)
    assert story.bound("a") == 0
    assert any(why in note for note in story.notes()), story.notes()
    assert not story.leader.cache.ledger.reserved
    story.solver = story.first_fit
    story.pass_time(30)
    assert story.bound("a") == 2
