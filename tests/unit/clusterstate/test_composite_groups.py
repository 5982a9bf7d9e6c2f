"""CompositePodGroups: trees of PodGroups that start together, in whatever order their objects arrive."""

import itertools
from typing import Any

import pytest

from builders.clusterstate.history import NATIVE_POD_GROUPS, History, Object, native_pod_group_object, pod_object
from muster.dialects.composites import MAX_DEPTH, MAX_GANGS
from muster.gangs.facts import CompositeFacts, GangFacts, Severity
from muster.kube.api_resources import COMPOSITE_GROUPS

RACK, ZONE = "example.com/rack", "topology.kubernetes.io/zone"


def composite(name: str, minimum: int = 0, *, parent: str = "", key: str = "", uid: str = "", **spec: Any) -> Object:
    """A CompositePodGroup; without a minimum it is basic."""
    content: Object = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}} if minimum else {"basic": {}}, **spec}
    content["workloadRef"] = {"workloadName": "w", "templateName": name, **spec.get("workloadRef", {})}
    if parent:
        content["parentCompositePodGroupName"] = parent
    if key:
        content["schedulingConstraints"] = {"topology": [{"key": key}]}
    metadata = {"name": name, "namespace": "ml", "uid": uid or f"uid-composite-{name}"}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": metadata,
        "spec": content,
    }


def leaf(name: str, parent: str, minimum: int = 1) -> Object:
    return native_pod_group_object(name, {"gang": {"minCount": minimum}}, parentCompositePodGroupName=parent)


def pod(group: str) -> Object:
    return pod_object(f"{group}-0", schedulingGroup={"podGroupName": group})


def gangs_of(history: History) -> dict[str, GangFacts]:
    return {each.name: each for each in history.state.snapshot().gangs}


def why(facts: GangFacts) -> str:
    """The blocking problem."""
    return next((each.message for each in facts.problems if each.severity is Severity.BLOCKING), "")


def started(*composites: Object, leaves: dict[str, str]) -> History:
    history = History()
    history.put(COMPOSITE_GROUPS, *composites)
    history.put(NATIVE_POD_GROUPS, *(leaf(name, parent) for name, parent in leaves.items()))
    history.pods(*map(pod, leaves))
    return history


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_groups_of_a_tree_are_a_gang_group_in_any_order(order: tuple[int, ...]) -> None:
    history = History()
    events = [
        lambda: history.put(COMPOSITE_GROUPS, composite("root", 2, key=ZONE)),
        lambda: history.put(COMPOSITE_GROUPS, composite("inner", 1, parent="root", key=RACK)),
        lambda: history.put(NATIVE_POD_GROUPS, leaf("a", "root"), leaf("b", "inner")),
        lambda: history.pods(pod("a"), pod("b")),
    ]
    for each in order:
        events[each]()
    a, b = gangs_of(history)["a"], gangs_of(history)["b"]
    assert a.group == b.group == ("native/ml/a", "native/ml/b")
    root = CompositeFacts("ml/root", f"label {ZONE}", ZONE, 2)
    assert a.composites == (root,)
    assert b.composites == (root, CompositeFacts("ml/inner", f"label {RACK}", RACK))
    assert not a.problems
    assert not b.problems
    assert {tree.name for tree in history.state.snapshot().trees} >= {f"label {ZONE}", f"label {RACK}"}


def test_groups_wait_for_their_parents() -> None:
    history = started(composite("inner", 1, parent="root"), leaves={"a": "inner"})
    assert 'CompositePodGroup "ml/root", the parent of CompositePodGroup "ml/inner", does not exist yet' in why(
        gangs_of(history)["a"]
    )
    history.put(COMPOSITE_GROUPS, composite("root", 1))
    assert not gangs_of(history)["a"].problems
    history.remove(COMPOSITE_GROUPS, "uid-composite-inner")
    assert 'CompositePodGroup "ml/inner", the parent of PodGroup "ml/a"' in why(gangs_of(history)["a"])


def test_groups_wait_for_as_many_as_the_composite_needs() -> None:
    history = started(composite("root", 2), leaves={"a": "root"})
    assert 'CompositePodGroup "ml/root" needs 2 groups, of which 1 exist' in why(gangs_of(history)["a"])
    history.put(NATIVE_POD_GROUPS, leaf("b", "root"))
    assert not gangs_of(history)["a"].problems
    assert gangs_of(history)["a"].group == ("native/ml/a", "native/ml/b")
    history.remove(NATIVE_POD_GROUPS, "uid-native-b")
    assert "of which 1 exist" in why(gangs_of(history)["a"])


def test_the_number_of_groups_that_start_together_may_be_edited() -> None:
    history = started(composite("root", 1), leaves={"a": "root", "b": "root"})
    assert not gangs_of(history)["a"].problems
    assert [each.minimum for each in gangs_of(history)["a"].composites] == [1]
    history.put(COMPOSITE_GROUPS, composite("root", 2))
    assert [each.minimum for each in gangs_of(history)["b"].composites] == [2]


def test_groups_of_a_basic_composite_start_on_their_own() -> None:
    history = started(
        composite("root"), composite("inner", 2, parent="root"), leaves={"a": "root", "b": "inner", "c": "inner"}
    )
    found = gangs_of(history)
    assert (found["a"].group, found["a"].composites) == ((), ())
    assert found["b"].group == found["c"].group == ("native/ml/b", "native/ml/c")
    assert [each.name for each in found["b"].composites] == ["ml/inner"]


def test_a_basic_composite_in_a_gang_counts_with_its_first_group() -> None:
    history = started(
        composite("root", 2), composite("any", parent="root"), leaves={"a": "root", "b": "any", "c": "any"}
    )
    found = gangs_of(history)
    assert not found["b"].problems
    assert [(each.name, each.minimum) for each in found["b"].composites] == [("ml/root", 2), ("ml/any", 1)]
    assert found["a"].group == found["c"].group == ("native/ml/a", "native/ml/b", "native/ml/c")


def test_the_groups_of_a_basic_composite_share_its_domain() -> None:
    history = started(
        composite("root"), composite("any", parent="root", key=RACK), leaves={"a": "root", "b": "any", "c": "any"}
    )
    found = gangs_of(history)
    assert (found["a"].group, found["a"].composites) == ((), ())
    assert not found["b"].problems
    assert [(each.name, each.minimum, each.level) for each in found["b"].composites] == [("ml/any", 1, RACK)]
    assert found["b"].group == found["c"].group == ("native/ml/b", "native/ml/c")


@pytest.mark.parametrize(
    ("composites", "words"),
    [
        (
            [composite("root", 1, parent="other"), composite("other", 1, parent="root")],
            'a cycle: "root" below "other" below "root"',
        ),
        ([composite("root", 1, parent="root")], 'a cycle: "root" below "root"'),
        (
            [
                composite("root", 1, parent="c1"),
                *(composite(f"c{n}", 1, parent=f"c{n + 1}") for n in range(1, MAX_DEPTH + 1)),
            ],
            f"more than {MAX_DEPTH} CompositePodGroups are above PodGroup",
        ),
        (
            [composite("root", schedulingPolicy={})],
            'schedulingPolicy of CompositePodGroup "ml/root" is "{}", but it must have one of gang and basic',
        ),
        (
            [composite("root", schedulingPolicy={"gang": {"minGroupCount": 0}})],
            'minGroupCount of CompositePodGroup "ml/root" is "0", but it must be at least 1',
        ),
        ([composite("root", 1, key="a b")], "a key must be that of a label"),
        (
            [composite("root", 1, parent="top"), composite("top", 1, workloadRef={"workloadName": "v"})],
            'are of several Workloads: "v", "w"',
        ),
    ],
)
def test_an_invalid_tree_blocks_its_gangs_and_is_quoted(composites: list[Object], words: str) -> None:
    history = started(*composites, leaves={"a": "root"})
    assert words in why(gangs_of(history)["a"])
    assert gangs_of(history)["a"].group == ()


def test_too_many_groups_wait_until_there_are_fewer() -> None:
    names = {f"g{number}": "root" for number in range(MAX_GANGS + 1)}
    history = started(composite("root", 1), leaves=names)
    history.review()
    assert all(f"more than {MAX_GANGS} PodGroups" in why(facts) for facts in gangs_of(history).values())
    history.remove(NATIVE_POD_GROUPS, "uid-native-g0")
    history.review()
    found = gangs_of(history)
    del found["g0"]
    assert not any(map(why, found.values()))


def test_the_late_removal_of_a_former_composite_has_no_effect() -> None:
    history = started(composite("root", 1), leaves={"a": "root"})
    history.put(COMPOSITE_GROUPS, composite("root", 1, key=RACK, uid="second"))
    history.remove(COMPOSITE_GROUPS, "uid-composite-root")
    assert [each.level for each in gangs_of(history)["a"].composites] == [RACK]
    history.remove(COMPOSITE_GROUPS, "second")
    assert "does not exist yet" in why(gangs_of(history)["a"])


def test_nothing_remains_of_a_tree() -> None:
    history = started(composite("root", 2), composite("inner", 1, parent="root"), leaves={"a": "root", "b": "inner"})
    history.remove(COMPOSITE_GROUPS, "uid-composite-root", "uid-composite-inner")
    history.remove(NATIVE_POD_GROUPS, "uid-native-a", "uid-native-b")
    groups = history.state.composite_groups
    assert not any(vars(groups).values())
