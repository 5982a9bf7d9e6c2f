"""Discovery, OpenAPI, tables, events, fault injection."""

import asyncio
from typing import Any

import aiohttp
import msgspec
import pytest

from builders.kube.client import NODES, PODS, TABLE, ApiClient, api_client, node, pod
from muster.localcluster.apiserver import ApiServer, Timing

EVENTS = "/api/v1/namespaces/default/events"
GROUPED_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
FAULTS = "/muster-faults"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/readyz/ping"])
async def test_health(api: ApiClient, path: str) -> None:
    reply = await api.get(path)

    assert (reply.status, reply.body) == (200, b"ok")


async def test_discovery_lists_every_kind(api: ApiClient) -> None:
    assert (await api.get("/api")).body["versions"] == ["v1"]
    assert (await api.get("/version")).body["major"] == "1"
    documents = ["/api/v1"]
    for group in (await api.get("/apis")).body["groups"]:
        documents += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
        assert (await api.get(f"/apis/{group['name']}")).body["preferredVersion"] == group["preferredVersion"]

    for document in documents:
        for resource in (await api.get(document)).body["resources"]:
            if "list" in resource["verbs"]:
                listed = await api.get(f"{document}/{resource['name']}")
                assert listed.body["kind"] == f"{resource['kind']}List"


async def test_openapi_for_old_and_new_clients(api: ApiClient) -> None:
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    old = await api.get("/openapi/v2", Accept=accept)
    index = (await api.get("/openapi/v3")).body
    new = (await api.get(index["paths"]["api/v1"]["serverRelativeURL"])).body

    media_type = old.headers["Content-Type"]
    assert media_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"  # "@" is no valid media type
    assert old.body.startswith(b"\x0a\x032.0")  # field 1, "2.0"
    assert b"/api/v1/namespaces/{namespace}/pods/{name}" in old.body and b"fieldValidation" in old.body
    patch = new["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


async def test_tables_have_the_columns_of_kubectl(api: ApiClient) -> None:
    await api.created(NODES, node("n"))
    await api.created(PODS, pod("a"))
    await api.bind("a", "n")

    pods = (await api.get(PODS, Accept=TABLE)).body
    nodes = (await api.get(NODES, Accept=TABLE)).body

    assert pods["kind"] == "Table" and pods["apiVersion"] == "meta.k8s.io/v1"
    *cells, _, address, bound_to, _, _ = pods["rows"][0]["cells"]
    assert [*cells, address, bound_to] == ["a", "0/1", "Pending", "0", "<none>", "n"]
    assert pods["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert nodes["rows"][0]["cells"][:3] == ["n", "Ready", "<none>"]


async def test_a_table_with_whole_objects(api: ApiClient) -> None:
    created = await api.created(PODS, pod("a"))

    table = (await api.get(f"{PODS}?includeObject=Object", Accept=TABLE)).body

    assert table["rows"][0]["object"] == created


def _event(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "a"},
        "reason": "FailedScheduling",
        "message": "no room",
        "type": "Warning",
    }


async def test_both_event_groups_share_a_collection(api: ApiClient) -> None:
    await api.created(EVENTS, _event("old"))
    regarding = {"kind": "Pod", "namespace": "default", "name": "a"}
    await api.created(
        GROUPED_EVENTS,
        {
            "metadata": {"name": "new"},
            "regarding": regarding,
            "note": "placed",
            "reason": "Scheduled",
            "action": "Binding",
        },
    )

    core, grouped = (await api.get(f"{EVENTS}/new")).body, (await api.get(f"{GROUPED_EVENTS}/old")).body

    assert (core["apiVersion"], core["message"], core["involvedObject"]["name"]) == ("v1", "placed", "a")
    assert (grouped["apiVersion"], grouped["note"]) == ("events.k8s.io/v1", "no room")
    assert await api.names(f"{EVENTS}?fieldSelector=involvedObject.name=a,reason=Scheduled") == ["new"]
    assert await api.names(f"{GROUPED_EVENTS}?fieldSelector=regarding.name=a,reason!=Scheduled") == ["old"]


async def test_an_event_must_be_in_the_namespace_of_its_object(api: ApiClient) -> None:
    body = _event("e")
    body["involvedObject"]["namespace"] = "kube-system"

    reply = await api.post(EVENTS, body)

    assert reply.status == 422 and "does not match event.namespace" in reply.message


async def test_events_expire() -> None:
    server = ApiServer(timing=Timing(event_ttl_seconds=0.3))
    await server.start()
    try:
        async with api_client(server.url) as api:
            await api.created(EVENTS, _event("e"))
            await api.until_gone(f"{EVENTS}/e")
    finally:
        await server.stop()


async def test_a_node_whose_lease_is_not_renewed_becomes_unreachable() -> None:
    server = ApiServer(timing=Timing(node_grace_seconds=0.4))
    await server.start()
    try:
        async with api_client(server.url) as api:
            await api.created(NODES, node("n"))
            lease = {"metadata": {"name": "n"}, "spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
            await api.created("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)
            silent = await api.until(f"{NODES}/n", lambda reply: len(reply.body["spec"].get("taints", ())) == 2)
    finally:
        await server.stop()

    assert silent.body["status"]["conditions"][0]["status"] == "Unknown"
    assert {(taint["key"], taint["effect"]) for taint in silent.body["spec"]["taints"]} == {
        ("node.kubernetes.io/unreachable", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
    }


async def test_faults_match_a_number_of_requests(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))
    fault = {"method": "GET", "path_prefix": PODS, "count": 2, "status": 429, "retry_after_seconds": 3}
    await api.post(FAULTS, fault)

    untouched = await api.get(NODES)
    hit = [await api.get(f"{PODS}/a") for _ in range(3)]

    assert untouched.status == 200
    assert [reply.status for reply in hit] == [429, 429, 200]
    assert hit[0].headers["Retry-After"] == "3" and hit[0].reason == "TooManyRequests"
    assert (await api.get(FAULTS)).body["faults"] == []


async def test_a_response_is_lost_after_execution(api: ApiClient) -> None:
    await api.post(FAULTS, {"method": "POST", "path_prefix": PODS, "after": True, "status": 500})

    lost = await api.post(PODS, pod("a"))

    assert lost.status == 500
    assert (await api.post(PODS, pod("a"))).reason == "AlreadyExists"


async def test_a_connection_breaks(api: ApiClient) -> None:
    await api.post(FAULTS, {"path_prefix": PODS, "status": 0})

    with pytest.raises(aiohttp.ClientError):
        await api.post(PODS, pod("a"))

    assert (await api.post(PODS, pod("a"))).status == 201


async def test_a_delay_does_not_delay_others(api: ApiClient) -> None:
    await api.post(FAULTS, {"path_prefix": f"{PODS}/slow", "delay_seconds": 30})
    slow = asyncio.create_task(api.get(f"{PODS}/slow"))

    assert (await api.get(PODS)).status == 200
    assert not slow.done()
    slow.cancel()


async def test_watches_are_cut_without_an_error(api: ApiClient) -> None:
    async with api.watch(NODES) as events:
        await api.until(FAULTS, lambda reply: reply.body["watches"] == 1)
        assert (await api.post(f"{FAULTS}/cut-watches", {})).body == {"cut": 1}
        assert await events.ended()


async def test_faults_are_removed(api: ApiClient) -> None:
    await api.post(FAULTS, {"path_prefix": PODS, "count": 100, "status": 503})
    await api.delete(FAULTS)

    assert (await api.get(PODS)).status == 200


async def test_faults_are_disabled_by_default() -> None:
    server = ApiServer()
    await server.start()
    try:
        async with api_client(server.url) as api:
            assert (await api.get(FAULTS)).status == 404
    finally:
        await server.stop()


async def test_the_body_of_a_request_may_be_protobuf(api: ApiClient) -> None:
    # Unknown{typeMeta{apiVersion "v1", kind "Namespace"}, raw Namespace{metadata{name "two"}}}
    content = b"\x0a\x05\x0a\x03two"
    envelope = b"k8s\0" + b"\x0a\x0f\x0a\x02v1\x12\x09Namespace" + b"\x12" + bytes([len(content)]) + content

    created = await api.call("POST", "/api/v1/namespaces", envelope, "application/vnd.kubernetes.protobuf")
    unknown = await api.call("POST", PODS, b"k8s\0\x0a\x05\x12\x03Pod", "application/vnd.kubernetes.protobuf")

    assert (created.status, unknown.status) == (201, 415)
    assert created.body["metadata"]["name"] == "two"


async def test_the_kubeconfig_has_the_servers_address(server: ApiServer, tmp_path: Any) -> None:
    path = tmp_path / "sub" / "kubeconfig"
    server.write_kubeconfig(path)

    config = msgspec.yaml.decode(path.read_bytes())

    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert config["current-context"] == config["contexts"][0]["name"]
