"""Facts of nodes: allocatable is never overstated, taints are never lost."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.kube.objects import node, node_json
from muster.gangs.facts import NodeFacts, Taint, TaintEffect
from muster.kube.node_facts import node_facts, node_problems
from muster.kube.objects import BadObject, BadResourceVersion, decode_node


def test_node() -> None:
    facts = node_facts(
        node(
            "node-7",
            spec={"unschedulable": True, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
            metadata={"labels": {"zone": "a"}},
        )
    )
    assert facts == NodeFacts(
        name="node-7",
        uid="uid-of-node-7",
        revision=5,
        allocatable=(("cpu", 8000), ("memory", 32 * 2**30), ("pods", 110)),
        labels={"zone": "a"},
        taints=(Taint("gpu", "yes", TaintEffect.NO_SCHEDULE),),
        unschedulable=True,
        ready=True,
    )


def test_allocatable_is_rounded_down_without_zeros() -> None:
    offered = {"cpu": "7999900u", "memory": "1000m", "nvidia.com/gpu": "0", "example.com/x": "2500m", "pods": "10"}
    facts = node_facts(node(status={"allocatable": offered}))
    assert facts.allocatable == (("cpu", 7999), ("example.com/x", 2), ("memory", 1), ("pods", 10))


@pytest.mark.parametrize(
    ("conditions", "ready"),
    [
        ([{"type": "Ready", "status": "True"}], True),
        ([{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}], True),
        ([{"type": "Ready", "status": "False"}], False),
        ([{"type": "Ready", "status": "Unknown"}], False),
        ([{"type": "MemoryPressure", "status": "True"}], False),
        ([], False),
        (None, False),
    ],
)
def test_ready_follows_the_condition(conditions: Any, ready: bool) -> None:
    assert node_facts(node(status={"conditions": conditions})).ready is ready


def test_taints_are_converted() -> None:
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-31T12:00:00Z"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "slow", "value": None, "effect": "PreferNoSchedule"},
        {"key": "later", "effect": "NoSuchEffectYet"},
    ]
    assert node_facts(node(spec={"taints": taints})).taints == (
        Taint("node.kubernetes.io/not-ready", "", TaintEffect.NO_EXECUTE),
        Taint("node.kubernetes.io/unreachable", "", TaintEffect.NO_SCHEDULE),
        Taint("slow", "", TaintEffect.PREFER_NO_SCHEDULE),
        Taint("later", "", TaintEffect.NO_SCHEDULE),
    )


@pytest.mark.parametrize(
    ("status", "words", "left"),
    [
        ({"allocatable": {"cpu": "many", "pods": "3"}}, 'allocatable of "cpu": "many"', (("pods", 3),)),
        ({"allocatable": ["cpu"]}, 'status.allocatable is "["cpu"]"', ()),
        ({"allocatable": {"cpu": [], "pods": "3"}}, '"[]"', (("pods", 3),)),
    ],
)
def test_malformed_fields_offer_nothing(status: dict[str, Any], words: str, left: Any) -> None:
    odd = node(status=status)
    assert node_facts(odd).allocatable == left
    assert words in "; ".join(node_problems(odd))


def test_fields_of_wrong_types_are_reported() -> None:
    odd = node(spec={"unschedulable": "yes", "taints": [{"key": "a", "effect": "NoSchedule"}]})
    assert node_problems(odd) == ('spec.unschedulable is ""yes"": Expected `bool | null`, got `str`',)
    assert node_facts(odd).taints == (Taint("a", "", TaintEffect.NO_SCHEDULE),)
    assert node_problems(node()) == ()


def test_negative_allocatable_counts_as_zero() -> None:
    assert node_facts(node(status={"allocatable": {"cpu": "-1", "pods": "1"}})).allocatable == (("pods", 1),)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["allocatable", "conditions", "cpu", "type", "key"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(spec=json_values, status=json_values, metadata=json_values)
def test_arbitrary_json_never_crashes(spec: Any, status: Any, metadata: Any) -> None:
    content = {**json.loads(node_json()), "spec": spec, "status": status}
    content["metadata"] = {**content["metadata"], **metadata} if isinstance(metadata, dict) else metadata
    try:
        facts = node_facts(decode_node(json.dumps(content).encode()))
    except (BadObject, BadResourceVersion):
        return
    assert all(amount > 0 for _, amount in facts.allocatable)
