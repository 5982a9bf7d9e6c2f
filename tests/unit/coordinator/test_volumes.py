"""A pod whose volume was bound has another class: it keeps its seat, and nothing leaks."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from builders.core.actions import answered, until
from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist, Phase, Solve
from muster.coordinator.core.events import BindOutcome, BindResult, BindResults, Delta, Persisted
from muster.coordinator.core.report.reasons import reason
from muster.gangs.facts import Batch, NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass, PodFacts


def on(node: str) -> PodClass:
    """The class of a pod of one cpu with a volume that is on this node."""
    here = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node,)),))
    return replace(pod_class(1), id=f"on-{node}", volumes=((here,),))


def with_claims(*nodes: str, count: int = 2, non_strict: bool = False) -> tuple[Scenario, list[PodFacts]]:
    """A gang of pods with claims that wait for a node."""
    scenario = Scenario(dict.fromkeys(nodes, 2), start=False)
    scenario.cluster.classes.update((each.id, each) for each in map(on, nodes))
    scenario.start()
    built = gang("g").of(count).non_strict() if non_strict else gang("g").of(count)
    pods = [replace(pod, claims=("data",)) for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    return scenario, pods


def volumes_bound(scenario: Scenario) -> None:
    """Every pod's claim has a volume on the node of its seat, and cluster-state tells of it."""
    there = scenario.gang("g")
    seats = [*there.unbound_seats, *there.acknowledged.values()]
    assert seats
    scenario.change(pods=[replace(scenario.cluster.pods[s.uid], class_id=on(s.node).id, claims=()) for s in seats])


def while_the_permit_is_written(scenario: Scenario) -> None:
    until(scenario, Persist)
    volumes_bound(scenario)


def while_the_bind_is_under_way(scenario: Scenario) -> None:
    until(scenario, Bind)
    volumes_bound(scenario)


def while_the_bind_waits_to_be_tried_again(scenario: Scenario) -> None:
    bind = until(scenario, Bind)
    for seat in bind.seats:
        scenario.bind_failures[seat.uid] = 1
    scenario.do(scenario.under_way.index(bind))
    volumes_bound(scenario)
    scenario.pass_time(5)


def before_a_crash(scenario: Scenario) -> None:
    until(scenario, Bind)
    volumes_bound(scenario)
    scenario.crash()
    scenario.start()


def between_two_leaders(scenario: Scenario) -> None:
    bind = until(scenario, Bind)
    scenario.crash()
    for seat in bind.seats:
        pod = replace(scenario.cluster.pods[seat.uid], class_id=on(seat.node).id, claims=())
        scenario.cluster.put_pod(pod)
    scenario.start()


@pytest.mark.parametrize(
    "happens",
    [
        while_the_permit_is_written,
        while_the_bind_is_under_way,
        while_the_bind_waits_to_be_tried_again,
        before_a_crash,
        between_two_leaders,
    ],
)
def test_i4_i5_a_newly_bound_volume_moves_no_pod(happens: Callable[[Scenario], None]) -> None:
    scenario, pods = with_claims("a", "b", count=4)
    until(scenario, Persist)
    decided = {seat.uid: seat.node for seat in scenario.gang("g").unbound_seats}
    happens(scenario)
    scenario.run()
    assert {pod.uid: scenario.cluster.pods[pod.uid].node for pod in pods} == decided
    assert len(scenario.solves) == 1
    assert scenario.gang("g").phase is Phase.SATISFIED
    assert not scenario.leader.cache.ledger.reserved
    scenario.delete(gang("g").of(4))
    scenario.run()
    assert not scenario.leader.cache.ledger.capacity.seats
    assert not scenario.etcd


def test_a_bind_that_is_acknowledged_and_not_seen_yet_is_not_counted_twice() -> None:
    scenario, pods = with_claims("a", count=2)
    bind = until(scenario, Bind)
    scenario.lagging = True
    scenario.do(scenario.under_way.index(bind))
    older = tuple(replace(pod, class_id=on("a").id, claims=()) for pod in pods)
    scenario.tell(Delta(Batch(pods=older)))
    capacity = scenario.leader.cache.ledger.capacity
    assert capacity.used[capacity.rows["a"]].max() == 2000
    scenario.deliver()
    scenario.run()
    assert capacity.used[capacity.rows["a"]].max() == 2000
    assert not scenario.leader.cache.ledger.reserved


def test_a_gang_that_waits_with_reservations_keeps_them_when_a_volume_gets_bound() -> None:
    scenario, _ = with_claims("a", count=3, non_strict=True)
    scenario.run()
    gang_ = scenario.gang("g")
    assert (gang_.phase, len(gang_.seats)) == (Phase.WAITING, 2)
    held = {seat.uid: seat.node for seat in gang_.unbound_seats}
    volumes_bound(scenario)
    scenario.run()
    assert {seat.uid: seat.node for seat in gang_.unbound_seats} == held


def test_a_permit_whose_members_changed_class_is_written_as_it_was_decided() -> None:
    scenario, _ = with_claims("a", count=2)
    persist = until(scenario, Persist)
    volumes_bound(scenario)
    scenario.under_way.remove(persist)
    scenario.persist(persist)
    scenario.tell(Persisted(persist.persist_id))
    assert {seat.class_id for seat in until(scenario, Bind).seats} == {"on-a"}
    scenario.run()
    assert scenario.bound("g") == 2


def test_i5_reduced_requests_free_capacity_while_the_pod_is_being_bound() -> None:
    scenario = Scenario({"a": 4})
    big = gang("big").of(2, cpu=2)
    scenario.add(big)
    bind = until(scenario, Bind)
    scenario.under_way.remove(bind)
    scenario.change(pods=[replace(pod, class_id=pod_class(1).id) for pod in big.pods()])
    scenario.add(gang("small").of(2))
    scenario.run_effects()
    assert scenario.bound("small") == 2


def test_an_answer_older_than_a_class_change_is_retried_and_not_counted() -> None:
    scenario, pods = with_claims("a", count=2)
    question = scenario.only(Solve)
    scenario.under_way.clear()
    scenario.change(pods=[replace(pod, class_id=on("a").id, claims=()) for pod in pods])
    scenario.tell(answered(scenario, question))
    assert not scenario.gang("g").attempts.rejections
    assert not reason(scenario.gang("g"))
    assert isinstance(scenario.under_way[0], Solve)
    scenario.run()
    assert scenario.bound("g") == 2


def test_i1_one_volume_that_cannot_be_made_yet_holds_back_the_whole_gang() -> None:
    scenario, pods = with_claims("a", "b", count=4)
    scenario.volume_failures[pods[2].uid] = 2
    scenario.run()
    assert scenario.bound("g") == 0
    scenario.pass_time(30)
    assert scenario.bound("g") == 4
    first_binds = [effect for effect in scenario.binds if effect.claims_first]
    assert [len(effect.seats) for effect in first_binds] == [4, 4, 4], "they are retried together"


def test_i1_a_volume_that_cannot_be_made_there_has_the_whole_gang_placed_again() -> None:
    scenario, _ = with_claims("a", "b", count=2)
    failing = until(scenario, Bind).seats[0]
    scenario.volume_failures[failing.uid] = 3
    scenario.pass_time(60)
    assert scenario.bound("g") == 2
    avoided = [group.gangs[0].avoided for solve in scenario.solves for group in solve.groups]
    assert avoided[-1] == (failing.node,), "nodes of pods that were only held back are not avoided"


def test_i1_a_new_leader_binds_no_member_before_all_volumes_exist() -> None:
    scenario, pods = with_claims("a", "b", count=4)
    until(scenario, Bind)
    scenario.crash()
    scenario.volume_failures[pods[0].uid] = 1
    scenario.start()
    scenario.run()
    assert scenario.bound("g") == 0
    scenario.pass_time(30)
    assert scenario.bound("g") == 4


def test_i1_members_whose_results_arrive_apart_are_retried_together() -> None:
    scenario, _ = with_claims("a", "b", count=4)
    bind = until(scenario, Bind)
    scenario.under_way.remove(bind)
    failing, *others = bind.seats
    scenario.tell(BindResults((BindResult(failing.uid, BindOutcome.FAILED, message="no volume yet"),)))
    scenario.now += 5
    scenario.wake()
    assert not [effect for effect in scenario.under_way if isinstance(effect, Bind)]
    withheld = tuple(BindResult(seat.uid, BindOutcome.WITHHELD, message="no volume yet") for seat in others)
    scenario.tell(BindResults(withheld))
    scenario.pass_time(5)
    assert scenario.bound("g") == 4
    assert [len(effect.seats) for effect in scenario.binds] == [4, 4]
