"""Gangs that `muster up --once` waits for: those of pods and of annotated controllers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.cli.errors import CliError
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase
from muster.gangs.quantity import parse_quantity
from muster.localcluster.kubelets import simulated_nodes
from muster.localcluster.kubelets.devices.cards import CardKind
from muster.localcluster.kubelets.devices.options import default_devices, parse_devices
from muster.localcluster.manifests import Manifest, load_manifests
from muster.localcluster.stack_options import StackOptions
from muster.localcluster.up.examples import EXPECT, Expected, examples_in

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"


def pod(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Manifest:
    metadata = {"name": name, "namespace": "ml", "annotations": annotations or {}}
    return Manifest({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def controller(kind: str, name: str, expect: str | None, labels: dict[str, str] | None = None) -> Manifest:
    annotations = {"muster.dev/expect": expect} if expect else {}
    template = {"metadata": {"labels": labels or {}}, "spec": {"schedulerName": "muster"}}
    metadata = {"name": name, "namespace": "ml", "annotations": annotations}
    return Manifest({"apiVersion": "x/v1", "kind": kind, "metadata": metadata, "spec": {"template": template}})


def test_pods_form_examples_by_gang() -> None:
    gang = {"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "2"}
    found = examples_in([pod("a", gang), pod("b", gang), pod("alone"), pod("c", schedulingGroup={"podGroupName": "n"})])
    assert [(each.id, len(each.pods)) for each in found] == [
        ("koordinator/ml/train", 2),
        ("plain/ml/alone", 1),
        ("native/ml/n", 1),
    ]


def test_annotated_controllers_are_examples() -> None:
    marked = controller("Job", "mpi", "waiting", {"scheduling.x-k8s.io/pod-group": "mpi-group"})
    found = examples_in([controller("QueueJob", "train", "bound"), controller("QueueJob", "silent", None), marked])
    assert [(each.id, each.expected) for each in found] == [
        ("kube-arbitrator/ml/QueueJob.train", Expected.BOUND),
        ("coscheduling/ml/mpi-group", Expected.WAITING),
    ]


def test_a_controllers_pods_are_bound_when_all_members_are() -> None:
    [example] = examples_in([controller("QueueJob", "train", "bound")])
    assert not example.reached(None)
    assert not example.reached(Gang(phase=Phase.PHASE_SATISFIED, members=4, minimum=2, bound=3))
    assert not example.reached(Gang(phase=Phase.PHASE_SATISFIED, members=0, minimum=2, bound=0))
    assert example.reached(Gang(phase=Phase.PHASE_SATISFIED, members=4, minimum=2, bound=4))


def test_an_unknown_expectation_is_an_error() -> None:
    with pytest.raises(CliError, match="'soon'"):
        examples_in([controller("QueueJob", "train", "soon")])


def test_the_device_claims_of_the_examples_fit_the_devices_of_up() -> None:
    [gang] = examples_in(load_manifests(EXAMPLES / "24-device-claims.yaml"))
    assert (gang.id, gang.expected, len(gang.pods)) == ("koordinator/default/finetune", Expected.BOUND, 4)
    nodes = simulated_nodes(StackOptions.nodes, devices=[parse_devices(each) for each in default_devices(20)])
    whole = [node.cards.count for node in nodes if node.cards is not None and node.cards.kind is not CardKind.MIG]
    assert sum(count // 2 for count in whole) >= len(gang.pods)


def test_the_examples_fit_in_any_order() -> None:
    """Each rack has a quarter of the nodes: two of them have room however the other gangs are packed."""

    def requested(value: Any, pods: int = 1) -> Iterator[float]:
        if isinstance(value, dict):
            pods *= value.get("parallelism") or value.get("replicas") or 1
            for key, each in value.items():
                if key == "requests" and "cpu" in each:
                    yield pods * parse_quantity(str(each["cpu"]))
                yield from requested(each, pods)
        elif isinstance(value, list):
            for each in value:
                yield from requested(each, pods)

    cpu = sum(
        sum(requested(each.body["spec"]))
        for each in load_manifests(EXAMPLES)
        if each.annotations.get(EXPECT) == Expected.BOUND
    )
    node = parse_quantity(StackOptions.cpu)
    assert 0 < cpu <= (15 - 1) * node, "more than three of four racks of five nodes, but for a node"
