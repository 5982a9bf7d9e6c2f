"""ResourceClaim controller: claims from templates, reservations, deallocation, deletion."""

from typing import Any

from builders.devices.objects import (
    CLAIMS,
    FINALIZER,
    TEMPLATES,
    allocation,
    claim,
    request,
    reserved_for,
    template,
)
from builders.kube.client import NODES, PODS, ApiClient, Reply, node, pod

EVENTS = "/api/v1/namespaces/default/events"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def using(name: str, *, of_template: str = "", of_claim: str = "", **more: Any) -> Any:
    """A pod with one claim named "gpu"."""
    source = {"resourceClaimTemplateName": of_template} if of_template else {"resourceClaimName": of_claim}
    return pod(name, resourceClaims=[{"name": "gpu", **source}], **more)


async def generated(api: ApiClient, name: str) -> Any:
    """The claim that was generated for the pod."""

    def has_claim(reply: Reply) -> bool:
        return bool(reply.body["status"].get("resourceClaimStatuses"))

    [status] = (await api.until(f"{PODS}/{name}", has_claim)).body["status"]["resourceClaimStatuses"]
    assert status["name"] == "gpu"
    return (await api.get(f"{CLAIMS}/{status['resourceClaimName']}")).body


async def allocate(api: ApiClient, name: str, *users: Any) -> None:
    """Write finalizer, allocation and reservations as a scheduler does."""
    await api.patch(f"{CLAIMS}/{name}", {"metadata": {"finalizers": [FINALIZER]}})
    status = {"allocation": allocation("gpu-0"), "reservedFor": reserved_for(*users)}
    reply = await api.patch(f"{CLAIMS}/{name}/status", {"status": status})
    assert reply.status == 200, reply.body


async def end(api: ApiClient, name: str) -> None:
    await api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})


def is_free(reply: Reply) -> bool:
    return reply.body["status"] == {} and "finalizers" not in reply.body["metadata"]


async def test_a_claim_is_generated_from_the_template_of_a_pod(api: ApiClient) -> None:
    described = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    await api.created(TEMPLATES, template("two", request(count=2), metadata=described))
    owner = await api.created(PODS, using("trainer", of_template="two"))

    made = await generated(api, "trainer")

    metadata = made["metadata"]
    assert metadata["generateName"] == "trainer-gpu-" and metadata["name"].startswith("trainer-gpu-")
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "gpu"}
    [reference] = metadata["ownerReferences"]
    assert (reference["kind"], reference["uid"]) == ("Pod", owner["metadata"]["uid"])
    assert reference["controller"] and reference["blockOwnerDeletion"]
    assert made["spec"]["devices"]["requests"][0]["exactly"]["count"] == 2
    assert made["status"] == {}


async def test_names_of_claims_keep_a_part_of_long_names(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("two"))
    await api.created(PODS, using(f"{'p' * 100}.x", of_template="two"))
    made = await generated(api, f"{'p' * 100}.x")
    assert len(made["metadata"]["name"]) <= 63 and "-g" in made["metadata"]["name"]


async def test_a_missing_template_is_reported_until_it_exists(api: ApiClient) -> None:
    await api.created(PODS, using("trainer", of_template="two"))
    reported = await api.until(EVENTS, lambda reply: bool(reply.body["items"]))
    [event] = reported.body["items"]
    assert (event["type"], event["reason"]) == ("Warning", "FailedResourceClaimCreation")
    assert event["involvedObject"]["name"] == "trainer"
    missing = (
        'PodResourceClaim gpu: resource claim template "two": resourceclaimtemplate.resource.k8s.io "two" not found'
    )
    assert event["message"] == missing
    await api.patch(f"{PODS}/trainer", {"metadata": {"labels": {"a": "b"}}})
    assert await api.names(CLAIMS) == []

    await api.created(TEMPLATES, template("two"))

    await generated(api, "trainer")
    assert len((await api.get(EVENTS)).body["items"]) == 1


async def test_a_claim_over_quota_is_generated_when_there_is_quota(api: ApiClient) -> None:
    hard = {"count/resourceclaims.resource.k8s.io": "0"}
    await api.created(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await api.until(f"{QUOTAS}/q", lambda reply: "used" in (reply.body.get("status") or {}))
    await api.created(TEMPLATES, template("two"))
    await api.created(PODS, using("trainer", of_template="two"))
    reported = await api.until(EVENTS, lambda reply: bool(reply.body["items"]))
    assert "exceeded quota: q" in reported.body["items"][0]["message"]

    await api.patch(f"{QUOTAS}/q", {"spec": {"hard": dict.fromkeys(hard, "1")}})

    await generated(api, "trainer")


async def test_a_deleted_claim_of_a_pod_is_generated_again(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("two"))
    await api.created(PODS, using("trainer", of_template="two"))
    first = await generated(api, "trainer")
    await api.delete(f"{CLAIMS}/{first['metadata']['name']}")

    def is_new(reply: Reply) -> bool:
        [status] = reply.body["status"]["resourceClaimStatuses"]
        return bool(status["resourceClaimName"] != first["metadata"]["name"])

    await api.until(f"{PODS}/trainer", is_new)
    assert len(await api.names(CLAIMS)) == 1


async def test_a_status_without_the_claim_gets_it_again(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("two"))
    await api.created(PODS, using("trainer", of_template="two"))
    first = await generated(api, "trainer")
    await api.patch(f"{PODS}/trainer/status", {"status": {"resourceClaimStatuses": None}})
    assert (await generated(api, "trainer"))["metadata"]["uid"] == first["metadata"]["uid"]


async def test_a_generated_claim_is_deleted_with_its_pod(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("two"))
    owner = await api.created(PODS, using("trainer", of_template="two"))
    name = (await generated(api, "trainer"))["metadata"]["name"]
    await allocate(api, name, owner)

    await api.delete(f"{PODS}/trainer", {"gracePeriodSeconds": 0})

    await api.until_gone(f"{CLAIMS}/{name}")


async def test_a_generated_claim_is_deleted_when_its_pod_ends(api: ApiClient) -> None:
    await api.created(TEMPLATES, template("two"))
    owner = await api.created(PODS, using("trainer", of_template="two"))
    name = (await generated(api, "trainer"))["metadata"]["name"]
    await allocate(api, name, owner)

    await end(api, "trainer")

    await api.until_gone(f"{CLAIMS}/{name}")
    await api.patch(f"{PODS}/trainer", {"metadata": {"labels": {"a": "b"}}})
    assert await api.names(CLAIMS) == [], "a pod that has ended needs no claim"


async def test_a_shared_claim_is_deallocated_after_its_last_user(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("shared"))
    users = [await api.created(PODS, using(name, of_claim="shared")) for name in ("one", "two", "three")]
    await allocate(api, "shared", *users)

    await end(api, "one")
    held = await api.until(f"{CLAIMS}/shared", lambda reply: len(reply.body["status"]["reservedFor"]) == 2)
    await api.delete(f"{PODS}/two")
    await end(api, "three")
    await api.until(f"{CLAIMS}/shared", is_free)

    assert held.body["status"]["reservedFor"] == reserved_for(*users[1:])
    assert held.body["status"]["allocation"] and held.body["metadata"]["finalizers"] == [FINALIZER]


async def test_a_deleted_claim_remains_while_it_is_used(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("shared"))
    user = await api.created(PODS, using("one", of_claim="shared"))
    await allocate(api, "shared", user)

    deleted = await api.delete(f"{CLAIMS}/shared")
    late = {"status": {"reservedFor": reserved_for(user, await api.created(PODS, using("two", of_claim="shared")))}}
    refused = await api.patch(f"{CLAIMS}/shared/status", late)
    await end(api, "one")

    assert deleted.status == 200 and "deletionTimestamp" in deleted.body["metadata"]
    assert refused.status == 422 and "new entries may not be added" in refused.message
    await api.until_gone(f"{CLAIMS}/shared")


async def test_reservations_for_missing_pods_are_removed(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("shared"))
    await allocate(api, "shared", {"metadata": {"name": "never", "uid": "u"}})
    await api.until(f"{CLAIMS}/shared", is_free)


async def test_reservations_for_other_kinds_are_kept(api: ApiClient) -> None:
    await api.created(CLAIMS, claim("shared"))
    group = {"apiGroup": "example.com", "resource": "trainings", "name": "g", "uid": "u"}
    user = await api.created(PODS, using("one", of_claim="shared"))
    await api.patch(
        f"{CLAIMS}/shared/status",
        {"status": {"allocation": allocation("gpu-0"), "reservedFor": [group, *reserved_for(user)]}},
    )
    await end(api, "one")
    await api.until(f"{CLAIMS}/shared", lambda reply: reply.body["status"]["reservedFor"] == [group])


async def test_an_allocated_claim_is_reserved_for_a_bound_pod(api: ApiClient) -> None:
    """A pod may be bound by a scheduler that knows no claims."""
    await api.created(NODES, node("n1"))
    await api.created(CLAIMS, claim("shared"))
    first = await api.created(PODS, using("one", of_claim="shared"))
    await allocate(api, "shared", first)
    second = await api.created(PODS, using("two", of_claim="shared"))
    await api.bind("two", "n1")
    both = reserved_for(first, second)
    await api.until(f"{CLAIMS}/shared", lambda reply: reply.body["status"].get("reservedFor") == both)


async def test_a_claim_generated_for_another_pod_is_not_reserved(api: ApiClient) -> None:
    await api.created(NODES, node("n1"))
    await api.created(TEMPLATES, template("two"))
    owner = await api.created(PODS, using("trainer", of_template="two"))
    name = (await generated(api, "trainer"))["metadata"]["name"]
    await allocate(api, name, owner)
    await api.created(PODS, using("thief", of_template="missing"))
    statuses = [{"name": "gpu", "resourceClaimName": name}]
    await api.patch(f"{PODS}/thief/status", {"status": {"resourceClaimStatuses": statuses}})
    await api.bind("thief", "n1")
    await api.created(TEMPLATES, template("missing"))

    await api.until(f"{PODS}/thief", lambda reply: reply.body["status"]["resourceClaimStatuses"] != statuses)

    assert (await api.get(f"{CLAIMS}/{name}")).body["status"]["reservedFor"] == reserved_for(owner)
