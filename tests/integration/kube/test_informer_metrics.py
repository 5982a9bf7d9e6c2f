"""Informer: what it counts."""

from typing import Any

from builders.kube.informer import Sink, complete
from builders.kube.scripted_server import ScriptedApi, status
from builders.telemetry.metrics import Figures
from builders.wait import eventually


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
