"""The pods/eviction subresource with disruption budgets."""

import asyncio
from typing import Any

import pytest

from builders.kube.client import NODES, PODS, STRATEGIC, ApiClient, Reply, node, pod

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


async def running(api: ApiClient, *names: str, ready: bool = True) -> list[Any]:
    """Running pods with the label app=web."""
    created = []
    await api.post(NODES, node("n"))  # pods of a node that is not there are swept away
    for name in names:
        created.append(await api.created(PODS, pod(name, metadata={"labels": {"app": "web"}})))
        await api.bind(name, "n")
        conditions = [{"type": "Ready", "status": str(ready)}]
        await api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Running", "conditions": conditions}}, STRATEGIC)
    return created


async def budget(api: ApiClient, name: str = "web", **spec: Any) -> Any:
    """A budget for these pods, after its first status update."""
    selector = {"matchLabels": {"app": "web"}}
    await api.created(BUDGETS, {"metadata": {"name": name}, "spec": {"selector": selector, **spec}})
    counted = await api.until(f"{BUDGETS}/{name}", lambda reply: "observedGeneration" in reply.body["status"])
    return counted.body


async def allowed(api: ApiClient, count: int, name: str = "web") -> Any:
    """The budget's status once it allows that number of disruptions."""
    reply = await api.until(f"{BUDGETS}/{name}", lambda reply: reply.body["status"]["disruptionsAllowed"] == count)
    return reply.body["status"]


async def evict(api: ApiClient, name: str, query: str = "", **options: Any) -> Reply:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options}
    return await api.post(f"{PODS}/{name}/eviction{query}", eviction)


async def being_deleted(api: ApiClient, name: str) -> bool:
    return "deletionTimestamp" in (await api.get(f"{PODS}/{name}")).body["metadata"]


async def test_an_exhausted_budget_rejects_with_a_cause(api: ApiClient) -> None:
    await running(api, "a", "b")
    await budget(api, minAvailable=1)

    first, second = await evict(api, "a"), await evict(api, "b")

    assert (first.status, first.body["status"]) == (201, "Success")
    evicted = (await api.get(f"{PODS}/a")).body
    assert "deletionTimestamp" in evicted["metadata"]
    assert {"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI"}.items() <= evicted["status"]["conditions"][
        -1
    ].items()
    assert (second.status, second.reason, second.message) == (429, "TooManyRequests", REFUSAL)
    [cause] = second.body["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] in (
        "The disruption budget web does not allow evicting pods currently",  # the first is not counted yet
        "The disruption budget web needs 1 healthy pods and has 1 currently",
    )
    assert "Retry-After" not in second.headers
    assert not await being_deleted(api, "b")


async def test_concurrent_evictions_do_not_share_one_disruption(api: ApiClient) -> None:
    await running(api, "a", "b", "c", "d")
    await budget(api, maxUnavailable=2)

    replies = await asyncio.gather(*(evict(api, name) for name in "abcd"))

    assert sorted(reply.status for reply in replies) == [201, 201, 429, 429]


async def test_another_ready_pod_allows_an_eviction_again(api: ApiClient) -> None:
    await running(api, "a", "b")
    await budget(api, minAvailable=1)
    await evict(api, "a")
    await allowed(api, 0)

    await running(api, "c")
    await allowed(api, 1)

    assert (await evict(api, "b")).status == 201


@pytest.mark.parametrize(
    ("spec", "desired", "expected_allowed"),
    [
        ({"minAvailable": 3}, 3, 1),
        ({"minAvailable": "50%"}, 2, 2),
        ({"minAvailable": "51%"}, 3, 1),
        ({"minAvailable": 0}, 0, 4),
        ({"minAvailable": "100%"}, 4, 0),
        ({"maxUnavailable": 1}, 3, 1),
        ({"maxUnavailable": "30%"}, 2, 2),
        ({"maxUnavailable": 0}, 4, 0),
        ({}, 1, 3),
    ],
)
async def test_the_status_of_a_budget_has_its_allowed_disruptions(
    api: ApiClient, spec: dict[str, Any], desired: int, expected_allowed: int
) -> None:
    await running(api, "a", "b", "c", "d")
    found = (await budget(api, **spec))["status"]

    assert (found["currentHealthy"], found["expectedPods"], found["desiredHealthy"]) == (4, 4, desired)
    assert found["disruptionsAllowed"] == expected_allowed
    [condition] = found["conditions"]
    assert condition["type"] == "DisruptionAllowed"
    assert condition["status"] == ("True" if expected_allowed else "False")


async def test_unready_ended_and_other_pods_do_not_count_as_healthy(api: ApiClient) -> None:
    await running(api, "ready", "ended")
    await running(api, "starting", ready=False)
    ended = {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}
    await api.patch(f"{PODS}/ended/status", {"status": ended}, STRATEGIC)
    await api.created(PODS, pod("other"))
    found = (await budget(api, minAvailable=1))["status"]

    assert (found["currentHealthy"], found["expectedPods"], found["disruptionsAllowed"]) == (1, 2, 0)


async def test_watches_show_allowed_disruptions(api: ApiClient) -> None:
    await running(api, "a", "b")
    await budget(api, minAvailable=1)
    revision = (await api.get(BUDGETS)).revision

    async with api.watch(f"{BUDGETS}?resourceVersion={revision}") as events:
        await evict(api, "a")
        changed = await events.next()

    assert changed["type"] == "MODIFIED"
    assert changed["object"]["status"]["disruptionsAllowed"] == 0
    assert list(changed["object"]["status"]["disruptedPods"]) == ["a"]
    assert (
        "disruptedPods"
        not in (await api.until(f"{BUDGETS}/web", lambda reply: reply.body["status"]["currentHealthy"] == 1)).body[
            "status"
        ]
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minAvailable": 1, "maxUnavailable": 1}, "minAvailable and maxUnavailable cannot be both set"),
        ({"minAvailable": -1}, "must be greater than or equal to 0"),
        ({"minAvailable": "many"}, "a valid percent string must be a numeric string"),
        ({"maxUnavailable": "101%"}, "must not be greater than 100%"),
    ],
)
async def test_invalid_budgets(api: ApiClient, spec: dict[str, Any], words: str) -> None:
    reply = await api.post(BUDGETS, {"metadata": {"name": "web"}, "spec": {"selector": {}, **spec}})

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert words in reply.message


@pytest.mark.parametrize("amount", [1.5, True, [1]])
async def test_a_budget_with_mistyped_fields(api: ApiClient, amount: Any) -> None:
    reply = await api.post(BUDGETS, {"metadata": {"name": "web"}, "spec": {"selector": {}, "maxUnavailable": amount}})

    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert "PodDisruptionBudgetSpec.spec.maxUnavailable of type int32" in reply.message


async def test_pending_and_ended_pods_are_evicted_regardless_of_budgets(api: ApiClient) -> None:
    await api.created(PODS, pod("pending", metadata={"labels": {"app": "web"}}))
    await running(api, "ended")
    await api.patch(f"{PODS}/ended/status", {"status": {"phase": "Failed"}}, STRATEGIC)
    await budget(api, maxUnavailable=0)

    assert [(await evict(api, name)).status for name in ("pending", "ended")] == [201, 201]
    assert [(await api.get(f"{PODS}/{name}")).status for name in ("pending", "ended")] == [404, 404]


async def test_a_terminating_pod_is_evicted_regardless_of_budgets(api: ApiClient) -> None:
    await running(api, "a", "b")
    await budget(api, minAvailable=1)

    assert [(await evict(api, name)).status for name in ("a", "a", "b")] == [201, 201, 429]


async def test_an_unready_pod_is_evicted_if_enough_others_are_healthy(api: ApiClient) -> None:
    await running(api, "a")
    await running(api, "starting", ready=False)
    await budget(api, minAvailable=1)

    assert [(await evict(api, name)).status for name in ("starting", "a")] == [201, 429]


@pytest.mark.parametrize(("policy", "status"), [("IfHealthyBudget", 429), ("AlwaysAllow", 201)])
async def test_an_unready_pod_of_a_violated_budget(api: ApiClient, policy: str, status: int) -> None:
    await running(api, "starting", ready=False)
    await budget(api, minAvailable=1, unhealthyPodEvictionPolicy=policy)

    assert (await evict(api, "starting")).status == status


async def test_a_pod_of_several_budgets_cannot_be_evicted(api: ApiClient) -> None:
    await running(api, "a")
    await budget(api, "one", minAvailable=0)
    await budget(api, "two", minAvailable=0)

    reply = await evict(api, "a")

    assert (reply.status, reply.reason) == (500, "")
    assert reply.message.startswith("This pod has more than one PodDisruptionBudget")


async def test_eviction_checks_preconditions(api: ApiClient) -> None:
    [pod_a] = await running(api, "a")

    other = await evict(api, "a", preconditions={"uid": "other"})
    meant = await evict(api, "a", preconditions={"uid": pod_a["metadata"]["uid"]})

    assert (other.status, other.reason) == (409, "Conflict")
    assert "the UID in the precondition (other) does not match the UID in record" in other.message
    assert meant.status == 201


async def test_a_dry_run_checks_and_changes_nothing(api: ApiClient) -> None:
    await running(api, "a", "b")
    await budget(api, minAvailable=1)

    replies = [await evict(api, "a", "?dryRun=All"), await evict(api, "b", dryRun=["All"])]

    assert [reply.status for reply in replies] == [201, 201]
    assert not await being_deleted(api, "a") and not await being_deleted(api, "b")
    assert (await api.get(f"{BUDGETS}/web")).body["status"]["disruptionsAllowed"] == 1


async def test_invalid_evictions(api: ApiClient) -> None:
    await running(api, "a")

    assert (await evict(api, "nobody")).status == 404
    wrong = await api.post(f"{PODS}/a/eviction", {"metadata": {"name": "b"}})
    assert (wrong.status, wrong.message) == (400, "name in URL does not match name in Eviction object")


async def test_faults_can_be_injected_into_evictions(api: ApiClient) -> None:
    await api.created(NODES, node("n"))
    await running(api, "a")
    fault = {"method": "POST", "path_suffix": "/eviction", "status": 429, "retry_after_seconds": 1}
    await api.post("/muster-faults", fault)

    assert [(await evict(api, "a")).status for _ in range(2)] == [429, 201]
