"""Deletion: grace periods, finalizers, dependents, namespaces, and pods of deleted nodes."""

from typing import Any

from builders.kube.client import NODES, PODS, ApiClient, config_map, node, pod

MAPS = "/api/v1/namespaces/default/configmaps"


def _owned_by(*owners: Any) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": owner["kind"], "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]


async def test_an_unbound_pod_is_removed_at_once(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))

    reply = await api.delete(f"{PODS}/a")

    assert reply.status == 200 and reply.body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await api.get(f"{PODS}/a")).status == 404


async def test_a_bound_pod_has_a_grace_period_that_its_kubelet_ends(api: ApiClient) -> None:
    await api.created(NODES, node("n"))
    await api.created(PODS, pod("a"))
    await api.bind("a", "n")

    marked = await api.delete(f"{PODS}/a")
    sooner = await api.delete(f"{PODS}/a?gracePeriodSeconds=5")
    later = await api.delete(f"{PODS}/a?gracePeriodSeconds=100")
    uid = marked.body["metadata"]["uid"]
    last = await api.delete(f"{PODS}/a", {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    graces = [reply.body["metadata"]["deletionGracePeriodSeconds"] for reply in (marked, sooner, later, last)]
    assert graces == [30, 5, 5, 0]
    assert (await api.get(f"{PODS}/a")).status == 404


async def test_preconditions_of_delete(api: ApiClient) -> None:
    await api.created(MAPS, config_map("c"))

    uid = await api.delete(f"{MAPS}/c", {"preconditions": {"uid": "other"}})
    version = await api.delete(f"{MAPS}/c", {"preconditions": {"resourceVersion": "1"}})
    policy = await api.delete(f"{MAPS}/c", {"propagationPolicy": "Whatever"})

    assert (uid.status, version.status, policy.status) == (409, 409, 422)
    assert "the UID in the precondition (other) does not match the UID in record" in uid.message
    assert (await api.get(f"{MAPS}/c")).status == 200


async def test_finalizers_delay_the_removal(api: ApiClient) -> None:
    await api.created(MAPS, config_map("c", finalizers=["example.com/a"]))

    held = await api.delete(f"{MAPS}/c")
    added = await api.patch(f"{MAPS}/c", {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}})
    freed = await api.patch(f"{MAPS}/c", {"metadata": {"finalizers": None}})

    assert "deletionTimestamp" in held.body["metadata"]
    assert added.status == 422 and "no new finalizers can be added if the object is being deleted" in added.message
    assert freed.status == 200
    assert (await api.get(f"{MAPS}/c")).status == 404


async def test_dependents_are_deleted_with_their_owner(api: ApiClient) -> None:
    owner = await api.created(MAPS, config_map("owner"))
    child = await api.created(MAPS, config_map("child", ownerReferences=_owned_by(owner)))
    await api.created(PODS, pod("grandchild", metadata={"ownerReferences": _owned_by(child)}))

    await api.delete(f"{MAPS}/owner")

    await api.until_gone(f"{MAPS}/child")
    await api.until_gone(f"{PODS}/grandchild")


async def test_a_dependent_stays_while_it_has_an_owner(api: ApiClient) -> None:
    first, second = await api.created(MAPS, config_map("first")), await api.created(MAPS, config_map("second"))
    await api.created(MAPS, config_map("child", ownerReferences=_owned_by(first, second)))

    await api.delete(f"{MAPS}/first")

    remaining = await api.until(f"{MAPS}/child", lambda reply: len(reply.body["metadata"]["ownerReferences"]) == 1)
    assert remaining.body["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_an_object_with_an_unknown_owner_is_collected(api: ApiClient) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "0-0"}
    await api.created(MAPS, config_map("child", ownerReferences=[reference]))

    await api.until_gone(f"{MAPS}/child")


async def test_an_owner_of_an_unserved_kind_counts_as_existing(api: ApiClient) -> None:
    reference = {"apiVersion": "example.com/v1", "kind": "Queue", "name": "q", "uid": "0-0"}
    deleted = await api.created(MAPS, config_map("gone"))
    await api.created(MAPS, config_map("child", ownerReferences=[reference, *_owned_by(deleted)]))
    await api.delete(f"{MAPS}/gone")

    remaining = await api.until(f"{MAPS}/child", lambda reply: len(reply.body["metadata"]["ownerReferences"]) == 1)

    assert remaining.body["metadata"]["ownerReferences"] == [reference]


async def test_deleting_a_namespace_deletes_its_objects(api: ApiClient) -> None:
    await api.created("/api/v1/namespaces", {"metadata": {"name": "team"}})
    await api.created("/api/v1/namespaces/team/pods", pod("a"))
    held = config_map("c", finalizers=["example.com/hold"])
    await api.created("/api/v1/namespaces/team/configmaps", held)

    await api.delete("/api/v1/namespaces/team")
    await api.until_gone("/api/v1/namespaces/team/pods/a")
    refused = await api.post("/api/v1/namespaces/team/pods", pod("b"))
    terminating = await api.get("/api/v1/namespaces/team")
    await api.patch("/api/v1/namespaces/team/configmaps/c", {"metadata": {"finalizers": None}})

    assert terminating.body["status"]["phase"] == "Terminating"
    assert refused.status == 403 and "because it is being terminated" in refused.message
    await api.until_gone("/api/v1/namespaces/team")


async def test_the_default_namespace_cannot_be_deleted(api: ApiClient) -> None:
    reply = await api.delete("/api/v1/namespaces/default")

    assert reply.status == 403 and "this namespace may not be deleted" in reply.message


async def test_deletecollection_by_a_selector(api: ApiClient) -> None:
    for name in "abc":
        await api.created(PODS, pod(name, metadata={"labels": {"keep": str(name == "b")}}))

    reply = await api.delete(f"{PODS}?labelSelector=keep%3DFalse")

    assert reply.status == 200 and reply.body["kind"] == "PodList"
    assert await api.names(PODS) == ["b"]


async def test_pods_of_a_deleted_node_are_removed(api: ApiClient) -> None:
    await api.created(NODES, node("n"))
    await api.created(PODS, pod("a"))
    await api.bind("a", "n")
    async with api.watch(f"{PODS}?resourceVersion={(await api.get(PODS)).revision}") as events:
        await api.delete(f"{NODES}/n")
        failed, deleted = await events.next(), await events.next()

    assert failed["object"]["status"]["phase"] == "Failed"
    assert failed["object"]["status"]["conditions"][-1]["reason"] == "DeletionByPodGC"
    assert deleted["type"] == "DELETED"
