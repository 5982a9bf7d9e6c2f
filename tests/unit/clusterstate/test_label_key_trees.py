"""Topology trees by node labels that gangs pack by: they exist as long as some gang names the label."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.clusterstate.history import (
    SECOND,
    TOPOLOGY_MAPS,
    History,
    node_object,
    pod_object,
    priority_class_object,
    settle,
    topology_map_object,
)
from muster.clusterstate.label_key_trees import LabelKeyTrees
from muster.dialects import native
from muster.gangs.facts import GangFacts, Severity, TopologyTree, TreeLevel
from muster.kube.api_resources import definitions
from muster.topology.trees import MAX_LABEL_KEY_TREES

POD_GROUPS = definitions(native.DEFINITION)
RACK = "example.com/rack"
BY_RACK = f"label {RACK}"


def group(name: str, key: str = RACK, *, second: int = 0, **spec: Any) -> dict[str, Any]:
    """A PodGroup as the API serves it, packed by a label unless that is empty."""
    topology = [{"key": key}] if key else []
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": SECOND.format(second),
        },
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": topology},
            **spec,
        },
    }


def member(of: str) -> dict[str, Any]:
    """A pod of the PodGroup, without which it would be no gang."""
    return pod_object(f"{of}-0", schedulingGroup={"podGroupName": of})


def trees(history: History) -> dict[str, TopologyTree]:
    return {tree.name: tree for tree in history.state.snapshot().trees}


def test_a_gang_and_its_tree_are_in_one_batch() -> None:
    history = History()
    history.nodes(node_object("n", labels={RACK: "r0"}))
    history.state.review()
    history.pods(member("g"))
    batch = history.put(POD_GROUPS, group("g"))
    assert [gang.tree for gang in batch.gangs] == [BY_RACK]
    assert batch.trees == (TopologyTree(BY_RACK, (TreeLevel(RACK, RACK), TreeLevel("node"))),)
    assert batch.changed == {"podgroups.scheduling.k8s.io": history.revision}
    assert [tree.name for tree in trees(history).values() if tree.default] == ["flat"]


def test_a_label_tree_is_removed_with_its_last_gang() -> None:
    history = History()
    history.pods(member("g"), member("h"))
    history.put(POD_GROUPS, group("g"), group("h"))
    assert history.remove(POD_GROUPS, "uid-g").removed_trees == ()
    assert history.remove(POD_GROUPS, "uid-h").removed_trees == (BY_RACK,)
    assert list(trees(history)) == ["flat"]


def test_a_gang_that_changes_its_label_gets_another_tree() -> None:
    history = History()
    history.pods(member("g"))
    history.put(POD_GROUPS, group("g"))
    batch = history.put(POD_GROUPS, group("g", "zone"))
    assert ([tree.name for tree in batch.trees], batch.removed_trees) == (["label zone"], (BY_RACK,))
    assert history.put(POD_GROUPS, group("g", "")).removed_trees == ("label zone",)


def test_gangs_of_the_initial_list_have_their_trees() -> None:
    history = History(settled=False)
    history.pods(member("g"))
    history.put(POD_GROUPS, group("g"))
    assert trees(history) == {}
    settle(history.state)
    assert set(trees(history)) == {"flat", BY_RACK}


def test_a_label_that_no_node_has_is_a_problem() -> None:
    history = History()
    history.nodes(node_object("n"))
    history.pods(member("g"))
    history.put(POD_GROUPS, group("g"))
    (problem,) = trees(history)[BY_RACK].problems
    assert problem.severity is Severity.WARNING
    assert problem.message.startswith(f'no node has the label "{RACK}"')
    history.nodes(node_object("n", labels={RACK: "r0"}), node_object("m"))
    (tree,) = (tree for tree in history.review().trees if tree.name == BY_RACK)
    assert tree.problems == ()


def test_a_tree_of_a_config_map_with_such_a_name_does_not_count() -> None:
    history = History()
    history.nodes(node_object("a", labels={RACK: "r0"}))
    history.topologies(topology_map_object("m", {"r0": {"a": {}}}, name=BY_RACK))
    history.pods(member("g"))
    history.put(POD_GROUPS, group("g"))
    tree = trees(history)[BY_RACK]
    assert (tree.levels, tree.default, tree.leaves) == ((TreeLevel(RACK, RACK), TreeLevel("node")), True, ())
    assert "a ConfigMap defines a tree with the name" in tree.problems[0].message
    history.remove(POD_GROUPS, "uid-g")
    assert trees(history)[BY_RACK].leaves == (("a", 0),)
    history.remove(TOPOLOGY_MAPS, "uid-map-m")
    assert list(trees(history)) == ["flat"]


def asks(name: str, key: str, age: int, namespace: str = "a") -> GangFacts:
    id_ = f"native/{namespace}/{name}"
    return GangFacts(id_, "native", namespace, name, created_seconds=age, tree=f"label {key}" if key else "")


def test_labels_of_older_gangs_get_a_tree_first() -> None:
    old = [asks(f"g{n}", f"k{n:03}", n) for n in range(MAX_LABEL_KEY_TREES)]
    young = asks("young", "a", 1000)
    one, other = LabelKeyTrees(), LabelKeyTrees()
    assert one.take([*old, young], [])
    for each in (young, *reversed(old)):
        other.take([each], [])
    assert one.labels() == other.labels() == [f"k{n:03}" for n in range(MAX_LABEL_KEY_TREES)]
    assert one.take([], [old[7].id])
    assert "a" in one.labels()
    assert "k007" not in one.labels()


def test_i13_gangs_of_one_namespace_do_not_take_the_trees_of_others() -> None:
    flood = [asks(f"g{n}", f"k{n:03}", n, "flood") for n in range(2 * MAX_LABEL_KEY_TREES)]
    victims = [asks("v", "rack", 1000, "b"), asks("w", "zone", 1001, "c"), asks("x", "rack", 1002, "c")]
    keys = LabelKeyTrees()
    keys.take([*flood, *victims], [])
    assert len(keys.labels()) == MAX_LABEL_KEY_TREES
    assert {"rack", "zone", "k000", "k061"} <= set(keys.labels())
    assert keys.take([], [victims[0].id, victims[1].id])
    assert "rack" in keys.labels(), "the gang of namespace c names it, too"
    assert "zone" not in keys.labels()


def test_i12_a_label_without_a_tree_changes_nothing() -> None:
    keys = LabelKeyTrees()
    keys.take([asks(f"g{n}", f"k{n:03}", n) for n in range(MAX_LABEL_KEY_TREES)], [])
    assert not keys.take([asks("late", "a", 1000)], [])
    assert not keys.take([], ["native/a/late"])


def test_only_changed_labels_count_as_a_change() -> None:
    keys = LabelKeyTrees()
    assert keys.take([asks("g", "k", 1)], [])
    assert not keys.take([asks("g", "k", 1), asks("h", "k", 2)], [])
    assert not keys.take([], ["native/a/g", "other/a/x"])
    assert keys.take([], ["native/a/h"])
    assert keys.labels() == []


def test_the_priority_class_of_a_pod_group_is_followed() -> None:
    history = History()
    history.priority_classes(priority_class_object("high", 7))
    history.pods(pod_object("w", schedulingGroup={"podGroupName": "g"}))
    (gang,) = history.put(POD_GROUPS, group("g", priorityClassName="high")).gangs
    assert (gang.id, gang.priority) == ("native/ml/g", 7)
    (gang,) = history.priority_classes(priority_class_object("high", 8)).gangs
    assert gang.priority == 8


GANGS = st.builds(
    asks,
    st.sampled_from("abcdef"),
    st.sampled_from(["", *map(str, range(80))]),
    st.integers(0, 3),
    st.sampled_from("ab"),
)
CROWD = [asks(f"crowd{n}", f"{n % 70}", n % 4, f"{n % 3}") for n in range(100)]


@given(st.lists(GANGS | st.sampled_from("abcdef"), max_size=30), st.booleans())
def test_label_trees_follow_from_the_present_gangs(steps: list[GangFacts | str], crowded: bool) -> None:
    keys, there = LabelKeyTrees(), {each.id: each for each in CROWD if crowded}
    keys.take(there.values(), [])
    for step in steps:
        before = keys.labels()
        if isinstance(step, str):
            there.pop(f"native/a/{step}", None)
            reported = keys.take([], [f"native/a/{step}"])
        else:
            there[step.id] = step
            reported = keys.take([step], [])
        assert reported or keys.labels() == before
        anew = LabelKeyTrees()
        anew.take(there.values(), [])
        assert keys.labels() == anew.labels()
