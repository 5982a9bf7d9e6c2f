"""Devices of gangs are chosen with the permit, durably, and never for two of them (I3)."""

import msgspec
import pytest
from msgspec.structs import replace

from builders.core.actions import until
from builders.core.objects import pod_class
from builders.core.scenario import Scenario
from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, claim_object, class_object, slice_object
from builders.gangs.facts import gang
from muster.coordinator.core.effects import Bind, Persist
from muster.coordinator.core.events import Seat, Snapshot
from muster.coordinator.core.slices import run_to_end
from muster.coordinator.records import decode, encode
from muster.devices.facts import Claim
from muster.gangs.counted_resources import devices
from muster.gangs.facts import Amounts, DeviceObject, DeviceObjectKind, PodClass, PodFacts

GPUS = devices("gpu")


def claiming() -> PodClass:
    plain = pod_class(1)
    requests: Amounts = tuple(sorted((*plain.requests, (GPUS, 2))))
    return replace(plain, id="with-gpus", requests=requests)


def claim_of(pod: PodFacts) -> Claim:
    return replace(claim(way(2), name=f"{pod.name}-gpus"), namespace=pod.namespace, uid=f"uid-{pod.name}-gpus")


def cluster(number: int, *names: str, size: int = 2) -> tuple[Scenario, dict[str, list[PodFacts]]]:
    """One node with GPUs, and gangs of which each member claims two."""
    scenario = Scenario({"n0": 8}, start=False)
    there = scenario.cluster
    there.nodes["n0"] = replace(
        there.nodes["n0"], allocatable=tuple(sorted((*there.nodes["n0"].allocatable, (GPUS, number))))
    )
    there.classes["with-gpus"] = claiming()
    scenario.start()
    scenario.change(device_objects=[slice_object("n0", number), class_object()])
    members: dict[str, list[PodFacts]] = {}
    for name in names:
        built = gang(name).of(size)
        members[name] = [
            replace(pod, class_id="with-gpus", device_claims=(claim_of(pod).name,)) for pod in built.pods()
        ]
        scenario.change(
            gangs=[built.gang_facts()],
            pods=members[name],
            device_objects=[claim_object(claim_of(pod)) for pod in members[name]],
        )
    return scenario, members


def chosen(seats: tuple[Seat, ...]) -> list[str]:
    return sorted(result.id.device for seat in seats for _, allocation in seat.devices for result in allocation.results)


def free(scenario: Scenario, count: int) -> bool:
    """Whether a claim for so many devices could be allocated now."""
    chooser = scenario.leader.cache.ledger.devices
    probe = PodFacts("probe", "team", "probe", "with-gpus", device_claims=("probe",))
    chooser.claims["team/probe"] = replace(claim(way(count), name="probe"), uid="probe")
    found = run_to_end(
        chooser.choose([Seat("probe", "team", "probe", "with-gpus", "n0")], {"probe": probe}, scenario.cluster.nodes)
    )
    del chooser.claims["team/probe"]
    return isinstance(found, dict)


def test_i2_devices_are_in_the_permit_before_the_bind() -> None:
    scenario, _ = cluster(4, "a")
    persist = until(scenario, Persist)
    assert chosen(persist.puts[0].seats) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    bind = until(scenario, Bind)
    assert chosen(bind.seats) == chosen(persist.puts[0].seats)
    assert bind.claims_first
    for seat in bind.seats:
        [write] = bind.devices[seat.uid]
        results = msgspec.json.decode(write.allocation)["devices"]["results"]
        assert sorted(each["device"] for each in results) == chosen((seat,))


def test_i3_two_gangs_never_have_the_same_device() -> None:
    scenario, _ = cluster(8, "a", "b")
    first = until(scenario, Bind)
    scenario.do(scenario.under_way.index(first))  # its pods are bound, and its claims are not seen allocated yet
    second = until(scenario, Bind)
    assert len({*chosen(first.seats), *chosen(second.seats)}) == 8


def test_i5_devices_are_free_again_with_the_reservation() -> None:
    scenario, members = cluster(4, "a")
    until(scenario, Bind)
    assert not free(scenario, 1)
    scenario.change(remove_pods=[pod.uid for pod in members["a"]])
    assert free(scenario, 4)


def test_i11_devices_of_bound_pods_are_held_until_the_claims_are_deallocated() -> None:
    scenario, members = cluster(4, "a")
    scenario.run()
    first, second = (claim_of(pod) for pod in members["a"])
    scenario.change(
        device_objects=[
            claim_object(allocated(first, "gpu-0", "gpu-1")),
            claim_object(allocated(second, "gpu-2", "gpu-3")),
        ]
    )
    scenario.change(remove_pods=[pod.uid for pod in members["a"]])
    assert not free(scenario, 1)
    scenario.change(device_objects=[DeviceObject(DeviceObjectKind.CLAIM, each.id) for each in (first, second)])
    assert free(scenario, 4)
    assert not scenario.leader.cache.ledger.devices.has_bound_pods


def test_i6_a_new_leader_keeps_the_choice() -> None:
    scenario, _ = cluster(8, "a")
    bind = until(scenario, Bind)
    scenario.crash()
    scenario.start()
    again = until(scenario, Bind)
    assert {(seat.uid, seat.devices) for seat in again.seats} == {(seat.uid, seat.devices) for seat in bind.seats}
    assert free(scenario, 4)
    assert not free(scenario, 5)


def test_i6_a_new_leader_chooses_anew_if_a_device_was_taken() -> None:
    scenario, members = cluster(8, "a")
    until(scenario, Bind)
    scenario.crash()
    stranger = allocated(replace(claim(way(1), name="stranger"), uid="stranger"), "gpu-0")
    scenario.cluster.device_objects[DeviceObjectKind.CLAIM, stranger.id] = claim_object(stranger)
    before = len(scenario.binds)
    scenario.start()
    scenario.run()
    assert "gpu-0" not in [device for bind in scenario.binds[before:] for device in chosen(bind.seats)]
    assert scenario.bound("a") == len(members["a"])


def test_objects_that_a_snapshot_does_not_have_are_removed() -> None:
    scenario, _ = cluster(4, "a")
    scenario.cluster.device_objects.clear()
    scenario.tell(Snapshot(scenario.cluster.whole()))
    assert scenario.leader.cache.ledger.devices.claims == {}
    assert not free(scenario, 1)


@pytest.mark.parametrize("number", [0, 3])
def test_a_gang_without_enough_devices_holds_none(number: int) -> None:
    scenario, _ = cluster(number, "a")
    scenario.run()
    assert scenario.bound("a") == 0
    assert number == 0 or free(scenario, number)


def test_a_choice_that_fails_is_a_reason_that_names_the_claims() -> None:
    """The node offers more devices than its slices have."""
    scenario, members = cluster(4, "a")
    scenario.change(device_objects=[slice_object("n0", 3)])
    scenario.change(remove_pods=[members["a"][0].uid])
    assert scenario.bound("a") == 0


def test_a_claim_that_is_deleted_before_the_bind_takes_the_seat_with_it() -> None:
    scenario, members = cluster(4, "a")
    persist = until(scenario, Persist)
    gone = DeviceObject(DeviceObjectKind.CLAIM, claim_of(members["a"][0]).id)
    scenario.change(device_objects=[gone])
    scenario.do(scenario.under_way.index(persist))
    assert not [effect for effect in scenario.under_way if isinstance(effect, Bind)]


def test_a_gang_starts_with_the_new_claim_after_one_was_deleted_before_the_bind() -> None:
    scenario, members = cluster(4, "a")
    persist = until(scenario, Persist)
    first = claim_of(members["a"][0])
    waiting = replace(members["a"][0], problem="its claim does not exist")
    scenario.change(device_objects=[DeviceObject(DeviceObjectKind.CLAIM, first.id)], pods=[waiting])
    scenario.do(scenario.under_way.index(persist))
    scenario.run()
    assert scenario.bound("a") < len(members["a"])
    scenario.change(device_objects=[claim_object(replace(first, uid="anew"))], pods=[members["a"][0]])
    scenario.run()
    assert scenario.bound("a") == len(members["a"])


def test_i5_a_driver_that_vanishes_while_a_permit_is_open_leaves_it_its_devices() -> None:
    scenario, members = cluster(4, "a")
    persist = until(scenario, Persist)
    scenario.change(device_objects=[DeviceObject(DeviceObjectKind.SLICE, "n0")])
    scenario.do(scenario.under_way.index(persist))
    bind = until(scenario, Bind)
    assert len(chosen(bind.seats)) == 4
    scenario.run()
    scenario.change(device_objects=[slice_object("n0", 4)])
    assert not free(scenario, 1)
    scenario.change(remove_pods=[pod.uid for pod in members["a"]])
    assert free(scenario, 4)


def test_the_choice_survives_encoding() -> None:
    scenario, _ = cluster(4, "a")
    [record] = until(scenario, Persist).puts
    decoded, _ = decode("key", encode(record, "", 1))
    assert [seat.devices for seat in decoded.seats] == [seat.devices for seat in record.seats]
