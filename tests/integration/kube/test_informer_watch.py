"""Informer: a watch delivers every change once and in order, and never gives up."""

import asyncio
from typing import Any

import pytest
import structlog

from builders.kube.informer import Sink
from builders.kube.scripted_server import ScriptedApi, status
from builders.telemetry.metrics import Figures
from builders.wait import eventually
from muster.kube.malformed_objects import Unreadable


class TestWatch:
    async def test_watch_starts_at_the_revision_of_the_list(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        assert watch.query["resourceVersion"] == str(api.revision)
        assert watch.query["allowWatchBookmarks"] == "true"
        a, b = api.objects[0], api.object("b")
        watch.say("ADDED", b)
        watch.say("MODIFIED", api.change(a))
        watch.say("DELETED", api.change(b))
        await eventually(lambda: sink.through == api.revision)
        assert sink.pods == ["a"]

    async def test_lines_received_together_share_a_delivery(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await follow(batch_size=100)
        watch = await api.watch()
        await eventually(lambda: sink.through == 1)
        before = len(sink.batches)
        for number in range(50):
            watch.say("ADDED", api.object(f"pod-{number}"))
        lines = b"".join([watch.lines.get_nowait() or b"" for _ in range(50)])
        watch.write(lines)
        await eventually(lambda: sink.through == api.revision)
        assert len(sink.pods) == 50
        assert len(sink.batches) - before < 10

    async def test_i12_changes_that_the_sink_returns_are_delivered_after_other_tasks(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for number in range(5):
            api.object(f"listed-{number}")
        sink.most = 1
        turns: list[int] = []
        loop = asyncio.get_running_loop()

        def other() -> None:
            turns.append(sink.changes)
            if sink.changes < 25:
                loop.call_soon(other)

        other()
        await follow(batch_size=100)
        watch = await api.watch()
        for number in range(20):
            watch.say("ADDED", api.object(f"pod-{number}"))
        watch.write(b"".join([watch.lines.get_nowait() or b"" for _ in range(20)]))
        await eventually(lambda: sink.through == api.revision)
        assert sink.objects == [
            *(f"listed-{number}" for number in range(5)),
            *(f"pod-{number}" for number in range(20)),
        ]
        assert set(turns) >= set(range(1, 25)), "other tasks ran after each"
        assert [batch.through for batch in sink.batches if batch.items].count(0) >= 18, "the last has the revision"

    async def test_line_in_several_chunks(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await follow()
        watch = await api.watch()
        watch.say("ADDED", api.object("a", annotations={"long": "x" * 1_000_000}))
        line = watch.lines.get_nowait() or b""
        for start in range(0, len(line), 100_000):
            watch.write(line[start : start + 100_000])
        await eventually(lambda: sink.pods == ["a"])

    async def test_bookmark_only_raises_the_revision(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await follow()
        watch = await api.watch()
        watch.bookmark(77)
        await eventually(lambda: sink.through == 77)
        assert sink.batches[-1].items == []

    @pytest.mark.parametrize("way", ["end", "cut"])
    async def test_ended_watch_resumes_from_the_last_revision(
        self, api: ScriptedApi, sink: Sink, follow: Any, way: str
    ) -> None:
        await follow()
        watch = await api.watch()
        watch.bookmark(50)
        await eventually(lambda: sink.through == 50)
        getattr(watch, way)()
        again = await api.watch()
        assert again.query["resourceVersion"] == "50"
        assert sum("limit" in query for query in api.requests) == 1

    @pytest.mark.parametrize("where", ["answer", "event"])
    async def test_expired_revision_relists_and_delivers_the_difference(
        self, api: ScriptedApi, sink: Sink, follow: Any, where: str
    ) -> None:
        for name in ("same", "changed", "gone"):
            api.object(name)
        await follow()
        watch = await api.watch()
        before = sink.changes
        same, changed, _ = api.objects
        api.objects = [same, api.change(changed)]
        api.object("new")
        if where == "answer":
            api.failures = [status(410, "Expired")]
            watch.cut()
        else:
            watch.fail(410, "Expired")
        await api.watch()
        assert sink.pods == ["changed", "new", "same"]
        assert sink.changes - before == 3, "unchanged objects are not delivered again"

    async def test_a_restored_api_server_has_all_objects_delivered_again(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        for name in ("a", "b"):
            api.object(name)
        await follow()
        watch = await api.watch()
        watch.bookmark(50)
        await eventually(lambda: sink.through == 50)
        before = sink.changes
        watch.fail(504, "Timeout")
        await api.watch()
        await eventually(lambda: sink.through == api.revision)
        assert api.revision < 50
        assert sink.changes - before == 2, "equal revisions of two histories say nothing"

    async def test_events_before_an_error_are_delivered(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await follow()
        watch = await api.watch()
        watch.say("ADDED", api.object("a"))
        watch.fail(500, "InternalError")
        again = await api.watch()
        assert again.query["resourceVersion"] == str(api.revision)
        assert sink.pods == ["a"]

    async def test_pod_removed_and_added_in_one_batch_exists(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        first = api.object("a")
        await follow()
        watch = await api.watch()
        watch.say("DELETED", api.change(first))
        watch.say("ADDED", api.object("a", uid="another"))
        await eventually(lambda: sink.through == api.revision)
        assert sink.names == {"another": "a"}

    async def test_idle_watch_is_reopened(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        await follow(idle_seconds=0.1)
        first = await api.watch()
        second = await api.watch()
        assert second.query["resourceVersion"] == first.query["resourceVersion"]
        second.say("ADDED", api.object("a"))
        await eventually(lambda: sink.pods == ["a"])

    async def test_watch_that_ends_at_once_is_not_reopened_in_a_loop(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        with structlog.testing.capture_logs() as logs:
            await follow(retry_seconds=(0.01, 0.01))
            for _ in range(3):
                (await api.watch()).end()
            await api.watch()
        assert sum("pause_seconds" in entry for entry in logs) == 3

    @pytest.mark.parametrize("field", [b'"spec"', b'"managedFields"'])
    async def test_deeply_nested_object_does_not_stop_the_watch(
        self, api: ScriptedApi, sink: Sink, follow: Any, field: bytes
    ) -> None:
        await follow()
        watch = await api.watch()
        metadata = b'"metadata":{"name":"odd","uid":"u-odd","resourceVersion":"7"}'
        nested = b"[" * 100_000 + b"]" * 100_000
        watch.write(b'{"type":"ADDED","object":{' + metadata + b"," + field + b":" + nested + b"}}\n")
        watch.say("ADDED", {"metadata": {"name": "next", "uid": "u-next", "resourceVersion": "8"}})
        await eventually(lambda: sink.through == 8)
        assert sink.pods == ["next", "odd"]
        assert sum("limit" in query for query in api.requests) == 1, "no relist"

    async def test_unreadable_object_is_skipped_and_its_last_state_kept(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        first = api.object("a")
        reported: list[Unreadable] = []
        before = Figures.here()
        await follow(report=reported.append)
        watch = await api.watch()
        watch.say("MODIFIED", {"metadata": {**first["metadata"], "resourceVersion": "9" * 5000}})
        watch.say("MODIFIED", {"metadata": {"namespace": "ml", "resourceVersion": "7"}})
        watch.write(b'{"type":"MODIFIED","object":[]}\n')
        watch.say("ADDED", api.object("b"))
        await eventually(lambda: sink.pods == ["a", "b"])
        assert sink.changes == 2
        assert [each.reason for each in reported] == ["revision", "identity", "not_an_object"]
        assert (reported[0].uid, reported[0].name) == ("uid-a", "a")
        counted = Figures.here()
        for reason in ("revision", "identity", "not_an_object"):
            name = "muster_malformed_objects_total"
            assert counted(name, kind="pods", reason=reason) == before(name, kind="pods", reason=reason) + 1
        watch.say("MODIFIED", api.change(first))
        await eventually(lambda: sink.changes == 3)

    async def test_malformed_objects_are_logged_at_a_bounded_rate(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        with structlog.testing.capture_logs() as logs:
            await follow()
            watch = await api.watch()
            for _ in range(50):
                watch.write(b'{"type":"MODIFIED","object":[]}\n')
            watch.say("ADDED", api.object("b"))
            await eventually(lambda: sink.pods == ["b"])
        assert sum(entry["event"] == "object_malformed" for entry in logs) == 1

    async def test_line_that_is_not_an_event_causes_a_relist(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        api.object("b")
        watch.write(b"<html>\n")
        await api.watch()
        assert sink.pods == ["a", "b"]

    async def test_dead_server_is_retried_until_it_returns(self, sink: Sink, follow: Any, api: ScriptedApi) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        watch.cut()
        api.failures = [status(503, "ServiceUnavailable") for _ in range(10)]
        again = await api.watch()
        assert sink.pods == ["a"], "stale, but complete"
        again.say("ADDED", api.object("b"))
        await eventually(lambda: sink.pods == ["a", "b"])
