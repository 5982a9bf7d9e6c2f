"""Informer: a list is read in pages and replaces what was known, whatever the API server does."""

from typing import Any

import pytest
import structlog
from aiohttp import web

from builders.kube.informer import Sink, complete
from builders.kube.scripted_server import ScriptedApi, status
from builders.wait import eventually


class TestList:
    async def test_all_pages_are_delivered_then_the_revision(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        for number in range(8):
            api.object(f"pod-{number}")
        await complete(await follow())
        assert sink.pods == [f"pod-{number}" for number in range(8)]
        assert [query.get("continue", "") for query in api.requests[:3]] == ["", "3", "6"]
        assert [batch.through for batch in sink.batches] == [0, 0, 0, api.revision]

    async def test_empty_list_completes(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await complete(await follow())
        assert (sink.pods, sink.through) == ([], 1)

    async def test_batches_do_not_exceed_the_size(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        for number in range(11):
            api.object(f"pod-{number}")
        await complete(await follow(page_size=100, batch_size=4))
        assert [len(batch.items) for batch in sink.batches] == [4, 4, 3, 0]

    async def test_batches_do_not_exceed_their_bytes(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        for number in range(12):
            api.object(f"pod-{number:02}", annotations={"x": "x" * (100_000 if number in (3, 4, 7) else 100)})
        await complete(await follow(page_size=100, batch_size=8, batch_bytes=110_000))
        assert [len(batch.items) for batch in sink.batches] == [4, 3, 5, 0]

    @pytest.mark.parametrize("code", [500, 429, 403, 401])
    async def test_failures_are_retried(self, api: ScriptedApi, sink: Sink, follow: Any, code: int) -> None:
        api.object("a")
        api.failures = [status(code, "Failed") for _ in range(5)]
        await complete(await follow())
        assert sink.pods == ["a"]

    async def test_body_that_is_not_a_list_is_retried(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        api.failures = [web.Response(text="<html>a proxy's page</html>"), web.json_response({"items": "none"})]
        await complete(await follow())
        assert sink.pods == ["a"]

    async def test_retry_after_is_honoured(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.failures = [status(429, "TooManyRequests", Retry_After="1")]
        with structlog.testing.capture_logs() as logs:
            await complete(await follow())
        pauses = [entry["pause_seconds"] for entry in logs if "pause_seconds" in entry]
        assert pauses and pauses[0] >= 1

    async def test_expired_continue_token_restarts_the_list(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        for number in range(5):
            api.object(f"pod-{number}")
        informer = await follow()
        await eventually(lambda: len(api.requests) >= 1)
        api.failures = [status(410, "Expired")]
        await complete(informer)
        assert len(sink.pods) == 5

    async def test_deeply_nested_item_does_not_hide_the_others(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        items = [
            f'{{"metadata":{{"name":"{name}","uid":"u-{name}","resourceVersion":"7","managedFields":{field}}}}}'
            for name, field in (("a", "[]"), ("odd", "[" * 50_000 + "]" * 50_000), ("b", "null"))
        ]
        body = f'{{"metadata":{{"resourceVersion":"9"}},"items":[{",".join(items)}]}}'
        api.failures = [web.Response(text=body)]
        await complete(await follow())
        assert (sink.pods, sink.through) == (["a", "b", "odd"], 9)

    async def test_unreadable_items_keep_their_last_state(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        first, gone = api.object("a"), api.object("gone")
        await follow()
        watch = await api.watch()
        first["metadata"]["resourceVersion"] = "none"
        api.objects = [first]
        watch.fail(410, "Expired")
        await api.watch()
        assert gone["metadata"]["uid"] not in sink.names
        assert sink.pods == ["a"]

    async def test_pages_have_fewer_objects_where_these_are_large(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for number in range(30):
            api.object(f"pod-{number}", annotations={"x": "x" * 10_000})
        await complete(await follow(page_size=10, page_bytes=30_000))
        assert [query["limit"] for query in api.requests[:4]] == ["10", "2", "2", "2"]
        assert len(sink.pods) == 30

    async def test_page_beyond_the_limit_of_memory_is_listed_in_smaller_ones(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for number in range(20):
            api.object(f"small-{number}")
        for number in range(5):
            api.object(f"large-{number}", annotations={"x": "x" * 30_000})
        await complete(await follow(page_size=20, page_bytes=1_000_000, max_page_bytes=40_000))
        assert len(sink.pods) == 25
        first_pages = [query for query in api.requests if "limit" in query and "continue" not in query]
        assert len(first_pages) == 1, "the list goes on where it is"

    async def test_long_page_that_must_be_repaired_is_listed_in_smaller_ones(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for number in range(20):
            api.object(f"pod-{number}")
        nested = b"[" * 5_000 + b"]" * 5_000
        api.failures = [web.Response(body=b'{"metadata":{"resourceVersion":"1"},"items":[' + nested + b"]}")]
        with structlog.testing.capture_logs() as logs:
            await complete(await follow(page_size=20, repaired_bytes=5_000))
        assert len(sink.pods) == 20
        assert [query["limit"] for query in api.requests[:3]] == ["20", "2", "2"]
        assert "list_failed" not in [entry["event"] for entry in logs]

    async def test_next_page_is_requested_while_one_is_taken_in(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for number in range(6):
            api.object(f"pod-{number}")
        sink.ready = lambda: len(api.requests) >= 2
        await complete(await follow())
        assert len(sink.pods) == 6

    async def test_malformed_pod_does_not_hide_the_others(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        api.objects.append({"metadata": {"name": "odd", "uid": "u", "resourceVersion": "9"}, "spec": {"nodeName": [1]}})
        api.objects.append("not even an object")  # type: ignore[arg-type]
        api.object("b")
        await complete(await follow(page_size=100))
        assert sink.pods == ["a", "b", "odd"]
