"""ResourceClaims: what may be written, and by which path."""

from typing import Any

import pytest

from builders.kube.client import ApiClient

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
FINALIZER = "resource.kubernetes.io/delete-protection"
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
USER = {"apiGroup": "example.com", "resource": "trainings", "name": "a", "uid": "uid-a"}
"""A user that the claim controller keeps; it removes pods and PodGroups that do not exist."""


def claim(name: str = "c") -> Any:
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [REQUEST]}}}


def allocation(*devices: str) -> Any:
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "n1", "device": each} for each in devices]
    return {"devices": {"results": results}}


async def allocated(api: ApiClient, *users: Any, **metadata: Any) -> Any:
    """A claim with a device and these users, as it is stored."""
    body = claim()
    await api.created(CLAIMS, {**body, "metadata": {**body["metadata"], **metadata}})
    status = {"allocation": allocation("gpu-0"), "reservedFor": list(users)}
    return (await api.patch(f"{CLAIMS}/c/status", {"status": status})).body


async def test_status_and_the_rest_are_written_separately(api: ApiClient) -> None:
    created = await api.created(CLAIMS, {**claim(), "status": {"allocation": allocation("gpu-0")}})
    assert not created.get("status")
    changed = {**created, "metadata": {**created["metadata"], "finalizers": [FINALIZER], "labels": {"a": "b"}}}
    changed["status"] = {"allocation": allocation("gpu-1"), "reservedFor": [USER]}
    reply = await api.put(f"{CLAIMS}/c/status", {**changed, "spec": {"devices": {}}})
    assert reply.status == 200, reply.message
    by_status = reply.body
    assert by_status["status"] == changed["status"]
    assert by_status["spec"] == created["spec"]
    assert not {"finalizers", "labels"} & by_status["metadata"].keys()
    protected = {**by_status, "status": {}, "metadata": {**by_status["metadata"], "finalizers": [FINALIZER]}}
    by_object = (await api.put(f"{CLAIMS}/c", protected)).body
    assert by_object["status"] == changed["status"]
    assert by_object["metadata"]["finalizers"] == [FINALIZER]


async def test_an_allocation_is_removed_before_there_is_another(api: ApiClient) -> None:
    found = await allocated(api)
    other = {**found, "status": {"allocation": allocation("gpu-1")}}
    refused = await api.put(f"{CLAIMS}/c/status", other)
    assert (refused.status, "status.allocation" in refused.message) == (422, True)
    removed = await api.put(f"{CLAIMS}/c/status", {**found, "status": {}})
    assert removed.status == 200
    other["metadata"] = removed.body["metadata"]
    assert (await api.put(f"{CLAIMS}/c/status", other)).status == 200


async def test_the_spec_is_immutable(api: ApiClient) -> None:
    created = await api.created(CLAIMS, claim())
    refused = await api.put(f"{CLAIMS}/c", {**created, "spec": {"devices": {}}})
    assert (refused.status, "field is immutable" in refused.message) == (422, True)


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param({"reservedFor": [USER]}, "`allocated` is not set", id="users without an allocation"),
        pytest.param(
            {"allocation": allocation("gpu-0"), "reservedFor": [USER, USER]}, "Duplicate value", id="a user twice"
        ),
        pytest.param(
            {
                "allocation": allocation("gpu-0"),
                "reservedFor": [{"resource": "pods", "name": "p", "uid": f"u{number}"} for number in range(257)],
            },
            "must have at most 256 items",
            id="257 users",
        ),
    ],
)
async def test_an_invalid_status_is_rejected(api: ApiClient, status: Any, problem: str) -> None:
    await api.created(CLAIMS, claim())
    refused = await api.patch(f"{CLAIMS}/c/status", {"status": status})
    assert (refused.status, problem in refused.message) == (422, True)


async def test_a_claim_that_is_being_deleted_gets_no_users(api: ApiClient) -> None:
    await allocated(api, USER, finalizers=[FINALIZER])
    await api.delete(f"{CLAIMS}/c")
    other = {**USER, "uid": "uid-b"}
    refused = await api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": [USER, other]}})
    assert (refused.status, "deletionTimestamp" in refused.message) == (422, True)
    assert (await api.patch(f"{CLAIMS}/c/status", {"status": {"reservedFor": []}})).status == 200
