"""Explanations count the devices that a request could use, and say why it cannot."""

import msgspec

from builders.devices.facts import claim, cluster, device, gpus, node, way
from muster.devices.explanation import shortages
from muster.devices.facts import DeviceId, Slice, Unsupported


def test_taken_tainted_and_free_devices_are_counted() -> None:
    odd = msgspec.structs.replace(device("odd"), unsupported=Unsupported.BINDING_CONDITIONS)
    devices = cluster(
        gpus("n1", 4),
        gpus("n2", 2),
        gpus("n3", 3),
        Slice("t", "gpu", "t", node_name="n2", devices=(device("x", taint="broken"), odd, device("y", kind="nic"))),
        Slice("half", "gpu", "half", count=2, node_name="n1", devices=(device("z"),)),
    )
    devices.allocate_ids(DeviceId("gpu", "n1", f"gpu-{i}") for i in range(3))
    (found,) = shortages(devices, [claim(way(3))], [node("n1"), node("n2")])
    assert found.short
    assert str(found) == (
        "ResourceClaim team/c, request r0 for 3 devices of class gpu: 12 of 13 devices match its selectors: "
        "1 are in incomplete or invalid pools; 1 use features that are not supported; 3 are on other nodes; "
        "3 are taken; 1 have taints that it does not tolerate; 3 are free, at most 2 on one node. "
        'The selector "kind=gpu" excludes 1'
    )


def test_the_selector_that_excludes_most_is_named() -> None:
    parts = tuple(device(f"d{i}", speed="low" if i else "high") for i in range(5))
    devices = cluster(Slice("s", "gpu", "p", node_name="n1", devices=parts))
    (found,) = shortages(devices, [claim(way(1, "speed=none"))], [node("n1")])
    assert (found.matching, found.excluded) == (0, ("speed=none", 5))


def test_an_expression_that_fails_is_quoted() -> None:
    (found,) = shortages(cluster(gpus("n1", 2)), [claim(way(1, "speed=high"))], [node("n1")])
    assert str(found).endswith('0 of 2 devices match its selectors. "speed=high" on device gpu-0: no such attribute')


def test_no_devices_and_no_class() -> None:
    (found,) = shortages(cluster(), [claim(way(0))], [node("n1")])
    assert str(found) == "ResourceClaim team/c, request r0 for all devices of class gpu: there are no devices"
    (found,) = shortages(cluster(gpus("n1", 1)), [claim(way(1, kind="tpu"))], [node("n1")])
    assert str(found).endswith("request r0 for 1 device of class tpu: DeviceClass tpu does not exist")


def test_devices_of_no_node_count_for_every_node() -> None:
    shared = Slice("s", "gpu", "p", all_nodes=True, devices=(device("a"), device("b")))
    (found,) = shortages(cluster(shared, gpus("n1", 1), gpus("n2", 3)), [claim(way(1))], [node("n1"), node("n2")])
    assert (found.free, found.most_free, found.short) == (6, 5, False)


def test_admin_access_counts_taken_devices_as_free() -> None:
    devices = cluster(gpus("n1", 1))
    devices.allocate_ids([DeviceId("gpu", "n1", "gpu-0")])
    (found,) = shortages(devices, [claim(way(1, admin=True))], [node("n1")])
    assert (found.free, found.taken) == (1, 0)
