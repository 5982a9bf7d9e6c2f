"""An informer tells everything once and in order, whatever the API server does, and never gives up."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
import structlog
import yaml
from msgspec.structs import replace

from builders.kube.scripted_server import ScriptedApi, status
from builders.telemetry.metrics import Figures
from builders.wait import eventually
from muster.config.settings import KubeSettings
from muster.dialects import native
from muster.kube.api_resources import PODS, definitions
from muster.kube.informer import Informer, Pace
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.session import KubeSession

POD_GROUPS = definitions(native.DEFINITION)
QUICK = Pace(
    page_size=3,
    batch_size=4,
    list_timeout_seconds=5,
    watch_seconds=(100, 100),
    silence_seconds=60,
    hasty_seconds=0.05,
    retry_seconds=(0.001, 0.01),
    absent_seconds=(0.001, 0.01),
)


class Told:
    """What an informer told, and what the cluster looks like by that."""

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
def told() -> Told:
    return Told()


@pytest.fixture
async def follow(api: ScriptedApi, told: Told, tmp_path: Any) -> AsyncIterator[Callable[..., Any]]:
    """Starts an informer; it runs to the end of the test."""
    config = tmp_path / "kubeconfig"
    config.write_text(kubeconfig(api.url))
    session = await KubeSession.connect(KubeSettings(kubeconfig=config))
    tasks: list[asyncio.Task[None]] = []

    async def start(**pace: Any) -> Informer[Any]:
        may = {name: pace.pop(name) for name in ("optional", "dispensable") if name in pace}
        resource = pace.pop("of", PODS)
        informer = Informer(session, replace(resource, **may), told, replace(QUICK, **pace))
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
    async def test_all_pages_are_told_and_then_how_far_they_go(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        for number in range(8):
            api.object(f"pod-{number}")
        await complete(await follow())
        assert told.pods == [f"pod-{number}" for number in range(8)]
        assert [query.get("continue", "") for query in api.requests[:3]] == ["", "3", "6"]
        assert [batch.through for batch in told.batches] == [0, 0, 0, api.revision]

    async def test_an_empty_list_is_complete_too(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        await complete(await follow())
        assert (told.pods, told.through) == ([], 1)

    async def test_no_batch_is_larger_than_asked(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        for number in range(11):
            api.object(f"pod-{number}")
        await complete(await follow(page_size=100, batch_size=4))
        assert [len(batch.items) for batch in told.batches] == [4, 4, 3, 0]

    @pytest.mark.parametrize("code", [500, 429, 403, 401])
    async def test_failures_are_tried_again(self, api: ScriptedApi, told: Told, follow: Any, code: int) -> None:
        api.object("a")
        api.failures = [status(code, "Failed") for _ in range(5)]
        await complete(await follow())
        assert told.pods == ["a"]

    async def test_an_answer_that_is_no_list_is_tried_again(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.object("a")
        from aiohttp import web

        api.failures = [web.Response(text="<html>a proxy's page</html>"), web.json_response({"items": "none"})]
        await complete(await follow())
        assert told.pods == ["a"]

    async def test_retry_after_is_waited_out(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.failures = [status(429, "TooManyRequests", Retry_After="1")]
        with structlog.testing.capture_logs() as logs:
            await complete(await follow())
        pauses = [entry["pause_seconds"] for entry in logs if "pause_seconds" in entry]
        assert pauses and pauses[0] >= 1

    async def test_an_expired_continue_token_starts_the_list_over(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        for number in range(5):
            api.object(f"pod-{number}")
        informer = await follow()
        await eventually(lambda: len(api.requests) >= 1)
        api.failures = [status(410, "Expired")]
        await complete(informer)
        assert len(told.pods) == 5

    async def test_a_pod_that_cannot_be_read_does_not_hide_the_others(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.object("a")
        api.objects.append({"metadata": {"name": "odd", "uid": "u", "resourceVersion": "9"}, "spec": {"nodeName": [1]}})
        api.objects.append("not even an object")  # type: ignore[arg-type]
        api.object("b")
        await complete(await follow(page_size=100))
        assert told.pods == ["a", "b", "odd"]


class TestWatch:
    async def test_it_starts_where_the_list_ended(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        assert watch.query["resourceVersion"] == str(api.revision)
        assert watch.query["allowWatchBookmarks"] == "true"
        a, b = api.objects[0], api.object("b")
        watch.say("ADDED", b)
        watch.say("MODIFIED", api.change(a))
        watch.say("DELETED", api.change(b))
        await eventually(lambda: told.through == api.revision)
        assert told.pods == ["a"]

    async def test_lines_that_come_together_are_told_together(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        await follow(batch_size=100)
        watch = await api.watch()
        await eventually(lambda: told.through == 1)
        before = len(told.batches)
        for number in range(50):
            watch.say("ADDED", api.object(f"pod-{number}"))
        lines = b"".join([watch.lines.get_nowait() or b"" for _ in range(50)])
        watch.write(lines)
        await eventually(lambda: told.through == api.revision)
        assert len(told.pods) == 50
        assert len(told.batches) - before < 10

    async def test_a_line_may_come_in_pieces(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        await follow()
        watch = await api.watch()
        watch.say("ADDED", api.object("a", annotations={"long": "x" * 1_000_000}))
        line = watch.lines.get_nowait() or b""
        for start in range(0, len(line), 100_000):
            watch.write(line[start : start + 100_000])
        await eventually(lambda: told.pods == ["a"])

    async def test_a_bookmark_only_raises_how_far_it_goes(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        await follow()
        watch = await api.watch()
        watch.bookmark(77)
        await eventually(lambda: told.through == 77)
        assert told.batches[-1].items == []

    @pytest.mark.parametrize("way", ["end", "cut"])
    async def test_a_watch_that_ends_goes_on_from_the_last_revision(
        self, api: ScriptedApi, told: Told, follow: Any, way: str
    ) -> None:
        await follow()
        watch = await api.watch()
        watch.bookmark(50)
        await eventually(lambda: told.through == 50)
        getattr(watch, way)()
        again = await api.watch()
        assert again.query["resourceVersion"] == "50"
        assert sum("limit" in query for query in api.requests) == 1

    @pytest.mark.parametrize("where", ["answer", "event"])
    async def test_an_expired_revision_lists_anew_and_tells_the_difference(
        self, api: ScriptedApi, told: Told, follow: Any, where: str
    ) -> None:
        for name in ("same", "changed", "gone"):
            api.object(name)
        await follow()
        watch = await api.watch()
        before = told.changes
        same, changed, _ = api.objects
        api.objects = [same, api.change(changed)]
        api.object("new")
        if where == "answer":
            api.failures = [status(410, "Expired")]
            watch.cut()
        else:
            watch.fail(410, "Expired")
        await api.watch()
        assert told.pods == ["changed", "new", "same"]
        assert told.changes - before == 3, "what is the same is not told again"

    async def test_what_came_before_an_error_in_the_same_breath_is_told(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        await follow()
        watch = await api.watch()
        watch.say("ADDED", api.object("a"))
        watch.fail(500, "InternalError")
        again = await api.watch()
        assert again.query["resourceVersion"] == str(api.revision)
        assert told.pods == ["a"]

    async def test_a_removed_pod_that_comes_again_in_the_same_breath_is_there(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        first = api.object("a")
        await follow()
        watch = await api.watch()
        watch.say("DELETED", api.change(first))
        watch.say("ADDED", api.object("a", uid="another"))
        await eventually(lambda: told.through == api.revision)
        assert told.names == {"another": "a"}

    async def test_silence_ends_a_watch(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        await follow(silence_seconds=0.1)
        first = await api.watch()
        second = await api.watch()
        assert second.query["resourceVersion"] == first.query["resourceVersion"]
        second.say("ADDED", api.object("a"))
        await eventually(lambda: told.pods == ["a"])

    async def test_a_watch_that_ends_at_once_is_not_opened_in_a_spin(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        with structlog.testing.capture_logs() as logs:
            await follow(retry_seconds=(0.01, 0.01))
            for _ in range(3):
                (await api.watch()).end()
            await api.watch()
        assert sum("pause_seconds" in entry for entry in logs) == 3

    async def test_a_line_that_is_no_event_lists_anew(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        api.object("b")
        watch.write(b"<html>\n")
        await api.watch()
        assert told.pods == ["a", "b"]

    async def test_a_dead_server_is_waited_for(self, told: Told, follow: Any, api: ScriptedApi) -> None:
        api.object("a")
        await follow()
        watch = await api.watch()
        watch.cut()
        api.failures = [status(503, "ServiceUnavailable") for _ in range(10)]
        again = await api.watch()
        assert told.pods == ["a"], "stale, but whole"
        again.say("ADDED", api.object("b"))
        await eventually(lambda: told.pods == ["a", "b"])


class TestAbsentKind:
    async def test_it_is_complete_and_is_picked_up_when_it_appears(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.absent = True
        await complete(await follow(optional=True))
        assert told.batches == []
        api.object("a")
        api.absent = False
        await api.watch()
        assert told.pods == ["a"]

    async def test_it_is_looked_for_ever_less_often(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.absent = True
        await follow(optional=True, absent_seconds=(0.01, 60.0))
        await eventually(lambda: len(api.requests) >= 5)
        assert all("watch" not in query for query in api.requests)

    async def test_what_it_had_is_gone_when_it_goes(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.object("a")
        await follow(optional=True)
        watch = await api.watch()
        api.absent = True
        watch.end()
        await eventually(lambda: told.pods == [])
        api.absent = False
        await api.watch()
        assert told.pods == ["a"]

    async def test_a_kind_that_every_server_has_is_an_error_when_it_is_missing(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.absent = True
        informer = await follow()
        await eventually(lambda: len(api.requests) >= 3)
        assert not informer.complete.is_set()


class TestVersions:
    async def test_the_newest_that_is_served_is_followed(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.versions = ("v1alpha3", "v1alpha2")
        for name in "abcd":
            api.object(name)
        await follow(of=POD_GROUPS)
        await api.watch()
        assert told.pods == ["a", "b", "c", "d"]
        assert api.paths == [
            "/apis/scheduling.k8s.io/v1beta1/podgroups",
            *["/apis/scheduling.k8s.io/v1alpha3/podgroups"] * 3,
        ]
        assert {each.api_version for each in told.items} == {"scheduling.k8s.io/v1alpha3"}

    async def test_without_any_it_is_absent_until_an_old_one_appears(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.versions = ("v1",)
        await complete(await follow(of=POD_GROUPS))
        api.object("a")
        api.versions = ("v1alpha2",)
        await api.watch()
        assert [each.api_version for each in told.items] == ["scheduling.k8s.io/v1alpha2"]

    async def test_when_the_server_drops_a_version_all_is_told_again_in_the_next(
        self, api: ScriptedApi, told: Told, follow: Any
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
        await eventually(lambda: told.pods == ["a"])
        assert told.items[-1].api_version == "scheduling.k8s.io/v1beta1"


class TestForbidden:
    async def test_a_dispensable_kind_that_may_not_be_read_keeps_nobody_waiting_and_is_told_of_once(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.object("a")
        api.failures = [status(403, "Forbidden", "pods is forbidden") for _ in range(5)]
        with structlog.testing.capture_logs() as logs:
            informer = await follow(dispensable=True)
            await complete(informer)
            assert told.batches == []
            watch = await api.watch()
        warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
        assert len(warnings) == 1 and "pods is forbidden" in warnings[0]
        assert told.pods == ["a"], "it is picked up when it may be read"
        watch.end()

    async def test_what_was_read_stays_when_it_may_not_be_read_any_more(
        self, api: ScriptedApi, told: Told, follow: Any
    ) -> None:
        api.object("a")
        await complete(await follow(dispensable=True))
        watch = await api.watch()
        api.failures = [status(403, "Forbidden") for _ in range(5)]
        watch.fail(410, "Expired")
        watch.end()
        await api.watch()
        assert told.pods == ["a"]
        assert not any(isinstance(item, Removed) for batch in told.batches for item in batch.items)


class TestMetrics:
    async def test_what_is_known_and_what_failed_is_told(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        for number in range(4):
            api.object(f"pod-{number}")
        api.failures = [status(500, "Failed"), status(503, "Failed")]
        before = Figures.here()
        informer = await follow()
        await complete(informer)
        watch = await api.watch()
        await eventually(lambda: informer.heard_at is not None)
        heard = informer.heard_at
        watch.say("ADDED", api.object("another"))
        await eventually(lambda: len(told.pods) == 5)

        now = Figures.here()
        assert now("muster_watched_objects", kind="pods") == 5
        assert now("muster_watch_lists_total", kind="pods") - before("muster_watch_lists_total", kind="pods") == 1
        assert now("muster_watch_failures_total", kind="pods") - before("muster_watch_failures_total", kind="pods") == 2
        assert now("muster_watch_events_total", kind="pods") - before("muster_watch_events_total", kind="pods") == 1
        assert informer.heard_at > heard

    async def test_of_what_is_not_served_no_silence_is_told(self, api: ScriptedApi, told: Told, follow: Any) -> None:
        api.failures = [status(404, "NotFound") for _ in range(10)]
        informer = await follow(optional=True, absent_seconds=(60, 60))
        await complete(informer)
        assert informer.heard_at is None
