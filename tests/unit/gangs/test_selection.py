"""Selectors and label sets are matched through indexes, which agree with a comparison one by one and leave nothing."""

import gc
import sys
from cProfile import Profile
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.gangs.facts import Batch
from muster.gangs.selection import UNKNOWN_ROW, PodSelection
from muster.gangs.selectors import (
    EVERYTHING_SELECTED,
    NOTHING_SELECTED,
    LabelSelector,
    LabelSet,
    NamespaceFacts,
    Operator,
    PodSelector,
    Requirement,
    pod_selector,
)

KEYS, VALUES, SPACES = ("app", "tier", "job"), ("x", "y", "z"), ("ml", "dev", "prod")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=3)
requirements = st.builds(
    lambda key, operator, values: Requirement(key, operator, tuple(sorted(values)) if operator <= 2 else ()),
    st.sampled_from(KEYS),
    st.sampled_from(Operator),
    st.sets(st.sampled_from(VALUES), min_size=1),
)
label_selectors = st.builds(EVERYTHING_SELECTED.narrowed, st.lists(requirements, max_size=3)) | st.just(
    NOTHING_SELECTED
)
selectors = st.builds(pod_selector, label_selectors, st.lists(st.sampled_from(SPACES), max_size=2), label_selectors)


def label_set(namespace: str, content: dict[str, str]) -> LabelSet:
    pairs = sorted(content.items())
    return LabelSet(f"{namespace} {pairs}", namespace, tuple(k for k, _ in pairs), tuple(v for _, v in pairs))


label_sets = st.builds(label_set, st.sampled_from(SPACES), labels)
namespaces = st.builds(NamespaceFacts, st.sampled_from(SPACES), labels)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("selector"), selectors, st.booleans()),
        st.tuples(st.just("label set"), label_sets, st.booleans()),
        st.tuples(st.just("namespace"), namespaces, st.just(True)),
    ),
    max_size=30,
)


def having(key: str) -> PodSelector:
    return pod_selector(LabelSelector((Requirement(key, Operator.EXISTS),)), (), EVERYTHING_SELECTED)


few_steps = st.lists(
    st.one_of(
        st.tuples(st.just("selector"), st.builds(having, st.sampled_from(KEYS)), st.booleans()),
        st.tuples(
            st.just("label set"),
            st.builds(label_set, st.just("ml"), st.dictionaries(st.sampled_from(KEYS), st.just("x"))),
            st.booleans(),
        ),
    ),
    min_size=10,
    max_size=30,
)
"""Few enough that the same label sets are told apart and become alike again."""


class Naive:
    """Compares every selector with every label set."""

    def __init__(self) -> None:
        self.selectors: dict[str, PodSelector] = {}
        self.label_sets: dict[str, LabelSet] = {}
        self.namespaces: dict[str, dict[str, str]] = {}

    def selects(self, selector: str, id_: str) -> bool:
        found = self.label_sets[id_]
        return self.selectors[selector].selects(found.namespace, self.namespaces.get(found.namespace, {}), found.labels)

    def signature(self, id_: str) -> frozenset[str]:
        return frozenset(each for each in self.selectors if self.selects(each, id_))


def played(history: list[tuple[str, Any, bool]]) -> tuple[PodSelection, Naive]:
    selection, naive = PodSelection(), Naive()
    for kind, what, added in history:
        match kind, added:
            case "selector", True:
                selection.put_selector(what)
                naive.selectors[what.id] = what
            case "selector", _:
                selection.drop_selector(what.id)
                naive.selectors.pop(what.id, None)
            case "label set", True:
                selection.put_label_set(what)
                naive.label_sets[what.id] = what
            case "label set", _:
                selection.drop_label_set(what.id)
                naive.label_sets.pop(what.id, None)
            case _:
                selection.put_namespaces([what])
                naive.namespaces[what.name] = what.labels
        for id_ in naive.label_sets:  # what is remembered between changes must not become wrong
            selection.representative(id_)
            selection.selecting(id_)
    return selection, naive


@settings(max_examples=200, deadline=None)
@given(steps)
def test_indexes_agree_with_a_comparison_one_by_one(history: list[tuple[str, Any, bool]]) -> None:
    selection, naive = played(history)
    masks = {id_: selection.selected_rows(id_) for id_ in naive.selectors}
    for id_ in naive.label_sets:
        row, met = selection.row(id_), selection.selecting(id_)
        for selector in naive.selectors:
            expected = naive.selects(selector, id_)
            assert selection.selects(selector, id_) == expected
            assert masks[selector][row] == expected
            assert met[selection.selector_row(selector)] == expected
        assert met.sum() == len(naive.signature(id_))
    for mask in masks.values():
        assert not mask[UNKNOWN_ROW]


@settings(max_examples=200, deadline=None)
@given(st.one_of(steps, few_steps))
def test_label_sets_share_a_representative_if_the_same_selectors_select_them(
    history: list[tuple[str, Any, bool]],
) -> None:
    selection, naive = played(history)
    by_signature: dict[frozenset[str], set[str]] = {}
    for id_ in naive.label_sets:
        by_signature.setdefault(naive.signature(id_), set()).add(selection.representative(id_))
    assert all(len(found) == 1 for found in by_signature.values())
    assert len(set.union(set(), *by_signature.values())) == len(by_signature)
    for signature, (found,) in by_signature.items():
        assert bool(found) == bool(signature)
        assert not found or naive.signature(found) == signature


def test_a_new_selector_tells_label_sets_apart_that_had_one_representative() -> None:
    selection = PodSelection()
    both, one = label_set("team", {"a": "", "b": ""}), label_set("team", {"a": ""})
    selection.apply(Batch(selectors=(having("a"),), label_sets=(both, one)))
    assert selection.representative(both.id) == selection.representative(one.id) == both.id
    selection.put_selector(having("b"))
    assert selection.representative(one.id) == one.id
    assert selection.representative(both.id) == both.id


def test_a_selector_has_no_part_in_representatives_of_a_removed_one() -> None:
    selection = PodSelection()
    former, new = label_set("team", {"a": ""}), label_set("team", {"b": ""})
    selection.apply(Batch(selectors=(having("a"), having("c")), label_sets=(former, new)))
    assert selection.representative(former.id) == former.id
    selection.drop_selector(having("a").id)
    selection.put_selector(having("b"))
    assert selection.representative(new.id) == new.id
    assert selection.representative(former.id) == ""


def test_whoever_remembers_representatives_learns_that_one_is_gone() -> None:
    selection = PodSelection()
    first, second = label_set("team", {"a": "", "b": ""}), label_set("team", {"a": ""})
    selection.apply(Batch(selectors=(having("a"),), label_sets=(first, second)))
    assert selection.representative(second.id) == second.id
    before = selection.representatives_version
    selection.drop_label_set(first.id)
    assert selection.representatives_version == before
    selection.drop_label_set(second.id)
    assert selection.representatives_version > before


def exclusive(index: int) -> tuple[PodSelector, PodSelector, LabelSet]:
    """The selectors and the labels of a job that JobSet places exclusively."""
    key = f"{index:08}"
    own = LabelSelector((Requirement("job", Operator.IN, (key,)),))
    others = LabelSelector((Requirement("job", Operator.EXISTS), Requirement("job", Operator.NOT_IN, (key,))))
    return (
        pod_selector(own, (), EVERYTHING_SELECTED),
        pod_selector(others, (), EVERYTHING_SELECTED),
        label_set(f"team-{index % 10}", {"job": key, "app": "train"}),
    )


def test_selectors_that_select_nearly_all_label_sets_take_no_memory_for_each_pair() -> None:
    selection = PodSelection()
    for index in range(2000):
        own, others, labelled = exclusive(index)
        selection.put_selector(own)
        selection.put_selector(others)
        selection.put_label_set(labelled)
    assert selection.selected_rows(others.id).sum() == 1999
    assert selection.selecting(labelled.id).sum() == 2000
    assert size_of(selection) < 10_000_000  # a list of matches would have 4,000,000 entries


def test_i11_nothing_is_left_of_what_was_removed() -> None:
    selection, sizes = PodSelection(), []
    for _ in range(3):
        for index in range(1500):
            own, others, labelled = exclusive(index)
            selection.apply(Batch(selectors=(own, others), label_sets=(labelled,)))
            selection.representative(labelled.id)
        for index in range(1500):
            own, others, labelled = exclusive(index)
            selection.forget(Batch(removed_selectors=(own.id, others.id), removed_label_sets=(labelled.id,)))
        assert (selection.selectors, selection.rows) == ({}, {})
        sizes.append(size_of(selection))
    assert selection.size <= 3200, "rows are used again"
    assert sizes[2] < 1.3 * sizes[0] < 1_000_000


def test_rows_of_removed_label_sets_are_not_selected() -> None:
    selection = PodSelection()
    own, others, labelled = exclusive(1)
    selection.apply(Batch(selectors=(own, others), label_sets=(labelled, exclusive(2)[2])))
    assert selection.selected_rows(others.id).sum() == 1
    selection.drop_label_set(exclusive(2)[2].id)
    assert selection.selected_rows(others.id).sum() == 0
    assert not selection.selects(others.id, exclusive(2)[2].id)


class WatchedKeys(tuple[str, ...]):
    """Keys of a label set, which count how often they are searched."""

    searches = 0

    def __contains__(self, key: object) -> bool:
        WatchedKeys.searches += 1
        return super().__contains__(key)


def unlike(prefix: str, number: int) -> LabelSelector:
    """Requirements on so many labels of its own."""
    requirements = [Requirement(f"{prefix}-{index:05}", Operator.NOT_IN, ("x",)) for index in range(number)]
    return LabelSelector(tuple(requirements))


def test_i12_label_sets_without_a_label_cost_nothing_when_a_selector_names_it_first() -> None:
    selection = PodSelection()
    for index in range(500):
        keys = WatchedKeys(("app", "job"))
        selection.put_label_set(LabelSet(f"{index}", "ml", keys, ("a", f"{index}")))
    WatchedKeys.searches = 0
    selector = pod_selector(unlike("key", 1000).narrowed(having("app").labels.requirements or ()), ("ml",))
    selection.put_selector(selector)
    assert WatchedKeys.searches == 0
    assert selection.selected_rows(selector.id).sum() == 500


def test_i12_selectors_of_namespaces_are_not_compared_with_each_namespace() -> None:
    selection = PodSelection()
    for index in range(200):
        selection.put_selector(pod_selector(EVERYTHING_SELECTED, (), unlike(f"{index}", 1)))
    for index in range(50):
        selection.put_label_set(label_set(f"team-{index}", {"app": "a"}))
    profile = Profile(builtins=False)
    profile.enable()
    found = {selection.representative(label_set(f"team-{index}", {"app": "a"}).id) for index in range(50)}
    profile.disable()
    assert len(found) == 1
    assert sum(entry.callcount for entry in profile.getstats()) < 5000, "10,000 pairs"


def test_i12_selectors_and_label_sets_are_taken_in_and_forgotten_in_slices() -> None:
    selection = PodSelection()
    wide = [pod_selector(unlike(f"{index}", 2000), ("ml",)) for index in range(10)]
    labelled = [label_set("ml", {f"{index}-{number:05}": "y" for number in range(2000)}) for index in range(10)]
    assert sum(1 for _ in selection.apply_in_slices(Batch(selectors=tuple(wide), label_sets=tuple(labelled)))) >= 8
    assert all(selection.selects(each.id, labelled[0].id) for each in wide)
    removed = Batch(
        removed_selectors=tuple(each.id for each in wide), removed_label_sets=tuple(each.id for each in labelled)
    )
    assert sum(1 for _ in selection.forget_in_slices(removed)) >= 8
    assert (selection.selectors, selection.rows) == ({}, {})


def test_i12_a_label_of_many_label_sets_is_indexed_in_slices() -> None:
    selection = PodSelection()
    selection.apply(Batch(label_sets=tuple(label_set("ml", {"job": f"{index}"}) for index in range(12_000))))
    assert sum(1 for _ in selection.apply_in_slices(Batch(selectors=(having("job"),)))) >= 2
    assert selection.selected_rows(having("job").id).sum() == 12_000


def size_of(root: object) -> int:
    """Bytes of an object and all that it refers to, except classes and modules."""
    seen: dict[int, object] = {}
    pending = [root]
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, type) or callable(each):
            continue
        seen[id(each)] = each
        pending.extend(gc.get_referents(each))
    return sum(sys.getsizeof(each) + (each.nbytes if isinstance(each, np.ndarray) else 0) for each in seen.values())
