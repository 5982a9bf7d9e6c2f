"""Admission of a kubelet: rules, order, messages."""

import pytest

from muster.gangs.facts import (
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.localcluster.kubelets.admission import NodeCapacity, Rejection

GIB = 1 << 30


def facts(**more: object) -> NodeFacts:
    allocatable = (("cpu", 8000), ("memory", 4 * GIB), ("nvidia.com/gpu", 2), ("pods", 3))
    return NodeFacts("n", allocatable=allocatable, labels={"rack": "r1"}, **more)  # type: ignore[arg-type]


def asking(**amounts: int) -> PodClass:
    named = {"gpu": "nvidia.com/gpu", "disk": "ephemeral-storage", "fpga": "example.com/fpga"}
    requests = {named.get(name, name): amount for name, amount in amounts.items()} | {"pods": 1}
    return PodClass("", tuple(sorted(requests.items())))


@pytest.mark.parametrize(
    ("requested", "reason", "message"),
    [
        (asking(cpu=8001), "OutOfcpu", "cpu, requested: 8001, used: 0, capacity: 8000"),
        (
            asking(memory=5 * GIB),
            "OutOfmemory",
            "memory, requested: 5368709120, used: 0, capacity: 4294967296",
        ),
        (asking(gpu=3), "OutOfnvidia.com/gpu", "nvidia.com/gpu, requested: 3, used: 0, capacity: 2"),
        (asking(disk=1), "OutOfephemeral-storage", "ephemeral-storage, requested: 1, used: 0, capacity: 0"),
        (asking(cpu=8001, memory=5 * GIB), "OutOfcpu", "cpu, requested: 8001, used: 0, capacity: 8000"),
    ],
)
def test_i3_a_pod_that_does_not_fit_is_rejected(requested: PodClass, reason: str, message: str) -> None:
    refusal = NodeCapacity(facts()).admit("a", requested)

    assert refusal == Rejection(reason, f"Node didn't have enough resource: {message}")


def test_i3_pods_are_admitted_in_order_after_running_ones() -> None:
    room = NodeCapacity(facts())

    assert room.admit("a", asking(cpu=5000)) is None
    refusal = room.admit("b", asking(cpu=3001))
    assert room.admit("c", asking(cpu=3000)) is None

    assert refusal is not None
    assert refusal.message == "Node didn't have enough resource: cpu, requested: 3001, used: 5000, capacity: 8000"


def test_the_number_of_pods_is_limited() -> None:
    room = NodeCapacity(facts())
    for uid in "abc":
        assert room.admit(uid, asking()) is None

    refusal = room.admit("d", asking())

    assert refusal is not None and refusal.reason == "OutOfpods"


def test_an_ended_pod_releases_its_requests() -> None:
    room = NodeCapacity(facts())
    room.take("a", asking(cpu=8000))
    assert room.admit("b", asking(cpu=1)) is not None

    room.release("a")
    room.release("a")
    room.release("never seen")

    assert room.admit("b", asking(cpu=8000)) is None


def test_unknown_extended_resources_are_ignored() -> None:
    assert NodeCapacity(facts()).admit("a", asking(fpga=5)) is None


def test_node_affinity_is_checked() -> None:
    elsewhere = PodClass("", node_selector=(("rack", "r2"),))
    term = NodeSelectorTerm(labels=(NodeRequirement("rack", NodeOperator.IN, ("r1",)),))
    here = PodClass("", required_node_affinity=(term,))
    room = NodeCapacity(facts())

    refusal = room.admit("a", elsewhere)

    assert refusal == Rejection(
        "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    assert room.admit("b", here) is None


def test_only_no_execute_taints_reject() -> None:
    avoided = NodeCapacity(facts(taints=(Taint("k", "v", TaintEffect.NO_SCHEDULE),), unschedulable=True))
    forbidden = NodeCapacity(facts(taints=(Taint("k", "v", TaintEffect.NO_EXECUTE),)))
    tolerant = PodClass("", tolerations=(Toleration("k", TolerationOperator.EXISTS),))

    assert avoided.admit("a", asking()) is None
    refusal = forbidden.admit("a", asking())
    assert refusal is not None and refusal.reason == "TaintToleration"
    assert forbidden.admit("b", tolerant) is None


def test_a_node_that_shrinks_rejects_later_pods() -> None:
    room = NodeCapacity(facts())
    room.take("a", asking(cpu=4000))

    room.update(NodeFacts("n", allocatable=(("cpu", 4000), ("pods", 3))))

    refusal = room.admit("b", asking(cpu=1))
    assert refusal is not None and refusal.reason == "OutOfcpu"
