"""Pods with extended resources that a node offers as devices: chosen with the permit, and written before the bind."""

import msgspec
import pytest
from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, claim_object, slice_object
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist
from muster.coordinator.core.events import Seat
from muster.coordinator.core.report.device_shortages import ClaimedDevices, claimed_devices
from muster.coordinator.core.slices import run_to_end
from muster.coordinator.records import decode, encode
from muster.devices.extended_resources import EXTENDED_CLAIM, RequestMapping
from muster.devices.facts import DeviceClass
from muster.gangs.facts import Amounts, DeviceObject, DeviceObjectKind, ExtendedRequest, PodClass, PodFacts

GPU = "nvidia.com/gpu"
REQUEST = "container-0-request-1"


def gpu_class() -> PodClass:
    plain = pod_class(1)
    requests: Amounts = tuple(sorted((*plain.requests, (GPU, 2))))
    return replace(plain, id="gpus", requests=requests, extended=(ExtendedRequest("main", GPU, REQUEST, 0, 2),))


def class_object(name: str = "gpu") -> DeviceObject:
    facts = DeviceClass(name, ("device.attributes['gpu'].kind == 'gpu'",), extended_resource=GPU)
    return DeviceObject(DeviceObjectKind.CLASS, name, msgspec.json.encode(facts))


def cluster(number: int, *names: str, devices: int | None = None, backed: bool = True) -> tuple[Scenario, list[str]]:
    """One node that offers so many GPUs, as devices or by a plugin, and gangs of two with two GPUs a member."""
    scenario = Scenario({"n0": 8}, start=False)
    there = scenario.cluster
    amounts = tuple(sorted((*there.nodes["n0"].allocatable, (GPU, number))))
    there.nodes["n0"] = replace(there.nodes["n0"], allocatable=amounts, device_backed=(GPU,) if backed else ())
    there.classes["gpus"] = gpu_class()
    scenario.start()
    scenario.change(device_objects=[slice_object("n0", number if devices is None else devices), class_object()])
    uids: list[str] = []
    for name in names:
        built = gang(name).of(2)
        members: list[PodFacts] = [replace(pod, class_id="gpus") for pod in built.pods()]
        uids += [pod.uid for pod in members]
        scenario.change(gangs=[built.gang_facts()], pods=members)
    return scenario, uids


def chosen(seats: tuple[Seat, ...]) -> list[str]:
    return sorted(result.id.device for seat in seats for _, allocation in seat.devices for result in allocation.results)


def test_i2_devices_are_in_the_permit_before_the_claim_is_written() -> None:
    scenario, _ = cluster(4, "a")
    [record] = until(scenario, Persist).puts
    assert chosen(record.seats) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    assert {name for seat in record.seats for name, _ in seat.devices} == {EXTENDED_CLAIM}
    assert [seat.devices for seat in decode("key", encode(record, "", 1))[0].seats] == [
        seat.devices for seat in record.seats
    ]
    bind = until(scenario, Bind)
    assert bind.claims_first
    for seat in bind.seats:
        write = bind.extended[seat.uid]
        results = msgspec.json.decode(write.allocation)["devices"]["results"]
        assert sorted(each["device"] for each in results) == chosen((seat,))
        assert {each["request"] for each in results} == {REQUEST}
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        assert msgspec.json.decode(write.spec) == {"devices": {"requests": [{"name": REQUEST, "exactly": exactly}]}}
        assert write.mappings == (RequestMapping("main", GPU, REQUEST),)


def test_a_node_with_a_plugin_needs_no_claim() -> None:
    scenario, uids = cluster(4, "a", backed=False)
    bind = until(scenario, Bind)
    assert (bind.extended, bind.claims_first) == ({}, False)
    assert not any(seat.devices for seat in bind.seats)
    scenario.run()
    assert scenario.bound("a") == len(uids)


def test_i3_two_gangs_never_have_the_same_device() -> None:
    scenario, _ = cluster(8, "a", "b")
    first = until(scenario, Bind)
    scenario.do(scenario.under_way.index(first))
    second = until(scenario, Bind)
    assert len({*chosen(first.seats), *chosen(second.seats)}) == 8


def test_i3_devices_of_claims_are_not_chosen() -> None:
    scenario, _ = cluster(6)
    taken = [allocated(replace(claim(way(1), name=name), uid=name), name) for name in ("gpu-0", "gpu-3")]
    scenario.change(device_objects=[claim_object(each) for each in taken])
    built = gang("a").of(2)
    members = [replace(pod, class_id="gpus") for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=members)
    assert chosen(until(scenario, Bind).seats) == ["gpu-1", "gpu-2", "gpu-4", "gpu-5"]


def test_a_gang_without_enough_devices_is_not_bound() -> None:
    """The node offers more than its slices have."""
    scenario, _ = cluster(4, "a", devices=3)
    scenario.run()
    assert scenario.bound("a") == 0
    assert not scenario.binds


def test_i5_devices_are_free_again_with_the_reservation() -> None:
    scenario, uids = cluster(4, "a")
    until(scenario, Bind)
    scenario.change(remove_pods=uids)
    built = gang("b").of(2)
    scenario.change(gangs=[built.gang_facts()], pods=[replace(pod, class_id="gpus") for pod in built.pods()])
    assert len(chosen(until(scenario, Bind).seats)) == 4


def test_i6_a_new_leader_keeps_the_choice_also_if_a_claim_is_allocated() -> None:
    scenario, uids = cluster(4, "a")
    bind = until(scenario, Bind)
    first = next(seat for seat in bind.seats if seat.uid == uids[0])
    [(_, allocation)] = first.devices
    made = replace(claim(way(2), name="made"), uid="u", owner=first.uid, extended=True, allocation=allocation)
    scenario.crash()
    scenario.cluster.device_objects[DeviceObjectKind.CLAIM, made.id] = claim_object(made)
    scenario.start()
    again = until(scenario, Bind)
    assert {(seat.uid, seat.devices) for seat in again.seats} == {(seat.uid, seat.devices) for seat in bind.seats}
    assert again.extended.keys() == bind.extended.keys()


@pytest.mark.parametrize("change", ["plugin", "class"])
def test_a_seat_whose_devices_are_not_the_right_ones_any_more_is_lost(change: str) -> None:
    """Between permit and bind the node gets a device plugin, or the class ends."""
    scenario, uids = cluster(4, "a")
    persist = until(scenario, Persist)
    if change == "plugin":
        scenario.change(nodes=[replace(scenario.cluster.nodes["n0"], device_backed=())])
    else:
        scenario.change(device_objects=[DeviceObject(DeviceObjectKind.CLASS, "gpu")])
    scenario.do(scenario.under_way.index(persist))
    assert not [effect for effect in scenario.under_way if isinstance(effect, Bind) and effect.extended]
    scenario.run()
    assert scenario.bound("a") == (len(uids) if change == "plugin" else 0)
    assert not any(bind.extended for bind in scenario.binds)


def test_pods_that_were_placed_by_a_plugin_are_placed_again_without_it() -> None:
    scenario, uids = cluster(4, "a", backed=False)
    persist = until(scenario, Persist)
    scenario.change(nodes=[replace(scenario.cluster.nodes["n0"], device_backed=(GPU,))])
    scenario.do(scenario.under_way.index(persist))
    scenario.run()
    assert scenario.bound("a") == len(uids)
    assert all(bind.extended for bind in scenario.binds)


def explained(scenario: Scenario, name: str) -> list[ClaimedDevices]:
    return run_to_end(claimed_devices(scenario.leader.cache, scenario.gang(name)))


def test_an_explanation_names_the_resource_and_who_has_the_devices() -> None:
    scenario, _ = cluster(4, "a")
    scenario.run()
    built = gang("b").of(2)
    pods = [replace(pod, class_id="gpus") for pod in built.pods()]
    scenario.change(gangs=[built.gang_facts()], pods=pods)
    scenario.run()
    [found] = explained(scenario, "b")
    assert (found.pod.name, found.pods) == ("b-0", 2)
    [request] = found.requests
    assert (request.resource, request.request, request.claim) == (GPU, "main", "")
    assert (request.wanted, request.devices, request.taken, request.free) == (2, 4, 4, 0)
    assert str(request) == (
        "extended resource nvidia.com/gpu of container main wants 2 devices of class gpu: 4 match: "
        "4 taken by gang default/a (4)"
    )
    assert found.would_help == [
        "for extended resource nvidia.com/gpu of container main: devices that are taken become free: gang default/a (4)"
    ]


def test_an_explanation_counts_no_devices_of_nodes_with_a_plugin() -> None:
    scenario, _ = cluster(1, "a", devices=4, backed=False)
    scenario.run()
    [found] = explained(scenario, "a")
    assert (found.requests[0].elsewhere, found.requests[0].free) == (4, 0)


def test_a_resource_that_only_plugins_offer_has_no_devices_to_explain() -> None:
    scenario, _ = cluster(1, "a", devices=0, backed=False)
    scenario.run()
    assert explained(scenario, "a") == []
