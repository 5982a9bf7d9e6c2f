"""Storage capacity (CSIStorageCapacity) is an offer of nodes, and sizes of claims are requests of pods."""

from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.storage import claim_object, class_object, driver_object, segment_object, using
from muster.gangs.counted_resources import storage_capacity
from muster.gangs.facts import PodClass
from muster.gangs.node_filters import filter_reason
from muster.gangs.quantity import INT64_MAX
from muster.kube.api_resources import CLAIMS, CSI_DRIVERS, NODES, STORAGE_CAPACITIES, STORAGE_CLASSES
from muster.rpc.watch_codec import encode_batch

FAST, GI = storage_capacity("fast"), 2**30


def on(node: str) -> dict[str, Any]:
    return {"matchLabels": {"kubernetes.io/hostname": node}}


def cluster(*segments: dict[str, Any], publishes: bool = True) -> History:
    """Two nodes, and a pod with the claims "c" of 3Gi and "d" of 2Gi."""
    history = History()
    history.put(STORAGE_CLASSES, class_object())
    history.put(CSI_DRIVERS, driver_object(publishes=publishes))
    history.put(STORAGE_CAPACITIES, *segments)
    history.put(NODES, node_object("n0"), node_object("n1", labels={"zone": "a"}))
    history.put(CLAIMS, claim_object("c", size="3Gi"), claim_object("d", size="2Gi"))
    history.pods(pod_object("x", volumes=using("c", "d")))
    return history


def offered(history: History) -> list[int]:
    return [dict(history.state.nodes.facts[name].allocatable).get(FAST, 0) for name in ("n0", "n1")]


def class_of(history: History) -> PodClass:
    return history.state.pods.classes[history.state.pods.facts["uid-x"].class_id]


def test_sizes_of_claims_add_up() -> None:
    history = cluster(segment_object("s", on("n0"), "10Gi"))
    assert dict(class_of(history).requests)[FAST] == 5 * GI
    assert offered(history) == [10 * GI, 0]


def test_huge_claims_add_up_to_what_a_message_can_carry() -> None:
    history = cluster(segment_object("s", on("n0"), "10Gi"))
    history.put(CLAIMS, *(claim_object(name, size="8E") for name in "cd"))
    assert dict(class_of(history).requests)[FAST] == INT64_MAX
    encode_batch(history.state.snapshot())


def test_a_driver_that_publishes_no_capacity_is_unlimited() -> None:
    history = cluster(segment_object("s", on("n0"), "10Gi"), publishes=False)
    assert (FAST in dict(class_of(history).requests), offered(history)) == (False, [0, 0])
    history.put(CSI_DRIVERS, driver_object())
    assert (FAST in dict(class_of(history).requests), offered(history)) == (True, [10 * GI, 0])
    history.remove(CSI_DRIVERS, "uid-driver-disk.example.com")
    assert (FAST in dict(class_of(history).requests), offered(history)) == (False, [0, 0])


@pytest.mark.parametrize(
    ("topology", "nodes"),
    [
        ({}, [1, 1]),
        (None, [0, 0]),
        ({"matchLabels": {"zone": "a"}}, [0, 1]),
        ({"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}, [1, 0]),
        ({"matchExpressions": [{"key": "zone", "operator": "Near"}]}, [0, 0]),
        ("everywhere", [0, 0]),
    ],
)
def test_nodes_of_a_segment(topology: Any, nodes: list[int]) -> None:
    assert offered(cluster(segment_object("s", topology, "1Gi"))) == [GI * number for number in nodes]


def test_the_largest_segment_of_a_node_counts() -> None:
    history = cluster(segment_object("s", on("n0"), "3Gi"), segment_object("t", {}, "2Gi"))
    assert offered(history) == [3 * GI, 2 * GI]
    batch = history.remove(STORAGE_CAPACITIES, "uid-segment-s")
    assert ([node.name for node in batch.nodes], offered(history)) == (["n0"], [2 * GI, 2 * GI])
    assert batch.changed.keys() == {STORAGE_CAPACITIES.kind}


def test_a_node_that_moves_leaves_its_segment() -> None:
    history = cluster(segment_object("s", {"matchLabels": {"zone": "a"}}, "1Gi"))
    history.put(NODES, node_object("n0", labels={"zone": "a"}), node_object("n1"))
    assert offered(history) == [GI, 0]


def test_the_largest_volume_is_limited() -> None:
    history = cluster(segment_object("s", on("n0"), "10Gi", largest="2Gi"), segment_object("t", on("n1"), "10Gi"))
    filtered = [filter_reason(class_of(history), history.state.nodes.facts[name]) for name in ("n0", "n1")]
    assert filtered == ["node(s) had volume node affinity conflict", None]
    history.put(STORAGE_CAPACITIES, segment_object("s", on("n0"), "10Gi", largest="3Gi"))
    assert filter_reason(class_of(history), history.state.nodes.facts["n0"]) is None
    history.put(STORAGE_CAPACITIES, segment_object("s", on("n0"), "10Gi"))
    assert not any(key.startswith("volume-size") for key in history.state.nodes.facts["n0"].labels)
    assert class_of(history).volumes == ()


def test_a_bound_claim_needs_no_capacity() -> None:
    history = cluster(segment_object("s", on("n0"), "10Gi"))
    history.put(CLAIMS, claim_object("c", size="3Gi", volume="v"))
    assert dict(class_of(history).requests)[FAST] == 2 * GI


@pytest.mark.parametrize("capacity", [None, "much", "-1"])
def test_an_unreadable_capacity_is_none(capacity: str | None) -> None:
    assert offered(cluster(segment_object("s", {}, capacity))) == [0, 0]
