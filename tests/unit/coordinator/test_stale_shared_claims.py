"""Claims whose sharing pods all have neither a node nor a seat are deallocated before they are placed (I5, I6)."""

import pytest
from msgspec.structs import replace

from builders.core.actions import held_back, until
from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, class_object, slice_object
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Deallocate
from muster.coordinator.core.events import BindCallFailed
from muster.coordinator.core.permits.deallocation import OBSERVATION_SECONDS
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.report.waits import Wait
from muster.devices.facts import Allocation, Claim
from muster.gangs.facts import NodeOperator, NodeRequirement, NodeSelectorTerm, PodFacts, PodPhase

SHARED = replace(claim(way(2), name="c"), namespace="default", uid="uid-c")
GROUP = "uid-of-pod-group"


def cluster(*nodes: str) -> Scenario:
    """Nodes with two GPUs each, and the claim."""
    scenario = Scenario(dict.fromkeys(nodes, 8), start=False)
    scenario.start()
    objects = [*(slice_object(name, 2) for name in nodes), class_object(), scenario.claims.written(SHARED)]
    scenario.change(device_objects=objects)
    return scenario


def add(scenario: Scenario, built: CoreGang, *, group: str = "") -> list[PodFacts]:
    """The gang, whose pods share the claim; `group`: uid of the PodGroup that it is reserved for."""
    of_group = {"group_claims": ("c",), "group_name": "g", "group_uid": group} if group else {}
    pods = [replace(pod, class_id=pod_class(1).id, device_claims=("c",), **of_group) for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    return pods


def on_one_node(scenario: Scenario) -> None:
    """Only one node is open, so that the pods go to the same one."""
    nodes = list(scenario.cluster.nodes.values())
    scenario.change(nodes=[replace(each, unschedulable=True) for each in nodes[1:]])


def local(node: str) -> Allocation:
    term = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node,)),))
    found = allocated(SHARED, "gpu-0", "gpu-1", node=node).allocation
    assert found is not None
    return replace(found, node_selector=(term,))


def leave(scenario: Scenario, *users: str, node: str = "n0", idle: bool = False) -> Claim:
    """The claim is allocated on a node, reserved for these, by a permit of which nobody knows any more."""
    left = replace(SHARED, allocation=local(node), reserved_for=users, idle=idle)
    scenario.claims.put(left)
    return left


def orders(scenario: Scenario) -> list[Deallocate]:
    return [each for each in scenario.under_way if isinstance(each, Deallocate)]


def node_of_claim(scenario: Scenario) -> str:
    found = scenario.claims.get("default", "c")
    assert found is not None
    return found.allocation.results[0].id.pool if found.allocation is not None else ""


def test_i6_a_gang_is_not_pinned_by_the_claim_that_it_shares() -> None:
    scenario = cluster("n0", "n1")
    on_one_node(scenario)
    pods = add(scenario, gang("a").of(2))
    bind = held_back(scenario, Bind)
    scenario.claims.write(bind)
    scenario.tell(BindCallFailed(tuple(seat.uid for seat in bind.seats), "lost"))
    opened = replace(scenario.cluster.nodes["n1"], unschedulable=False)
    scenario.change(remove_nodes=["n0"], nodes=[opened])
    [order] = orders(scenario)
    assert [(each.name, [pod.uid for pod in each.pods]) for each in order.claims] == [("c", [pod.uid for pod in pods])]
    assert scenario.gang("a").group.not_ready_wait is Wait.DEALLOCATING
    why = 'ResourceClaim "default/c" still has gpu/n0/gpu-0 and 1 more of an earlier placement of its pods'
    assert why in reason(scenario.gang("a"))
    scenario.pass_time(5)
    assert (scenario.bound("a"), node_of_claim(scenario)) == (2, "n1")


def test_i5_a_new_leader_without_the_permit_gives_the_devices_back() -> None:
    scenario = cluster("n0")
    add(scenario, gang("a").of(2))
    scenario.claims.write(until(scenario, Bind))
    scenario.crash()
    scenario.etcd.clear()
    scenario.cluster.nodes["n0"] = replace(scenario.cluster.nodes["n0"], unschedulable=True)
    scenario.start()
    scenario.run()
    assert (scenario.bound("a"), node_of_claim(scenario)) == (0, "")


def test_a_claim_is_kept_while_one_of_its_pods_has_a_place() -> None:
    scenario = cluster("n0", "n1")
    built = gang("a").of(3).needing(1)
    pods = add(scenario, built)
    scenario.run()
    assert scenario.bound("a") == 3
    scenario.change(remove_pods=[pods[2].uid])
    scenario.change(pods=[replace(pods[2], uid="again")])
    found = scenario.claims.get("default", "c")
    assert found is not None
    scenario.claims.put(replace(found, reserved_for=(*found.reserved_for, "again")))
    assert not orders(scenario)


def test_a_claim_that_is_reserved_for_an_unknown_pod_is_kept() -> None:
    """Another scheduler is about to bind it."""
    scenario = cluster("n0")
    pods = add(scenario, gang("a").of(2))
    leave(scenario, pods[0].uid, "theirs")
    assert not orders(scenario)


def test_an_allocated_claim_that_is_reserved_for_nobody_is_used_where_it_is() -> None:
    scenario = cluster("n0", "n1")
    leave(scenario)
    add(scenario, gang("a").of(2))
    assert not orders(scenario)
    scenario.run()
    assert (scenario.bound("a"), node_of_claim(scenario)) == (2, "n0")


def test_a_claim_of_two_gangs_is_ordered_once_and_both_wait() -> None:
    scenario = cluster("n0", "n1")
    scenario.lagging = True
    pods = [*add(scenario, gang("a").of(1)), *add(scenario, gang("b").of(1))]
    leave(scenario, *(pod.uid for pod in pods))
    scenario.lagging = False
    scenario.blink()
    [order] = orders(scenario)
    assert [len(each.pods) for each in order.claims] == [2]
    assert {scenario.gang(name).group.not_ready_wait for name in "ab"} == {Wait.DEALLOCATING}
    scenario.pass_time(5)
    assert (scenario.bound("a"), scenario.bound("b")) == (1, 1)


@pytest.mark.parametrize("gone", ["a", "b"])
def test_the_other_gang_does_not_wait_when_one_is_gone_or_placed(gone: str) -> None:
    """The order is the first gang's; whether it goes or has a place, the second one is looked at again."""
    scenario = cluster("n0", "n1")
    scenario.lagging = True
    built = {name: gang(name).of(1) for name in "ab"}
    pods = {name: add(scenario, each)[0] for name, each in built.items()}
    leave(scenario, *(pod.uid for pod in pods.values()))
    scenario.lagging = False
    scenario.blink()
    scenario.claims.failures = 1000
    scenario.bind_elsewhere(pods[gone].uid, "n0")
    scenario.pass_time(2 * OBSERVATION_SECONDS)
    [other] = {"a", "b"} - {gone}
    assert scenario.gang(other).group.not_ready_wait is not Wait.DEALLOCATING
    assert scenario.bound(other) == 1


def test_the_claim_of_a_pod_group_without_placed_pods_is_deallocated() -> None:
    scenario = cluster("n0", "n1")
    add(scenario, gang("a").of(2), group=GROUP)
    leave(scenario, GROUP, node="n1", idle=True)
    [order] = orders(scenario)
    [stale] = order.claims
    assert (len(stale.pods), stale.groups) == (2, (GROUP,))
    scenario.run()
    assert scenario.bound("a") == 2


def test_the_claim_of_a_pod_group_is_kept_while_it_is_used() -> None:
    """By bound pods, of which cluster-state knows."""
    scenario = cluster("n0", "n1")
    add(scenario, gang("a").of(2), group=GROUP)
    left = leave(scenario, GROUP, node="n1")
    assert not orders(scenario)
    scenario.claims.put(replace(left, idle=True))
    scenario.run()
    assert scenario.bound("a") == 2


def test_i13_a_pod_that_has_ended_does_not_use_the_claim_of_its_pod_group() -> None:
    scenario = cluster("n0", "n1")
    ended, *waiting = add(scenario, gang("a").needing(1).of(3), group=GROUP)
    scenario.change(pods=[replace(ended, node="n1", phase=PodPhase.SUCCEEDED)])
    leave(scenario, GROUP, node="n1", idle=True)
    [order] = orders(scenario)
    assert [pod.uid for stale in order.claims for pod in stale.pods] == [pod.uid for pod in waiting]


def test_i11_pods_of_groups_end() -> None:
    scenario = cluster("n0")
    built = gang("a").of(2)
    add(scenario, built, group=GROUP)
    devices = scenario.leader.cache.ledger.devices
    assert len(devices.pods_of_group(GROUP)) == 2
    scenario.delete(built)
    scenario.run()
    assert not devices.pods_of_group(GROUP)
