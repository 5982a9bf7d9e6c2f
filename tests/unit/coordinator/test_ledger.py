"""The ledger rejects nodes that cannot use a volume, and reports changes of nodes that may let pods in."""

from typing import Any

import pytest
from msgspec.structs import replace

from muster.coordinator.core.cache import nodes
from muster.coordinator.core.cache.ledger import Ledger
from muster.coordinator.core.effects import RejectionReason
from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm, PodClass, Taint, TaintEffect

ZONE = "topology.kubernetes.io/zone"


def in_zone(*zones: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((NodeRequirement(ZONE, NodeOperator.IN, zones),)),)


def ledger(*volumes: tuple[NodeSelectorTerm, ...]) -> Ledger:
    """Nodes x, y and z, each in the zone of its name, and a class "c" with such volumes."""
    made = Ledger()
    for name in "xyz":
        made.put_node(NodeFacts(name, allocatable=(("pods", 10),), labels={ZONE: name}))
    made.put_class(PodClass("c", volumes=volumes))
    return made


def test_a_node_that_reaches_all_volumes_is_taken() -> None:
    assert ledger(in_zone("x", "y"), in_zone("y", "z")).refusal({("y", "c"): 2}) is None


def test_a_node_that_does_not_reach_one_of_them_is_refused_with_the_reason() -> None:
    found = ledger(in_zone("x", "y"), in_zone("y", "z"))
    for name in "xz":
        refusal = found.refusal({("y", "c"): 1, (name, "c"): 1})
        assert refusal is not None
        assert (refusal.reason, refusal.node) == (RejectionReason.FILTERED, name)
        assert refusal.message == f"node {name}: node(s) had volume node affinity conflict"


def test_a_volume_that_no_node_reaches_is_refused_everywhere() -> None:
    assert all(ledger(()).refusal({(name, "c"): 1}) for name in "xyz")


def test_a_node_that_moves_to_another_zone_is_reconsidered() -> None:
    found = ledger(in_zone("x"))
    assert found.refusal({("z", "c"): 1})
    found.put_node(NodeFacts("z", allocatable=(("pods", 10),), labels={ZONE: "x"}))
    assert found.refusal({("z", "c"): 1}) is None


def test_classes_asked_about_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_CELLS", 0)
    found = ledger()
    for number in range(3 * nodes.MIN_CLASSES):
        found.put_class(PodClass(f"class-{number}", node_selector=((ZONE, "x"),)))
        assert found.could_take("x", f"class-{number}")
    assert len(found.eligible) == nodes.MIN_CLASSES
    assert not found.could_take("y", "class-0"), "it is computed again"


def test_a_class_is_compared_with_all_nodes_once_and_with_changed_nodes_only() -> None:
    found = ledger(in_zone("x"))
    for _ in range(3):
        assert [found.could_take(name, "c") for name in "xyz"] == [True, False, False]
    assert found.eligible.evaluations == 1
    found.put_node(NodeFacts("y", allocatable=(("pods", 10),), labels={ZONE: "x"}))
    assert [found.could_take(name, "c") for name in "xyz"] == [True, True, False]
    assert found.eligible.evaluations == 2
    assert found.max_pods("c") == 20
    found.put_node(NodeFacts("y", allocatable=(("pods", 0),), labels={ZONE: "x"}))
    assert found.max_pods("c") == 10


def test_a_resource_that_no_node_has_is_refused_by_name_until_one_has_it() -> None:
    found = ledger()
    found.put_class(PodClass("gpu", requests=(("example.com/gpu", 1), ("pods", 1))))
    refusal = found.refusal({("x", "gpu"): 1})
    assert refusal is not None
    assert refusal.message == "no node has example.com/gpu, which the pods request"
    assert not found.could_take("x", "gpu")
    assert found.max_pods("gpu") == 0
    found.put_node(NodeFacts("x", allocatable=(("example.com/gpu", 4), ("pods", 10))))
    assert found.refusal({("x", "gpu"): 4}) is None
    assert found.max_pods("gpu") == 4
    found.put_node(NodeFacts("x", allocatable=(("pods", 10),)))
    assert found.refusal({("x", "gpu"): 1}) is not None
    assert not found.could_take("x", "gpu")


CLOSED = NodeFacts("n", taints=(Taint("a", "b", TaintEffect.NO_SCHEDULE),), unschedulable=True, ready=False)
IMPROVEMENTS: dict[str, Any] = {
    "allocatable": (("pods", 10),),
    "labels": {ZONE: "x"},
    "device_backed": ("nvidia.com/gpu",),
    "taints": (),
    "unschedulable": False,
    "ready": True,
}


@pytest.mark.parametrize("field", sorted({*NodeFacts.__struct_fields__} - {"name", "uid", "revision"}))
def test_i7_every_field_of_a_node_that_may_let_pods_in_has_an_event(field: str) -> None:
    """Without an event, an unschedulable group that could use the node is not tried again."""
    assert field in IMPROVEMENTS, f"add an improvement of NodeFacts.{field}, and an event for it in ledger.py"
    found = Ledger()
    found.put_node(CLOSED)
    assert found.put_node(replace(CLOSED, **{field: IMPROVEMENTS[field]}))
