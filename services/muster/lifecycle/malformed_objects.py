"""Reports objects that cannot be read, or only in part, as Warning events on them: where their users look."""

import asyncio
from typing import Final

import structlog

from muster.gangs.facts import ObjectReference
from muster.kube.api_resources import ApiResource
from muster.kube.malformed_objects import Unreadable
from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.lifecycle.controller import ControllerContext
from muster.lifecycle.event_recorder import EventRecorder
from muster.lifecycle.object_client import ObjectClient
from muster.queues.fair_queue import FairQueue

_REASON: Final = "MalformedObject"
_ACTION: Final = "Reading"
_MAX_PENDING: Final = 100
_MAX_REMEMBERED: Final = 1_000
_PAUSE_SECONDS: Final = 0.2

_log = structlog.get_logger(__name__)


class MalformedObjectReporter:
    """Records one event for each object and problem, at most five a second, while this replica leads.

    Namespaces take turns. Objects are remembered up to a number, the oldest forgotten first; beyond the number that may
    be pending, the oldest reports of the namespace with the most are dropped, and their objects are not reported until
    their next change. Metrics count all of them.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._leadership = context.leadership
        self._events = EventRecorder(ObjectClient(context.session), context.settings.instance)
        self._pending: FairQueue[tuple[ObjectReference, str], None] = FairQueue()
        self._reported: dict[tuple[ObjectReference, str], None] = {}
        self._wake = asyncio.Event()
        context.informers.report_malformed(self._put)

    @property
    def pending(self) -> int:
        """The number of objects to be reported."""
        return len(self._pending)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            while not self._pending:
                self._wake.clear()
                await self._wake.wait()
            await self._leadership.until_leading()
            for entry in self._pending.take(1):
                self._reported[entry.key] = None
                if len(self._reported) > _MAX_REMEMBERED:
                    del self._reported[next(iter(self._reported))]
                await self._record(*entry.key)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _put(self, resource: ApiResource[object], found: Unreadable) -> None:
        if not found.name:
            return
        reference = ObjectReference(resource.api_version, resource.object_kind, found.namespace, found.name, found.uid)
        report = (reference, found.message)
        if report in self._reported:
            return
        self._pending.put(found.namespace, report, None)
        self._pending.drop_down_to(_MAX_PENDING)
        self._wake.set()

    async def _record(self, about: ObjectReference, message: str) -> None:
        note = f"Muster cannot read this object, or not all of it: {message}. Correct or delete it"
        try:
            await self._events.record(about, _REASON, note, action=_ACTION)
        except (ApiStatusError, KubeUnreachable) as error:
            _log.warning("malformed_object_not_reported", object=f"{about.namespace}/{about.name}", error=str(error))
            self._reported.pop((about, message), None)
