"""Nodes that label selectors select, found by an index."""

from hypothesis import given
from hypothesis import strategies as st

from muster.gangs.selectors import NOTHING_SELECTED, LabelSelector, Operator, Requirement
from muster.topology.labelled_nodes import LabelledNodes

KEYS, VALUES = st.sampled_from("abc"), st.sampled_from("xyz")
NODES = st.dictionaries(st.sampled_from("nopqr"), st.dictionaries(KEYS, VALUES))
WITH_VALUES = st.builds(
    Requirement,
    KEYS,
    st.sampled_from((Operator.IN, Operator.NOT_IN)),
    st.sets(VALUES, min_size=1).map(lambda values: tuple(sorted(values))),
)
WITHOUT = st.builds(Requirement, KEYS, st.sampled_from((Operator.EXISTS, Operator.DOES_NOT_EXIST)))
SELECTORS = st.lists(WITH_VALUES | WITHOUT).map(lambda each: LabelSelector(tuple(each)))


@given(NODES, SELECTORS)
def test_the_index_finds_the_nodes_that_match(nodes: dict[str, dict[str, str]], selector: LabelSelector) -> None:
    index = LabelledNodes(nodes, {each.key for each in selector.requirements or ()})
    assert set(index.selected(selector)) == {name for name, labels in nodes.items() if selector.matches(labels)}


def test_a_selector_of_nothing_selects_no_node() -> None:
    assert not LabelledNodes({"n": {}}, ()).selected(NOTHING_SELECTED)
