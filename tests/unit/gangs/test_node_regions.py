"""Nodes of regions, kept up to date, are those of a comparison of all nodes with all regions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.gangs.facts import NodeFacts, NodeOperator, NodeRequirement, NodeSelectorTerm
from muster.gangs.node_filters import term_matches
from muster.gangs.node_regions import EVERYWHERE, NOWHERE, NodeRegions, Region

KEYS, VALUES, NAMES = ("rack", "zone"), ("1", "2"), ("n", "m", "o")

requirements = st.one_of(
    st.builds(
        NodeRequirement,
        st.sampled_from(KEYS),
        st.sampled_from([NodeOperator.IN, NodeOperator.NOT_IN]),
        st.sets(st.sampled_from(VALUES), min_size=1).map(lambda values: tuple(sorted(values))),
    ),
    st.builds(
        NodeRequirement, st.sampled_from(KEYS), st.sampled_from([NodeOperator.EXISTS, NodeOperator.DOES_NOT_EXIST])
    ),
)
fields = st.builds(
    NodeRequirement,
    st.just("metadata.name"),
    st.just(NodeOperator.IN),
    st.sampled_from(NAMES).map(lambda name: (name,)),
)
terms = st.builds(
    NodeSelectorTerm, st.lists(requirements, max_size=2).map(tuple), st.lists(fields, max_size=1).map(tuple)
)
regions = st.one_of(
    st.sampled_from([EVERYWHERE, NOWHERE]),
    st.lists(st.lists(terms, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
)
nodes = st.builds(
    lambda name, labels: NodeFacts(name, labels=labels),
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)),
)


def is_in(region: Region, node: NodeFacts) -> bool:
    return all(any(term_matches(term, node) for term in each) for each in region)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(regions, nodes, st.sampled_from(NAMES), st.integers(0, 5)), max_size=16))
def test_regions_have_the_nodes_that_match(changes: list[Region | NodeFacts | str | int]) -> None:
    """A change is a region or a node to add, the name of a node to drop, or the index of a region to discard."""
    kept = NodeRegions()
    known: dict[str, NodeFacts] = {}
    added: list[Region] = []
    for change in changes:
        match change:
            case NodeFacts():
                before = set(kept.regions(change.name))
                assert kept.put_node(change) == (before != set(kept.regions(change.name)))
                known[change.name] = change
            case str():
                kept.drop_node(change)
                known.pop(change, None)
            case int():
                if change < len(added):
                    kept.discard(added.pop(change))
            case _:
                kept.add(change)
                added.append(change)
        for region in added:
            assert set(kept.nodes(region)) == {name for name, node in known.items() if is_in(region, node)}
        for name, node in known.items():
            assert set(kept.regions(name)) == {region for region in added if is_in(region, node)}
    for region in added:
        kept.discard(region)
    for name in known:
        kept.drop_node(name)
    assert all(not value for value in vars(kept).values()), "nothing is left (I11)"
