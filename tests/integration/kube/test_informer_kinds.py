"""Informer: kinds that are not served, served in several versions, or may not be read."""

from typing import Any

import structlog

from builders.kube.informer import Sink, complete
from builders.kube.scripted_server import ScriptedApi, status
from builders.wait import eventually
from muster.dialects import native
from muster.kube.api_resources import definitions
from muster.kube.object_changes import Removed

POD_GROUPS = definitions(native.DEFINITION)


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
