"""Extended resources that a DeviceClass backs: nodes without a device plugin offer free devices of the class."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from builders.clusterstate.history import History, node_object, pod_object
from builders.kube.devices import (
    Object,
    device_class_object,
    exactly,
    resource_claim_object,
    slice_object,
    using_claims,
)
from muster.clusterstate.extended_resources import MAX_EXTENDED
from muster.devices.extended_resources import IMPLICIT
from muster.gangs.counted_resources import devices
from muster.gangs.facts import ExtendedRequest
from muster.kube.api_resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

GPU = "nvidia.com/gpu"


def with_plugin(name: str, gpus: int) -> Object:
    node = node_object(name)
    node["status"]["allocatable"][GPU] = str(gpus)
    return node


def gpu_pod(name: str, count: int, resource: str = GPU, **more: Any) -> Object:
    resources = {"requests": {"cpu": "1", resource: str(count)}, "limits": {resource: str(count)}}
    return pod_object(name, containers=[{"name": "main", "resources": resources}], **more)


def cluster() -> History:
    """Node n0 with devices and n1 with a device plugin."""
    history = History()
    history.put(NODES, node_object("n0"), with_plugin("n1", 8))
    history.put(DEVICE_CLASSES, device_class_object("gpu", extendedResourceName=GPU))
    history.put(RESOURCE_SLICES, slice_object("n0", 4), slice_object("n1", 2))
    return history


def offered(history: History, node: str = "n0", resource: str = GPU) -> int:
    while history.state.has_work:
        history.state.advance()
    return dict(history.state.nodes.facts[node].allocatable).get(resource, 0)


def backed(history: History, node: str = "n0") -> tuple[str, ...]:
    return history.state.nodes.facts[node].device_backed


def claim_of(name: str, *given: str, users: tuple[str, ...] | None = None, on: str = "n0") -> Object:
    """The allocated claim for extended resources of a pod."""
    reserved = (f"uid-{name}",) if users is None else users
    return resource_claim_object(
        f"{name}-extended", owner=f"uid-{name}", extended=True, on=on, devices=given, users=reserved
    )


def test_nodes_without_a_plugin_offer_devices_while_pods_request_the_resource() -> None:
    history = cluster()
    assert (offered(history), backed(history)) == (0, ())
    history.pods(gpu_pod("x", 2))
    assert (offered(history), backed(history)) == (4, (GPU,))
    history.remove(PODS, "uid-x")
    for _ in range(2):
        history.state.sweep()
    history.nodes(node_object("n2"))
    assert (offered(history), backed(history)) == (0, ())


def test_a_node_with_a_plugin_offers_only_what_the_plugin_does() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2))
    assert (offered(history, "n1"), backed(history, "n1")) == (8, ())
    history.nodes(with_plugin("n1", 0))
    assert (offered(history, "n1"), backed(history, "n1")) == (2, (GPU,))
    history.nodes(with_plugin("n0", 3))
    assert (offered(history), backed(history)) == (3, ())


def test_a_node_is_sent_that_offers_as_many_by_devices_as_it_did_by_a_plugin() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2))
    history.nodes(with_plugin("n0", 4))
    assert (offered(history), backed(history)) == (4, ())
    [sent] = history.nodes(node_object("n0")).nodes
    assert (dict(sent.allocatable)[GPU], sent.device_backed) == (4, (GPU,))


def test_the_pods_class_has_the_requests_of_its_containers() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2))
    facts = history.state.pods.facts["uid-x"]
    [only] = history.state.pods.classes[facts.class_id].extended
    assert only == ExtendedRequest("main", GPU, "container-0-request-1", 0, 2)
    assert dict(history.state.pods.classes[facts.class_id].requests)[GPU] == 2


def test_every_class_backs_a_resource_with_its_name() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2, f"{IMPLICIT}gpu"))
    assert offered(history, resource=f"{IMPLICIT}gpu") == 4
    assert offered(history) == 0


def test_of_two_classes_the_newer_backs_the_resource() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2))
    newer = device_class_object("newer", "device.driver == 'none'", extendedResourceName=GPU)
    newer["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    history.put(DEVICE_CLASSES, newer)
    assert offered(history) == 0
    history.remove(DEVICE_CLASSES, "uid-class-newer")
    assert offered(history) == 4
    history.remove(DEVICE_CLASSES, "uid-class-gpu")
    assert offered(history) == 0


def test_devices_of_pods_that_request_the_resource_are_offered_to_them() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 2), gpu_pod("y", 1))
    history.put(RESOURCE_CLAIMS, claim_of("x", "gpu-0", "gpu-1"))
    history.pods(gpu_pod("x", 2, node="n0"))
    assert offered(history) == 4
    history.remove(PODS, "uid-x")
    assert offered(history) == 2
    history.remove(RESOURCE_CLAIMS, "uid-claim-ml-x-extended")
    assert offered(history) == 4


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_devices_of_an_ended_pod_are_offered_when_its_claim_is_gone(phase: str) -> None:
    history = cluster()
    history.pods(gpu_pod("y", 1), gpu_pod("x", 2, node="n0"))
    history.put(RESOURCE_CLAIMS, claim_of("x", "gpu-0", "gpu-1"))
    history.pods(gpu_pod("x", 2, node="n0", phase=phase))
    assert offered(history) == 2


def test_devices_of_others_are_not_offered() -> None:
    """Neither those of claims, nor those of another scheduler's pods that are not bound."""
    history = cluster()
    history.put(RESOURCE_CLAIMS, resource_claim_object("c", exactly(1), on="n0", devices=("gpu-3",), users=("uid-z",)))
    history.pods(gpu_pod("x", 1), pod_object("z", node="n0", resourceClaims=using_claims("c")))
    assert offered(history) == 3
    history.put(RESOURCE_CLAIMS, claim_of("unknown", "gpu-0"))
    assert offered(history) == 2


def test_devices_for_extended_resources_are_not_offered_to_claims() -> None:
    history = cluster()
    history.pods(gpu_pod("x", 3, node="n0"))
    history.put(RESOURCE_CLAIMS, claim_of("x", "gpu-0", "gpu-1", "gpu-2"), resource_claim_object("c", exactly(1)))
    history.pods(pod_object("z", resourceClaims=using_claims("c")))
    assert offered(history, resource=devices("gpu")) == 1
    assert offered(history) == 4


def test_i12_a_pod_costs_as_much_whatever_resources_others_request() -> None:
    class OfManyPods(Counter[str]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("read as a whole for one pod")

    history = cluster()
    requested = OfManyPods([GPU, *(f"example.com/r{number}" for number in range(1000))])
    extended = history.state.pods.devices.extended
    extended.request(requested, ["example.com/r1", "example.com/r2"])
    assert len(extended) == 0
    extended.request(requested, [GPU])
    assert list(extended.units) == [GPU]


def test_only_so_many_resources_are_counted() -> None:
    history = cluster()
    names = [f"g{number:02}" for number in range(MAX_EXTENDED + 3)]
    history.put(DEVICE_CLASSES, *map(device_class_object, names))
    history.pods(*(gpu_pod(name, 1, f"{IMPLICIT}{name}") for name in names))
    offered(history)
    assert len(backed(history)) == MAX_EXTENDED
