"""Informer: delivers every change once and in order, whatever the API server does, and never gives up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import structlog
import yaml
from aiohttp import web
from msgspec.structs import replace

import muster.kube.session as session_module
from builders.kube.scripted_server import ScriptedApi, status
from builders.telemetry.metrics import Figures
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.dialects import native
from muster.kube.api_resources import PODS, definitions
from muster.kube.informer import Informer, InformerOptions
from muster.kube.malformed_objects import Unreadable
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.session import KubeSession

POD_GROUPS = definitions(native.DEFINITION)
QUICK = InformerOptions(
    page_size=3,
    batch_size=4,
    list_timeout_seconds=5,
    watch_seconds=(100, 100),
    idle_seconds=60,
    min_watch_seconds=0.05,
    retry_seconds=(0.001, 0.01),
    unavailable_seconds=(0.001, 0.01),
)


class Sink:
    """Records deliveries of an informer, and the resulting state of the cluster."""

    def __init__(self) -> None:
        self.batches: list[ObjectChanges[Any]] = []
        self.names: dict[str, str] = {}
        self.through = 0

    def __call__(self, changes: ObjectChanges[Any]) -> None:
        self.batches.append(changes)
        for item in changes.items:
            if isinstance(item, Removed):
                del self.names[item.uid]
            else:
                self.names[item.metadata.uid] = item.metadata.name
        self.through = changes.through or self.through

    @property
    def pods(self) -> list[str]:
        return sorted(self.names.values())

    @property
    def objects(self) -> list[str]:
        return [item.metadata.name for batch in self.batches for item in batch.items if not isinstance(item, Removed)]

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch.items if not isinstance(item, Removed)]

    @property
    def changes(self) -> int:
        return sum(len(batch.items) for batch in self.batches)


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi().serve() as api:
        yield api


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def follow(api: ScriptedApi, sink: Sink, tmp_path: Any) -> AsyncIterator[Callable[..., Any]]:
    """Starts an informer that runs until the end of the test."""
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(api.url))
    session = await KubeSession.connect(KubeSettings(kubeconfig=config))
    tasks: list[asyncio.Task[None]] = []

    async def start(**options: Any) -> Informer[Any]:
        may = {name: options.pop(name) for name in ("optional", "dispensable") if name in options}
        resource, report = options.pop("of", PODS), options.pop("report", None)
        informer = Informer(session, replace(resource, **may), sink, replace(QUICK, **options), report)
        tasks.append(asyncio.create_task(informer.run()))
        return informer

    yield start
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await session.close()


def kubeconfig(url: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "users": [{"name": "test", "user": {}}],
            "current-context": "test",
        }
    )


async def complete(informer: Informer[Any]) -> None:
    async with asyncio.timeout(10):
        await informer.complete.wait()


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
        self, api: ScriptedApi, sink: Sink, follow: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(session_module, "_MAX_BODY_BYTES", 40_000)
        for number in range(20):
            api.object(f"small-{number}")
        for number in range(5):
            api.object(f"large-{number}", annotations={"x": "x" * 30_000})
        await complete(await follow(page_size=20, page_bytes=1_000_000))
        assert len(sink.pods) == 25

    async def test_malformed_pod_does_not_hide_the_others(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        api.objects.append({"metadata": {"name": "odd", "uid": "u", "resourceVersion": "9"}, "spec": {"nodeName": [1]}})
        api.objects.append("not even an object")  # type: ignore[arg-type]
        api.object("b")
        await complete(await follow(page_size=100))
        assert sink.pods == ["a", "b", "odd"]


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


class TestAbsentKind:
    async def test_unserved_resource_completes_and_is_listed_once_served(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.absent = True
        await complete(await follow(optional=True))
        assert sink.batches == []
        api.object("a")
        api.absent = False
        await api.watch()
        assert sink.pods == ["a"]

    async def test_unserved_resource_is_polled_with_growing_pauses(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.absent = True
        await follow(optional=True, unavailable_seconds=(0.01, 60.0))
        await eventually(lambda: len(api.requests) >= 5)
        assert all("watch" not in query for query in api.requests)

    async def test_objects_of_a_dropped_resource_are_removed(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.object("a")
        await follow(optional=True)
        watch = await api.watch()
        api.absent = True
        watch.end()
        await eventually(lambda: sink.pods == [])
        api.absent = False
        await api.watch()
        assert sink.pods == ["a"]

    async def test_missing_required_resource_is_an_error(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.absent = True
        informer = await follow()
        await eventually(lambda: len(api.requests) >= 3)
        assert not informer.complete.is_set()


class TestVersions:
    async def test_newest_served_version_is_watched(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.versions = ("v1alpha3", "v1alpha2")
        for name in "abcd":
            api.object(name)
        await follow(of=POD_GROUPS)
        await api.watch()
        assert sink.pods == ["a", "b", "c", "d"]
        assert api.paths == [
            "/apis/scheduling.k8s.io/v1beta1/podgroups",
            *["/apis/scheduling.k8s.io/v1alpha3/podgroups"] * 3,
        ]
        assert {each.api_version for each in sink.items} == {"scheduling.k8s.io/v1alpha3"}

    async def test_resource_is_unavailable_until_an_old_version_is_served(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.versions = ("v1",)
        await complete(await follow(of=POD_GROUPS))
        api.object("a")
        api.versions = ("v1alpha2",)
        await api.watch()
        assert [each.api_version for each in sink.items] == ["scheduling.k8s.io/v1alpha2"]

    async def test_dropped_version_delivers_all_objects_in_the_next(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.versions = ("v1alpha2",)
        api.object("a")
        api.object("b")
        await follow(of=POD_GROUPS)
        watch = await api.watch()
        api.versions = ("v1beta1",)
        del api.objects[1]
        watch.end()
        await api.watch()
        await eventually(lambda: sink.pods == ["a"])
        assert sink.items[-1].api_version == "scheduling.k8s.io/v1beta1"


class TestForbidden:
    async def test_forbidden_dispensable_resource_completes_and_is_logged_once(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.object("a")
        api.failures = [status(403, "Forbidden", "pods is forbidden") for _ in range(5)]
        with structlog.testing.capture_logs() as logs:
            informer = await follow(dispensable=True)
            await complete(informer)
            assert sink.batches == []
            watch = await api.watch()
        [warning] = [entry for entry in logs if entry["log_level"] == "warning"]
        assert warning["event"] == "resource_unavailable" and "pods is forbidden" in warning["reason"]
        assert sink.pods == ["a"], "it is listed once reading is allowed"
        watch.end()

    async def test_objects_are_kept_when_reading_becomes_forbidden(
        self, api: ScriptedApi, sink: Sink, follow: Any
    ) -> None:
        api.object("a")
        await complete(await follow(dispensable=True))
        watch = await api.watch()
        api.failures = [status(403, "Forbidden") for _ in range(5)]
        watch.fail(410, "Expired")
        watch.end()
        await api.watch()
        assert sink.pods == ["a"]
        assert not any(isinstance(item, Removed) for batch in sink.batches for item in batch.items)


class TestMetrics:
    async def test_objects_and_failures_are_counted(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        for number in range(4):
            api.object(f"pod-{number}")
        api.failures = [status(500, "Failed"), status(503, "Failed")]
        before = Figures.here()
        informer = await follow()
        await complete(informer)
        watch = await api.watch()
        await eventually(lambda: informer.last_response_at is not None)
        heard = informer.last_response_at
        watch.say("ADDED", api.object("another"))
        await eventually(lambda: len(sink.pods) == 5)

        now = Figures.here()
        assert now("muster_watched_objects", kind="pods") == 5
        assert now("muster_watch_lists_total", kind="pods") - before("muster_watch_lists_total", kind="pods") == 1
        assert now("muster_watch_failures_total", kind="pods") - before("muster_watch_failures_total", kind="pods") == 2
        assert now("muster_watch_events_total", kind="pods") - before("muster_watch_events_total", kind="pods") == 1
        assert informer.last_response_at > heard

    async def test_unserved_resource_has_no_idle_time(self, api: ScriptedApi, sink: Sink, follow: Any) -> None:
        api.failures = [status(404, "NotFound") for _ in range(10)]
        informer = await follow(optional=True, unavailable_seconds=(60, 60))
        await complete(informer)
        assert informer.last_response_at is None
