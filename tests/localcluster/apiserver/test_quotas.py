"""ResourceQuotas: admission of pods and other objects."""

import asyncio
from typing import Any

import pytest

from builders.kube.client import PODS, ApiClient, Reply, config_map, pod

QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def quota(name: str = "q", **hard: str) -> Any:
    bounds = {key.replace("_", "."): amount for key, amount in hard.items()}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": bounds}}


def of_user(reply: Reply) -> Any:
    return (reply.body.get("status") or {}).get("used")


async def counted(api: ApiClient, body: Any) -> None:
    """Create a quota and wait until it is enforced."""
    await api.created(QUOTAS, body)
    await api.until(f"{QUOTAS}/{body['metadata']['name']}", lambda reply: of_user(reply) is not None)


async def used(api: ApiClient, expected: Any, name: str = "q") -> None:
    await api.until(f"{QUOTAS}/{name}", lambda reply: of_user(reply) == expected)


def limited_pod(name: str, **limits: str) -> Any:
    body = pod(name)
    body["spec"]["containers"][0]["resources"] = {"limits": limits}
    return body


async def test_pods_are_charged_until_the_quota_is_exhausted(api: ApiClient) -> None:
    await counted(api, quota(cpu="3", requests_memory="2Gi", pods="5"))
    for name in ("a", "b"):
        await api.created(PODS, pod(name, requests={"cpu": "1500m", "memory": "512Mi"}))
    assert of_user(await api.get(f"{QUOTAS}/q")) == {"cpu": "3", "pods": "2", "requests.memory": "1Gi"}
    refused = await api.post(PODS, pod("c", requests={"cpu": "100m", "memory": "1Gi"}))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'pods "c" is forbidden: exceeded quota: q, requested: cpu=100m, used: cpu=3, limited: cpu=3'
    )


async def test_only_exceeded_resources_are_named(api: ApiClient) -> None:
    await counted(api, quota(limits_memory="1Gi", limits_cpu="1", pods="1"))
    refused = await api.post(PODS, limited_pod("a", cpu="2", memory="3Gi"))
    message = "requested: limits.cpu=2,limits.memory=3Gi, used: limits.cpu=0,limits.memory=0, limited: limits.cpu=1"
    assert f"exceeded quota: q, {message},limits.memory=1Gi" in refused.message


async def test_every_container_must_specify_limited_resources(api: ApiClient) -> None:
    await counted(api, quota(limits_cpu="8", requests_memory="8Gi"))
    refused = await api.post(PODS, pod("a", requests={"cpu": "1"}))
    expected = "failed quota: q: must specify limits.cpu for: main; requests.memory for: main"
    assert (refused.status, refused.message) == (403, f'pods "a" is forbidden: {expected}')


async def test_ended_and_deleted_pods_release_their_usage(api: ApiClient) -> None:
    await counted(api, quota(pods="2"))
    await api.created(PODS, pod("ends"))
    await api.created(PODS, pod("goes"))
    assert (await api.post(PODS, pod("third"))).status == 403
    await api.patch(f"{PODS}/ends/status", {"status": {"phase": "Succeeded"}})
    await used(api, {"pods": "1"})
    await api.delete(f"{PODS}/goes")
    await used(api, {"pods": "0"})
    await api.created(PODS, pod("third"))


async def test_concurrent_creations_do_not_exceed_the_quota(api: ApiClient) -> None:
    await counted(api, quota(**{"requests_example.com/gpu": "10"}))
    pods = [limited_pod(f"p{index}", **{"example.com/gpu": "3"}) for index in range(20)]
    replies = await asyncio.gather(*(api.post(PODS, each) for each in pods))
    assert sorted(reply.status for reply in replies) == [201] * 3 + [403] * 17
    assert of_user(await api.get(f"{QUOTAS}/q")) == {"requests.example.com/gpu": "9"}


@pytest.mark.parametrize("refused", ["dry run", "name taken", "other quota"])
async def test_failed_creations_are_not_charged(api: ApiClient, refused: str) -> None:
    await counted(api, quota(pods="5"))
    await counted(api, quota("other", cpu="1"))
    await api.created(PODS, pod("there", requests={"cpu": "1"}))
    match refused:
        case "dry run":
            await api.delete(f"{PODS}/there")
            await used(api, {"cpu": "0"}, "other")
            assert (await api.post(f"{PODS}?dryRun=All", pod("new", requests={"cpu": "1"}))).status == 201
            await used(api, {"pods": "0"})
            return
        case "name taken":
            assert (await api.post(PODS, pod("there", requests={"cpu": "0"}))).reason == "AlreadyExists"
        case _:
            assert (await api.post(PODS, pod("new", requests={"cpu": "1"}))).status == 403
    assert of_user(await api.get(f"{QUOTAS}/q")) == {"pods": "1"}


async def test_a_quota_with_scopes_applies_to_matching_pods(api: ApiClient) -> None:
    await api.created("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 5})
    high = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    of_class = quota("of-class", pods="0")
    of_class["spec"]["scopeSelector"] = {"matchExpressions": [high]}
    await counted(api, of_class)
    await counted(api, {**quota("ends", pods="0"), "spec": {"hard": {"pods": "0"}, "scopes": ["Terminating"]}})
    assert "quota: of-class" in (await api.post(PODS, pod("high", priorityClassName="high"))).message
    assert "quota: ends" in (await api.post(PODS, pod("ends", activeDeadlineSeconds=5))).message
    await api.created(PODS, pod("other"))


async def test_other_objects_are_counted(api: ApiClient) -> None:
    await counted(api, quota(configmaps="1", **{"count/secrets": "0"}))
    path = "/api/v1/namespaces/default/configmaps"
    await api.created(path, config_map("one"))
    refused = await api.post(path, config_map("two"))
    assert refused.message == (
        'configmaps "two" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, '
        "limited: configmaps=1"
    )
    assert (await api.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})).status == 403
    await api.delete(f"{path}/one")
    await used(api, {"configmaps": "0", "count/secrets": "0"})


async def test_a_quota_applies_to_its_namespace(api: ApiClient) -> None:
    await counted(api, quota(pods="0"))
    await api.created("/api/v1/namespaces/kube-public/pods", pod("a"))


def _selecting(scope: str, operator: str) -> Any:
    return {"matchExpressions": [{"scopeName": scope, "operator": operator}]}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"hard": {"cpu": "lots"}}, 'spec.hard[cpu]: Invalid value: "lots"'),
        ({"hard": {"cpu": "-1"}}, "must be greater than or equal to 0"),
        ({"hard": {"nonsense": "1"}}, "must be a standard resource type or fully qualified"),
        ({"hard": {"pods": "1"}, "scopeSelector": _selecting("PriorityClass", "In")}, "must be at least one value"),
        ({"hard": {"pods": "1"}, "scopes": ["Sometimes"]}, 'Unsupported value: "Sometimes"'),
    ],
)
async def test_invalid_quotas(api: ApiClient, spec: Any, message: str) -> None:
    refused = await api.post(QUOTAS, {"metadata": {"name": "q"}, "spec": spec})
    assert refused.status == 422
    assert message in refused.message
