"""Selectors and label sets are sent as they are; which pods a selector selects follows from both, in any order."""

from typing import Any

import pytest

from builders.clusterstate.history import History, Object, pod_object, settle
from builders.kube.inter_pod_rules import ZONE, affinity, labelled, spread, term, wish
from muster.gangs.facts import Batch, PodFacts
from muster.gangs.selection import PodSelection
from muster.kube.api_resources import NAMESPACES, PODS

DB, WEB = {"app": "db"}, {"app": "web"}


def namespace_object(name: str, uid: str = "", **labels: str) -> Object:
    return {"metadata": {"name": name, "uid": uid or f"uid-ns-{name}", "labels": labels}}


def near(app: str, **more: Any) -> dict[str, Any]:
    return {"affinity": affinity(near=[term(labelled(app=app), **more)])}


def away(app: str, **more: Any) -> dict[str, Any]:
    return {"affinity": affinity(away=[term(labelled(app=app), **more)])}


def selected(history: History) -> set[str]:
    """Names of pods that any selector selects."""
    snapshot, selection = history.state.snapshot(), PodSelection()
    selection.apply(snapshot)
    return {pod.name for pod in snapshot.pods if selection.representative(pod.label_set)}


def pods_of(batch: Batch) -> dict[str, PodFacts]:
    return {pod.name: pod for pod in batch.pods}


def test_a_selector_is_one_object_however_many_pods_it_selects() -> None:
    history = History()
    history.pods(*(pod_object(f"db-{index}", labels=DB) for index in range(20)), pod_object("web", labels=WEB))
    batch = history.pods(pod_object("a", **near("db")))
    assert set(pods_of(batch)) == {"a"}
    assert [each.id for each in batch.selectors] == [
        each.selector for each in batch.pod_classes[0].required_pod_affinity
    ]
    assert len(selected(history)) == 20


def test_equal_label_sets_are_sent_once() -> None:
    history = History()
    batch = history.pods(pod_object("a", labels=DB), pod_object("b", labels=DB), pod_object("c", labels=WEB))
    assert [each.labels for each in batch.label_sets] == [DB, WEB]
    assert {pod.label_set for pod in batch.pods} == {each.id for each in batch.label_sets}
    assert history.pods(pod_object("d", labels=DB)).label_sets == ()
    (other,) = history.pods(pod_object("e", labels=DB, namespace="dev")).label_sets
    assert (other.namespace, other.labels) == ("dev", DB)


def test_the_order_of_labels_makes_no_difference() -> None:
    history = History()
    history.pods(pod_object("a", labels={"x": "1", "y": "2"}))
    assert history.pods(pod_object("b", labels={"y": "2", "x": "1"})).label_sets == ()


def test_equal_selectors_are_sent_once() -> None:
    history = History()
    (first,) = history.pods(pod_object("a", **near("db"))).selectors
    batch = history.pods(pod_object("b", **away("db", topologyKey=ZONE)))
    assert (len(batch.pod_classes), batch.selectors) == (1, ())
    assert batch.pod_classes[0].required_pod_anti_affinity[0].selector == first.id


def test_pods_that_come_later_are_selected() -> None:
    history = History()
    history.pods(pod_object("a", **near("db")))
    history.pods(pod_object("db", labels=DB), pod_object("web", labels=WEB))
    assert selected(history) == {"db"}


@pytest.mark.parametrize(
    "spec",
    [
        near("db"),
        away("db"),
        {"affinity": affinity(preferred_near=[wish(1, term(labelled(app="db")))])},
        {"affinity": affinity(preferred_away=[wish(1, term(labelled(app="db")))])},
        {"topologySpreadConstraints": [spread(labelled(app="db"))]},
        {"topologySpreadConstraints": [spread(labelled(app="db"), whenUnsatisfiable="ScheduleAnyway")]},
    ],
    ids=["near", "away", "preferred", "disliked", "spread", "soft spread"],
)
def test_whatever_of_our_pods_names_a_selector_makes_it_matter(spec: Any) -> None:
    history = History()
    history.pods(pod_object("a", **spec), pod_object("db", labels=DB))
    assert selected(history) == {"db"}


def test_of_others_only_those_on_nodes_matter_that_keep_pods_away() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB))
    history.pods(pod_object("a", scheduler="other", **away("db")))
    history.pods(pod_object("b", scheduler="other", node="n", **near("db")))
    assert selected(history) == set()
    history.pods(pod_object("a", scheduler="other", node="n", **away("db")))
    assert selected(history) == {"db"}
    history.pods(pod_object("a", scheduler="other", node="n", phase="Succeeded", **away("db")))
    history.remove(PODS, "uid-b")
    swept(history)
    assert selected(history) == set()


def test_pods_of_others_are_selected_too() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB, scheduler="other", node="n"), pod_object("a", **near("db")))
    assert selected(history) == {"db"}


def swept(history: History) -> Batch:
    """The batch of the second of two sweeps, which removes what pods no longer use."""
    assert history.state.sweep() == Batch(through=history.state.through)
    return history.state.sweep()


def test_selectors_and_label_sets_are_removed_when_no_pod_had_them_for_two_sweeps() -> None:
    history = History()
    (db,) = history.pods(pod_object("db", labels=DB)).label_sets
    named = history.pods(pod_object("a", labels=WEB, **near("db")), pod_object("b", labels=WEB, **away("db")))
    history.remove(PODS, "uid-a")
    batch = swept(history)
    assert (len(batch.removed_pod_classes), batch.removed_selectors, batch.removed_label_sets) == (1, (), ())
    history.remove(PODS, "uid-b")
    history.remove(PODS, "uid-db")
    batch = swept(history)
    assert set(batch.removed_selectors) == {each.id for each in named.selectors}
    assert set(batch.removed_label_sets) == {db.id, *(each.id for each in named.label_sets)}
    assert not {kind: size for kind, size in history.state.sizes().items() if size and kind != "trees"}


def test_what_comes_back_between_two_sweeps_is_kept() -> None:
    history = History()
    history.pods(pod_object("a", labels=DB, **near("db")))
    history.remove(PODS, "uid-a")
    history.state.sweep()
    batch = history.pods(pod_object("b", labels=DB, **near("db")))
    assert (batch.pod_classes, batch.selectors, batch.label_sets) == ((), (), ())
    assert swept(history) == Batch(through=history.state.through)
    assert selected(history) == {"b"}


def test_what_was_removed_is_sent_again_when_it_comes_back() -> None:
    history = History()
    before = history.pods(pod_object("a", labels=DB, **near("db")))
    history.remove(PODS, "uid-a")
    swept(history)
    batch = history.pods(pod_object("b", labels=DB, **near("db")))
    assert (batch.pod_classes, batch.selectors, batch.label_sets) == (
        before.pod_classes,
        before.selectors,
        before.label_sets,
    )


def test_edited_labels() -> None:
    history = History()
    history.pods(pod_object("a", **near("db")), pod_object("x", labels=WEB))
    assert set(pods_of(history.pods(pod_object("x", labels=DB)))) == {"x"}
    assert selected(history) == {"x"}
    history.pods(pod_object("x", labels=WEB))
    assert selected(history) == set()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({}, {"a", "db", "web", "cache"}),
        (None, set()),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}, {"db", "web"}),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}, {"a", "web", "cache"}),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, {"db", "web", "cache"}),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"a"}),
        ({"matchLabels": {"app": "db", "tier": "back"}}, {"db"}),
        ({"matchLabels": {"app": "db", "tier": "front"}}, set()),
    ],
)
@pytest.mark.parametrize("first", ["pods", "selector"])
def test_every_kind_of_selector_finds_its_pods(selector: Any, names: set[str], first: str) -> None:
    history = History()
    pods = [
        pod_object("db", labels={**DB, "tier": "back"}),
        pod_object("web", labels={**WEB, "tier": "front"}),
        pod_object("cache", labels={"app": "cache"}),
        pod_object("elsewhere", labels={**DB, "tier": "back"}, namespace="dev"),
    ]
    named = [pod_object("a", affinity=affinity(away=[term(selector)]))]
    for each in (pods, named) if first == "pods" else (named, pods):
        history.pods(*each)
    assert selected(history) == names


class TestNamespaces:
    def test_all_and_named_ones(self) -> None:
        history = History()
        history.pods(*(pod_object(each, labels=DB, namespace=each) for each in ("ml", "dev", "prod")))
        history.pods(pod_object("a", **away("db", namespaces=["dev"])))
        assert selected(history) == {"dev"}
        history.pods(pod_object("b", **away("db", namespaceSelector={})))
        assert selected(history) == {"ml", "dev", "prod"}

    def test_by_their_labels_whichever_comes_first(self) -> None:
        history = History()
        history.put(NAMESPACES, namespace_object("prod", tier="live"))
        history.pods(*(pod_object(each, labels=DB, namespace=each) for each in ("dev", "prod")))
        history.pods(pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))))
        assert selected(history) == {"prod"}
        batch = history.put(NAMESPACES, namespace_object("dev", tier="live"))
        assert ([each.name for each in batch.namespaces], batch.pods, batch.changed) == (["dev"], (), {"namespaces": 5})
        assert selected(history) == {"dev", "prod"}

    def test_edited_and_deleted_ones(self) -> None:
        history = History()
        history.put(NAMESPACES, namespace_object("prod", tier="live"))
        history.pods(pod_object("db", labels=DB, namespace="prod"))
        history.pods(pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))))
        history.put(NAMESPACES, namespace_object("prod", tier="test"))
        assert selected(history) == set()
        history.put(NAMESPACES, namespace_object("prod", tier="live"))
        assert selected(history) == {"db"}
        assert history.remove(NAMESPACES, "uid-ns-prod").removed_namespaces == ("prod",)
        assert selected(history) == set()

    def test_one_that_was_made_anew_is_not_taken_for_gone(self) -> None:
        history = History()
        history.put(NAMESPACES, namespace_object("prod", "one", tier="live"))
        history.put(NAMESPACES, namespace_object("prod", "two", tier="live"))
        history.pods(pod_object("db", labels=DB, namespace="prod"))
        history.pods(pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))))
        assert history.remove(NAMESPACES, "one").removed_namespaces == ()
        assert selected(history) == {"db"}

    def test_one_without_labels_is_not_sent(self) -> None:
        history = History()
        assert history.put(NAMESPACES, namespace_object("ml")).namespaces == ()

    def test_if_they_cannot_be_read_pods_that_depend_on_them_say_so(self) -> None:
        history = History(settled=False)
        history.pods(
            pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))),
            pod_object("b", **away("db", namespaceSelector={})),
            pod_object("c", node="n", **away("db", namespaceSelector=labelled(tier="live"))),
        )
        settle(history.state, [NAMESPACES.kind])
        problems = {pod.name: pod.problem for pod in history.state.snapshot().pods}
        assert "namespaceSelector: cluster-state has no right to list and watch namespaces" in problems["a"]
        assert problems["b"] == problems["c"] == ""
        batch = history.put(NAMESPACES, namespace_object("prod"))
        assert pods_of(batch)["a"].problem == ""
