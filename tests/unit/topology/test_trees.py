"""Topology trees: from Sakkara's ConfigMaps and from labels, paths of nodes, and invalid trees."""

import json
from typing import Any

import pytest

from muster.gangs.facts import ObjectReference, Severity, TopologyTree, TreeDomain, TreeLevel
from muster.topology.sakkara import BadTree, read_tree
from muster.topology.trees import (
    TreePaths,
    flat_tree,
    is_listed,
    label_key_of_tree,
    label_key_tree,
    label_tree,
    mismatches,
    missing_tree,
)

TWO_RACKS: Any = {"r0": {"a": {}, "b": {}}, "r1": {"c": {}}}
ZONES = {"zone": "topology.kubernetes.io/zone", "rack": "example.com/rack"}


def tree(domains: Any = TWO_RACKS, **data: str) -> TopologyTree:
    text = domains if isinstance(domains, str) else json.dumps(domains)
    return read_tree({"tree": text} | {key.replace("_", "-"): value for key, value in data.items()})


def refused(domains: Any = TWO_RACKS, **data: str) -> str:
    with pytest.raises(BadTree) as raised:
        tree(domains, **data)
    return str(raised.value)


class TestReading:
    def test_domains_and_nodes_of_the_default_levels(self) -> None:
        assert tree() == TopologyTree(
            "default-tree",
            (TreeLevel("rack"), TreeLevel("node")),
            (TreeDomain("r0", 0), TreeDomain("r1", 0)),
            (("a", 0), ("b", 0), ("c", 1)),
        )

    def test_named_levels_from_the_top(self) -> None:
        read = tree({"z0": {"r0": {"a": {}}, "r1": {}}}, name="east\n", level_names=' ["zone", "rack", "host"] ')
        assert (read.name, [level.name for level in read.levels]) == ("east", ["zone", "rack", "host"])
        assert read.domains == (TreeDomain("z0", 0), TreeDomain("r0", 1, 0), TreeDomain("r1", 1, 0))
        assert read.leaves == (("a", 1),)

    def test_a_tree_of_nodes_alone(self) -> None:
        read = tree({"a": {}, "b": {}}, level_names='["node"]')
        assert (read.domains, read.leaves) == ((), (("a", -1), ("b", -1)))
        assert is_listed(read)

    def test_the_definition_is_kept(self) -> None:
        definition = ObjectReference("v1", "ConfigMap", "default", "racks", "uid")
        assert read_tree({"tree": "{}"}, definition).definition == definition

    def test_domains_with_different_parents_may_have_the_same_name(self) -> None:
        read = tree({"z0": {"r": {"a": {}}}, "z1": {"r": {"b": {}}}}, level_names='["zone", "rack", "node"]')
        assert [domain.name for domain in read.domains] == ["z0", "r", "z1", "r"]

    def test_resource_names_are_ignored_but_must_be_a_list(self) -> None:
        assert tree(resource_names='["cpu"]') == tree()
        assert refused(resource_names="cpu").startswith("resource-names is not a JSON list of strings")

    def test_an_empty_tree_is_valid(self) -> None:
        assert tree({}).domains == ()

    def test_fifteen_thousand_nodes(self) -> None:
        domains: Any = {f"r{rack}": {f"n{rack}-{node}": {} for node in range(30)} for rack in range(500)}
        assert len(tree(domains).leaves) == 15_000


class TestRefused:
    def test_p35_a_node_in_two_domains_is_reported_with_both_paths(self) -> None:
        assert refused({"r0": {"a": {}, "b": {}}, "r1": {"b": {}}}) == (
            'node "b" is in the tree twice, as "r0/b" and as "r1/b": take one out'
        )

    def test_p35_paths_are_shown_in_full(self) -> None:
        long = "rack-" + "x" * 80
        message = refused({long: {"b": {}}, long + "y": {"b": {}}})
        assert f'"{long}/b"' in message and f'"{long}y/b"' in message

    @pytest.mark.parametrize(
        ("domains", "expected_message"),
        [
            ('{"r0": {"a": {}}, "r0": {"b": {}}}', 'tree has "r0" twice'),
            ('{"r0": {"a": {}, "a": {}}}', 'node "a" is in the tree twice, as "r0/a" and as "r0/a"'),
            ({"r0": {"a": {"x": {}}}}, '"r0/a/x" below the nodes: "node" is the last of level-names'),
            ({"r0": {}}, 'tree has no node: nodes are entries at depth 2, because level-names is ["rack", "node"]'),
            ({"r0": ["a"]}, 'tree has "["a"]" at "r0"'),
            ({"r0": {"a": None}}, 'tree has "null" at "r0/a"'),
            ({"r0": {"": {}}}, 'tree has "r0/", but a name has 1 to 253'),
            ({"r0": {"n" * 254: {}}}, "but a name has 1 to 253"),
            ('{"r0": {"\\ud800": {}}}', '"r0/\\ud800"'),
            ("[]", 'tree is "[]", which is not a JSON object'),
            ('{"r0": {"a" {}}}', "line 1, column 13"),
            ("", "line 1, column 1"),
            ('{"r":' * 100_000, "nested deeper than 100 levels"),
            ('{"r0": ' + "9" * 5000 + "}", "tree is not nested JSON objects"),
        ],
        ids=lambda value: value[:40] if isinstance(value, str) else None,
    )
    def test_an_invalid_tree_is_quoted(self, domains: Any, expected_message: str) -> None:
        message = refused(domains)
        assert expected_message in message
        message.encode()  # as in events
        assert len(message) < 1000

    @pytest.mark.parametrize(
        ("names", "expected_message"),
        [
            ("rack", "level-names is not a JSON list of strings"),
            ('"rack"', 'level-names is ""rack"", which is not a JSON list of strings'),
            ('["rack", 1]', "which is not a JSON list of strings"),
            ("{}", "which is not a JSON list of strings"),
            ("[]", "has 0 names"),
            (json.dumps([str(level) for level in range(17)]), "has 17 names, but a tree has 1 to 16 levels"),
            ('["rack", "rack"]', 'has "rack" twice'),
            ('["", "node"]', 'has ""'),
            ('["rack: 1", "node"]', 'has "rack: 1"'),
            ('["a\\ud800", "node"]', 'has "a\\ud800"'),
        ],
    )
    def test_bad_names_of_levels_are_quoted(self, names: str, expected_message: str) -> None:
        assert expected_message in refused(level_names=names)

    def test_an_invalid_name_is_quoted(self) -> None:
        assert 'name is ""' in refused(name="  ")
        assert "1 to 253 printable characters" in refused(name="n" * 254)

    def test_a_missing_tree_is_reported(self) -> None:
        with pytest.raises(BadTree, match="there is no tree in the data"):
            read_tree({"Tree": "{}"})


class TestWhereabouts:
    def test_paths_of_listed_nodes(self) -> None:
        where = TreePaths(tree({"z0": {"r0": {"a": {}}}}, level_names='["zone", "rack", "node"]'))
        assert where.path("a", {}) == ("z0", "r0")
        assert where.path("b", {}) is None

    def test_paths_by_labels(self) -> None:
        where = TreePaths(label_tree(ZONES))
        zone = {"topology.kubernetes.io/zone": "z0"}
        assert where.path("a", zone | {"example.com/rack": "r0"}) == ("z0", "r0")
        assert where.path("b", zone) is None
        assert where.path("b", zone | {"example.com/rack": ""}) is None

    def test_every_node_is_in_a_flat_tree(self) -> None:
        assert TreePaths(flat_tree()).path("a", {}) == ()
        assert mismatches(flat_tree(), {"a": {}}) == ()

    def test_no_node_is_in_a_tree_that_was_never_valid(self) -> None:
        unread = TopologyTree("t", (TreeLevel("rack"), TreeLevel("node")))
        assert TreePaths(unread).path("a", {}) is None


class TestP34NodesOfOnlyOneOfTreeAndCluster:
    def test_p34_both_are_reported(self) -> None:
        problems = mismatches(tree(), {"a": {}, "x": {}})
        assert [problem.severity for problem in problems] == [Severity.WARNING, Severity.WARNING]
        absent, outside = [problem.message for problem in problems]
        assert absent == '2 nodes of the tree ("b", "c") are not in the cluster and ignored until then'
        assert outside == (
            'node "x" of the cluster is not in the tree: used only for gangs without hard constraints above the nodes'
        )

    def test_p34_many_are_counted(self) -> None:
        (problem,) = mismatches(label_tree({"rack": "example.com/rack"}), {f"n{number}": {} for number in range(9)})
        assert problem.message.startswith(
            '9 nodes of the cluster ("n0", "n1", "n2" and 6 more) are not in the tree because a label is missing '
            "(example.com/rack)"
        )

    def test_no_mismatch_is_reported_if_tree_and_cluster_agree(self) -> None:
        assert mismatches(tree(), {"a": {}, "b": {}, "c": {}}) == ()


def test_the_name_of_a_label_tree_contains_the_label() -> None:
    tree = label_key_tree("example.com/rack")
    assert label_key_of_tree(tree.name) == "example.com/rack"
    assert label_key_of_tree("labels") == label_key_of_tree("") == ""
    where = TreePaths(tree)
    assert where.path("n", {"example.com/rack": "r0"}) == ("r0",)
    assert where.path("n", {"rack": "r0"}) is None


def test_a_label_beyond_the_limit_has_a_message_of_its_own() -> None:
    assert missing_tree("east", '"west"') == 'topology tree "east" does not exist; there are "west"'
    assert "64 other labels" in missing_tree("label rack", '"west"')
