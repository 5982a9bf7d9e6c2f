"""Faults: nodes, binds, answers and the coordinator itself fail or are late."""

import pytest
from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import node, plain_pod, pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import Solved
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import PodPhase, PodTerm
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult


@pytest.mark.parametrize(("selected", "affine"), [(True, True), (False, True), (True, False)])
def test_i7_a_scheduled_pod_that_affinity_selects_wakes_gangs_with_affinity(selected: bool, affine: bool) -> None:
    scenario = Scenario({"n1": 4}, start=False)
    store = replace(pod_class(1), id="store", label_set="app=store" if selected else "")
    affinity = (PodTerm("app=store", "kubernetes.io/hostname"),) if affine else ()
    client = replace(pod_class(1), id="client", required_pod_affinity=affinity)
    for each in (store, client):
        scenario.cluster.classes[each.id] = each
    scenario.start()
    built = gang("a").of(5)
    scenario.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id="client") for pod in built.pods()])
    scenario.run()
    assert len(scenario.solves) == 1
    scenario.change(
        pods=[
            replace(
                plain_pod("store"),
                class_id="store",
                label_set=store.label_set,
                ours=False,
                node="n1",
                phase=PodPhase.RUNNING,
            )
        ]
    )
    scenario.run()
    assert len(scenario.solves) == (2 if selected and affine else 1)


def test_g38_a_pod_bound_by_another_scheduler_uses_capacity_on_its_actual_node() -> None:
    scenario = Scenario({"n1": 1, "n2": 1})
    scenario.lagging = True
    scenario.add(gang("a").of(1))
    scenario.deliver()
    [seat] = until(scenario, Bind).seats
    other = next(name for name in ("n1", "n2") if name != seat.node)
    scenario.bind_elsewhere(seat.uid, other)
    scenario.run_effects()  # binding tells it before the cluster does
    assert {each.node: each.pod_uids for each in scenario.leader.cache.ledger.reservations()} == {other: (seat.uid,)}
    scenario.deliver()
    assert not scenario.leader.cache.ledger.reservations()


@pytest.mark.parametrize("binds", [0, 3, 8])
def test_g20_g21_a_crash_after_the_permit(binds: int) -> None:
    """I6: whatever was bound when the coordinator died, the rest follows on the decided nodes."""
    scenario = Scenario({"n1": 4, "n2": 4})
    scenario.add(gang("a").of(8))
    scenario.do(0)  # solve
    scenario.do(0)  # persist
    bind = scenario.only(Bind)
    decided = {seat.uid: seat.node for seat in bind.seats}
    scenario.crash()
    for seat in bind.seats[:binds]:
        scenario.bind(seat)
    scenario.start()
    scenario.run()
    assert {uid: scenario.cluster.pods[uid].node for uid in decided} == decided
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert not scenario.etcd[scenario.gang("a").id].seats


def test_a_record_that_names_classes_of_another_version_is_taken_up() -> None:
    scenario = Scenario({"n1": 4})
    scenario.add(gang("a").of(4))
    scenario.do(0)
    scenario.do(0)
    record = scenario.etcd["test/default/a"]
    scenario.crash()
    scenario.etcd["test/default/a"] = replace(record, seats=tuple(replace(seat, class_id="?") for seat in record.seats))
    scenario.start()
    assert Phase.REPAIRING not in scenario.phases["test/default/a"]
    scenario.run()
    assert scenario.bound("a") == 4


def test_g21_seats_that_others_took_are_placed_again() -> None:
    scenario = Scenario({"n1": 4, "n2": 4})
    scenario.add(gang("a").of(8))
    scenario.do(0)
    scenario.do(0)
    bind = scenario.only(Bind)
    scenario.crash()
    for seat in bind.seats[:4]:
        scenario.bind(seat)
    other = bind.seats[-1].node
    intruders = [replace(plain_pod(f"x{i}"), node=other, ours=False, phase=PodPhase.RUNNING) for i in range(2)]
    scenario.change(nodes=[node("n3", 2)], pods=intruders)
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 8
    assert Phase.REPAIRING in scenario.phases["test/default/a"]


def test_g36_a_node_cordoned_after_the_solve_is_not_used() -> None:
    scenario = Scenario({"n3": 3})
    scenario.add(gang("a").of(3))
    solve = scenario.under_way.pop(0)
    assert isinstance(solve, Solve)
    answer = scenario.first_fit(solve)
    scenario.change(nodes=[node("n3", 3, unschedulable=True), node("n4", 3)])
    scenario.tell(Solved(solve.solve_id, answer))
    assert scenario.bound("a") == 0
    scenario.pass_time(1)
    assert {pod.node for pod in scenario.cluster.pods.values()} == {"n4"}


def test_a_node_that_vanishes_while_the_permit_is_written_revokes_it() -> None:
    """I1: nothing is bound yet, so the gang is placed whole again."""
    scenario = Scenario({"n3": 3})
    scenario.add(gang("a").of(3))
    scenario.do(0)
    scenario.change(remove_nodes=["n3"])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.QUEUED
    assert scenario.etcd == {}
    scenario.change(nodes=[node("n4", 3)])
    scenario.run()
    assert scenario.bound("a") == 3


def test_g37_a_bind_that_fails_is_tried_again_and_then_placed_elsewhere() -> None:
    scenario = Scenario({"n1": 2, "n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.bind_failures[a.pods()[0].uid] = 3
    scenario.run()
    assert scenario.bound("a") == 1
    scenario.pass_time(10)
    assert scenario.bound("a") == 2
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert any("is placed again" in note for note in scenario.notes())


def test_g37_nodes_with_failed_binds_are_avoided_until_all_were_tried() -> None:
    scenario = Scenario({"n1": 1, "n2": 1, "n3": 1})

    def first_that_is_not_avoided(solve: Solve) -> tuple[SolveResult, ...]:
        [group] = solve.groups
        [asked] = group.gangs
        name = min(scenario.cluster.nodes, key=lambda name: (name in asked.avoided, name))
        return (SolveResult(group.id, SolveOutcome.PLACED, (Assignment(asked.id, 0, name, 1),)),)

    scenario.solver = first_that_is_not_avoided
    a = gang("a").of(1)
    scenario.add(a)
    scenario.bind_failures[a.pods()[0].uid] = 12
    scenario.pass_time(120)
    avoided = [solve.groups[0].gangs[0].avoided for solve in scenario.solves]
    assert avoided == [(), ("n1",), ("n1", "n2"), ("n1", "n2", "n3"), ("n1",)]
    assert scenario.cluster.pods[a.pods()[0].uid].node == "n2"
    scenario.pass_time(60)
    assert not scenario.gang("a").bind.avoided_nodes, "the trouble is over"


def test_g37_a_pod_that_can_never_be_bound_is_tried_less_and_less() -> None:
    """The bind error of a deleted pod is forgotten: it is not reported for pods that are bound later."""
    scenario = Scenario({"n1": 2, "n2": 2})
    a = gang("a").needing(2).of(2)
    failing = a.pods()[0].uid
    scenario.add(a)
    scenario.bind_failures[failing] = 1000
    scenario.pass_time(120)
    assert 12 <= 1000 - scenario.bind_failures[failing] <= 30
    assert "500: try again" in reason(scenario.gang("a"))
    scenario.change(remove_pods=[failing])
    scenario.run()
    assert not scenario.gang("a").bind.failure


def test_g38_a_pod_bound_by_another_scheduler_is_accepted() -> None:
    scenario = Scenario({"n1": 2, "n2": 2})
    a = gang("a").of(2)
    scenario.add(a)
    scenario.do(0)
    scenario.do(0)
    bind = scenario.only(Bind)
    other = "n2" if bind.seats[0].node == "n1" else "n1"
    scenario.cluster.put_pod(replace(scenario.cluster.pods[bind.seats[0].uid], node=other, phase=PodPhase.RUNNING))
    scenario.run()
    assert scenario.gang("a").phase is Phase.SATISFIED
    assert any(f"was bound to {other} by another scheduler" in note for note in scenario.notes())
    scenario.change(pods=[scenario.cluster.pods[bind.seats[0].uid]])
    assert not scenario.leader.cache.ledger.reserved


def test_g39_a_stranger_on_a_reserved_seat_moves_the_reservation() -> None:
    scenario = Scenario({"n1": 2, "n2": 2})
    scenario.add(gang("a").of(2))
    scenario.do(0)
    persist = scenario.only(Persist)
    taken = persist.puts[0].seats[0].node
    scenario.change(pods=[replace(plain_pod("x"), node=taken, ours=False, phase=PodPhase.RUNNING)])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 2
    assert min(scenario.cluster.free().values()) >= 0


def test_i7_an_edit_during_a_solve_is_not_missed() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(4)
    scenario.add(a)
    solve = scenario.only(Solve)
    too_early = scenario.first_fit(solve)
    scenario.under_way.clear()
    scenario.change(gangs=[a.needing(3).gang_facts()])
    scenario.tell(Solved(solve.solve_id, too_early))
    scenario.run()
    assert scenario.bound("a") == 3


def test_i7_capacity_freed_during_a_solve_is_not_missed() -> None:
    scenario = Scenario({"n3": 3})
    scenario.add(gang("a").of(3))
    scenario.run()
    scenario.add(gang("b").of(3))
    solve = scenario.only(Solve)
    too_early = scenario.first_fit(solve)
    scenario.under_way.clear()
    scenario.delete(gang("a").of(3))
    scenario.tell(Solved(solve.solve_id, too_early))
    scenario.run()
    assert scenario.bound("b") == 3


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
    scenario = Scenario({"n1": 4, "n0": 1})
    scenario.add(gang("a").of(2))
    scenario.solver = lambda solve: tuple(
        SolveResult(g.id, SolveOutcome.PLACED, tuple(assignments)) for g in solve.groups
    )
    scenario.run()
    scenario.pass_time(0.6)
    assert scenario.bound("a") == 0
    assert any(why in note for note in scenario.notes()), scenario.notes()
    assert not scenario.leader.cache.ledger.reserved
    scenario.solver = scenario.first_fit
    scenario.pass_time(30)
    assert scenario.bound("a") == 2


def test_a_pod_whose_node_is_gone_is_placed_again_without_a_pause() -> None:
    scenario = Scenario({"n1": 1})
    a = gang("a").of(1)
    scenario.bind_failures[a.pods()[0].uid] = 2
    scenario.add(a)
    scenario.pass_time(0.6)
    scenario.change(nodes=[node("n2", 1)], remove_nodes=["n1"])
    scenario.run_effects()
    assert scenario.cluster.pods[a.pods()[0].uid].node == "n2"
