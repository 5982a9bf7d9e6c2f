"""The CompositePodGroup controller: keeps their condition CompositePodGroupInitiallyScheduled up to date.

It derives the condition from the tree of CompositePodGroups and from the conditions of the groups directly below, so
it holds whoever leads. CompositePodGroups without a pod of Muster's below them are left to other schedulers.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from muster.dialects import native
from muster.dialects.composite_groups import CompositeKey
from muster.gangs.facts import ObjectReference
from muster.kube.api_resources import COMPOSITE_GROUPS, PODS, definitions
from muster.kube.object_changes import ObjectChanges
from muster.kube.paths import object_path
from muster.kube.timestamps import timestamp
from muster.lifecycle.composite_groups import condition
from muster.lifecycle.composite_groups.cache import CompositeCache
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import ObjectClient
from muster.lifecycle.work_queue import WorkQueue

_BATCH_SECONDS: Final = 0.1
"""Changes within this time are written together."""
_EVENT: Final = "GangDeclaration"
_ACTION: Final = "Observing"


class CompositeGroupController:
    """Reconciles CompositePodGroups by namespace and name. Remembers nothing besides its cache (I11)."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = ObjectClient(context.session)
        self._events = EventRecorder(self._client, context.settings.instance)
        self._cache = CompositeCache(context.settings.scheduler_names)
        self._queue = WorkQueue(
            "composite-groups",
            self._reconcile,
            lambda: list(self._cache.composites),
            context.leadership,
            context.informers,
            namespace_of=lambda key: key[0],
        )
        context.informers.add_handler(COMPOSITE_GROUPS, self._handler(self._cache.update_composite))
        context.informers.add_handler(definitions(native.DEFINITION), self._handler(self._cache.update_group))
        context.informers.add_handler(PODS, self._handler(self._cache.update_pod))

    async def run(self) -> None:
        """Runs until cancelled."""
        await self._queue.run()

    def _handler(self, update: Callable[[Any], list[CompositeKey]]) -> Callable[[ObjectChanges[Any]], None]:
        def handle(changes: ObjectChanges[Any]) -> None:
            for item in changes.items:
                for key in update(item):
                    self._queue.add(key, _BATCH_SECONDS)

        return handle

    async def _reconcile(self, key: CompositeKey) -> float | None:
        known = self._cache.composites.get(key)
        if known is None or known.standing.holds or not self._cache.is_ours(key):
            return None
        standing = self._cache.next_standing(key)
        if standing[:3] == known.standing[:3]:
            return None
        written = condition.as_condition(standing, known.standing, timestamp(time.time()))
        path = object_path(known.api_version, native.COMPOSITE.plural, *key)
        await self._client.set_condition(path, known.uid, written)
        self._cache.note_written(key, known, standing._replace(since=written["lastTransitionTime"]))
        if standing.reason == condition.INVALID:
            about = ObjectReference(known.api_version, native.COMPOSITE.kind, *key, known.uid)
            await self._events.record(about, _EVENT, standing.message, action=_ACTION)
        return None
