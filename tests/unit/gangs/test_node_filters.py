"""Node filters agree with those of kube-scheduler."""

import pytest

from builders.placement.clusters import node, pod_class
from muster.gangs.facts import (
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PreferredNodeTerm,
    Taint,
    TaintEffect,
    Toleration,
    TolerationOperator,
)
from muster.gangs.node_filters import (
    AFFINITY,
    NOT_READY,
    UNSCHEDULABLE,
    filter_reason,
    prefer_no_schedule_count,
    preferred_affinity_score,
)

IN, NOT_IN, EXISTS, ABSENT, GT, LT = (
    NodeOperator.IN,
    NodeOperator.NOT_IN,
    NodeOperator.EXISTS,
    NodeOperator.DOES_NOT_EXIST,
    NodeOperator.GT,
    NodeOperator.LT,
)
GPU_TAINT = Taint("gpu", "true", TaintEffect.NO_SCHEDULE)
ANYTHING = Toleration(operator=TolerationOperator.EXISTS)


def label(key: str, operator: NodeOperator, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(labels=(NodeRequirement(key, operator, values),))


def name_field(operator: NodeOperator, *values: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(NodeRequirement("metadata.name", operator, values),))


def test_a_plain_class_may_use_a_plain_node() -> None:
    assert filter_reason(pod_class("x"), node("a")) is None


# -- cordons, taints, readiness


@pytest.mark.parametrize(
    ("tolerations", "reason"),
    [
        ((), UNSCHEDULABLE),
        ((Toleration("node.kubernetes.io/unschedulable", TolerationOperator.EXISTS),), None),
        (
            (Toleration("node.kubernetes.io/unschedulable", TolerationOperator.EXISTS, effect=TaintEffect.NO_EXECUTE),),
            UNSCHEDULABLE,
        ),
        ((Toleration("node.kubernetes.io/unschedulable"),), None),
        ((Toleration("other", TolerationOperator.EXISTS),), UNSCHEDULABLE),
        ((ANYTHING,), None),
    ],
)
def test_a_cordon_filters_pods_that_do_not_tolerate_its_taint(
    tolerations: tuple[Toleration, ...], reason: str | None
) -> None:
    assert filter_reason(pod_class("x", tolerations=tolerations), node("a", unschedulable=True)) == reason


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", value="true"), True),
        (Toleration("gpu", value="false"), False),
        (Toleration("gpu"), False),
        (Toleration("gpu", TolerationOperator.EXISTS), True),
        (Toleration("gpu", TolerationOperator.EXISTS, effect=TaintEffect.NO_SCHEDULE), True),
        (Toleration("gpu", TolerationOperator.EXISTS, effect=TaintEffect.NO_EXECUTE), False),
        (Toleration("cpu", TolerationOperator.EXISTS), False),
        (ANYTHING, True),
        (Toleration(operator=TolerationOperator.EXISTS, effect=TaintEffect.NO_EXECUTE), False),
    ],
)
def test_taints_need_a_toleration(toleration: Toleration, tolerated: bool) -> None:
    reason = filter_reason(pod_class("x", tolerations=[toleration]), node("a", taints=[GPU_TAINT]))
    assert reason == (None if tolerated else "node(s) had untolerated taint {gpu: true}")


def test_the_first_untolerated_taint_is_the_reason() -> None:
    taints = [GPU_TAINT, Taint("spot", "", TaintEffect.NO_EXECUTE), Taint("late", "1", TaintEffect.NO_SCHEDULE)]
    tolerant = pod_class("x", tolerations=[Toleration("gpu", TolerationOperator.EXISTS)])
    assert filter_reason(tolerant, node("a", taints=taints)) == "node(s) had untolerated taint {spot: }"


def test_prefer_no_schedule_does_not_filter_but_is_counted() -> None:
    taints = (Taint("old", "", TaintEffect.PREFER_NO_SCHEDULE), Taint("slow", "", TaintEffect.PREFER_NO_SCHEDULE))
    assert filter_reason(pod_class("x"), node("a", taints=taints)) is None
    assert prefer_no_schedule_count((), taints) == 2
    assert prefer_no_schedule_count((Toleration("old", TolerationOperator.EXISTS),), taints) == 1


def test_a_node_that_is_not_ready_is_filtered_even_if_tolerated() -> None:
    not_ready = Taint("node.kubernetes.io/not-ready", "", TaintEffect.NO_SCHEDULE)
    assert (
        filter_reason(pod_class("x", tolerations=[ANYTHING]), node("a", ready=False, taints=[not_ready])) == NOT_READY
    )
    assert filter_reason(pod_class("x"), node("a", ready=False)) == NOT_READY
    assert (
        filter_reason(pod_class("x"), node("a", ready=False, taints=[not_ready]))
        == "node(s) had untolerated taint {node.kubernetes.io/not-ready: }"
    )


def test_reasons_are_in_the_order_of_the_filters() -> None:
    picky = pod_class("x", selector={"disk": "ssd"})
    everything = node("a", unschedulable=True, taints=[GPU_TAINT], ready=False)
    assert filter_reason(picky, everything) == UNSCHEDULABLE
    assert (
        filter_reason(picky, node("a", taints=[GPU_TAINT], ready=False)) == "node(s) had untolerated taint {gpu: true}"
    )
    assert filter_reason(picky, node("a", ready=False)) == NOT_READY
    assert filter_reason(picky, node("a")) == AFFINITY


# -- selectors and affinity


def test_all_of_a_node_selector_must_match() -> None:
    picky = pod_class("x", selector={"disk": "ssd", "zone": "z1"})
    assert filter_reason(picky, node("a", labels={"disk": "ssd", "zone": "z1", "more": ""})) is None
    assert filter_reason(picky, node("a", labels={"disk": "ssd"})) == AFFINITY
    assert filter_reason(picky, node("a", labels={"disk": "ssd", "zone": "z2"})) == AFFINITY


@pytest.mark.parametrize(
    ("term", "labels", "matches"),
    [
        (label("k", IN, "a", "b"), {"k": "b"}, True),
        (label("k", IN, "a", "b"), {"k": "c"}, False),
        (label("k", IN, "a"), {}, False),
        (label("k", IN, ""), {"k": ""}, True),
        (label("k", IN, ""), {}, False),
        (label("k", NOT_IN, "a"), {"k": "a"}, False),
        (label("k", NOT_IN, "a"), {"k": "b"}, True),
        (label("k", NOT_IN, "a"), {}, True),
        (label("k", EXISTS), {"k": ""}, True),
        (label("k", EXISTS), {}, False),
        (label("k", ABSENT), {}, True),
        (label("k", ABSENT), {"k": ""}, False),
        (label("k", GT, "5"), {"k": "6"}, True),
        (label("k", GT, "5"), {"k": "5"}, False),
        (label("k", LT, "5"), {"k": "4"}, True),
        (label("k", LT, "5"), {"k": "-4"}, True),
        (label("k", LT, "5"), {"k": "+4"}, True),
        (label("k", LT, "5"), {}, False),
        (label("k", LT, "5"), {"k": "four"}, False),
        (label("k", LT, "5"), {"k": " 4"}, False),
        (label("k", LT, "5"), {"k": "1_0"}, False),
        (label("k", LT, "5"), {"k": "4.0"}, False),
        (label("k", LT, "5"), {"k": "٤"}, False),
        (label("k", GT, "5"), {"k": str(2**63 - 1)}, True),
        (label("k", GT, "5"), {"k": str(2**63)}, False),
        (label("k", GT, "0"), {"k": "1" * 5000}, False),
        (name_field(IN, "node-a"), {}, True),
        (name_field(IN, "node-b"), {}, False),
        (name_field(NOT_IN, "node-b"), {}, True),
        (name_field(NOT_IN, "node-a"), {}, False),
    ],
)
def test_operators(term: NodeSelectorTerm, labels: dict[str, str], matches: bool) -> None:
    assert (filter_reason(pod_class("x", required=[term]), node("node-a", labels=labels)) is None) is matches


@pytest.mark.parametrize(
    "term",
    [
        NodeSelectorTerm(),
        label("k", IN),
        label("k", NOT_IN),
        label("k", EXISTS, "a"),
        label("k", ABSENT, "a"),
        label("k", GT),
        label("k", GT, "1", "2"),
        label("k", LT, "many"),
        label("k", LT, "-5"),
        label("k", NOT_IN, "not a label value!"),
        name_field(IN, "a", "b"),
        name_field(EXISTS),
        name_field(GT, "1"),
    ],
)
def test_a_malformed_term_matches_nothing(term: NodeSelectorTerm) -> None:
    for labels in ({}, {"k": "a"}, {"k": "3"}):
        assert filter_reason(pod_class("x", required=[term]), node("a", labels=labels)) == AFFINITY


def test_one_term_must_match_with_all_its_requirements() -> None:
    both = NodeSelectorTerm(
        labels=(NodeRequirement("k", IN, ("a",)), NodeRequirement("l", EXISTS)),
        fields=(NodeRequirement("metadata.name", IN, ("node-a",)),),
    )
    picky = pod_class("x", required=[label("other", EXISTS), both])
    assert filter_reason(picky, node("node-a", labels={"k": "a", "l": "1"})) is None
    assert filter_reason(picky, node("node-b", labels={"other": ""})) is None
    assert filter_reason(picky, node("node-b", labels={"k": "a", "l": "1"})) == AFFINITY
    assert filter_reason(picky, node("node-a", labels={"k": "a"})) == AFFINITY


def test_empty_required_affinity_matches_nothing_and_none_matches_all() -> None:
    assert filter_reason(pod_class("x", required=[]), node("a")) == AFFINITY
    assert filter_reason(pod_class("x", required=None), node("a")) is None


def test_an_unknown_field_is_empty() -> None:
    unknown = NodeSelectorTerm(fields=(NodeRequirement("metadata.uid", IN, ("u",)),))
    assert filter_reason(pod_class("x", required=[unknown]), node("a")) == AFFINITY


def test_preferred_terms_add_up_and_malformed_ones_do_not_count() -> None:
    wishes = [
        PreferredNodeTerm(10, label("k", IN, "a")),
        PreferredNodeTerm(5, label("k", EXISTS)),
        PreferredNodeTerm(50, NodeSelectorTerm()),
        PreferredNodeTerm(50, label("k", IN)),
    ]
    wishful = pod_class("x", preferred=wishes)
    assert preferred_affinity_score(wishful, node("n", labels={"k": "a"})) == 15
    assert preferred_affinity_score(wishful, node("n", labels={"k": "b"})) == 5
    assert preferred_affinity_score(wishful, node("n")) == 0
