"""Masks over all nodes agree with the node filters for one node, and their size follows the nodes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.placement.clusters import node, pod_class
from builders.placement.random_nodes import changes, classes
from muster.gangs.byte_cache import age_caches
from muster.gangs.facts import (
    NodeFacts,
    NodeOperator,
    NodeRequirement,
    NodeSelectorTerm,
    PodClass,
    Taint,
    TaintEffect,
    Toleration,
)
from muster.gangs.node_filters import filter_reason
from muster.gangs.node_masks import NodeMasks


@settings(max_examples=300)
@given(st.lists(classes, min_size=1, max_size=3), changes)
def test_masks_agree_with_single_node_filters_after_changes(
    asked: list[PodClass], history: list[list[NodeFacts | str]]
) -> None:
    masks, present, rows, seen = NodeMasks(), dict[str, NodeFacts](), dict[str, int](), 0
    passing = [np.zeros(0, np.bool_) for _ in asked]
    for batch in history:
        for change in batch:
            if isinstance(change, str):
                masks.drop(change)
                present.pop(change, None)
            else:
                masks.put(rows.setdefault(change.name, len(rows)), change)
                present[change.name] = change
        changed = np.flatnonzero(masks.changed > seen)
        seen = masks.version
        for index, each in enumerate(asked):
            whole = masks.passes(each, slice(None))
            passing[index] = np.resize(passing[index], masks.rows)
            passing[index][changed] = masks.passes(each, changed)
            for name, row in rows.items():
                expected = name in present and filter_reason(each, present[name]) is None
                assert whole[row] == passing[index][row] == expected


def test_a_row_is_used_again_for_another_node() -> None:
    masks, picky = NodeMasks(), pod_class("x", selector={"disk": "ssd"})
    masks.put(0, node("a", labels={"disk": "ssd", "zone": "z"}))
    assert masks.passes(picky, slice(None))[0]
    masks.drop("a")
    assert not masks.passes(picky, slice(None))[0]
    masks.put(0, node("b", labels={"zone": "z"}))
    assert not masks.passes(picky, slice(None))[0]


def test_an_update_that_filters_do_not_read_is_no_change() -> None:
    masks = NodeMasks()
    masks.put(0, NodeFacts("a", revision=1))
    masks.put(0, NodeFacts("a", revision=2))
    assert masks.version == 1


def _entries(masks: NodeMasks) -> int:
    """Of every map."""
    columns = sum(len(column.values) + len(column._numbers) for column in masks._columns.values())
    return columns + sum(
        len(each) for each in (masks._columns, masks._label_counts, masks.kinds, masks._kind_index, masks._outcomes)
    )


def test_labels_and_taints_of_the_past_are_forgotten() -> None:
    masks, greater = NodeMasks(), pod_class("x", selector={"build": "1"})
    sizes = []
    for number in range(8000):
        taint = Taint("build", str(number), TaintEffect.PREFER_NO_SCHEDULE)
        masks.put(0, node("a", labels={"build": str(number), f"build-{number}": ""}, taints=[taint]))
        masks.passes(greater, slice(None))
        masks.passes(pod_class("y", selector={f"build-{number}": ""}), slice(None))
        sizes.append(_entries(masks))
    assert max(sizes[4000:]) <= max(sizes[:4000]) < 5000


def test_i11_tolerations_of_the_past_are_forgotten() -> None:
    masks = NodeMasks()
    masks.put(0, node("a"))
    masks.passes(pod_class("x"), slice(None))
    before = _entries(masks)
    for number in range(100):
        masks.passes(pod_class("x", tolerations=[Toleration(f"key-{number}")]), slice(None))
    assert _entries(masks) == before + 100
    age_caches()
    masks.passes(pod_class("x"), slice(None))
    age_caches()
    assert _entries(masks) == before


def test_i11_remembered_tolerations_are_bounded_by_their_size() -> None:
    masks = NodeMasks()
    masks.put(0, node("a"))
    for number in range(100):
        tolerations = [Toleration(f"key-{number}-{index}" + 200 * "x") for index in range(300)]
        masks.passes(pod_class("x", tolerations=tolerations), slice(None))
    used = masks._outcomes.used_bytes  # what no method tells
    assert 4 << 20 < used < 16 << 20, "30,000 tolerations of 500 bytes or more"


def test_numbers_are_compared_in_one_pass_over_the_values() -> None:
    masks = NodeMasks()
    for number in range(20):
        masks.put(number, node(f"n{number}", labels={"size": str(number) if number % 2 else "large"}))
    over = NodeSelectorTerm((NodeRequirement("size", NodeOperator.GT, ("9",)),))
    passing = masks.passes(pod_class("x", required=[over]), slice(0, 20))
    assert np.flatnonzero(passing).tolist() == [11, 13, 15, 17, 19]
