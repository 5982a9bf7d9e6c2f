"""Validating admission webhooks: selection, calls, and outcome of the request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from builders.kube.client import PODS, ApiClient, config_map, pod
from builders.kube.webhook import CONFIGURATIONS, Webhook, refuses, serving_webhook
from builders.wait import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    async with serving_webhook(tmp_path / "authority") as webhook:
        yield webhook


def about(resource: str, *operations: str) -> Any:
    return {"operations": list(operations), "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}


async def test_a_webhook_receives_the_object_to_be_stored(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    created = await api.created(PODS, pod(metadata={"generateName": "p-"}))
    [request] = webhook.asked
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", "default", False)
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["name"] == request["object"]["metadata"]["name"] == created["metadata"]["name"]
    assert request["object"]["metadata"]["uid"] == created["metadata"]["uid"]
    assert request["object"]["spec"]["schedulerName"] == "default-scheduler"
    assert request["oldObject"] is None


async def test_a_denial_has_the_webhooks_message(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    webhook.answer = refuses("not today", code=403, reason="Forbidden")
    refused = await api.post(PODS, pod("a"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == 'admission webhook "test.example.com" denied the request: not today'
    assert (await api.get(f"{PODS}/a")).status == 404


async def test_a_denial_without_a_message(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    webhook.answer = lambda _: {"allowed": False}
    refused = await api.post(PODS, pod("a"))
    assert (refused.status, refused.message) == (
        400,
        'admission webhook "test.example.com" denied the request without explanation',
    )


async def test_updates_and_deletions_include_the_old_object(api: ApiClient, webhook: Webhook) -> None:
    await api.created(MAPS, config_map("m"))
    rules = about("configmaps", "UPDATE", "DELETE")
    await api.created(CONFIGURATIONS, webhook.configuration(rules))
    await api.patch(f"{MAPS}/m", {"data": {"a": "new"}})
    await api.delete(f"{MAPS}/m")
    changed, deleted = webhook.asked
    assert (changed["oldObject"]["data"], changed["object"]["data"]) == ({"a": "b"}, {"a": "new"})
    assert (deleted["operation"], deleted["object"], deleted["oldObject"]["data"]) == ("DELETE", None, {"a": "new"})


async def test_an_object_that_changed_meanwhile_is_sent_again(api: ApiClient, webhook: Webhook) -> None:
    await api.created(MAPS, config_map("m"))
    await api.created(CONFIGURATIONS, webhook.configuration(about("configmaps", "UPDATE")))
    webhook.held = asyncio.Event()
    first = asyncio.create_task(api.patch(f"{MAPS}/m", {"data": {"first": "1"}}))
    second = asyncio.create_task(api.patch(f"{MAPS}/m", {"data": {"second": "2"}}))
    await eventually(lambda: len(webhook.asked) >= 2, "both patches reach the webhook", seconds=10)
    webhook.held.set()
    assert [(await each).status for each in (first, second)] == [200, 200]
    assert (await api.get(f"{MAPS}/m")).body["data"] == {"a": "b", "first": "1", "second": "2"}
    assert webhook.asked[-1]["object"]["data"] == {"a": "b", "first": "1", "second": "2"}


async def test_webhooks_are_called_by_rules_and_selectors(api: ApiClient, webhook: Webhook) -> None:
    selectors: dict[str, Any] = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
        "objectSelector": {"matchExpressions": [{"key": "quiet", "operator": "DoesNotExist"}]},
    }
    await api.created(CONFIGURATIONS, webhook.configuration(**selectors))
    await api.created(MAPS, config_map("m"))
    await api.created("/api/v1/namespaces/kube-public/pods", pod("elsewhere"))
    await api.created(PODS, pod("silent", metadata={"labels": {"quiet": "yes"}}))
    await api.patch(f"{PODS}/silent", {"metadata": {"labels": {"quiet": None}}})
    await api.created(PODS, pod("loud"))
    assert [each["name"] for each in webhook.asked] == ["loud"]


async def test_status_writes_are_another_resource(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration(about("pods/status", "UPDATE")))
    await api.created(PODS, pod("a"))
    await api.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await api.patch(f"{PODS}/a/status", {"status": {"phase": "Running"}})
    [request] = webhook.asked
    assert (request["subResource"], request["object"]["status"]["phase"]) == ("status", "Running")


@pytest.mark.parametrize(("policy", "status"), [("Fail", 500), ("Ignore", 201)])
@pytest.mark.parametrize("trouble", ["gone", "nonsense", "wrong uid", "no trust"])
async def test_an_unreachable_webhook(api: ApiClient, webhook: Webhook, policy: str, status: int, trouble: str) -> None:
    configuration = webhook.configuration(failurePolicy=policy)
    match trouble:
        case "gone":
            configuration["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:1/"
        case "nonsense":
            webhook.responds = lambda _: ["what?"]
        case "wrong uid":
            webhook.answer = lambda _: {"allowed": True, "uid": "another"}
        case _:
            del configuration["webhooks"][0]["clientConfig"]["caBundle"]
    await api.created(CONFIGURATIONS, configuration)
    reply = await api.post(PODS, pod("a"))
    assert reply.status == status, reply.body
    if status == 500:
        assert reply.message.startswith('Internal error occurred: failed calling webhook "test.example.com"')


async def test_a_slow_webhook_times_out(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration(timeoutSeconds=1))
    webhook.held = asyncio.Event()
    reply = await api.post(PODS, pod("a"))
    webhook.held.set()
    assert "context deadline exceeded" in reply.message


async def test_dry_runs_are_marked_and_change_nothing(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    assert (await api.post(f"{PODS}?dryRun=All", pod("a"))).status == 201
    assert webhook.asked[0]["dryRun"] is True
    assert (await api.get(f"{PODS}/a")).status == 404


async def test_pods_of_jobs_pass_webhooks_and_are_retried(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    refused_twice = iter([{"allowed": False}, {"allowed": False}])
    webhook.answer = lambda _: next(refused_twice, {"allowed": True})
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    spec = {"parallelism": 3, "completions": 3, "template": template}
    await api.created(JOBS, {"metadata": {"name": "j"}, "spec": spec})
    await api.until(f"{JOBS}/j", lambda reply: (reply.body.get("status") or {}).get("active") == 3)
    assert len(await api.names(PODS)) == 3
    events = (await api.get("/api/v1/namespaces/default/events")).body["items"]
    assert [(each["reason"], each["involvedObject"]["name"]) for each in events] == [("FailedCreate", "j")]


async def test_warnings_reach_the_client(api: ApiClient, webhook: Webhook) -> None:
    await api.created(CONFIGURATIONS, webhook.configuration())
    webhook.answer = lambda _: {"allowed": True, "warnings": ["mind the gap"]}
    assert (await api.post(PODS, pod("a"))).headers["Warning"] == '299 - "mind the gap"'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "short"}, "should be a domain with at least three segments"),
        ({"sideEffects": "Some"}, 'Unsupported value: "Some"'),
        ({"clientConfig": {"url": "http://127.0.0.1"}}, "'https' is the only allowed URL scheme"),
        ({"clientConfig": {}}, "exactly one of url or service is required"),
        ({"timeoutSeconds": 31}, "must be between 1 and 30 seconds"),
        ({"admissionReviewVersions": ["v1beta1"]}, "must include at least one of v1"),
        ({"failurePolicy": "Maybe"}, 'Unsupported value: "Maybe"'),
        ({"rules": [{"operations": ["READ"]}]}, "Required value"),
        ({"matchConditions": [{"name": "x", "expression": "true"}]}, "does not evaluate CEL"),
    ],
)
async def test_invalid_webhook_configurations(api: ApiClient, webhook: Webhook, change: Any, message: str) -> None:
    refused = await api.post(CONFIGURATIONS, webhook.configuration(name="test") | _changed(webhook, change))
    assert refused.status == 422
    assert message in refused.message


def _changed(webhook: Webhook, change: Any) -> Any:
    [one] = webhook.configuration()["webhooks"]
    return {"webhooks": [{**one, **change}]}
