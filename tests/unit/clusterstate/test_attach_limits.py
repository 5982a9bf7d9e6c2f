"""Attach limits (CSINode) are offers of nodes, and volumes of pods are requests of their classes."""

from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.storage import claim_object, class_object, csi_node_object, using, volume_object
from muster.gangs.counted_resources import UNLIMITED, attachments
from muster.gangs.quantity import INT64_MAX
from muster.kube.api_resources import CLAIMS, CSI_NODES, NODES, PODS, STORAGE_CLASSES, VOLUMES
from muster.rpc.watch_codec import encode_batch

DISK, SHARE = "disk.example.com", "share.example.com"
DISKS = attachments(DISK)


def pod(name: str, *claims: str, **more: Any) -> dict[str, Any]:
    return pod_object(name, volumes=using(*claims), **more)


def requested(history: History, name: str) -> int:
    facts = history.state.pods.facts[f"uid-{name}"]
    return dict(history.state.pods.classes[facts.class_id].requests).get(DISKS, 0)


def offered(history: History, node: str) -> int:
    return dict(history.state.nodes.facts[node].allocatable).get(DISKS, 0)


def cluster(*limits: int | None) -> History:
    """Nodes "n0", "n1" ... with these limits of the driver; volumes and claims "a" to "d" of it."""
    history = History()
    history.put(STORAGE_CLASSES, class_object())
    history.put(VOLUMES, *(volume_object(name, driver=DISK) for name in "abcd"))
    history.put(CLAIMS, *(claim_object(name, volume=name) for name in "abcd"))
    history.put(NODES, *(node_object(f"n{number}") for number in range(len(limits))))
    history.put(CSI_NODES, *(csi_node_object(f"n{number}", **{DISK: limit}) for number, limit in enumerate(limits)))
    return history


def test_volumes_of_a_limited_driver_are_requests() -> None:
    history = cluster(25)
    history.put(CLAIMS, claim_object("new"))  # its class has the driver as provisioner
    history.pods(pod("x", "a", "b", "new"), pod_object("y"))
    assert (requested(history, "x"), requested(history, "y"), offered(history, "n0")) == (3, 0, 25)


def test_a_huge_limit_is_cut_to_what_a_message_can_carry() -> None:
    history = cluster(10**40)
    history.pods(pod("x", "a"))
    assert offered(history, "n0") == INT64_MAX
    encode_batch(history.state.snapshot())


@pytest.mark.parametrize("limits", [(), (None,)])
def test_without_limits_nothing_is_counted(limits: tuple[int | None, ...]) -> None:
    history = cluster(*limits)
    history.pods(pod("x", "a"), pod_object("y"))
    assert history.state.pods.facts["uid-x"].class_id == history.state.pods.facts["uid-y"].class_id
    assert all(DISKS not in dict(node.allocatable) for node in history.state.nodes.facts.values())


def test_nodes_without_a_limit_of_a_limited_driver_have_none() -> None:
    history = cluster(2, None)
    history.put(NODES, node_object("n2"))  # without CSINode
    assert [offered(history, f"n{number}") for number in range(3)] == [2, UNLIMITED, UNLIMITED]


def test_a_limit_that_comes_later_reaches_pods_and_nodes() -> None:
    history = cluster(None, None)
    history.pods(pod("x", "a"), pod("y", "b", node="n0", scheduler="other"))
    batch = history.put(CSI_NODES, csi_node_object("n0", **{DISK: 3}))
    assert {each.name for each in batch.pods} == {"x", "y"}
    assert {each.name for each in batch.nodes} == {"n0", "n1"}
    assert batch.changed.keys() == {CSI_NODES.kind}
    batch = history.put(CSI_NODES, csi_node_object("n0", **{DISK: 4}))
    assert (batch.pods, offered(history, "n0")) == ((), 4)
    history.remove(CSI_NODES, "uid-csi-n0")
    assert (requested(history, "x"), requested(history, "y"), offered(history, "n0")) == (0, 0, 0)


def test_pods_of_other_schedulers_use_attachments() -> None:
    history = cluster(2)
    history.pods(pod("x", "a", node="n0", scheduler="other"))
    assert (requested(history, "x"), offered(history, "n0")) == (1, 2)


def test_a_volume_that_pods_of_a_node_share_is_attached_once() -> None:
    history = cluster(5)
    history.pods(pod("x", "a", node="n0"), pod("y", "a", "b", node="n0"))
    used = requested(history, "x") + requested(history, "y")
    assert offered(history, "n0") - used == 3, "a and b are attached"
    batch = history.remove(PODS, "uid-x")
    assert [node.name for node in batch.nodes] == ["n0"]
    assert offered(history, "n0") - requested(history, "y") == 3


def test_more_pods_than_the_smallest_limit_share_a_volume_on_one_node() -> None:
    """Counted once for each pod, they would never fit."""
    history = cluster(2, 9)
    history.pods(*(pod(f"x{number}", "a") for number in range(2)))
    assert requested(history, "x0") == 1
    batch = history.pods(pod("x2", "a"))
    assert {each.name for each in batch.pods} == {"x0", "x1", "x2"}
    assert [requested(history, f"x{number}") for number in range(3)] == [0, 0, 0]
    history.pods(*(pod(f"x{number}", "a", node="n0") for number in range(3)))
    assert offered(history, "n0") == 1, "the volume is attached, and counted where it is"
    history.remove(PODS, "uid-x2")
    assert [requested(history, f"x{number}") for number in range(2)] == [1, 1]
    assert offered(history, "n0") == 3


def test_migrated_plugins_count_for_their_driver() -> None:
    history = History()
    driver = "ebs.csi.aws.com"
    old = volume_object("v")
    old["spec"]["awsElasticBlockStore"] = {"volumeID": "vol-1"}
    history.put(VOLUMES, old)
    history.put(STORAGE_CLASSES, class_object("gp2", provisioner="kubernetes.io/aws-ebs"))
    history.put(CLAIMS, claim_object("c", volume="v"), claim_object("d", storage_class="gp2"))
    history.put(NODES, node_object("n"))
    history.put(CSI_NODES, csi_node_object("n", **{driver: 1}))
    history.pods(pod("x", "c", "d"))
    pod_class = history.state.pods.classes[history.state.pods.facts["uid-x"].class_id]
    assert dict(pod_class.requests)[attachments(driver)] == 2


def test_a_malformed_csi_node_has_no_limits() -> None:
    history = cluster(2)
    history.put(CSI_NODES, {"metadata": {"name": "n0", "uid": "uid-csi-n0"}, "spec": {"drivers": "all"}})
    assert offered(history, "n0") == 0
    history.put(CSI_NODES, csi_node_object("n0", **{DISK: -1}))
    assert offered(history, "n0") == 0


def test_a_volume_of_another_driver_does_not_count() -> None:
    history = cluster(2)
    history.put(VOLUMES, volume_object("s", driver=SHARE))
    history.put(CLAIMS, claim_object("s", volume="s"))
    history.pods(pod("x", "s"))
    assert requested(history, "x") == 0
