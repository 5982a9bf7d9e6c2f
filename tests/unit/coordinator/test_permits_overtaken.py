"""Permits of gangs that change while the permit is written (I1)."""

from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import node, plain_pod
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Persist, Phase, Solve
from muster.coordinator.core.events import (
    NotPersisted,
    Persisted,
    Solved,
)
from muster.gangs.solve import Assignment, SolveOutcome, SolveResult

NAMES = ("default/a", "default/b")


def test_i1_members_replaced_while_the_permit_is_written_do_not_start_the_rest() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(4)
    scenario.add(built)
    until(scenario, Persist)
    replaced = built.pods()[:2]
    scenario.change(
        remove_pods=[pod.uid for pod in replaced], pods=[replace(pod, uid=f"{pod.uid}/new") for pod in replaced]
    )
    for number in range(2):
        scenario.intrude(plain_pod(f"x{number}"), "n")
    scenario.run_effects()
    assert scenario.bound("a") == 0
    scenario.change(remove_pods=["default/x0", "default/x1"])
    scenario.run_effects()
    assert scenario.bound("a") == 4


def test_i1_members_replaced_before_a_new_leader_resumes_do_not_start_the_rest() -> None:
    scenario = Scenario({"n": 4})
    built = gang("a").of(4)
    scenario.add(built)
    until(scenario, Persist)
    scenario.do(0)
    scenario.crash()
    replaced = built.pods()[:2]
    scenario.change(
        remove_pods=[pod.uid for pod in replaced], pods=[replace(pod, uid=f"{pod.uid}/new") for pod in replaced]
    )
    for number in range(2):
        scenario.intrude(plain_pod(f"x{number}"), "n")
    scenario.start()
    scenario.run_effects()
    assert scenario.bound("a") == 0
    scenario.change(remove_pods=["default/x0", "default/x1"])
    scenario.run_effects()
    assert scenario.bound("a") == 4


def test_i1_a_pod_deleted_while_the_permit_is_written_revokes_it() -> None:
    scenario = Scenario({"n3": 3})
    a = gang("a").of(3)
    scenario.add(a)
    scenario.do(0)
    scenario.change(remove_pods=[a.pods()[0].uid])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0, "two of three are not a start"
    assert scenario.etcd == {}
    assert any("2 of 3 members" in note for note in scenario.notes())
    scenario.change(pods=[replace(a.pods()[0], uid="again")])
    scenario.run()
    assert scenario.bound("a") == 3


def test_g32_a_higher_minimum_while_the_permit_is_written_is_respected() -> None:
    scenario = Scenario({"n5": 5})
    a = gang("a").of(3)
    scenario.add(a)
    scenario.do(0)
    scenario.change(gangs=[a.needing(5).gang_facts()])
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.gang("a").phase is Phase.GATHERING
    assert scenario.etcd == {}


def test_i1_a_partner_deleted_while_the_permit_is_written_revokes_it() -> None:
    scenario = Scenario({"n5": 5})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    scenario.add(a, b)
    scenario.do(0)
    scenario.delete(b)
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 0
    assert any("b of its gang group does not exist" in note for note in scenario.notes())
    scenario.add(b.recreated("2"))
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)


def test_i2_a_revoked_permit_keeps_the_record_of_a_recreated_gang() -> None:
    scenario = Scenario({"n2": 2, "m2": 2})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    scenario.add(a, b)
    scenario.do(0)
    first = scenario.only(Persist)
    scenario.delete(b)
    scenario.change(remove_nodes=["m2"])
    scenario.change(nodes=[node("k2", 2)])
    scenario.add(gang("b").of(2).recreated("2"))  # on its own now
    solve = next(effect for effect in scenario.under_way if isinstance(effect, Solve))
    scenario.under_way.remove(solve)
    scenario.tell(Solved(solve.solve_id, (SolveResult(b.id, SolveOutcome.PLACED, (Assignment(b.id, 0, "k2", 2),)),)))
    scenario.under_way.remove(first)
    scenario.persist(first)
    scenario.tell(Persisted(first.persist_id))
    scenario.run()
    assert scenario.bound("b") == 2
    assert b.id in scenario.etcd


def test_i7_a_partner_recreated_while_the_permit_fails_joins() -> None:
    scenario = Scenario({"n5": 5})
    a, b = gang("a").of(2).with_group(*NAMES), gang("b").of(2).with_group(*NAMES)
    scenario.add(a, b)
    scenario.do(0)
    persist = scenario.only(Persist)
    scenario.under_way.clear()
    scenario.delete(b)
    scenario.add(b.recreated("2"))
    scenario.tell(NotPersisted(persist.persist_id, "too large"))
    scenario.run()
    scenario.pass_time(1)
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)


def test_a_permit_that_fails_after_its_gang_was_deleted_is_harmless() -> None:
    scenario = Scenario({"n5": 5})
    a = gang("a").of(6)
    scenario.solver = lambda solve: tuple(
        SolveResult(asked.id, SolveOutcome.PLACED, (Assignment(asked.id, 0, "n5", 2),)) for asked in solve.groups
    )
    scenario.add(gang("a").of(2))
    scenario.do(0)
    persist = scenario.only(Persist)
    scenario.under_way.clear()
    scenario.delete(gang("a").of(2))
    scenario.solver = scenario.first_fit
    scenario.add(a.recreated("2"))
    scenario.run()
    scenario.tell(NotPersisted(persist.persist_id, "too large"))
    scenario.run()
    scenario.change(nodes=[node("n6", 6)])
    scenario.run()
    scenario.pass_time(1)
    assert scenario.bound("a") == 6
