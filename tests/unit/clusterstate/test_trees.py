"""Topology trees in the state: from ConfigMaps, by labels, or flat, with their problems."""

from typing import Any

import pytest

from builders.clusterstate.history import TOPOLOGY_MAPS, History, node_object, settle, topology_map_object
from muster.clusterstate.chunks import snapshot_chunks
from muster.clusterstate.settings import Settings
from muster.clusterstate.trees import Trees
from muster.config.settings import BadSettings, load
from muster.gangs.facts import Batch, ObjectReference, Severity, TopologyTree, TreeLevel
from muster.kube.api_resources import NODES

RACK = "sakkara.topology.rack"
ONE_RACK: Any = {"r0": {"a": {}, "b": {}}}
TWO_RACKS: Any = {"r0": {"a": {}, "b": {}}, "r1": {"c": {}}}


def cluster(*nodes: str, trees: Trees | None = None) -> History:
    """A settled cluster with these nodes."""
    history = History(settled=False, trees=trees)
    if nodes:
        history.nodes(*map(node_object, nodes))
    settle(history.state)
    return history


def names(history: History) -> list[str]:
    """Warnings of all trees, those of the default tree first."""
    trees = history.state.snapshot().trees
    assert [tree.default for tree in trees].count(True) == 1
    return [tree.name for tree in sorted(trees, key=lambda tree: (not tree.default, tree.name))]


def completed(history: History) -> list[Batch]:
    """The batches of what changes have left."""
    batches = []
    while history.state.has_work:
        batches.append(history.state.advance())
    return batches


def only(trees: Any) -> TopologyTree:
    (tree,) = trees
    assert isinstance(tree, TopologyTree)
    return tree


def warnings(tree: TopologyTree) -> list[str]:
    assert all(problem.severity is Severity.WARNING for problem in tree.problems)
    return [problem.message for problem in tree.problems]


class TestWhichThereAre:
    def test_without_anything_there_is_the_flat_one(self) -> None:
        tree = only(cluster("a").state.snapshot().trees)
        assert tree == TopologyTree("flat", (TreeLevel("node"),), default=True)

    def test_a_config_map_takes_the_place_of_the_flat_one(self) -> None:
        history = cluster("a", "b", "c")
        batch = history.topologies(topology_map_object("m", TWO_RACKS))
        tree = only(batch.trees)
        assert batch.removed_trees == ("flat",)
        assert (tree.name, tree.default, tree.problems) == ("default-tree", True, ())
        assert tree.definition == ObjectReference("v1", "ConfigMap", "default", "m", "uid-map-m")
        assert tree.leaves == (("a", 0), ("b", 0), ("c", 1))
        assert (batch.changed, batch.through["configmaps"]) == ({"configmaps": 4}, 4)

    def test_when_it_goes_the_flat_one_is_back(self) -> None:
        history = cluster("a")
        history.topologies(topology_map_object("m", ONE_RACK))
        batch = history.remove(TOPOLOGY_MAPS, "uid-map-m")
        assert (only(batch.trees).name, batch.removed_trees) == ("flat", ("default-tree",))

    def test_a_node_label_makes_racks_where_nothing_else_does(self) -> None:
        history = cluster("a")
        history.nodes(node_object("a", labels={RACK: "r0"}))
        batch = history.state.review()
        assert only(batch.trees) == TopologyTree("labels", (TreeLevel("rack", RACK), TreeLevel("node")), default=True)
        assert batch.removed_trees == ("flat",)
        history.topologies(topology_map_object("m", ONE_RACK))
        assert names(history) == ["default-tree"]

    def test_settings_give_levels_by_labels(self) -> None:
        zone = "topology.kubernetes.io/zone"
        history = cluster(trees=Trees({"zone": zone, "rack": "example.com/rack"}))
        tree = only(history.state.snapshot().trees)
        assert tree.levels == (TreeLevel("zone", zone), TreeLevel("rack", "example.com/rack"), TreeLevel("node"))
        history.topologies(topology_map_object("m", ONE_RACK, name="east"))
        assert names(history) == ["east", "labels"]


class TestTheDefault:
    def test_of_several_the_oldest_unless_one_is_called_so(self) -> None:
        history = cluster()
        history.topologies(topology_map_object("young", ONE_RACK, name="young", second=2))
        history.topologies(topology_map_object("old", ONE_RACK, name="old", second=1))
        assert names(history) == ["old", "young"]
        history.topologies(topology_map_object("m", ONE_RACK, second=3))
        assert names(history)[0] == "default-tree"

    def test_settings_choose_it(self) -> None:
        history = cluster(trees=Trees({"rack": RACK}, default="labels"))
        history.topologies(topology_map_object("m", ONE_RACK))
        assert names(history) == ["labels", "default-tree"]

    def test_one_that_settings_choose_but_is_not_there_is_reported(self) -> None:
        history = cluster("a", "b", trees=Trees(default="east"))
        tree = only(history.topologies(topology_map_object("m", ONE_RACK)).trees)
        assert (tree.name, tree.default) == ("default-tree", True)
        assert warnings(tree) == [
            'the settings make "east" the default tree, which does not exist: this one is the default until then'
        ]
        history.topologies(topology_map_object("e", ONE_RACK, name="east", second=9))
        assert names(history) == ["east", "default-tree"]

    def test_of_two_with_one_name_the_older_counts(self) -> None:
        history = cluster("a", "b", "c")
        history.topologies(topology_map_object("young", TWO_RACKS, second=2))
        batch = history.topologies(topology_map_object("old", {"r": {"a": {}, "b": {}, "c": {}}}, second=1))
        tree = only(batch.trees)
        assert [domain.name for domain in tree.domains] == ["r"]
        assert warnings(tree) == [
            'ConfigMap "default/young" defines a tree with the name "default-tree" too: this one applies; '
            "give the other one another name"
        ]
        batch = history.remove(TOPOLOGY_MAPS, "uid-map-old")
        assert [domain.name for domain in only(batch.trees).domains] == ["r0", "r1"]


class TestWhatIsWrong:
    def test_p34_nodes_of_only_one_of_tree_and_cluster_are_reported(self) -> None:
        history = cluster("a", "x")
        tree = only(history.topologies(topology_map_object("m", TWO_RACKS)).trees)
        assert warnings(tree) == [
            '2 nodes of the tree ("b", "c") are not in the cluster and ignored until then',
            'node "x" of the cluster is not in the tree: used only for gangs without hard constraints above the nodes',
        ]

    def test_p34_nodes_that_come_and_go_are_reported_when_somebody_looks(self) -> None:
        history = cluster("a")
        history.topologies(topology_map_object("m", ONE_RACK))
        assert history.nodes(node_object("b")).trees == ()
        assert history.state.trees.stale
        assert only(history.state.review().trees).problems == ()
        assert not history.state.trees.stale
        history.remove(NODES, "uid-a")
        assert "is not in the cluster" in warnings(only(history.state.review().trees))[0]

    def test_a_heartbeat_or_a_taint_of_a_node_means_nothing_to_trees(self) -> None:
        history = cluster("a")
        history.nodes(node_object("a", ready=False))
        history.nodes(node_object("a", taints=[{"key": "k", "effect": "NoSchedule"}]))
        assert not history.state.trees.stale

    def test_p35_a_node_in_two_domains_keeps_the_last_good_tree(self) -> None:
        history = cluster("a", "b")
        good = only(history.topologies(topology_map_object("m", ONE_RACK)).trees)
        tree = only(history.topologies(topology_map_object("m", {"r0": {"a": {}}, "r1": {"a": {}}})).trees)
        assert (tree.domains, tree.leaves, tree.default) == (good.domains, good.leaves, True)
        (problem,) = tree.problems
        assert problem.severity is Severity.BLOCKING
        assert problem.message == 'node "a" is in the tree twice, as "r0/a" and as "r1/a": take one out'

    def test_p35_the_last_valid_tree_stays_until_the_next_valid_one(self) -> None:
        history = cluster("a", "b", "c")
        history.topologies(topology_map_object("m", ONE_RACK))
        history.topologies(topology_map_object("m", "{", name="other"))
        tree = only(history.topologies(topology_map_object("m", "[]")).trees)
        assert (tree.name, [domain.name for domain in tree.domains]) == ("default-tree", ["r0"])
        tree = only(history.topologies(topology_map_object("m", TWO_RACKS)).trees)
        assert (len(tree.domains), tree.problems) == (2, ())

    def test_one_that_could_never_be_read_has_no_domains(self) -> None:
        history = cluster("a")
        bad = topology_map_object("m", "[", name="east", level_names='["zone", "rack", "node"]')
        tree = only(history.topologies(bad).trees)
        assert (tree.name, tree.default, tree.domains) == ("east", True, ())
        assert [level.name for level in tree.levels] == ["zone", "rack", "node"]
        (problem,) = tree.problems
        assert problem.severity is Severity.BLOCKING

    def test_one_without_even_a_name_is_called_as_its_config_map(self) -> None:
        tree = only(cluster().topologies(topology_map_object("m", {}, name=" ", level_names="x")).trees)
        assert (tree.name, [level.name for level in tree.levels]) == ("m", ["rack", "node"])

    def test_one_that_can_be_read_goes_before_an_older_one_that_cannot(self) -> None:
        history = cluster("a", "b")
        history.topologies(topology_map_object("bad", "{", second=1))
        tree = only(history.topologies(topology_map_object("good", ONE_RACK, second=2)).trees)
        assert tree.definition is not None and tree.definition.name == "good"

    @pytest.mark.parametrize("data", [None, 7, {"tree": 7}, {"other": "{}"}])
    def test_data_of_any_form_is_no_crash(self, data: Any) -> None:
        history = cluster("a")
        tree = only(history.topologies(topology_map_object("m", {}) | {"data": data}).trees)
        assert [problem.severity for problem in tree.problems] == [Severity.BLOCKING]


class TestSlices:
    def test_i12_trees_of_many_config_maps_are_read_and_sent_in_slices(self) -> None:
        history = cluster("a", "b")
        before = history.state.through.get("configmaps")
        first = history.topologies(*(topology_map_object(f"m{n}", ONE_RACK, name=f"t{n}") for n in range(20)))
        batches = [first, *completed(history)]
        assert max(len(batch.trees) for batch in batches) <= 2
        assert {tree.name for batch in batches for tree in batch.trees} == {f"t{n}" for n in range(20)}
        for batch in batches[:-1]:
            assert batch.through.get("configmaps") == before
            assert not batch.changed
        assert batches[-1].changed == {"configmaps": history.revision}

    def test_i12_trees_are_compared_with_changed_nodes_in_slices(self) -> None:
        history = cluster("a", "b")
        history.topologies(*(topology_map_object(f"m{n}", ONE_RACK, name=f"t{n}") for n in range(20)))
        completed(history)
        history.nodes(node_object("c"))
        batches = [history.state.review(), *completed(history)]
        assert max(len(batch.trees) for batch in batches) <= 3
        assert sum(len(batch.trees) for batch in batches) == 20

    def test_i12_one_changed_config_map_compares_no_other_tree_with_the_nodes(self) -> None:
        history = cluster("a", "b")
        history.topologies(topology_map_object("m", TWO_RACKS), topology_map_object("n", ONE_RACK, name="east"))
        before = history.state.trees.facts["default-tree"]
        history.topologies(topology_map_object("n", TWO_RACKS, name="east"))
        assert history.state.trees.facts["default-tree"].problems[0] is before.problems[0]

    def test_a_config_map_that_is_removed_before_it_was_read_is_no_tree(self) -> None:
        history = cluster("a", "b")
        history.topologies(*(topology_map_object(f"m{n}", ONE_RACK, name=f"t{n}") for n in range(20)))
        history.remove(TOPOLOGY_MAPS, *(f"uid-map-m{n}" for n in range(20)))
        completed(history)
        assert names(history) == ["flat"]


class TestWhatIsTold:
    def test_before_all_is_listed_nothing_is_told(self) -> None:
        history = History(settled=False)
        assert history.topologies(topology_map_object("m", ONE_RACK)).trees == ()
        history.nodes(node_object("a"), node_object("b"))
        settle(history.state)
        assert only(history.state.snapshot().trees).problems == ()

    def test_a_change_that_means_nothing_is_not_told(self) -> None:
        history = cluster("a", "b")
        history.topologies(topology_map_object("m", ONE_RACK))
        batch = history.topologies(topology_map_object("m", ONE_RACK, resource_names='["cpu"]'))
        assert batch == Batch(through=batch.through)

    def test_only_the_tree_that_changed_is_told(self) -> None:
        history = cluster("a", "b", "c")
        history.topologies(topology_map_object("m", ONE_RACK), topology_map_object("n", TWO_RACKS, name="east"))
        assert only(history.topologies(topology_map_object("n", ONE_RACK, name="east")).trees).name == "east"

    def test_each_tree_is_a_piece_of_the_snapshot_of_its_own(self) -> None:
        history = cluster()
        history.topologies(topology_map_object("m", ONE_RACK), topology_map_object("n", TWO_RACKS, name="east"))
        reported = [
            [tree.name for tree in chunk.trees] for chunk in snapshot_chunks(history.state.snapshot()) if chunk.trees
        ]
        assert sorted(reported) == [["default-tree"], ["east"]]


class TestSettings:
    def test_levels_are_names_and_labels_from_the_top(self, monkeypatch: pytest.MonkeyPatch) -> None:
        levels = "zone=topology.kubernetes.io/zone, rack=example.com/rack ,"
        monkeypatch.setenv("MUSTER_CLUSTER_STATE_TOPOLOGY_LEVELS", levels)
        settings = load(Settings)
        assert list(settings.label_keys.items()) == [
            ("zone", "topology.kubernetes.io/zone"),
            ("rack", "example.com/rack"),
        ]

    def test_without_any_there_are_none(self) -> None:
        settings = load(Settings)
        assert (settings.label_keys, settings.default_tree, settings.topology_namespace) == ({}, "", "default")

    @pytest.mark.parametrize(
        "levels",
        ["rack", "rack=", "=label", "node=label", "rack=a,rack=b", "a:b=c", ",".join(f"l{n}=x" for n in range(16))],
    )
    def test_wrong_ones_are_quoted_with_their_variable(self, monkeypatch: pytest.MonkeyPatch, levels: str) -> None:
        monkeypatch.setenv("MUSTER_CLUSTER_STATE_TOPOLOGY_LEVELS", levels)
        with pytest.raises(BadSettings, match="MUSTER_CLUSTER_STATE_TOPOLOGY_LEVELS"):
            load(Settings)

    def test_a_namespace_is_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MUSTER_CLUSTER_STATE_TOPOLOGY_NAMESPACE", "a/../b")
        with pytest.raises(BadSettings, match="TOPOLOGY_NAMESPACE"):
            load(Settings)
