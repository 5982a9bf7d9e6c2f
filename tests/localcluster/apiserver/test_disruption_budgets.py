"""Disruption budgets without a status, and while evicted pods still exist."""

from typing import Any

import msgspec
import pytest

from builders.kube.client import pod
from muster.localcluster.apiserver.api import Answer, Api
from muster.localcluster.apiserver.bootstrap import bootstrap
from muster.localcluster.apiserver.builtin_kinds import builtin_kinds
from muster.localcluster.apiserver.clock import later_text
from muster.localcluster.apiserver.cluster import Cluster, Timing
from muster.localcluster.apiserver.disruption_budgets import budget_status
from muster.localcluster.apiserver.kinds import Kinds
from muster.localcluster.apiserver.routing import Call, find_target
from muster.localcluster.apiserver.status import StatusError
from muster.localcluster.apiserver.store import Record

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class Quiet:
    """API server without controllers."""

    def __init__(self) -> None:
        self.cluster = Cluster(Kinds(builtin_kinds()), history=100, timing=Timing())
        self.api = Api(self.cluster)
        bootstrap(self.cluster)

    def ask(self, method: str, path: str, body: Any, content_type: str = "application/json") -> Any:
        target = find_target(self.cluster.kinds, path)
        answer = self.api.answer(Call(method, target, {}, msgspec.json.encode(body), content_type))
        assert isinstance(answer, Answer)
        return msgspec.json.decode(answer.body)


def budget(**status: Any) -> Any:
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    return {"metadata": {"name": "web", "generation": 1}, "spec": spec, "status": status}


def ready_pod(name: str, **metadata: Any) -> Record:
    body = pod(name, metadata={"labels": {"app": "web"}, **metadata})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return Record(f"default/{name}", {**body, "status": status}, 1)


async def test_a_budget_without_status_rejects_evictions_for_a_while() -> None:
    quiet = Quiet()
    quiet.ask("POST", PODS, ready_pod("a").object)
    quiet.ask("PATCH", f"{PODS}/a/status", {"status": {"phase": "Running"}}, "application/merge-patch+json")
    quiet.ask("POST", BUDGETS, {**budget(), "metadata": {"name": "web"}})
    with pytest.raises(StatusError) as refused:
        quiet.ask("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})
    assert (refused.value.code, refused.value.retry_after_seconds) == (429, 10)
    assert "is still being processed by the server" in str(refused.value.details)


def test_a_disrupted_pod_does_not_count_as_healthy() -> None:
    pods = [ready_pod("a"), ready_pod("b")]
    status = budget_status(budget(disruptedPods={"a": later_text(-60), "gone": later_text(-60)}), pods)
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (1, 0)
    assert list(status["disruptedPods"]) == ["a"]


def test_a_new_pod_with_the_name_of_an_evicted_one_counts() -> None:
    pods = [ready_pod("a"), ready_pod("b")]
    status = budget_status(budget(disruptedPods={"a": later_text(-1)}), pods, {"a"})
    assert (status["currentHealthy"], "disruptedPods" in status) == (2, False)


def test_a_disrupted_pod_that_stays_counts_again() -> None:
    pods = [ready_pod("a"), ready_pod("b")]
    status = budget_status(budget(disruptedPods={"a": later_text(-121)}), pods)
    assert (status["currentHealthy"], status["disruptionsAllowed"]) == (2, 1)
    assert "disruptedPods" not in status


def test_a_terminating_pod_needs_no_entry() -> None:
    pods = [ready_pod("a", deletionTimestamp=later_text(30)), ready_pod("b")]
    status = budget_status(budget(disruptedPods={"a": later_text(-1)}), pods)
    assert (status["currentHealthy"], "disruptedPods" in status) == (1, False)


def test_an_unchanged_condition_keeps_its_transition_time() -> None:
    pods = [ready_pod("a"), ready_pod("b")]
    first = budget_status(budget(), pods)
    long_ago = later_text(-3600)
    first["conditions"][0]["lastTransitionTime"] = long_ago
    [same] = budget_status(budget(**first), pods)["conditions"]
    [other] = budget_status(budget(**first), pods[:1])["conditions"]
    assert (same["status"], same["lastTransitionTime"]) == ("True", long_ago)
    assert other["status"] == "False"
    assert other["lastTransitionTime"] >= later_text(-60)
