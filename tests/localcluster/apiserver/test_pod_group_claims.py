"""ResourceClaims of PodGroups: one for the group, named in its status and in those of its pods."""

from typing import Any

from builders.devices.objects import CLAIMS, FINALIZER, TEMPLATES, allocation, claim, request, template
from builders.kube.client import PODS, ApiClient, Reply, pod

GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "gpus"}


def group(*entries: Any) -> Any:
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": list(entries)},
    }


def member(name: str, entry: Any = ENTRY) -> Any:
    return pod(name, schedulingGroup={"podGroupName": "g"}, resourceClaims=[entry])


async def named(api: ApiClient, path: str) -> str:
    """The claim that the status of a pod or PodGroup names."""

    def names_claim(reply: Reply) -> bool:
        return bool(reply.body.get("status", {}).get("resourceClaimStatuses"))

    [status] = (await api.until(path, names_claim)).body["status"]["resourceClaimStatuses"]
    assert status["name"] == "gpu"
    return str(status["resourceClaimName"])


async def test_a_group_has_one_claim_that_its_pods_name(api: ApiClient) -> None:
    await api.created(PODS, member("early"))
    await api.created(GROUPS, group(ENTRY))
    await api.created(TEMPLATES, template("gpus", request()))
    await api.created(PODS, member("late"))
    name = await named(api, f"{GROUPS}/g")
    assert [await named(api, f"{PODS}/{each}") for each in ("early", "late")] == [name, name]
    made = (await api.get(f"{CLAIMS}/{name}")).body
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"], owner["name"]) == ("scheduling.k8s.io/v1beta1", "PodGroup", "g")
    assert len((await api.get(CLAIMS)).body["items"]) == 1


async def test_an_entry_that_the_group_does_not_have_is_a_claim_of_the_pod(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("gpus", request()))
    await api.created(GROUPS, group())
    await api.created(PODS, member("x"))
    name = await named(api, f"{PODS}/x")
    [owner] = (await api.get(f"{CLAIMS}/{name}")).body["metadata"]["ownerReferences"]
    assert owner["kind"] == "Pod"


async def test_a_claim_is_deallocated_when_its_group_is_gone(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("c", request()))
    made = await api.created(GROUPS, group({"name": "gpu", "resourceClaimName": "c"}))
    await api.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": [FINALIZER]}})
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": made["metadata"]["uid"]}
    status = {"allocation": allocation("gpu-0"), "reservedFor": [user]}
    assert (await api.patch(f"{CLAIMS}/c/status", {"status": status})).status == 200
    await api.delete(f"{GROUPS}/g")
    await api.until(f"{CLAIMS}/c", lambda reply: not reply.body.get("status", {}).get("allocation"))
