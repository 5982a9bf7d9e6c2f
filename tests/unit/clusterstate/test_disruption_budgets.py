"""The budgets that cover our pods, in whatever order both arrive and change."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from builders.clusterstate.history import History, budget_object, pod_object
from muster.clusterstate import disruption_budgets
from muster.gangs.facts import Batch, DisruptionBudget, PodFacts
from muster.kube.api_resources import BUDGETS

WEB = {"matchLabels": {"app": "web"}}


def web_pod(name: str = "a", **more: Any) -> dict[str, Any]:
    return pod_object(name, labels={"app": "web"}, **more)


def only_pod(batch: Batch) -> PodFacts:
    (pod,) = batch.pods
    return pod


def covering(history: History) -> dict[str, tuple[str, ...]]:
    return {pod.name: pod.budgets for pod in history.state.snapshot().pods}


def test_a_pod_knows_the_budgets_that_were_there_before_it() -> None:
    history = History()
    batch = history.budgets(budget_object("y", WEB, allowed=2), budget_object("x", {}), budget_object("z", None))
    assert batch.budgets == (DisruptionBudget("ml/y", 2), DisruptionBudget("ml/x", 1), DisruptionBudget("ml/z", 1))
    assert batch.changed == {"poddisruptionbudgets.policy": 3}
    history.pods(web_pod("a"), pod_object("b"), web_pod("c", namespace="dev"))
    assert covering(history) == {"a": ("ml/x", "ml/y"), "b": ("ml/x",), "c": ()}


def test_a_budget_that_comes_later_covers_pods_that_were_there() -> None:
    history = History()
    history.pods(web_pod("a"), pod_object("b"), web_pod("c", namespace="dev"))
    batch = history.budgets(budget_object("x", WEB))
    assert {pod.name: pod.budgets for pod in batch.pods} == {"a": ("ml/x",)}
    assert batch.changed == {"poddisruptionbudgets.policy": 4}
    assert covering(history) == {"a": ("ml/x",), "b": (), "c": ()}


@pytest.mark.parametrize("selector", [None, {}], ids=["nothing", "everything"])
def test_one_may_cover_all_or_none(selector: Any) -> None:
    history = History()
    history.pods(web_pod())
    history.budgets(budget_object("x", selector))
    assert covering(history) == {"a": () if selector is None else ("ml/x",)}


def test_pods_of_others_and_of_other_namespaces_are_not_covered() -> None:
    history = History()
    history.pods(web_pod("a", scheduler="default-scheduler", node="n"), web_pod("b", namespace="dev"))
    assert history.budgets(budget_object("x", WEB)).pods == ()


def test_an_edited_selector_covers_others() -> None:
    history = History()
    history.budgets(budget_object("x", WEB))
    history.pods(web_pod("a"), pod_object("b"))
    history.budgets(budget_object("x", {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}))
    assert covering(history) == {"a": (), "b": ("ml/x",)}


def test_a_new_status_tells_the_budget_alone() -> None:
    history = History()
    history.budgets(budget_object("x", WEB, allowed=1))
    history.pods(web_pod())
    batch = history.budgets(budget_object("x", WEB, allowed=0))
    assert (batch.budgets, batch.pods, batch.changed) == (
        (DisruptionBudget("ml/x", 0),),
        (),
        {"poddisruptionbudgets.policy": 3},
    )
    assert history.budgets(budget_object("x", WEB, allowed=0, minAvailable=7)) == Batch(
        through={"pods": 2, "poddisruptionbudgets.policy": 4}
    )


def test_a_pod_whose_labels_change_changes_its_budgets() -> None:
    history = History()
    history.budgets(budget_object("x", WEB))
    history.pods(web_pod())
    assert only_pod(history.pods(pod_object("a"))).budgets == ()
    assert only_pod(history.pods(web_pod())).budgets == ("ml/x",)


def test_labels_that_no_budget_asks_for_change_nothing() -> None:
    history = History()
    history.budgets(budget_object("x", WEB))
    history.pods(web_pod())
    assert only_pod(history.pods(pod_object("a", labels={"app": "web", "color": "red"}))).budgets == ("ml/x",)


def test_a_budget_that_goes_leaves_its_pods() -> None:
    history = History()
    history.budgets(budget_object("x", WEB), budget_object("y", {}))
    history.pods(web_pod())
    batch = history.remove(BUDGETS, "uid-budget-x")
    assert (batch.removed_budgets, only_pod(batch).budgets) == (("ml/x",), ("ml/y",))
    assert history.remove(BUDGETS, "uid-budget-x") == Batch(through=batch.through | {BUDGETS.kind: 5})
    history.pods(web_pod("b"))
    assert covering(history)["b"] == ("ml/y",)


def test_one_that_was_made_anew_is_not_taken_for_gone() -> None:
    history = History()
    history.budgets(budget_object("x", WEB, uid="one"))
    history.budgets(budget_object("x", WEB, uid="two"))
    assert history.remove(BUDGETS, "one").removed_budgets == ()
    assert history.remove(BUDGETS, "two").removed_budgets == ("ml/x",)


def test_one_that_cannot_be_read_spares_all_pods_of_its_namespace() -> None:
    history = History()
    history.pods(web_pod())
    batch = history.budgets(budget_object("x", "app=web", allowed=5))
    assert (batch.budgets, only_pod(batch).budgets) == ((DisruptionBudget("ml/x", 0),), ("ml/x",))
    corrected = history.budgets(budget_object("x", {"matchLabels": {"app": "db"}}, allowed=5))
    assert (corrected.budgets, only_pod(corrected).budgets) == ((DisruptionBudget("ml/x", 5),), ())


def selecting(*requirements: tuple[str, str, list[str] | None]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": kind, "values": of} for key, kind, of in requirements]}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (selecting(("app", "Exists", None)), {"a", "b", "c"}),
        (selecting(("app", "Exists", None), ("tier", "Exists", None)), {"c"}),
        (selecting(("app", "Exists", None), ("app", "NotIn", ["web"])), {"b", "c"}),
        (selecting(("app", "DoesNotExist", None)), {"d"}),
        (selecting(("app", "In", [f"v{number}" for number in range(100)] + ["web"])), {"a"}),
        (selecting(("app", "NotIn", [f"v{number}" for number in range(100)] + ["web"])), {"b", "c", "d"}),
    ],
)
@pytest.mark.parametrize("budget_first", [True, False])
def test_pods_are_covered_whatever_the_operator(selector: Any, names: set[str], budget_first: bool) -> None:
    history = History()
    if budget_first:
        history.budgets(budget_object("x", selector))
    history.pods(web_pod("a"), pod_object("b", labels={"app": "db"}), pod_object("d"))
    history.pods(pod_object("c", labels={"app": "db", "tier": "1"}))
    if not budget_first:
        history.budgets(budget_object("x", selector))
    assert {name for name, budgets in covering(history).items() if budgets} == names
    history.remove(BUDGETS, "uid-budget-x")
    assert not any(covering(history).values())


def many(number: int, operator: str = "NotIn", values: int = 1) -> dict[str, Any]:
    of = [f"v{index}" for index in range(values)] if operator == "NotIn" else None
    return selecting(*((f"k{index}", operator, of) for index in range(number)))


@pytest.mark.parametrize("selector", [many(9), many(9, "DoesNotExist"), many(2, values=501)])
def test_i12_a_budget_with_too_large_a_selector_is_left_to_the_api_server(selector: Any) -> None:
    history = History()
    history.pods(web_pod())
    with capture_logs() as logs:
        history.budgets(budget_object("x", selector))
    assert covering(history) == {"a": ()}
    assert [each["effect"] for each in logs] == ["only the API server considers it"]
    assert "8 and 1000 are considered" in logs[0]["problem"]
    history.pods(web_pod("b"))
    history.budgets(budget_object("x", many(8)))
    assert covering(history) == {"a": ("ml/x",), "b": ("ml/x",)}
    history.budgets(budget_object("x", selector))
    assert covering(history) == {"a": (), "b": ()}


class TestMoreThanAreConsidered:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(disruption_budgets, "MAX_BUDGETS", 2)

    def test_budgets_above_the_limit_cover_nothing_until_others_end(self) -> None:
        history = History()
        history.pods(web_pod())
        batch = history.budgets(*[budget_object(name, WEB) for name in "pqrs"])
        assert [each.id for each in batch.budgets] == ["ml/p", "ml/q", "ml/r", "ml/s"]
        assert covering(history) == {"a": ("ml/p", "ml/q")}
        history.remove(BUDGETS, "uid-budget-r", "uid-budget-p")
        assert covering(history) == {"a": ("ml/q", "ml/s")}
        history.remove(BUDGETS, "uid-budget-q", "uid-budget-s")
        assert covering(history) == {"a": ()}

    def test_another_namespace_has_its_own(self) -> None:
        history = History()
        history.pods(web_pod(), web_pod("b", namespace="dev"))
        history.budgets(*[budget_object(name, WEB) for name in "pqr"])
        history.budgets(budget_object("x", WEB, namespace="dev", uid="dev-x"))
        assert covering(history)["b"] == ("dev/x",)

    def test_an_edit_of_one_left_out_counts_when_it_is_considered(self) -> None:
        history = History()
        history.pods(web_pod())
        history.budgets(*[budget_object(name, WEB) for name in "pqr"])
        history.budgets(budget_object("r", {"matchLabels": {"app": "db"}}))
        history.remove(BUDGETS, "uid-budget-p", "uid-budget-q")
        assert covering(history) == {"a": ()}
        history.budgets(budget_object("r", WEB))
        assert covering(history) == {"a": ("ml/r",)}

    def test_one_left_out_that_was_made_anew_is_not_taken_for_gone(self) -> None:
        history = History()
        history.pods(web_pod())
        history.budgets(*[budget_object(name, WEB) for name in "pqr"])
        history.budgets(budget_object("r", WEB, uid="new"))
        history.remove(BUDGETS, "uid-budget-r", "uid-budget-p")
        assert covering(history) == {"a": ("ml/q", "ml/r")}
