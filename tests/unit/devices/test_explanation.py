"""Explanations count the devices that a request could use, and say why it cannot."""

from collections.abc import Sequence

import msgspec

from builders.devices.facts import claim, cluster, device, gpus, mig, node, way
from muster.coordinator.core.slices import run_to_end
from muster.devices.allocation import Devices
from muster.devices.explanation import (
    DEVICES_PER_SLICE,
    Conflict,
    Holders,
    RequestShortage,
    conflict,
    shortages,
)
from muster.devices.facts import Claim, Constraint, DeviceId, DeviceToleration, Slice, Unsupported
from muster.gangs.facts import NodeFacts, TolerationOperator


def explained(
    devices: Devices, claims: list[Claim], nodes: Sequence[NodeFacts], holders: Holders | None = None
) -> list[RequestShortage]:
    return run_to_end(shortages(devices, claims, nodes, holders))


def why_not_together(devices: Devices, claims: list[Claim], nodes: Sequence[NodeFacts]) -> Conflict:
    return run_to_end(conflict(devices, claims, nodes))


def test_taken_tainted_and_free_devices_are_counted() -> None:
    odd = msgspec.structs.replace(device("odd"), unsupported=Unsupported.BINDING_CONDITIONS)
    devices = cluster(
        gpus("n1", 4),
        gpus("n2", 2),
        gpus("n3", 3),
        Slice("t", "gpu", "t", node_name="n2", devices=(device("x", taint="broken"), odd, device("y", kind="nic"))),
        Slice("half", "gpu", "half", count=2, node_name="n1", devices=(device("z"),)),
    )
    taken = [DeviceId("gpu", "n1", f"gpu-{i}") for i in range(3)]
    devices.allocate_ids(taken)
    (found,) = explained(
        devices, [claim(way(3, "kind=gpu"))], [node("n1"), node("n2")], dict.fromkeys(taken[:2], "gang a")
    )
    assert found.short
    assert str(found) == (
        "request r0 of ResourceClaim team/c wants 3 devices of class gpu: 12 of 12 match its selectors: "
        '1 in pools that are not complete or valid (pool "half" is incomplete: 1 of 2 ResourceSlices exist); '
        "1 with features that are not supported (binding conditions); 3 on nodes that the pods may not use; "
        "3 taken by gang a (2); "
        '1 with taints that it does not tolerate ("broken:NoSchedule"); 3 free, at most 2 on one node'
    )
    assert found.would_help == "devices that are taken become free: gang a (2)"


def test_the_selector_of_the_request_that_excludes_most_is_named() -> None:
    parts = tuple(device(f"d{i}", speed="low" if i else "high", size="s") for i in range(5))
    parts += tuple(device(f"n{i}", kind="nic") for i in range(9))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=parts))
    (found,) = explained(devices, [claim(way(1, "speed=low", "size=l"))], [node("n1")])
    assert (found.devices, found.matching, found.excluded) == (5, 0, ("size=l", 4))
    assert found.would_help == 'other selectors: "size=l" excludes 4 devices of class "gpu"'


def test_the_selector_of_a_class_without_devices_is_named() -> None:
    (found,) = explained(cluster(gpus("n1", 3)), [claim(way(1, kind="mig8"))], [node("n1")])
    assert str(found).endswith('of class mig8: there are none. The selector "kind=mig8" excludes 3')


def test_a_toleration_that_most_devices_need_would_help() -> None:
    tainted = tuple(device(f"d{i}", taint="broken") for i in range(3))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=tainted))
    (found,) = explained(devices, [claim(way(1))], [node("n1")])
    assert (found.taint, found.tainted) == (("broken:NoSchedule", 3), 3)
    assert found.would_help == 'the request tolerates the taint "broken:NoSchedule", or drivers remove it'
    every = DeviceToleration(operator=TolerationOperator.EXISTS)
    (found,) = explained(devices, [claim(way(1, tolerations=(every,)))], [node("n1")])
    assert (found.free, found.would_help) == (3, "")


def test_holders_of_most_devices_are_named_and_the_others_counted() -> None:
    devices = cluster(gpus("n1", 10))
    ids = [DeviceId("gpu", "n1", f"gpu-{i}") for i in range(10)]
    devices.allocate_ids(ids)
    names = dict(zip(ids, "aaaabbbccd", strict=True)) | {ids[9]: "d", ids[8]: "e"}
    (found,) = explained(devices, [claim(way(1))], [node("n1")], names)
    assert (found.holders, found.more_holders) == ((("a", 4), ("b", 3), ("c", 1)), 2)
    assert "10 taken by a (4), b (3), c (1) and 2 more" in str(found)


def test_an_expression_that_fails_is_quoted() -> None:
    (found,) = explained(cluster(gpus("n1", 2)), [claim(way(1, "speed=high"))], [node("n1")])
    assert str(found).endswith('0 of 2 match its selectors. "speed=high" on device gpu-0: no such attribute')
    assert found.would_help == 'the selectors of the request, or of class "gpu", do not fail'


def test_no_devices_and_no_class() -> None:
    (found,) = explained(cluster(), [claim(way(0))], [node("n1")])
    assert str(found) == "request r0 of ResourceClaim team/c wants all devices of class gpu: there are no devices"
    assert found.would_help == 'more devices of class "gpu" that match, at least 1 on one node'
    (found,) = explained(cluster(gpus("n1", 1)), [claim(way(1, kind="tpu"))], [node("n1")])
    assert str(found).endswith("wants 1 device of class tpu: DeviceClass tpu does not exist")


def test_devices_of_no_node_count_for_every_node() -> None:
    shared = Slice("s", "gpu", "p", all_nodes=True, devices=(device("a"), device("b")))
    (found,) = explained(cluster(shared, gpus("n1", 1), gpus("n2", 3)), [claim(way(1))], [node("n1"), node("n2")])
    assert (found.free, found.most_free, found.short) == (6, 5, False)


def test_admin_access_counts_taken_devices_as_free() -> None:
    devices = cluster(gpus("n1", 1))
    devices.allocate_ids([DeviceId("gpu", "n1", "gpu-0")])
    (found,) = explained(devices, [claim(way(1, admin=True))], [node("n1")])
    assert (found.free, found.taken) == (1, 0)


def test_many_devices_are_counted_in_slices() -> None:
    devices = cluster(*(gpus(f"n{i}", 100) for i in range(10)))
    slices = shortages(devices, [claim(way(1))], [node("n0")])
    assert sum(1 for _ in slices) >= 1000 // (DEVICES_PER_SLICE + 100)


def test_a_pool_that_is_removed_meanwhile_is_left_out() -> None:
    devices = cluster(gpus("n0", 300), gpus("n1", 300))
    slices = shortages(devices, [claim(way(1))], [node("n0"), node("n1")])
    next(slices)
    devices.remove_slice("n1")
    (found,) = run_to_end(slices)
    assert found.devices == 300


def test_the_constraint_that_prevents_an_allocation_is_named() -> None:
    parts = tuple(device(f"d{i}", board=f"{i // 2}", serial=f"{i}") for i in range(4))
    devices = cluster(Slice("s", "gpu", "n1", node_name="n1", devices=parts))
    same, other = Constraint("board"), Constraint("serial", distinct=True)
    wanted = [claim(way(3), constraints=(other, same))]
    assert why_not_together(devices, wanted, [node("n1")]) == Conflict(
        'no node has devices that meet the constraint matchAttribute "board" of ResourceClaim team/c',
        'without the constraint matchAttribute "board", 1 node has devices for a pod',
    )
    assert why_not_together(devices, [claim(way(2), constraints=(other, same))], [node("n1")]) == Conflict()


def test_constraints_that_prevent_an_allocation_only_together_are_named() -> None:
    parts = tuple(device(f"d{i}", board=f"{i // 2}", size=f"{i // 2}") for i in range(4))
    devices = cluster(Slice("s", "gpu", "n1", node_name="n1", devices=parts))
    wanted = [claim(way(3), constraints=(Constraint("board"), Constraint("size")))]
    assert why_not_together(devices, wanted, [node("n1")]) == Conflict(
        "no node has devices that meet all constraints of the ResourceClaims",
        "without these constraints, 1 node has devices for a pod",
    )


def test_requests_that_compete_for_one_device_are_a_conflict() -> None:
    wanted = [claim(way(2), way(2, "kind=gpu"))]
    found = why_not_together(cluster(gpus("n1", 3)), wanted, [node("n1")])
    assert found.why == "no node has the devices for all requests of a pod: they compete for the same ones"


def test_partitions_whose_counters_are_in_use_are_a_conflict() -> None:
    devices = cluster(*mig("n1", 1))
    devices.allocate_ids([DeviceId("gpu", "n1", "card-0-8-0")])
    (found,) = explained(devices, [claim(way(1, kind="mig1"))], [node("n1")])
    assert not found.short
    together = why_not_together(devices, [claim(way(1, kind="mig1"))], [node("n1")])
    assert (
        together.why == "no node has the devices: they share counters with devices that are taken, or not all are free"
    )
