"""A ResourceClaim that pods share is allocated once, where all of them can use its devices."""

import pytest
from msgspec.structs import replace

from builders.core.actions import evicted, held_back, until
from builders.core.objects import HOST, pod_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, claim_object, class_object, network_object, slice_object
from builders.gangs.facts import CoreGang, gang
from muster.coordinator.core.effects import Bind, Persist, Solve
from muster.coordinator.core.events import Seat
from muster.coordinator.core.report.reasons import reason
from muster.coordinator.core.slices import run_to_end
from muster.coordinator.records import decode, encode
from muster.coordinator.v1 import record_pb2 as pb
from muster.devices.facts import Allocation
from muster.gangs.counted_resources import devices
from muster.gangs.facts import (
    Amounts,
    DeviceObject,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    PodFacts,
    PodTerm,
)

GPUS = devices("gpu")
SHARED = replace(claim(way(2), name="c"), namespace="default", uid="uid-c")


def sharing(class_id: str, *, gpus: int = 0, tied: bool = True) -> PodClass:
    """The class of pods that share the claim, of which one requests its devices."""
    requests: Amounts = (*pod_class(1).requests, *(((GPUS, gpus),) if gpus else ()))
    terms = (PodTerm("c", HOST),) if tied else ()
    return PodClass(id=class_id, requests=tuple(sorted(requests)), shared_claims=terms, label_set="c" if tied else "")


CLASSES = (sharing("first", gpus=2), sharing("others"), sharing("free", gpus=2, tied=False))


def cluster(nodes: dict[str, int], *slices: DeviceObject, gpus: int = 4) -> Scenario:
    """Nodes with so many cpus, each with GPUs, and an unallocated claim for two of them."""
    scenario = Scenario(nodes, start=False)
    there = scenario.cluster
    for name, facts in there.nodes.items():
        there.nodes[name] = replace(facts, allocatable=tuple(sorted((*facts.allocatable, (GPUS, gpus)))))
    scenario.start()
    scenario.change(
        classes=list(CLASSES),
        device_objects=[*(slices or (slice_object(name, gpus) for name in nodes)), class_object()],
    )
    scenario.change(device_objects=[claim_object(SHARED)])
    return scenario


def members(built: CoreGang, *, tied: bool = True, name: str = "c") -> list[PodFacts]:
    label_set = "c" if tied else ""
    return [
        replace(pod, class_id=class_id if tied else "free", device_claims=(name,), label_set=label_set)
        for pod, class_id in zip(built.pods(), ["first", *["others"] * (built.size - 1)], strict=True)
    ]


def add(scenario: Scenario, built: CoreGang, *, tied: bool = True, name: str = "c") -> list[PodFacts]:
    found = members(built, tied=tied, name=name)
    scenario.change(gangs=[built.gang_facts()], pods=found)
    return found


def local(node: str, *names: str) -> Allocation:
    term = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node,)),))
    found = allocated(SHARED, *names, node=node).allocation
    assert found is not None
    return replace(found, node_selector=(term,))


def choices(seats: tuple[Seat, ...]) -> set[tuple[tuple[str, Allocation], ...]]:
    return {seat.devices for seat in seats}


def is_free(scenario: Scenario, count: int, node: str = "n0") -> bool:
    """Whether a claim for so many devices could be allocated now."""
    chooser = scenario.leader.cache.ledger.devices
    probe = PodFacts("probe", "team", "probe", "free", device_claims=("probe",))
    chooser.claims["team/probe"] = replace(claim(way(count), name="probe"), uid="probe")
    found = run_to_end(
        chooser.choose([Seat("probe", "team", "probe", "free", node)], {"probe": probe}, scenario.cluster.nodes)
    )
    del chooser.claims["team/probe"]
    return isinstance(found, dict)


def test_i2_the_devices_are_chosen_once_with_the_permit() -> None:
    scenario = cluster({"n0": 8, "n1": 8})
    add(scenario, gang("a").of(4))
    [record] = until(scenario, Persist).puts
    assert {seat.node for seat in record.seats} == {"n0"}
    assert choices(record.seats) == {(("c", local("n0", "gpu-0", "gpu-1")),)}
    bind = until(scenario, Bind)
    writes = {write for of_pod in bind.devices.values() for write in of_pod}
    assert [(write.name, write.uid) for write in writes] == [("c", "uid-c")]
    assert len(bind.devices) == 4
    assert bind.claims_first
    scenario.run()
    assert scenario.bound("a") == 4


def test_the_record_has_the_allocation_once() -> None:
    scenario = cluster({"n0": 8})
    add(scenario, gang("a").of(4))
    [record] = until(scenario, Persist).puts
    encoded = encode(record, "", 1)
    pods = [pod for seat in pb.GangRecord.FromString(encoded).seats for pod in seat.pods]
    assert sorted(bool(content) for pod in pods for content in pod.devices.values()) == [False] * 3 + [True]
    decoded, _ = decode("key", encoded)
    assert {seat.uid: seat.devices for seat in decoded.seats} == {seat.uid: seat.devices for seat in record.seats}


def test_an_answer_with_pods_where_they_cannot_use_the_devices_is_rejected() -> None:
    scenario = cluster({"n0": 2, "n1": 2})
    add(scenario, gang("a").of(4), tied=False)
    scenario.run()
    assert scenario.bound("a") == 0
    assert scenario.etcd == {}
    reason = "node n1 cannot use the devices of ResourceClaim default/c, which pods share"
    assert reason in scenario.gang("a").group.queueing.failure


def test_devices_for_all_nodes_are_shared_by_pods_on_several() -> None:
    scenario = cluster({"n0": 4, "n1": 4}, network_object(2), gpus=8)
    add(scenario, gang("a").of(8), tied=False)
    bind = until(scenario, Bind)
    assert {seat.node for seat in bind.seats} == {"n0", "n1"}
    [[(name, allocation)]] = choices(bind.seats)
    assert (name, [str(each.id) for each in allocation.results]) == (
        "c",
        ["gpu/network/gpu-0", "gpu/network/gpu-1"],
    )
    scenario.run()
    assert scenario.bound("a") == 8


@pytest.mark.parametrize("cpus", [8, 2], ids=["with free capacity", "without"])
def test_a_pod_outside_the_gang_waits_until_the_claim_is_allocated(cpus: int) -> None:
    """The pod evicts nobody until then, though it has a higher priority."""
    scenario = cluster({"n0": cpus})
    scenario.claims.unobserved = True
    add(scenario, gang("a").of(2))
    until(scenario, Bind)
    add(scenario, gang("b").of(1).with_priority(10))
    scenario.run()
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 0)
    reason = "ResourceClaim default/c is being allocated for other pods that share it"
    assert reason in scenario.gang("b").group.queueing.failure
    assert evicted(scenario) == set()
    later = next(pod for pod in scenario.cluster.pods.values() if pod.gang.endswith("/b"))
    scenario.change(
        device_objects=[claim_object(replace(SHARED, allocation=local("n0", "gpu-0", "gpu-1")))],
        pods=[replace(later, class_id=pod_class(1).id, label_set="")],
    )
    scenario.run()
    assert scenario.bound("b") == 1


def test_later_members_of_a_gang_that_holds_seats_share_their_choice() -> None:
    scenario = cluster({"n0": 2})
    add(scenario, gang("a").of(4).non_strict())
    scenario.run()
    assert (scenario.bound("a"), len(scenario.gang("a").seats)) == (0, 2)
    larger = dict(scenario.cluster.nodes["n0"].allocatable) | {"cpu": 8000}
    scenario.change(nodes=[replace(scenario.cluster.nodes["n0"], allocatable=tuple(sorted(larger.items())))])
    bind = until(scenario, Bind)
    assert len(bind.seats) == 4
    assert len(choices(bind.seats)) == 1
    assert is_free(scenario, 2)
    assert not is_free(scenario, 3)


def test_the_pod_that_requests_the_devices_is_the_first_role() -> None:
    """Of an elastic gang members of first roles are placed."""
    scenario = cluster({"n0": 8})
    built = gang("a").of(3).needing(1)
    of_class = {"a-0": "others", "a-1": "first", "a-2": "others"}
    pods = [replace(pod, class_id=of_class[pod.name], device_claims=("c",), label_set="c") for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    [asked] = until(scenario, Solve).groups[0].gangs
    assert [role.class_id.partition("@")[0] for role in asked.roles] == ["first", "others"]


def test_i12_a_part_that_is_rejected_is_tried_again_after_a_growing_pause() -> None:
    """Members that request no devices fit; the one that requests them for all does not."""
    scenario = cluster({"n0": 8}, slice_object("n0", 1), gpus=1)
    add(scenario, gang("a").of(4).non_strict())
    scenario.pass_time(60)
    assert not scenario.gang("a").seats
    assert len(scenario.solves) < 20


def test_i5_the_devices_are_free_when_the_last_pod_that_shares_them_is_gone() -> None:
    scenario = cluster({"n0": 8}, gpus=2)
    pods = add(scenario, gang("a").of(3).needing(1))
    until(scenario, Bind)
    scenario.change(remove_pods=[pod.uid for pod in pods[:2]])
    assert not is_free(scenario, 1)
    scenario.change(remove_pods=[pods[2].uid])
    assert is_free(scenario, 2)


def test_i6_a_new_leader_keeps_the_choice_for_all_pods() -> None:
    scenario = cluster({"n0": 8, "n1": 8})
    add(scenario, gang("a").of(4))
    bind = until(scenario, Bind)
    scenario.etcd = {key: decode(key, encode(record, "", 1))[0] for key, record in scenario.etcd.items()}
    scenario.crash()
    scenario.start()
    again = until(scenario, Bind)
    assert {(seat.uid, seat.node, seat.devices) for seat in again.seats} == {
        (seat.uid, seat.node, seat.devices) for seat in bind.seats
    }
    scenario.run()
    assert scenario.bound("a") == 4


def test_i6_a_new_leader_keeps_the_choice_for_all_gangs_of_a_group() -> None:
    scenario = cluster({"n0": 8})
    built = [gang(name).of(2).with_group("default/a", "default/b") for name in ("a", "b")]
    scenario.change(gangs=[each.gang_facts() for each in built], pods=[pod for each in built for pod in members(each)])
    [first, second] = until(scenario, Persist).puts
    assert choices((*first.seats, *second.seats)) == {(("c", local("n0", "gpu-0", "gpu-1")),)}
    until(scenario, Bind)
    scenario.crash()
    scenario.start()
    scenario.run()
    again = [seat for bind in scenario.binds for seat in bind.seats]
    assert choices(tuple(again)) == choices(first.seats)
    assert (scenario.bound("a"), scenario.bound("b")) == (2, 2)
    assert all(len(scenario.etcd[record.gang].group) == 2 for record in (first, second))


def test_i11_a_claim_is_open_again_when_its_pods_are_gone() -> None:
    scenario = cluster({"n0": 8}, gpus=2)
    pods = add(scenario, gang("a").of(4))
    scenario.run()
    scenario.change(device_objects=[claim_object(replace(SHARED, allocation=local("n0", "gpu-0", "gpu-1")))])
    scenario.change(remove_pods=[pod.uid for pod in pods])
    scenario.change(device_objects=[claim_object(SHARED)])
    assert not scenario.leader.cache.ledger.devices.has_bound_pods
    add(scenario, gang("b").of(2))
    scenario.run()
    assert scenario.bound("b") == 2


def test_i3_a_later_member_does_not_share_devices_that_another_claim_got() -> None:
    scenario = cluster({"n0": 8}, gpus=2)
    built = gang("a").of(3).needing(1)
    *first, later = members(built)
    scenario.change(gangs=[built.gang_facts()], pods=first)
    held_back(scenario, Bind)  # under way all the time
    theirs = replace(SHARED, namespace="others", uid="theirs")
    scenario.change(device_objects=[claim_object(allocated(theirs, "gpu-0", node="n0"))])
    scenario.change(pods=[later])
    scenario.pass_time(5)
    assert later.uid not in scenario.gang("a").seats
    assert "are allocated to another" in reason(scenario.gang("a"))
