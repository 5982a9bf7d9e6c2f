"""Devices for the claims of seats: chosen once, kept with the reservation, and free again on every path."""

import msgspec
import pytest

from builders.devices.facts import claim, way
from builders.devices.streamed import allocated, claim_object, class_object, slice_object
from muster.coordinator.core.cache.device_choices import MOST_TOGETHER, DeviceChoices, NoDevices
from muster.coordinator.core.events import Seat
from muster.coordinator.core.slices import run_to_end
from muster.devices.facts import Allocation, Claim, Config, DeviceId, DeviceResult
from muster.gangs.facts import (
    Batch,
    DeviceObject,
    DeviceObjectKind,
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodFacts,
)

NODES = {name: NodeFacts(name, uid=name) for name in ("n0", "n1")}


def claims(*counts: int) -> list[Claim]:
    """Claims "c0", "c1" ... for so many devices each."""
    return [msgspec.structs.replace(claim(way(count), name=f"c{i}"), uid=f"u{i}") for i, count in enumerate(counts)]


def choices(*objects: Claim, on: int = 4) -> DeviceChoices:
    """Nodes n0 and n1 with so many devices each, and claims."""
    found = DeviceChoices()
    found.apply(Batch(device_objects=(slice_object("n0", on), slice_object("n1", on), class_object())))
    found.apply(Batch(device_objects=tuple(map(claim_object, objects))))
    return found


def seat(number: int, node: str = "n0", devices: tuple[tuple[str, Allocation], ...] = ()) -> Seat:
    return Seat(f"p{number}", "team", f"p{number}", "class", node, devices=devices)


def pods(*names: tuple[str, ...]) -> dict[str, PodFacts]:
    """Pods p0, p1 ... with these claims."""
    return {f"p{i}": PodFacts(f"p{i}", "team", f"p{i}", "class", device_claims=each) for i, each in enumerate(names)}


def test_seats_of_a_node_get_devices_of_their_own() -> None:
    found = run_to_end(choices(*claims(2, 2)).choose([seat(0), seat(1)], pods(("c0",), ("c1",)), NODES))
    assert not isinstance(found, NoDevices)
    ids = [result.id for each in found.values() for _, allocation in each for result in allocation.results]
    assert len(set(ids)) == 4


def test_no_seat_gets_devices_if_one_cannot() -> None:
    chooser = choices(*claims(3, 2))
    found = run_to_end(chooser.choose([seat(0), seat(1)], pods(("c0",), ("c1",)), NODES))
    why = "node n0 has no devices for ResourceClaims team/c0, team/c1 together (proved impossible)"
    assert found == NoDevices(why, "n0")
    assert not isinstance(run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES)), NoDevices)


def test_very_many_claims_of_one_node_are_allocated_in_parts() -> None:
    number = 2 * MOST_TOGETHER
    found = run_to_end(
        choices(*claims(*[1] * number), on=number).choose(
            [seat(each) for each in range(number)], pods(*((f"c{each}",) for each in range(number))), NODES
        )
    )
    assert not isinstance(found, NoDevices)
    assert len({result.id for each in found.values() for _, one in each for result in one.results}) == number


def test_more_devices_than_one_search_can_have_are_allocated_in_parts() -> None:
    number = MOST_TOGETHER // 2
    found = run_to_end(
        choices(*claims(*[16] * number), on=16 * number).choose(
            [seat(each) for each in range(number)], pods(*((f"c{each}",) for each in range(number))), NODES
        )
    )
    assert not isinstance(found, NoDevices)
    assert len({result.id for each in found.values() for _, one in each for result in one.results}) == 16 * number


def test_devices_of_a_reservation_are_not_chosen_again_until_it_ends() -> None:
    chooser = choices(*claims(3, 2))
    first = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(first, NoDevices)
    chooser.take(seat(0, devices=first["p0"]))
    assert isinstance(run_to_end(chooser.choose([seat(1)], pods((), ("c1",)), NODES)), NoDevices)
    chooser.release("p0")
    assert not isinstance(run_to_end(chooser.choose([seat(1)], pods((), ("c1",)), NODES)), NoDevices)


def test_devices_of_a_bound_pod_are_held_until_it_ends() -> None:
    chooser = choices(*claims(3, 2))
    first = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(first, NoDevices)
    placed = seat(0, devices=first["p0"])
    chooser.take(placed)
    chooser.bound(placed)
    names = [result.id.device for _, allocation in first["p0"] for result in allocation.results]
    [c0, _] = claims(3, 2)
    chooser.apply(Batch(device_objects=(claim_object(allocated(c0, *names)),)))
    chooser.end_pod("p0")
    assert isinstance(run_to_end(chooser.choose([seat(1)], pods((), ("c1",)), NODES)), NoDevices)
    chooser.apply(Batch(device_objects=(DeviceObject(DeviceObjectKind.CLAIM, c0.id),)))
    assert not isinstance(run_to_end(chooser.choose([seat(1)], pods((), ("c1",)), NODES)), NoDevices)
    assert not chooser.has_bound_pods


def test_a_choice_is_not_kept_if_another_claim_got_a_device_of_it() -> None:
    [c0, other] = claims(2, 2)
    chooser = choices(c0, other)
    first = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(first, NoDevices)
    placed = seat(0, devices=first["p0"])
    names = [result.id.device for _, allocation in first["p0"] for result in allocation.results]
    assert chooser.is_kept(placed)
    chooser.take(placed)
    assert chooser.is_kept(placed)
    chooser.apply(Batch(device_objects=(claim_object(allocated(c0, *names)),)))
    assert chooser.is_kept(placed)
    chooser.apply(Batch(device_objects=(claim_object(allocated(other, names[0])),)))
    assert not chooser.is_kept(placed)


def test_a_claim_that_is_gone_or_needs_devices_lacks_a_choice() -> None:
    [c0] = claims(1)
    chooser = choices(c0)
    assert chooser.lacks_choice(seat(0), ("c0",))
    chooser.apply(Batch(device_objects=(claim_object(allocated(c0, "gpu-0")),)))
    assert not chooser.lacks_choice(seat(0), ("c0",))
    chooser.apply(Batch(device_objects=(DeviceObject(DeviceObjectKind.CLAIM, "team/c0"),)))
    assert chooser.lacks_choice(seat(0), ("c0",))
    assert isinstance(run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES)), NoDevices)


def test_an_allocated_claim_is_only_used_where_its_devices_are() -> None:
    [c0] = claims(1)
    here = device_on("n1")
    chooser = choices(msgspec.structs.replace(c0, allocation=here))
    assert isinstance(run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES)), NoDevices)
    assert run_to_end(chooser.choose([seat(0, "n1")], pods(("c0",)), NODES)) == {}


@pytest.mark.parametrize("users", [(), ("p0",)])
def test_no_devices_are_chosen_for_a_claim_that_has_to_be_deallocated_before(users: tuple[str, ...]) -> None:
    [c0] = claims(1)
    stale = msgspec.structs.replace(allocated(c0, "gpu-0"), owner="p0", reserved_for=users)
    chooser = choices(stale)
    found = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert found == NoDevices("ResourceClaim team/c0 has to be deallocated before")
    assert [each.id for each in chooser.allocated_to({"p0"})] == ["team/c0"]
    chooser.apply(Batch(device_objects=(claim_object(c0),)))
    assert not chooser.has_allocations
    assert not isinstance(run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES)), NoDevices)


def device_on(node: str) -> Allocation:
    term = NodeSelectorTerm(fields=(NodeRequirement("metadata.name", NodeOperator.IN, (node,)),))
    return Allocation((DeviceResult("r0", DeviceId("gpu", node, "gpu-0")),), (term,))


def test_a_snapshot_removes_what_it_does_not_have() -> None:
    [c0, c1] = claims(1, 1)
    chooser = choices(c0, allocated(c1, "gpu-0"))
    snapshot = Batch(device_objects=(slice_object("n0", 4), class_object(), claim_object(c0)))
    removed = chooser.missing(snapshot)
    assert {(each.kind, each.name) for each in removed} == {
        (DeviceObjectKind.SLICE, "n1"),
        (DeviceObjectKind.CLAIM, "team/c1"),
    }
    chooser.apply(Batch(device_objects=removed))
    assert chooser.claims.keys() == {"team/c0"}


@pytest.mark.parametrize("chosen", [True, False])
def test_writes_have_the_allocation_with_its_configuration(chosen: bool) -> None:
    [c0] = claims(1)
    c0 = msgspec.structs.replace(c0, config=(Config('{"driver":"gpu","parameters":{"a":1}}', ("r0",)),))
    chooser = choices(c0 if chosen else allocated(c0, "gpu-0"))
    chooser.apply(Batch(device_objects=(class_object('{"driver":"gpu","parameters":{"b":2}}'),)))
    found = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(found, NoDevices)
    [write] = chooser.writes(seat(0, devices=found.get("p0", ())), pods(("c0",))["p0"])
    assert (write.name, write.uid) == ("c0", "u0")
    if not chosen:
        assert write.allocation == b""
        return
    here = {"key": "metadata.name", "operator": "In", "values": ["n0"]}
    assert msgspec.json.decode(write.allocation) == {
        "devices": {
            "results": [{"request": "r0", "driver": "gpu", "pool": "n0", "device": "gpu-0"}],
            "config": [
                {"source": "FromClass", "opaque": {"driver": "gpu", "parameters": {"b": 2}}},
                {"source": "FromClaim", "opaque": {"driver": "gpu", "parameters": {"a": 1}}},
            ],
        },
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
    }


def test_writes_name_the_group_of_claims_that_belong_to_it() -> None:
    given = claims(1, 1)
    chooser = choices(*(allocated(each, f"gpu-{number}") for number, each in enumerate(given)))
    [found] = pods(("c0", "c1")).values()
    found = msgspec.structs.replace(found, group_claims=("c1",), group_name="g", group_uid="uid-g")
    own, of_group = chooser.writes(seat(0), found)
    assert (own.group_name, own.group_uid) == ("", "")
    assert (of_group.group_name, of_group.group_uid) == ("g", "uid-g")


def test_selectors_are_evaluated_for_one_slice_of_a_pool_at_a_time_i12() -> None:
    selectors = [f"device.attributes['gpu'].kind != 'x{number}'" for number in range(3)]
    unallocated = [
        msgspec.structs.replace(claim(way(1, selector), name=f"c{number}"), uid=f"u{number}")
        for number, selector in enumerate(selectors)
    ]
    chooser = choices(*unallocated)
    sizes = 100, 28, 3
    objects = [slice_object("n1", size, generation=1, slices=len(sizes), name=f"n1-{size}") for size in sizes]
    chooser.apply(Batch(device_objects=(*objects, DeviceObject(DeviceObjectKind.SLICE, "n1"))))
    asked = [seat(number, "n1") for number in range(3)]
    steps = chooser.choose(asked, pods(*((f"c{number}",) for number in range(3))), NODES)
    evaluated: list[int] = []
    for _ in steps:
        evaluated.append(chooser.devices.results.evaluations - sum(evaluated))
    assert max(evaluated) == 2 * max(sizes), "the selector of the class, and that of the request"
    assert sum(evaluated) == chooser.devices.results.evaluations == 2 * 3 * sum(sizes)


def test_a_claim_that_is_allocated_otherwise_is_lost_for_its_seat() -> None:
    (unallocated,) = claims(1)
    chooser = choices(unallocated)
    found = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(found, NoDevices)
    reserved = seat(0, devices=found["p0"])
    chooser.take(reserved)
    chooser.apply(Batch(device_objects=(claim_object(allocated(unallocated, "gpu-0")),)))
    assert not chooser.take_contested()
    assert not chooser.has_lost(reserved), "these are the devices that were chosen"
    chooser.apply(Batch(device_objects=(claim_object(allocated(unallocated, "gpu-1")),)))
    assert chooser.take_contested()
    assert chooser.has_lost(reserved)
    assert not chooser.take_contested()


def test_a_device_that_another_claim_gets_is_lost_for_its_seat() -> None:
    mine, theirs = claims(1, 1)
    chooser = choices(mine, theirs)
    found = run_to_end(chooser.choose([seat(0)], pods(("c0",)), NODES))
    assert not isinstance(found, NoDevices)
    reserved = seat(0, devices=found["p0"])
    chooser.take(reserved)
    chooser.apply(Batch(device_objects=(claim_object(allocated(theirs, "gpu-1")),)))
    assert not (chooser.take_contested() or chooser.has_lost(reserved))
    chooser.apply(Batch(device_objects=(claim_object(allocated(theirs, "gpu-0")),)))
    assert chooser.take_contested()
    assert chooser.has_lost(reserved)
