"""Claims whose pods have neither a node nor a seat are deallocated before the pods are placed again (I5, I6)."""

from msgspec.structs import replace

from builders.core.actions import held_back, until
from builders.core.objects import claiming_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, class_object, slice_object
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Deallocate, Evict, Persist, Solve
from muster.coordinator.core.events import BindCallFailed, RecordState, Solved
from muster.coordinator.core.permits.deallocation import INITIAL_RETRY_SECONDS, OBSERVATION_SECONDS
from muster.coordinator.core.report.diagnosis import wait_of
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.waits import Wait
from muster.devices.facts import Claim
from muster.gangs.counted_resources import devices
from muster.gangs.facts import DeviceObject, DeviceObjectKind, PodFacts, PodPhase

GPUS = devices("gpu")


def cluster(*nodes: str, on: int = 2) -> Scenario:
    """Nodes with so many GPUs each."""
    scenario = Scenario(dict.fromkeys(nodes or ("n0", "n1"), 8), start=False)
    there = scenario.cluster
    for name, facts in there.nodes.items():
        there.nodes[name] = replace(facts, allocatable=tuple(sorted((*facts.allocatable, (GPUS, on)))))
    there.classes["cpu1-gpu1"] = claiming_class()
    scenario.start()
    scenario.change(device_objects=[*(slice_object(name, on) for name in there.nodes), class_object()])
    return scenario


def claim_of(pod: PodFacts) -> Claim:
    """The claim for a GPU that was made for the pod from a template."""
    name = f"{pod.name}-gpu"
    return replace(claim(way(), name=name), namespace=pod.namespace, uid=f"uid-{name}", owner=pod.uid)


def add(scenario: Scenario, built: CoreGang, *nodes: str) -> list[PodFacts]:
    """The gang, each member with a claim for a GPU. `nodes`: on which the claims of its first members have gpu-0."""
    pods = [replace(pod, class_id="cpu1-gpu1", device_claims=(claim_of(pod).name,)) for pod in built.pods()]
    claims = [claim_of(pod) for pod in pods]
    for number, node in enumerate(nodes):
        claims[number] = replace(allocated(claims[number], "gpu-0", node=node), reserved_for=(pods[number].uid,))
    objects = [scenario.claims.written(each) for each in claims]
    scenario.change(gangs=[built.gang_facts()], pods=pods, device_objects=objects)
    return pods


def take(scenario: Scenario, device: str, node: str) -> None:
    """Another scheduler allocates the device, which the node offers no longer."""
    allocate(scenario, device, node)
    offer_less(scenario, node)


def offer_less(scenario: Scenario, node: str) -> None:
    """The node offers one device less."""
    facts = scenario.cluster.nodes[node]
    amounts = {**dict(facts.allocatable), GPUS: dict(facts.allocatable)[GPUS] - 1}
    scenario.change(nodes=[replace(facts, allocatable=tuple(sorted(amounts.items())))])


def allocate(scenario: Scenario, device: str, node: str) -> None:
    """Another scheduler allocates the device, which the node still offers."""
    theirs = replace(claim(way(), name="theirs"), namespace="others", uid="theirs")
    scenario.claims.put(allocated(theirs, device, node=node))


def allocations(scenario: Scenario) -> dict[str, list[str]]:
    """Pools and devices by name of the claim."""
    return {
        each.name: [f"{result.id.pool}/{result.id.device}" for result in each.allocation.results]
        for each in scenario.claims.all()
        if each.allocation is not None
    }


def test_a_stale_allocation_does_not_pin_its_pod() -> None:
    scenario = cluster()
    take(scenario, "gpu-1", "n0")
    add(scenario, gang("a").of(2), "n0")
    order = scenario.only(Deallocate)
    stale = next(each for each in scenario.claims.all() if each.name == "a-0-gpu")
    assert [(each.name, each.version) for each in order.claims] == [("a-0-gpu", stale.version)]
    assert scenario.gang("a").group.not_ready_wait is Wait.DEALLOCATING
    why = 'ResourceClaim "default/a-0-gpu" still has gpu/n0/gpu-0 of an earlier placement of its pod'
    assert why in reason(scenario.gang("a"))
    assert wait_of(scenario.gang("a"), scenario.leader.cache) is Wait.DEALLOCATING
    scenario.run()
    assert scenario.bound("a") == 2
    assert len({device for each in allocations(scenario).values() for device in each}) == 3


def test_devices_of_a_pending_gang_that_does_not_fit_are_given_back() -> None:
    scenario = cluster("n0", on=2)
    add(scenario, gang("large").of(3), "n0")
    scenario.run()
    assert scenario.bound("large") == 0
    assert allocations(scenario) == {}
    add(scenario, gang("a").of(2))
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_claim_of_a_pod_with_a_seat_is_not_deallocated() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2))
    bind = until(scenario, Bind)
    scenario.claims.write(bind)
    scenario.blink()
    assert not [effect for effect in scenario.under_way if isinstance(effect, Deallocate)]
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_claim_of_a_bound_pod_is_not_deallocated() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2))
    scenario.run()
    before = allocations(scenario)
    scenario.crash()
    scenario.start()
    scenario.run()
    assert len(before) == 2
    assert allocations(scenario) == before


def test_a_named_claim_that_is_reserved_for_others_is_not_deallocated() -> None:
    scenario = cluster()
    built = gang("a").of(1)
    [pod] = built.pods()
    named = replace(allocated(claim_of(pod), "gpu-0"), owner="", reserved_for=(pod.uid, "theirs"))
    scenario.claims.put(named)
    pod = replace(pod, device_claims=(named.name,))
    scenario.change(gangs=[built.gang_facts()], pods=[pod])
    scenario.run()
    assert scenario.bound("a") == 1
    assert allocations(scenario) == {named.name: ["n0/gpu-0"]}


def test_a_claim_that_others_use_is_not_deallocated() -> None:
    scenario = cluster()
    [pod] = add(scenario, gang("a").of(1), "n0")
    held_back(scenario, Deallocate)
    found = scenario.claims.all()[0]
    scenario.claims.put(replace(found, reserved_for=(pod.uid, "another")))
    assert scenario.gang("a").group.not_ready is None


def test_a_seat_that_is_lost_after_its_claims_were_written() -> None:
    """The call is lost, and its node is gone."""
    scenario = cluster("n0", "n1")
    add(scenario, gang("a").of(2))
    bind = held_back(scenario, Bind)
    scenario.claims.write(bind)
    [node] = {seat.node for seat in bind.seats}
    scenario.tell(BindCallFailed(tuple(seat.uid for seat in bind.seats), "lost"))
    scenario.change(remove_nodes=[node])
    scenario.pass_time(5)
    assert scenario.bound("a") == 2
    pools = {device.split("/")[0] for each in allocations(scenario).values() for device in each}
    assert pools == {"n0", "n1"} - {node}


def test_a_leader_without_the_permit_gives_back_what_was_written() -> None:
    """Another scheduler takes what the gang needs, so that it cannot start again."""
    scenario = cluster("n0", on=2)
    add(scenario, gang("a").of(2))
    scenario.claims.write(until(scenario, Bind))
    scenario.crash()
    scenario.etcd.clear()
    take(scenario, "gpu-1", "n0")
    scenario.start()
    scenario.run()
    assert scenario.bound("a") == 0
    assert allocations(scenario) == {"theirs": ["n0/gpu-1"]}


def test_a_deallocation_that_fails_is_reported_and_repeated() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2), "n0")
    scenario.claims.failures = 2
    scenario.run()
    assert scenario.bound("a") == 0
    events = [event for report in scenario.reports for event in report.events if event.reason == "FailedDeallocation"]
    assert [event.regarding.name for event in events] == ["a-0"]
    assert events[0].note.endswith("it could not be deallocated, which is retried: 500: try again")
    scenario.pass_time(4 * INITIAL_RETRY_SECONDS)
    assert scenario.bound("a") == 2


def test_a_deallocation_call_that_fails_is_repeated() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2), "n0")
    scenario.break_call(scenario.under_way.index(scenario.only(Deallocate)))
    scenario.pass_time(2 * INITIAL_RETRY_SECONDS)
    assert scenario.bound("a") == 2


def test_a_deallocation_that_is_not_observed_is_repeated() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2), "n0")
    scenario.lagging = True
    scenario.do(0)
    scenario.stream.clear()
    found = scenario.claims.all()[0]
    scenario.lagging = False
    before = len(scenario.under_way)
    scenario.pass_time(OBSERVATION_SECONDS)
    assert (found.allocation, before) == (None, 0)
    assert scenario.gang("a").group.not_ready_wait is Wait.DEALLOCATING
    scenario.blink()
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_claim_that_changed_is_deallocated_as_it_is_now() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2), "n0")
    late = held_back(scenario, Deallocate)
    found = scenario.claims.get("default", "a-0-gpu")
    assert found is not None
    scenario.claims.put(found)
    [result] = scenario.claims.deallocate(late)
    assert result.outcome.name == "KEPT"
    scenario.run()
    assert scenario.bound("a") == 2


def test_a_late_order_does_not_deallocate_what_a_later_permit_wrote() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2), "n0")
    late = until(scenario, Deallocate)
    scenario.run()
    before = allocations(scenario)
    scenario.claims.deallocate(late)
    assert scenario.bound("a") == 2
    assert allocations(scenario) == before


def test_an_allocation_that_appears_while_placement_answers() -> None:
    """A call of a former leader is carried out late."""
    scenario = cluster()
    pods = add(scenario, gang("a").of(2))
    solve = held_back(scenario, Solve)
    late = replace(allocated(scenario.claims.all()[0], "gpu-1", node="n1"), reserved_for=(pods[0].uid,))
    scenario.claims.put(late)
    scenario.tell(Solved(solve.solve_id, scenario.solver(solve)))
    assert not [effect for effect in scenario.under_way if isinstance(effect, Persist) and effect.puts]
    scenario.pass_time(60)
    assert scenario.bound("a") == 2


def test_orders_end_with_their_pods_and_gangs() -> None:
    scenario = cluster()
    built = gang("a").of(2)
    add(scenario, built, "n0", "n1")
    scenario.claims.failures = 1000
    scenario.run()
    scenario.delete(built)
    scenario.pass_time(60)
    assert scenario.claims.all() == []
    assert not scenario.leader.cache.ledger.devices.has_allocations
    assert scenario.leader._deallocations.next_time() is None


def test_i1_a_gang_of_which_a_device_was_taken_starts_again_whole() -> None:
    """No member is bound before the claims of all can be ready, also by a new leader."""
    scenario = cluster("n0", on=2)
    add(scenario, gang("a").of(2))
    until(scenario, Bind)
    scenario.crash()
    theirs = replace(claim(way(), name="theirs"), namespace="others", uid="theirs")
    taken = scenario.claims.written(allocated(theirs, "gpu-0"))
    scenario.cluster.device_objects[taken.kind, taken.name] = taken
    before = len(scenario.binds)
    scenario.start()
    assert len(scenario.binds) == before
    assert not scenario.gang("a").permitted
    scenario.run()
    assert scenario.etcd == {} or scenario.etcd["test/default/a"].state is RecordState.UNPERMITTED


def test_a_gang_that_runs_keeps_its_other_seats() -> None:
    scenario = cluster("n0", on=3)
    pods = add(scenario, gang("a").of(3).needing(1))
    bind = until(scenario, Bind)
    scenario.claims.write(bind)
    scenario.bind(bind.seats[0])
    scenario.crash()
    gone = next(each for each in scenario.claims.all() if each.owner == bind.seats[1].uid)
    del scenario.cluster.device_objects[DeviceObjectKind.CLAIM, gone.id]
    scenario.start()
    again = until(scenario, Bind)
    assert [seat.uid for seat in again.seats] == [bind.seats[2].uid]
    assert len(pods) == 3


def test_i3_a_device_that_is_taken_while_the_permit_is_written() -> None:
    scenario = cluster()
    add(scenario, gang("a").of(2))
    persist = until(scenario, Persist)
    devices_ = [result.id for seat in persist.puts[0].seats for _, each in seat.devices for result in each.results]
    allocate(scenario, devices_[0].device, devices_[0].pool)
    scenario.do(scenario.under_way.index(persist))
    assert not [effect for effect in scenario.under_way if isinstance(effect, Bind)]
    offer_less(scenario, devices_[0].pool)
    scenario.pass_time(60)
    assert scenario.bound("a") == 2
    assert len({device for each in allocations(scenario).values() for device in each}) == 3


def test_claims_of_ended_pods_are_left_to_their_controller() -> None:
    scenario = cluster()
    pods = add(scenario, gang("a").of(2))
    scenario.run()
    scenario.change(pods=[replace(scenario.cluster.pods[pods[0].uid], phase=PodPhase.SUCCEEDED)])
    assert not [effect for effect in scenario.under_way if isinstance(effect, Deallocate | Evict)]
    assert isinstance(scenario.claims.written(claim_of(pods[0])), DeviceObject)


def test_a_claim_for_extended_resources_is_deallocated() -> None:
    """The pod does not name such a claim."""
    scenario = cluster()
    built = gang("a").of(1)
    [pod] = built.pods()
    left = replace(allocated(claim_of(pod), "gpu-0"), extended=True, reserved_for=(pod.uid,))
    scenario.change(gangs=[built.gang_facts()], pods=[pod], device_objects=[scenario.claims.written(left)])
    assert scenario.gang("a").group.not_ready_wait is Wait.DEALLOCATING
    scenario.run()
    assert (scenario.bound("a"), allocations(scenario)) == (1, {})
