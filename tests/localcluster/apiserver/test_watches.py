"""Watches: order, resumption, selectors, bookmarks, and 410 for compacted versions."""

import asyncio

from builders.kube.client import NODES, PODS, TABLE, ApiClient, api_client, config_map, node, pod
from builders.wait import WAIT_SECONDS
from muster.localcluster.apiserver import ApiServer, Timing

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_watch_continues_from_a_list(api: ApiClient) -> None:
    await api.created(MAPS, config_map("old"))
    revision = (await api.get(MAPS)).revision
    await api.created(MAPS, config_map("new"))

    async with api.watch(f"{MAPS}?resourceVersion={revision}") as events:
        await api.patch(f"{MAPS}/old", {"data": {"a": "x"}})
        await api.delete(f"{MAPS}/new")
        seen = [await events.next() for _ in range(3)]

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "new"),
        ("MODIFIED", "old"),
        ("DELETED", "new"),
    ]
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert revisions == sorted(set(revisions)) and revisions[0] > int(revision)
    assert all((event["object"]["kind"], event["object"]["apiVersion"]) == ("ConfigMap", "v1") for event in seen)


async def test_a_watch_without_a_version_starts_with_all_objects(api: ApiClient) -> None:
    await api.created(MAPS, config_map("old"))

    async with api.watch(MAPS) as events:
        await api.created(MAPS, config_map("new"))
        assert await events.take(2) == [("ADDED", "old"), ("ADDED", "new")]


async def test_all_watches_have_the_same_order(api: ApiClient) -> None:
    revision = (await api.get(PODS)).revision
    path = f"/api/v1/pods?resourceVersion={revision}"

    async with api.watch(path) as first, api.watch(path) as second:
        await asyncio.gather(*(api.created(PODS, pod(f"p{number}")) for number in range(50)))
        own_watch, other_watch = await first.take(50), await second.take(50)

    assert own_watch == other_watch
    assert {name for _, name in own_watch} == {f"p{number}" for number in range(50)}


async def test_objects_enter_and_leave_a_selection(api: ApiClient) -> None:
    await api.created(PODS, pod("a", metadata={"labels": {"app": "web"}}))
    await api.created(PODS, pod("b"))
    revision = (await api.get(PODS)).revision

    async with (
        api.watch(f"{PODS}?labelSelector=app%3Dweb&resourceVersion={revision}") as labelled,
        api.watch(f"{PODS}?fieldSelector=spec.nodeName!%3D&resourceVersion={revision}") as bound,
    ):
        await api.patch(f"{PODS}/a", {"metadata": {"labels": {"app": "db"}}})
        await api.patch(f"{PODS}/b", {"metadata": {"labels": {"app": "web"}}})
        await api.bind("b", "n")
        removed = await labelled.next()
        assert (removed["type"], removed["object"]["metadata"]["labels"]) == ("DELETED", {"app": "web"})
        assert await labelled.take(2) == [("ADDED", "b"), ("MODIFIED", "b")]
        assert await bound.take(1) == [("ADDED", "b")]


async def test_one_object_is_watched_by_its_name(api: ApiClient) -> None:
    async with api.watch(f"{MAPS}?fieldSelector=metadata.name%3Dwanted&resourceVersion=1") as events:
        await api.created(MAPS, config_map("other"))
        await api.created(MAPS, config_map("wanted"))
        assert await events.take(1) == [("ADDED", "wanted")]


async def test_bookmarks_have_the_current_version(api: ApiClient) -> None:
    revision = (await api.get(NODES)).revision
    async with api.watch(f"{NODES}?allowWatchBookmarks=true&resourceVersion={revision}") as events:
        elsewhere = await api.created(MAPS, config_map("c"))
        await api.call("POST", "/muster-faults/bookmarks")
        mark = await events.next()

    assert mark["type"] == "BOOKMARK" and mark["object"]["kind"] == "Node"
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(elsewhere["metadata"]["resourceVersion"])


async def test_a_compacted_version_is_gone(api: ApiClient) -> None:
    revision = (await api.get(NODES)).revision
    await api.created(NODES, node("n"))
    await api.call("POST", "/muster-faults/compact")

    async with api.watch(f"{NODES}?resourceVersion={revision}") as events:
        error = await events.next()
        assert await events.ended()

    assert error["type"] == "ERROR"
    assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
    assert error["object"]["message"].startswith("too old resource version")


async def test_the_window_of_history_is_bounded() -> None:
    server = ApiServer(history=8)
    await server.start()
    try:
        async with api_client(server.url) as api:
            first = (await api.created(MAPS, config_map("c")))["metadata"]["resourceVersion"]
            for number in range(20):
                last = (await api.patch(f"{MAPS}/c", {"data": {"n": str(number)}})).revision
            async with api.watch(f"{MAPS}?resourceVersion={first}") as too_old:
                assert (await too_old.next())["object"]["code"] == 410
            async with api.watch(f"{MAPS}?resourceVersion={int(last) - 5}") as fresh:
                assert len(await fresh.take(5)) == 5
    finally:
        await server.stop()


async def test_a_future_version_is_rejected(api: ApiClient) -> None:
    reply = await api.get(f"{NODES}?watch=1&resourceVersion=99999999")

    assert reply.status == 504 and reply.headers["Retry-After"] == "1"


async def test_a_watch_ends_after_its_timeout(api: ApiClient) -> None:
    async with api.watch(f"{NODES}?timeoutSeconds=1") as events:
        assert await events.ended()


async def test_streaming_lists_are_rejected(api: ApiClient) -> None:
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    reply = await api.get(f"{NODES}?watch=1&{query}")

    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "sendInitialEvents is forbidden for watch" in reply.message


async def test_a_watch_of_tables_sends_columns_once(api: ApiClient) -> None:
    await api.created(PODS, pod("a"))
    async with api.watch(PODS, accept=TABLE) as events:
        first = await events.next()
        await api.bind("a", "n")
        second = await events.next()

    assert [column["name"] for column in first["object"]["columnDefinitions"]][:3] == ["Name", "Ready", "Status"]
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][6] == "n"


async def test_stopping_the_server_ends_its_watches() -> None:
    server = ApiServer(timing=Timing())
    await server.start()
    async with api_client(server.url) as api, api.watch(NODES) as events:
        stopping = asyncio.create_task(server.stop())
        assert await events.ended()
        await stopping


async def test_a_slow_watch_delays_no_other_and_ends_with_410() -> None:
    server = ApiServer(history=16)
    host, port = (await server.start()).removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**16)
    try:
        async with api_client(server.url) as api:
            await api.created(MAPS, config_map("c"))
            writer.write(f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            await reader.readuntil(b'"name":"c"')  # the first event has come: the watch is on
            async with api.watch(MAPS) as attentive:
                for number in range(300):  # 30 MB: more than sockets hold
                    changed = await api.patch(f"{MAPS}/c", {"data": {"n": str(number), "fill": "x" * 100_000}})
                    while (await attentive.next())["object"]["metadata"]["resourceVersion"] != changed.revision:
                        pass
        async with asyncio.timeout(WAIT_SECONDS):
            rest = await reader.read()
    finally:
        writer.close()
        await server.stop()

    assert b"too old resource version" in rest
