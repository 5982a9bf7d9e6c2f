"""Facts of PodDisruptionBudgets; malformed ones allow no disruption."""

import json
from typing import Any

import pytest

from builders.clusterstate.history import budget_object
from muster.gangs.facts import DisruptionBudget
from muster.gangs.selectors import EVERYTHING_SELECTED, NOTHING_SELECTED
from muster.kube.budget_facts import ReadBudget, decode_budget, read_budget
from muster.kube.objects import BadObject


def read(content: dict[str, Any]) -> ReadBudget:
    content["metadata"].setdefault("resourceVersion", "5")
    return read_budget(decode_budget(json.dumps(content).encode()))


def test_id_is_namespace_and_name() -> None:
    assert read(budget_object("web", {}, allowed=3)) == ReadBudget(DisruptionBudget("ml/web", 3), EVERYTHING_SELECTED)


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"observedGeneration": 2, "disruptionsAllowed": 3}, 3),
        ({"observedGeneration": 3, "disruptionsAllowed": 3}, 3),
        ({"observedGeneration": 1, "disruptionsAllowed": 3}, 0),
        ({"disruptionsAllowed": 3}, 0),
        ({"observedGeneration": 2, "disruptionsAllowed": -1}, 0),
        ({"observedGeneration": 2}, 0),
        ({}, 0),
    ],
)
def test_only_a_current_status_allows_disruptions(status: dict[str, Any], allowed: int) -> None:
    read_ = read(budget_object("web", {}) | {"status": status})
    assert (read_.facts.allowed, read_.problem) == (allowed, "")


def test_missing_status_allows_nothing() -> None:
    budget = budget_object("web", {})
    del budget["status"]
    assert read(budget).facts.allowed == 0


def test_absent_selector_covers_nothing() -> None:
    budget = budget_object("web")
    assert read(budget).selector == NOTHING_SELECTED
    del budget["spec"]["selector"]
    assert read(budget).selector == NOTHING_SELECTED


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"selector": "app=web"}},
        {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}},
        {"spec": 5},
        {"status": {"observedGeneration": 2, "disruptionsAllowed": "many"}},
        {"status": []},
    ],
    ids=["selector", "operator", "spec", "allowed", "status"],
)
def test_malformed_budget_allows_nothing_and_covers_all_pods(change: dict[str, Any]) -> None:
    read_ = read(budget_object("web", {"matchLabels": {"app": "web"}}, allowed=9) | change)
    assert read_.facts == DisruptionBudget("ml/web", 0)
    assert read_.selector == EVERYTHING_SELECTED
    assert read_.problem


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"7"])
def test_non_object_is_an_error(data: bytes) -> None:
    with pytest.raises(BadObject):
        decode_budget(data)
