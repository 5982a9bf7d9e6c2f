"""Lists: consistent pages, selectors, and versions that are too old or too new."""

import pytest

from builders.kube.client import NODES, PODS, ApiClient, config_map, node, pod

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_pages_are_of_one_revision(api: ApiClient) -> None:
    for name in "edcba":
        await api.created(MAPS, config_map(name))

    first = (await api.get(f"{MAPS}?limit=2")).body
    await api.created(MAPS, config_map("bb"))
    await api.delete(f"{MAPS}/d")
    second = (await api.get(f"{MAPS}?limit=2&continue={first['metadata']['continue']}")).body
    third = (await api.get(f"{MAPS}?limit=2&continue={second['metadata']['continue']}")).body

    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert [page["metadata"].get("remainingItemCount") for page in (first, second, third)] == [3, 1, None]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {
        first["metadata"]["resourceVersion"]
    }
    assert "continue" not in third["metadata"]


async def test_pages_of_two_selections_do_not_mix(api: ApiClient) -> None:
    for name in "abcd":
        await api.created(MAPS, config_map(name, labels={"even": str(name in "bd")}))

    everything = (await api.get(f"{MAPS}?limit=1")).body["metadata"]["continue"]
    even = (await api.get(f"{MAPS}?limit=1&labelSelector=even%3DTrue")).body["metadata"]["continue"]

    assert await api.names(f"{MAPS}?continue={everything}") == ["b", "c", "d"]
    assert await api.names(f"{MAPS}?labelSelector=even%3DTrue&continue={even}") == ["d"]


async def test_a_continue_token_expires_with_the_history(api: ApiClient) -> None:
    for name in "abc":
        await api.created(MAPS, config_map(name))
    token = (await api.get(f"{MAPS}?limit=1")).body["metadata"]["continue"]
    await api.call("POST", "/muster-faults/compact")

    expired = await api.get(f"{MAPS}?limit=1&continue={token}")

    assert (expired.status, expired.reason) == (410, "Expired")


async def test_items_of_built_in_kinds_do_not_repeat_their_kind(api: ApiClient) -> None:
    created = await api.created(MAPS, config_map("c"))

    listed = (await api.get(MAPS)).body

    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert listed["items"] == [{name: value for name, value in created.items() if name not in ("kind", "apiVersion")}]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==web,tier!=back", ["a"]),
        ("app in (web, db),tier", ["b", "c"]),
        ("app notin (web)", ["c", "d"]),
        ("!tier", ["a", "d"]),
        ("app!=web", ["c", "d"]),
        ("", ["a", "b", "c", "d"]),
    ],
)
async def test_label_selectors(api: ApiClient, selector: str, names: list[str]) -> None:
    await api.created(MAPS, config_map("a", labels={"app": "web"}))
    await api.created(MAPS, config_map("b", labels={"app": "web", "tier": "back"}))
    await api.created(MAPS, config_map("c", labels={"app": "db", "tier": "back"}))
    await api.created(MAPS, config_map("d"))

    assert await api.names(f"{MAPS}?labelSelector={selector.replace(' ', '%20')}") == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.namespace!=default", []),
        ("spec.nodeName=n", ["b"]),
        ("spec.nodeName!=", ["b"]),
        ("spec.nodeName=", ["a", "c"]),
        ("status.phase=Pending,spec.schedulerName=muster", ["c"]),
        ("status.phase!=Failed,status.phase!=Succeeded", ["a", "b", "c"]),
    ],
)
async def test_field_selectors_of_pods(api: ApiClient, selector: str, names: list[str]) -> None:
    await api.created(PODS, pod("a"))
    await api.created(PODS, pod("b"))
    await api.created(PODS, pod("c", schedulerName="muster"))
    await api.bind("b", "n")

    assert await api.names(f"/api/v1/pods?fieldSelector={selector}") == names


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("fieldSelector=spec.nonsense=1", 400, "field label not supported: spec.nonsense"),
        ("fieldSelector=nonsense", 400, "invalid selector: 'nonsense'; can't understand 'nonsense'"),
        ("labelSelector=a%20in%20", 400, "unable to parse requirement"),
        ("resourceVersion=abc", 400, "invalid resource version"),
        ("resourceVersion=99999999", 504, "Too large resource version: 99999999, current: "),
        ("limit=many", 400, "invalid syntax"),
        ("continue=nonsense", 400, "invalid continue token"),
    ],
)
async def test_invalid_list_options(api: ApiClient, query: str, status: int, words: str) -> None:
    reply = await api.get(f"/api/v1/pods?{query}")

    assert reply.status == status and words in reply.message


async def test_a_list_not_older_than_a_version(api: ApiClient) -> None:
    created = await api.created(NODES, node("n"))

    reply = await api.get(f"{NODES}?resourceVersion={created['metadata']['resourceVersion']}")

    assert reply.status == 200 and len(reply.body["items"]) == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/v1/gadgets", 404),
        ("/apis/example.com/v1/gadgets", 404),
        ("/nonsense", 404),
        (f"{NODES}/nix", 404),
        ("/api/v1/namespaces/default/nodes", 404),
        (f"{PODS}/a/nonsense", 404),
    ],
)
async def test_unserved_paths(api: ApiClient, path: str, status: int) -> None:
    assert (await api.get(path)).status == status


async def test_clients_that_accept_only_protobuf_get_406(api: ApiClient) -> None:
    reply = await api.get(NODES, Accept="application/vnd.kubernetes.protobuf")

    assert (reply.status, reply.reason) == (406, "NotAcceptable")
