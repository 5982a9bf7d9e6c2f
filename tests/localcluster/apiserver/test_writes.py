"""Updates and patches: immutable fields, conflicts, subresources."""

from typing import Any

import pytest

from builders.kube.client import JSON_PATCH, MERGE, NODES, PODS, STRATEGIC, ApiClient, config_map, node, pod

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_an_update_of_a_stale_version_conflicts(api: ApiClient) -> None:
    first = await api.created(MAPS, config_map("c"))
    second = (await api.put(f"{MAPS}/c", first | {"data": {"a": "x"}})).body

    stale = await api.put(f"{MAPS}/c", first | {"data": {"a": "y"}})

    assert (stale.status, stale.reason) == (409, "Conflict")
    assert stale.message == (
        'Operation cannot be fulfilled on configmaps "c": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert (await api.get(f"{MAPS}/c")).body == second


async def test_an_update_without_a_version_succeeds(api: ApiClient) -> None:
    await api.created(MAPS, config_map("c"))

    reply = await api.put(f"{MAPS}/c", config_map("c") | {"data": {"z": "1"}})

    assert reply.status == 200 and reply.body["data"] == {"z": "1"}


async def test_an_update_that_changes_nothing_makes_no_new_version(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a"))

    reply = await api.put(f"{PODS}/a", created)
    patched = await api.patch(f"{PODS}/a", {"metadata": {"labels": {}}})

    assert reply.revision == created["metadata"]["resourceVersion"]
    assert patched.status == 200


async def test_an_update_of_another_incarnation_conflicts(api: ApiClient) -> None:
    created = await api.created(MAPS, config_map("c"))
    created["metadata"] |= {"uid": "another", "resourceVersion": ""}

    reply = await api.put(f"{MAPS}/c", created)

    assert reply.status == 409 and "UID in precondition: another" in reply.message


async def test_fields_of_the_server_cannot_be_changed(api: ApiClient) -> None:
    created = await api.created(MAPS, config_map("c"))

    reply = await api.patch(
        f"{MAPS}/c",
        {"metadata": {"creationTimestamp": "2000-01-01T00:00:00Z", "deletionTimestamp": "2000-01-01T00:00:00Z"}},
    )

    assert reply.body["metadata"] == created["metadata"]


async def test_a_pod_spec_is_immutable_except_for_some_fields(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))

    image = await api.patch(f"{PODS}/a", {"spec": {"containers": [{"name": "main", "image": "other:1"}]}}, STRATEGIC)
    scheduler = await api.patch(f"{PODS}/a", {"spec": {"schedulerName": "other"}})
    bound = await api.patch(f"{PODS}/a", {"spec": {"nodeName": "n"}})

    assert image.status == 200 and image.body["metadata"]["generation"] == 2
    for refused in (scheduler, bound):
        assert refused.status == 422
        assert "spec: Forbidden: pod updates may not change fields other than" in refused.message


async def test_status_is_written_only_by_its_subresource(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a"))

    through_object = await api.patch(f"{PODS}/a", {"status": {"phase": "Running"}})
    through_status = await api.patch(
        f"{PODS}/a/status", {"spec": {"schedulerName": "other"}, "status": {"phase": "Running"}}
    )

    assert through_object.body["status"]["phase"] == "Pending"
    assert through_status.body["status"]["phase"] == "Running"
    assert through_status.body["spec"] == created["spec"]
    assert through_status.body["metadata"]["generation"] == 1


async def test_conditions_are_merged_by_type(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))
    await api.bind("a", "n")
    ready = {"type": "Ready", "status": "True"}

    reply = await api.patch(f"{PODS}/a/status", {"status": {"conditions": [ready]}}, STRATEGIC)

    assert [each["type"] for each in reply.body["status"]["conditions"]] == ["Ready", "PodScheduled"]


async def test_null_in_a_merge_patch_removes(api: ApiClient) -> None:
    await api.created(MAPS, config_map("c", labels={"a": "1", "b": "2"}))

    reply = await api.patch(f"{MAPS}/c", {"metadata": {"labels": {"a": None}}})

    assert reply.body["metadata"]["labels"] == {"b": "2"}


async def test_a_json_patch_is_atomic(api: ApiClient) -> None:
    created = await api.created(MAPS, config_map("c"))
    add = {"op": "add", "path": "/data/b~1c", "value": "1"}
    failing = {"op": "test", "path": "/data/a", "value": "something else"}

    refused = await api.patch(f"{MAPS}/c", [add, failing], JSON_PATCH)
    applied = await api.patch(f"{MAPS}/c", [add], JSON_PATCH)

    assert (refused.status, refused.reason) == (422, "Invalid")
    assert applied.body["data"] == created["data"] | {"b/c": "1"}


@pytest.mark.parametrize(
    ("patch", "content_type", "status"),
    [
        (b"{", MERGE, 400),
        ([], MERGE, 400),
        ({}, JSON_PATCH, 422),
        ({}, "application/something", 415),
        ({"metadata": {"name": "other"}}, MERGE, 400),
        ({"metadata": {"uid": "other"}}, MERGE, 422),
        ({"metadata": {"resourceVersion": "1"}}, MERGE, 409),
        ({"metadata": {"labels": {"k": 1}}}, MERGE, 400),
    ],
)
async def test_invalid_patches(api: ApiClient, patch: Any, content_type: str, status: int) -> None:
    created = await api.created(MAPS, config_map("c"))

    reply = await api.patch(f"{MAPS}/c", patch, content_type)

    assert reply.status == status, reply.body
    assert (await api.get(f"{MAPS}/c")).body == created


async def test_a_node_is_created_with_status_and_taints(api: ApiClient) -> None:
    created = await api.created(NODES, node("n"))
    await api.patch(f"{NODES}/n", {"spec": {"unschedulable": True}})

    tainted = await api.until(f"{NODES}/n", lambda reply: bool(reply.body["spec"].get("taints")))
    await api.patch(f"{NODES}/n", {"spec": {"unschedulable": None}})
    clean = await api.until(f"{NODES}/n", lambda reply: not reply.body["spec"].get("taints"))

    assert created["status"]["allocatable"]["cpu"] == "8"
    assert [taint["key"] for taint in tainted.body["spec"]["taints"]] == ["node.kubernetes.io/unschedulable"]
    assert clean.status == 200


async def test_one_increasing_revision_for_all_kinds(api: ApiClient) -> None:
    revisions = []
    for number in range(3):
        revisions.append(await api.created(PODS, pod(f"p{number}")))
        revisions.append(await api.created(MAPS, config_map(f"c{number}")))

    numbers = [int(each["metadata"]["resourceVersion"]) for each in revisions]
    assert numbers == sorted(set(numbers))


async def test_writing_an_unknown_object(api: ApiClient) -> None:
    for reply in (
        await api.put(f"{MAPS}/c", config_map("c")),
        await api.patch(f"{MAPS}/c", {}),
        await api.delete(f"{MAPS}/c"),
    ):
        assert (reply.status, reply.message) == (404, 'configmaps "c" not found')


async def test_config_map_data_must_be_strings(api: ApiClient) -> None:
    reply = await api.post(MAPS, config_map("c") | {"data": {"size": 3}})
    assert (reply.status, "cannot unmarshal number" in reply.message) == (400, True)
    await api.created(MAPS, config_map("c"))
    assert (await api.patch(f"{MAPS}/c", {"data": {"size": 3}})).status == 400
    assert (await api.patch(f"{MAPS}/c", {"data": {"size": "3"}})).status == 200


async def test_an_object_has_at_most_one_controller(api: ApiClient) -> None:
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True} for uid in ("a", "b")]
    reply = await api.post(MAPS, config_map("c", ownerReferences=owners))
    assert (reply.status, "Only one reference can have Controller set to true" in reply.message) == (422, True)
