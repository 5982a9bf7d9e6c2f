"""The selectors that select a pod are part of its class, in whatever order both arrive."""

from typing import Any

import pytest

from builders.clusterstate.history import History, Object, pod_object
from builders.kube.inter_pod_rules import ZONE, affinity, labelled, spread, term, wish
from muster.gangs.facts import Batch, PodClass, PodFacts
from muster.kube.api_resources import NAMESPACES, PODS

DB, WEB = {"app": "db"}, {"app": "web"}


def namespace_object(name: str, uid: str = "", **labels: str) -> Object:
    return {"metadata": {"name": name, "uid": uid or f"uid-ns-{name}", "labels": labels}}


def near(app: str, **more: Any) -> dict[str, Any]:
    return {"affinity": affinity(near=[term(labelled(app=app), **more)])}


def away(app: str, **more: Any) -> dict[str, Any]:
    return {"affinity": affinity(away=[term(labelled(app=app), **more)])}


def class_of(history: History, pod: str) -> PodClass:
    facts = history.state.pods.facts[f"uid-{pod}"]
    return next(each for each in history.state.snapshot().pod_classes if each.id == facts.class_id)


def selected(history: History) -> set[str]:
    """Names of pods that any selector selects."""
    return {pod.name for pod in history.state.snapshot().pods if class_of(history, pod.name).selected_by}


def streamed(batch: Batch) -> dict[str, PodFacts]:
    return {pod.name: pod for pod in batch.pods}


def test_pods_that_were_there_are_told_again_together_with_the_selector() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB), pod_object("web", labels=WEB))
    batch = history.pods(pod_object("a", **near("db")))
    assert set(streamed(batch)) == {"a", "db"}
    (named,) = class_of(history, "a").required_pod_affinity
    assert class_of(history, "db").selected_by == (named.selector,)
    assert {each.id for each in batch.pod_classes} == {pod.class_id for pod in batch.pods}
    assert batch.changed == {"pods": 3}
    assert streamed(batch)["db"].revision == 1


def test_pods_that_come_later_have_it_from_the_start() -> None:
    history = History()
    history.pods(pod_object("a", **near("db")))
    batch = history.pods(pod_object("db", labels=DB), pod_object("web", labels=WEB))
    assert len(batch.pods) == 2
    assert selected(history) == {"db"}


def test_a_pod_may_be_selected_by_what_it_names_itself() -> None:
    history = History()
    batch = history.pods(pod_object("a", labels=DB, **away("db")))
    (only,) = batch.pod_classes
    assert only.selected_by == (only.required_pod_anti_affinity[0].selector,)
    assert history.pods(pod_object("b", labels=DB, **away("db"))).pod_classes == ()


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
    assert selected(history) == set()


def test_pods_of_others_are_selected_too() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB, scheduler="other", node="n"))
    assert [pod.name for pod in history.pods(pod_object("a", **near("db"))).pods] == ["a", "db"]


def test_a_selector_that_no_pod_names_any_more_selects_nobody() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB))
    before = history.state.pods.facts["uid-db"].class_id
    history.pods(pod_object("a", **near("db")), pod_object("b", **away("db", topologyKey=ZONE)))
    assert history.remove(PODS, "uid-a").pods == ()
    batch = history.remove(PODS, "uid-b")
    assert (streamed(batch)["db"].class_id, batch.changed) == (before, {"pods": 5})
    assert history.state.sizes()["pod_selectors"] == 0


def test_what_has_ended_names_none() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB), pod_object("a", node="n", **near("db")))
    batch = history.pods(pod_object("a", node="n", phase="Succeeded", **near("db")))
    assert set(streamed(batch)) == {"a", "db"}
    assert selected(history) == set()


def test_edited_labels() -> None:
    history = History()
    history.pods(pod_object("a", **near("db")), pod_object("x", labels=WEB))
    assert set(streamed(history.pods(pod_object("x", labels=DB)))) == {"x"}
    assert selected(history) == {"x"}
    history.pods(pod_object("x", labels=WEB))
    assert selected(history) == set()


def test_labels_that_no_selector_asks_for_change_nothing() -> None:
    history = History()
    history.pods(pod_object("a", **near("db")), pod_object("x", labels=DB))
    assert history.pods(pod_object("x", labels={**DB, "color": "red"})) == Batch(through={"pods": 3})


def test_several_selectors_are_sorted() -> None:
    history = History()
    history.pods(pod_object("db", labels={**DB, "tier": "back"}))
    history.pods(pod_object("a", **near("db")), pod_object("b", affinity=affinity(away=[term(labelled(tier="back"))])))
    ids = class_of(history, "db").selected_by
    assert len(ids) == 2 and list(ids) == sorted(ids)


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
        assert (set(streamed(batch)), batch.changed) == ({"dev"}, {"namespaces": 5})
        assert selected(history) == {"dev", "prod"}

    def test_edited_and_deleted_ones(self) -> None:
        history = History()
        history.put(NAMESPACES, namespace_object("prod", tier="live"))
        history.pods(pod_object("db", labels=DB, namespace="prod"))
        history.pods(pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))))
        assert set(streamed(history.put(NAMESPACES, namespace_object("prod", tier="test")))) == {"db"}
        history.put(NAMESPACES, namespace_object("prod", tier="live"))
        assert selected(history) == {"db"}
        assert set(streamed(history.remove(NAMESPACES, "uid-ns-prod"))) == {"db"}
        assert selected(history) == set()

    def test_one_that_was_made_anew_is_not_taken_for_gone(self) -> None:
        history = History()
        history.put(NAMESPACES, namespace_object("prod", "one", tier="live"))
        history.put(NAMESPACES, namespace_object("prod", "two", tier="live"))
        history.pods(pod_object("db", labels=DB, namespace="prod"))
        history.pods(pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))))
        assert history.remove(NAMESPACES, "one").pods == ()
        assert selected(history) == {"db"}

    def test_labels_that_no_selector_asks_for_change_nothing(self) -> None:
        history = History()
        history.pods(pod_object("db", labels=DB), pod_object("a", **away("db")))
        assert history.put(NAMESPACES, namespace_object("ml", tier="live")).pods == ()

    def test_if_they_cannot_be_read_pods_that_depend_on_them_say_so(self) -> None:
        history = History(settled=False)
        history.pods(
            pod_object("a", **away("db", namespaceSelector=labelled(tier="live"))),
            pod_object("b", **away("db", namespaceSelector={})),
            pod_object("c", node="n", **away("db", namespaceSelector=labelled(tier="live"))),
        )
        history.state.settle([NAMESPACES.kind])
        problems = {pod.name: pod.problem for pod in history.state.snapshot().pods}
        assert "namespaceSelector: cluster-state has no right to list and watch namespaces" in problems["a"]
        assert problems["b"] == problems["c"] == ""
        batch = history.put(NAMESPACES, namespace_object("prod"))
        assert streamed(batch)["a"].problem == ""


def test_sweeping_loses_nothing() -> None:
    history = History()
    history.pods(pod_object("db", labels=DB), pod_object("a", **near("db")), pod_object("b", **near("web")))
    history.remove(PODS, "uid-a")
    for _ in range(2):
        history.state.sweep()
    history.pods(pod_object("web", labels=WEB), pod_object("c", **near("db")))
    assert selected(history) == {"db", "web"}
    history.remove(PODS, "uid-b", "uid-c")
    assert selected(history) == set()
