"""Any input is a tree or constraints, or raises the documented error."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.gangs.facts import LevelConstraint, LevelPolicy, TopologyTree
from muster.rpc.topology_codec import decode_constraint, decode_tree, encode_constraint, encode_tree
from muster.rpc.watch_codec import decode_problem, decode_reference, encode_problem, encode_reference
from muster.topology.constraints import (
    MAX_NUMBER,
    MAX_PROBLEMS,
    BadConstraints,
    as_text,
    contradictions,
    is_level_name,
    parse_constraints,
)
from muster.topology.sakkara import BadTree, read_tree
from muster.topology.trees import TreePaths

LONGEST_MESSAGE = 1500

names = st.one_of(st.sampled_from(["a", "b", "r0", "r1", ""]), st.text(max_size=5))
trees: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.just({}), st.none(), st.integers(), st.text(max_size=3)),
    lambda below: st.one_of(st.dictionaries(names, below, max_size=4), st.lists(below, max_size=2)),
    max_leaves=12,
)
texts = st.one_of(trees.map(json.dumps), st.text(max_size=30))
maps = st.fixed_dictionaries(
    {},
    optional={
        "tree": texts,
        "level-names": st.one_of(st.lists(names, max_size=4).map(json.dumps), st.text(max_size=10)),
        "resource-names": st.one_of(st.just('["cpu"]'), st.text(max_size=5)),
        "name": st.text(max_size=5),
    },
)


@settings(max_examples=500, deadline=None)
@given(maps)
def test_any_config_map_is_a_tree_or_an_error(data: dict[str, str]) -> None:
    try:
        tree = read_tree(data)
    except BadTree as error:
        assert len(str(error).encode()) < 2 * LONGEST_MESSAGE
        return
    assert through_the_wire(tree) == tree
    nodes = [node for node, _ in tree.leaves]
    assert len(nodes) == len(set(nodes))
    where = TreePaths(tree)
    assert all(len(where.path(node, {}) or ()) == len(tree.levels) - 1 for node in nodes)


def through_the_wire(tree: TopologyTree) -> TopologyTree:
    message = encode_tree(tree, encode_reference, encode_problem)
    return decode_tree(message.FromString(message.SerializeToString()), decode_reference, decode_problem)


numbers = st.one_of(st.integers(0, 9), st.just(MAX_NUMBER))
levels = st.one_of(st.sampled_from(["zone", "rack", "node"]), st.text(min_size=1, max_size=6).filter(is_level_name))
constraints = st.one_of(
    st.builds(LevelConstraint, levels, st.sampled_from([LevelPolicy.PACK, LevelPolicy.SPREAD]), st.booleans()),
    st.builds(
        LevelConstraint, levels, st.sampled_from([LevelPolicy.PARTITION, LevelPolicy.FACTOR]), st.booleans(), numbers
    ),
    st.builds(LevelConstraint, levels, st.just(LevelPolicy.RANGE), st.booleans(), minimum=numbers, maximum=numbers),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(constraints, min_size=1, max_size=8))
def test_formatted_constraints_parse_to_the_same(given: list[LevelConstraint]) -> None:
    assert parse_constraints("; ".join(map(as_text, given))) == tuple(given)
    assert [decode_constraint(encode_constraint(each)) for each in given] == given


@settings(max_examples=300, deadline=None)
@given(st.lists(constraints, max_size=8), st.integers(-1, 300), st.integers(-1, 300))
def test_contradictions_are_at_most_three_sentences(given: list[LevelConstraint], minimum: int, wanted: int) -> None:
    problems = contradictions(given, ("zone", "rack", "node"), minimum, wanted)
    assert len(problems) <= MAX_PROBLEMS
    assert all(sentence and len(sentence) < LONGEST_MESSAGE for sentence in problems)


@settings(max_examples=500, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text(alphabet="rack:;,()hard pack0123456789\n", max_size=60)))
def test_any_text_is_constraints_or_an_error(text: str) -> None:
    try:
        assert parse_constraints(text)
    except BadConstraints as error:
        assert len(str(error)) < LONGEST_MESSAGE
