"""Topology trees of Volcano's HyperNodes."""

import re
from typing import Any

import pytest

from builders.clusterstate.history import History, Object, node_object, pod_object
from muster.dialects import volcano
from muster.gangs.facts import Severity, TopologyTree
from muster.kube.api_resources import HYPER_NODES, NODES, definitions
from muster.kube.object_changes import ObjectChanges, Removed
from muster.topology.hyper_nodes import BadPattern, compile_pattern
from muster.topology.trees import TreePaths

BY_TIER, BY_NAME = "hypernodes", "hypernodes by tier name"


def member(name: str = "", *, kind: str = "Node", **selector: Any) -> Object:
    return {"type": kind, "selector": selector or {"exactMatch": {"name": name}}}


def hyper_node(name: str, tier: Any, *members: Object, tier_name: str = "") -> Object:
    spec = {"tier": tier, "members": list(members), **({"tierName": tier_name} if tier_name else {})}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}


def nodes_in(name: str, *nodes: str, tier: int = 1, tier_name: str = "") -> Object:
    return hyper_node(name, tier, *map(member, nodes), tier_name=tier_name)


def above(name: str, tier: int, *children: str, tier_name: str = "") -> Object:
    return hyper_node(name, tier, *(member(child, kind="HyperNode") for child in children), tier_name=tier_name)


def cluster(*hyper_nodes: Object, nodes: str = "abcd") -> History:
    history = History()
    history.nodes(*(node_object(name, labels={"rack": f"r{name}"}) for name in nodes))
    history.put(HYPER_NODES, *hyper_nodes)
    history.review()
    return history


def tree(history: History, name: str = BY_TIER) -> TopologyTree:
    return history.state.trees.facts[name]


def paths(history: History, name: str = BY_TIER) -> dict[str, str]:
    """The domains of each node in the tree, from the top."""
    found = TreePaths(tree(history, name))
    known = {node: found.path(node, {}) for node in history.state.nodes.facts}
    return {node: "/".join(path) for node, path in known.items() if path is not None}


def only_problem(history: History) -> str:
    (message,) = (each.message for each in tree(history).problems if each.severity is Severity.BLOCKING)
    return message


def test_levels_are_tiers_and_domains_are_hyper_nodes() -> None:
    history = cluster(nodes_in("r0", "a", "b"), nodes_in("r1", "c", "d"), above("s", 2, "r0", "r1"))
    assert [level.name for level in tree(history).levels] == ["tier-2", "tier-1", "node"]
    assert paths(history) == {"a": "s/r0", "b": "s/r0", "c": "s/r1", "d": "s/r1"}
    assert tree(history).problems == ()
    assert not tree(history).default


def test_a_changed_tree_has_the_revision_of_its_hyper_nodes() -> None:
    history = cluster(nodes_in("r0", "a", "b"))
    batch = history.put(HYPER_NODES, nodes_in("r1", "c", "d"))
    assert {each.name for each in batch.trees} == {BY_TIER}
    assert batch.changed[HYPER_NODES.kind] == history.revision


def test_a_tree_that_nodes_change_has_a_revision_that_older_trees_have_not() -> None:
    by_label = hyper_node("r0", 1, member(labelMatch={"matchLabels": {"rack": "r0"}}))
    replicas = [cluster(by_label, nodes="ab") for _ in range(2)]
    for each in replicas:
        batch = each.nodes(node_object("a", labels={"rack": "r0"}))
        assert batch.changed == {"nodes": each.revision}
        assert batch.through["topologytrees"] < each.revision
    first, second = replicas
    batch = first.review()
    assert [tree.name for tree in batch.trees] == [BY_TIER]
    assert batch.changed == {"topologytrees": first.revision}
    assert second.state.through["topologytrees"] < batch.changed["topologytrees"]
    assert second.review().trees == batch.trees
    assert second.state.through["topologytrees"] >= batch.changed["topologytrees"]


def test_no_solve_waits_for_a_tree_of_which_only_problems_change() -> None:
    history = cluster(nodes_in("r0", "a", "b"), nodes="ab")
    history.nodes(node_object("c"))
    batch = history.review()
    assert [tree.name for tree in batch.trees] == [BY_TIER]
    assert batch.changed == {}
    assert batch.through["topologytrees"] == history.revision


def test_a_snapshot_has_the_revisions_of_its_trees() -> None:
    history = cluster(hyper_node("r0", 1, member(regexMatch={"pattern": "^[ab]$"})), nodes="a")
    hyper_nodes = history.revision
    history.nodes(node_object("b"))
    history.review()
    nodes = history.revision
    history.nodes(node_object("b", ready=False))
    assert history.state.snapshot().changed == {"topologytrees": nodes, HYPER_NODES.kind: hyper_nodes}


def test_a_restored_history_lowers_the_revision_of_trees() -> None:
    history = cluster(hyper_node("r0", 1, member(regexMatch={"pattern": "^[ab]$"})), nodes="a")
    history.nodes(node_object("b"))
    batch, _ = history.state.apply(ObjectChanges(NODES.kind, [Removed("uid-b", 1)], through=2))
    assert batch.through["topologytrees"] == 1, "trees contain the node until they are computed again"
    batch = history.review()
    assert batch.through["topologytrees"] == batch.through["nodes"] == 2
    assert history.state.snapshot().changed["topologytrees"] <= 2


def test_nodes_that_join_one_after_another_change_the_tree_once() -> None:
    history = cluster(hyper_node("r0", 1, member(regexMatch={"pattern": "^n"})), nodes="a")
    batches = [history.nodes(node_object(f"n{number}")) for number in range(300)]
    assert not any(batch.trees for batch in batches)
    batch = history.review()
    assert [len(tree.leaves) for tree in batch.trees] == [300]
    assert batch.changed == {"topologytrees": history.revision}


def test_i12_many_patterns_are_evaluated_in_slices_before_their_tree() -> None:
    history = cluster(nodes="abcd")
    before = history.state.through.get(HYPER_NODES.kind)
    hyper_nodes = [
        hyper_node(f"r{n}", 1, member(regexMatch={"pattern": f"^{'abcd'[n % 4]}{{{n + 1}}}$"})) for n in range(50)
    ]
    batches = [history.put(HYPER_NODES, *hyper_nodes)]
    while history.state.has_work:
        assert not batches[-1].trees
        assert batches[-1].through.get(HYPER_NODES.kind) == before
        batches.append(history.state.advance())
    assert len(batches) >= 4
    assert batches[-1].changed == {HYPER_NODES.kind: history.revision}
    assert paths(history) == {"a": "r0"}
    history.nodes(node_object("bb"))
    history.review()
    assert paths(history) == {"a": "r0", "bb": "r1"}


def test_without_hyper_nodes_there_is_no_tree() -> None:
    history = cluster(nodes_in("r0", "a"))
    history.remove(HYPER_NODES, "uid-r0")
    history.review()
    assert set(history.state.trees.facts) == {"flat"}


def test_on_a_level_between_two_tiers_the_lower_one_applies() -> None:
    history = cluster(nodes_in("r0", "a", "b", tier=1), above("s", 3, "r0"), nodes_in("r1", "c", tier=2))
    assert [level.name for level in tree(history).levels] == ["tier-3", "tier-2", "tier-1", "node"]
    assert paths(history) == {"a": "s/r0/r0", "b": "s/r0/r0", "c": "r1/r1/c"}


def test_a_node_may_be_a_member_of_a_hyper_node_and_of_one_above() -> None:
    history = cluster(nodes_in("r0", "a"), hyper_node("s", 2, member("r0", kind="HyperNode"), member("a"), member("b")))
    assert paths(history) == {"a": "s/r0", "b": "s/b"}


def test_members_are_selected_by_pattern_and_label_and_follow_the_nodes() -> None:
    history = cluster(
        hyper_node("r0", 1, member(regexMatch={"pattern": "^[ab]$"})),
        hyper_node("r1", 1, member(labelMatch={"matchLabels": {"rack": "rc"}})),
        hyper_node("s", 2, member(kind="HyperNode", regexMatch={"pattern": "^r"})),
        nodes="ac",
    )
    assert paths(history) == {"a": "s/r0", "c": "s/r1"}
    history.nodes(node_object("b"), node_object("c", labels={"rack": "other"}))
    history.review()
    assert paths(history) == {"a": "s/r0", "b": "s/r0"}


def test_a_second_tree_has_the_names_of_the_tiers() -> None:
    history = cluster(
        nodes_in("r0", "a", tier_name="rack"), nodes_in("r1", "b", tier_name="rack"), above("s", 2, "r0", "r1")
    )
    assert [level.name for level in tree(history, BY_NAME).levels] == ["tier-2", "rack", "node"]
    assert paths(history, BY_NAME) == paths(history)
    other = cluster(nodes_in("r0", "a", tier_name="rack"), nodes_in("r1", "b", tier_name="row"))
    assert [level.name for level in tree(other, BY_NAME).levels] == ["tier-1", "node"]


@pytest.mark.parametrize(
    ("hyper_nodes", "about", "words"),
    [
        ((above("s", 2, "r9"),), "s", 'HyperNode "s" has the member HyperNode "r9", which does not exist'),
        ((above("p", 1, "q"), above("q", 1, "p")), "p", 'members of each other: "p" > "q" > "p"'),
        ((above("p", 1, "p"),), "p", 'members of each other: "p" > "p"'),
        ((above("p", 2, "q"), above("q", 2)), "p", '"p" of tier 2 has the member "q" of tier 2: its members must have'),
        ((above("p", 2, "r"), above("q", 2, "r"), above("r", 1)), "q", 'has the member HyperNode "r", and so has "p"'),
        ((nodes_in("p", "a"), nodes_in("q", "a")), "q", 'overlap: node "a" is a member of "p" and of "q"'),
        ((hyper_node("p", 15),), "p", 'HyperNode "p": spec.tier is "15", but it must be a number from 0 to 14'),
        ((hyper_node("p", "low"),), "p", 'spec.tier is "low"'),
        ((hyper_node("p", 1, member("a", kind="Rack")),), "p", 'spec.members[0].type is "Rack", which is neither'),
        ((hyper_node("p", 1, {"type": "Node"}),), "p", 'selector is "null", but it must have exactly one of'),
        (
            (hyper_node("p", 1, member(exactMatch={"name": "a"}, regexMatch={"pattern": "a"})),),
            "p",
            "but it must have exactly one of",
        ),
        ((hyper_node("p", 1, member(regexMatch={"pattern": "("})),), "p", '"(", which is not a regular expression'),
        (
            (hyper_node("p", 2, member(kind="HyperNode", labelMatch={"matchLabels": {"a": "b"}})),),
            "p",
            "only nodes are selected by labels",
        ),
        ((hyper_node("p", 1, member(labelMatch={})),), "p", "it must have a requirement"),
    ],
)
def test_what_is_no_tree_is_quoted_on_the_object(hyper_nodes: tuple[Object, ...], about: str, words: str) -> None:
    history = cluster(*hyper_nodes)
    assert words in only_problem(history)
    definition = tree(history).definition
    assert definition is not None
    assert (definition.kind, definition.name) == ("HyperNode", about)


def test_members_that_are_no_nodes_are_named_on_their_hyper_node() -> None:
    history = cluster(nodes_in("r0", "a"), nodes_in("r1", "b", "x", "y"))
    [absent] = [each for each in tree(history).problems if each.about is not None]
    assert absent.about is not None
    assert (absent.severity, absent.about.kind, absent.about.name) == (Severity.WARNING, "HyperNode", "r1")
    assert absent.message.startswith('HyperNode "r1" has members that are no nodes of the cluster: "x", "y"; they are')
    history.nodes(node_object("x"), node_object("y"))
    history.review()
    assert not [each for each in tree(history).problems if each.about is not None]


@pytest.mark.parametrize(
    ("hyper_nodes", "about", "words"),
    [
        (
            (nodes_in("p", "a", tier_name="rack"), nodes_in("q", "b", tier_name="row")),
            "q",
            'tierName of HyperNode "q" of tier 1 is "row", but HyperNode "p" of the tier has "rack": the level is',
        ),
        (
            (nodes_in("p", "a", tier_name="rack"), above("s", 2, "p", tier_name="rack")),
            "p",
            'tierName of HyperNode "p" of tier 1 is "rack", which is that of tier 2, too: the level is called tier-1',
        ),
        ((nodes_in("p", "a", tier_name="node"),), "p", 'is "node", which no level can have as its name'),
    ],
)
def test_tier_names_that_are_not_used_are_named(hyper_nodes: tuple[Object, ...], about: str, words: str) -> None:
    [problem] = [each for each in tree(cluster(*hyper_nodes), BY_NAME).problems if each.about is not None]
    assert problem.about is not None
    assert problem.about.name == about
    assert words in problem.message


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("^gpu-[[:lower:][:digit:]]+[^[:alnum:]]$", ["gpu-a1-"]),
        ("[[:^alnum:]][[:upper:]]", ["gpu-A-"]),
        (r"\Qa1\E$", ["gpu-a1"]),
        (r"\pL\d\z", ["gpu-a1"]),
        ("(?i)gpu-a-", ["gpu-A-"]),
    ],
)
def test_patterns_are_those_of_go(pattern: str, names: list[str]) -> None:
    assert list(filter(compile_pattern(pattern), ("gpu-a1-", "gpu-A-", "gpu-a1"))) == names


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[[:letter:]]", "is not a regular expression of Go: invalid character class range: [:letter:]"),
        ("gpu-(?=a)", "is not a regular expression of Go: invalid perl operator: (?="),
        ("(a)\\1", "is not a regular expression of Go: invalid escape sequence: \\1"),
        ("[", "is not a regular expression of Go: missing ]: ["),
        ("a{1001}", "is not a regular expression of Go: invalid repetition size: {1001}"),
        ("x" * 257, "has 257 characters; 256 are allowed"),
        ("(a{100}){9}", "whose repetitions make it too large: lower their numbers"),
    ],
)
def test_patterns_that_are_not_of_go_or_too_large_are_rejected(pattern: str, words: str) -> None:
    with pytest.raises(BadPattern, match=re.escape(words)):
        compile_pattern(pattern)


def test_of_a_long_cycle_some_are_named() -> None:
    names = [f"h{number:04d}" for number in range(3000)]
    children = dict(zip(names, [*names[1:], names[0]], strict=True))
    message = only_problem(cluster(*(above(name, 1, child) for name, child in children.items())))
    assert message.endswith("(3000 in all); remove one of them")
    assert message.count(" > ") == 5


def test_the_last_valid_tree_stays() -> None:
    history = cluster(nodes_in("r0", "a", "b"), above("s", 2, "r0"))
    before = paths(history)
    history.put(HYPER_NODES, above("s", 2, "r0", "r9"))
    history.review()
    assert "r9" in only_problem(history)
    assert paths(history) == before
    history.put(HYPER_NODES, nodes_in("r9", "c"))
    history.review()
    assert paths(history) == {**before, "c": "s/r9"}
    assert [problem.severity for problem in tree(history).problems] == [Severity.WARNING]  # d is outside


def test_gangs_that_name_the_trees_get_one_with_the_reason() -> None:
    history = cluster()
    assert BY_TIER not in history.state.trees.facts
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ml", "uid": "uid-g"},
        "spec": {"minMember": 1, "networkTopology": {"highestTierAllowed": 1}},
    }
    history.pods(pod_object("w-0", annotations={"scheduling.k8s.io/group-name": "g"}))
    history.put(definitions(volcano.DEFINITION), group)
    assert "there is no HyperNode" in only_problem(history)
    assert "tier-1" in [level.name for level in tree(history).levels]
    history.remove(definitions(volcano.DEFINITION), "uid-g")
    history.remove(definitions(volcano.DEFINITION), "uid-g")
    assert BY_TIER not in history.state.trees.facts


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*b", "a*a*a*a*a*b", "(.*a.*b.*c){9}"])
def test_patterns_are_matched_in_linear_time(pattern: str) -> None:
    assert not compile_pattern(pattern)("a" * 10_000 + "!")
