"""A cluster after incremental changes gives the same answers as a fresh snapshot, whatever is cached."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.placement.clusters import alone, answers, cluster, node, pod_class
from builders.placement.labels import LabelledCluster
from muster.gangs.facts import Batch, NodeFacts, PodFacts, PodPhase, Taint, TaintEffect

NAMES = ("n0", "n1", "n2", "n3", "n4")
CLASSES = [
    pod_class("x", 1),
    pod_class("y", 3, memory=2),
    pod_class("g", 1, gpu=2),
    pod_class("z", 1, selector={"zone": "a"}),
]
ASKED = [
    alone("g1", ("x", 3)),
    alone("g2", ("y", 2), ("x", 2)),
    alone("g3", ("z", 4), minimum=2),
    alone("g4", ("g", 1)),
    alone("s1", ("x", 1)),
    alone("s2", ("y", 1)),
]

nodes = st.builds(
    node,
    st.sampled_from(NAMES),
    st.integers(0, 9),
    memory=st.sampled_from([2, 8, 64]),
    gpu=st.sampled_from([0, 0, 4]),
    labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}]),
    taints=st.sampled_from([(), (), (Taint("t", "", TaintEffect.PREFER_NO_SCHEDULE),)]),
    unschedulable=st.sampled_from([False, False, False, True]),
)
pods = st.builds(
    lambda uid, class_id, on, phase: PodFacts(uid, "default", uid, class_id, node=on, phase=phase),
    st.sampled_from("pqrstu"),
    st.sampled_from([each.id for each in CLASSES]),
    st.sampled_from(("", *NAMES)),
    st.sampled_from([PodPhase.RUNNING, PodPhase.RUNNING, PodPhase.SUCCEEDED]),
)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("node"), nodes),
        st.tuples(st.just("pod"), pods),
        st.tuples(st.just("node gone"), st.sampled_from(NAMES)),
        st.tuples(st.just("pod gone"), st.sampled_from("pqrstu")),
        st.tuples(st.just("solve"), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=200, deadline=None)
@given(changes)
def test_incremental_changes_equal_a_fresh_snapshot(history: list[tuple[str, object]]) -> None:
    built = cluster([], CLASSES)
    kept_nodes, kept_pods = dict[str, NodeFacts](), dict[str, PodFacts]()
    for kind, change in history:
        if isinstance(change, NodeFacts):
            kept_nodes[change.name] = change
            built.apply(Batch(nodes=(change,)))
        elif isinstance(change, PodFacts):
            kept_pods[change.uid] = change
            built.apply(Batch(pods=(change,)))
        elif kind == "node gone":
            kept_nodes.pop(str(change), None)
            built.apply(Batch(removed_nodes=(str(change),)))
        elif kind == "pod gone":
            kept_pods.pop(str(change), None)
            built.apply(Batch(removed_pods=(str(change),)))
        else:
            answers(built, *ASKED)
    fresh = LabelledCluster()
    fresh.apply(Batch(pod_classes=tuple(CLASSES), nodes=tuple(kept_nodes.values()), pods=tuple(kept_pods.values())))
    assert answers(built, *ASKED) == answers(fresh, *ASKED)


def test_reservations_leave_no_trace() -> None:
    built = cluster([node("a", 8), node("b", 4)], CLASSES)
    before = answers(built, *ASKED)
    built.state.refresh()
    built.reserve([("a", "x", ("p", "q")), ("b", "y", ("r",)), ("a", "y", ("s",)), ("gone", "x", ("t",))])
    built.state.rollback(0)
    assert answers(built, *ASKED) == before


def test_reservations_may_exceed_free_capacity() -> None:
    built = cluster([node("a", 4), node("b", 2)], CLASSES)
    built.state.refresh()
    built.reserve([("a", "y", ("p", "q", "r"))])
    assert built.state.of("x").fits[built.nodes.order].tolist() == [0, 2]
    built.state.rollback(0)


def test_later_classes_with_new_resources_are_usable() -> None:
    built = cluster([node("a", 4)], [CLASSES[0]])
    answers(built, ASKED[0])
    built.apply(Batch(pod_classes=(CLASSES[2],), nodes=(node("gpu", 4, gpu=4),)))
    [answer] = answers(built, alone("g", ("g", 2)))
    assert answer == answers(cluster([node("a", 4), node("gpu", 4, gpu=4)], CLASSES), alone("g", ("g", 2)))[0]


def test_unchanged_nodes_are_not_evaluated_again() -> None:
    built = cluster([node("a", 4), node("b", 4)], CLASSES)
    before = built.nodes.version, built.capacity.version
    built.apply(Batch(nodes=(replace(node("a", 4), revision=99),)))
    assert (built.nodes.version, built.capacity.version) == before


NODE_CHANGES: dict[str, Any] = {
    "allocatable": (("cpu", 9),),
    "labels": {"rack": "r1"},
    "taints": (Taint("a", "b", TaintEffect.NO_SCHEDULE),),
    "unschedulable": True,
    "ready": False,
    "device_backed": ("example.com/gpu",),
}


@pytest.mark.parametrize("field", sorted({*NodeFacts.__struct_fields__} - {"name", "uid", "revision"}))
def test_a_node_that_changed_in_any_field_is_evaluated_again(field: str) -> None:
    assert field in NODE_CHANGES, f"add a change of NodeFacts.{field} to NODE_CHANGES"
    built = cluster([node("a", 4)], CLASSES)
    before = built.nodes.version
    built.apply(Batch(nodes=(replace(node("a", 4), **{field: NODE_CHANGES[field]}),)))
    assert built.nodes.version != before
