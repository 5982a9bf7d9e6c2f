"""Lists events of namespaces with incomplete gangs, and adds to their facts why controllers cannot create pods.

Events are listed on demand instead of watched: there are many, and few concern a gang that lacks members. One request
at a time is sent, at most two per second. Without the permission to list events, gangs are only said to be incomplete.
"""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

import structlog

from muster.clusterstate.event_passes import EVENTS_PER_PAGE, EventPasses, Pace, PageRequest
from muster.clusterstate.state import ClusterState
from muster.gangs.facts import Batch
from muster.kube.creation_failures import EventPage, UnreadableEvents, events_query, read_events
from muster.kube.malformed_objects import MalformedObjects, Reason, Unreadable
from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError, KubeUnreachable, ResponseTooLong
from muster.kube.session import KubeSession

_log = structlog.get_logger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_MAX_PAGE_BYTES: Final = 8 * 1024 * 1024
_FORBIDDEN_SECONDS: Final = 600.0
"""After which permission is looked for again."""
_UNAVAILABLE_SECONDS: Final = 5.0
_GANGS_PER_STEP: Final = 50


class CreationFailures:
    """The task that lists events. It keeps what its passes keep."""

    def __init__(self, session: KubeSession, state: ClusterState, publish: Callable[[Batch], None], pace: Pace) -> None:
        self._session, self._state, self._publish = session, state, publish
        self._passes = EventPasses(state.gangs, pace)
        self._pace = pace
        self._malformed = MalformedObjects("events")
        self._logged_forbidden = False

    async def run(self) -> None:
        """List events until cancelled."""
        while True:
            await asyncio.sleep(self._pace.request)
            if (request := self._passes.next(monotonic())) is not None:
                await asyncio.sleep(await self._list(request))

    async def _list(self, request: PageRequest) -> float:
        """Request a page and take it in; returns for how long no other should be requested, in seconds."""
        began = monotonic()
        try:
            page = await self._read(request)
        except (ApiStatusError, KubeUnreachable, UnreadableEvents) as error:
            now = monotonic()
            self._passes.fail(request.namespace, now, now - began)
            return self._pause_after(error, request)
        now = monotonic()
        found = list(self._passes.take(request.namespace, page, now - began, now).items())
        for first in range(0, len(found), _GANGS_PER_STEP):
            part = dict(found[first : first + _GANGS_PER_STEP])
            self._publish(self._state.note_creation_failures(part))
            await asyncio.sleep(0)  # I12
        return 0.0

    async def _read(self, request: PageRequest) -> EventPage:
        response = await self._session.request(
            "GET",
            object_path("v1", "events", request.namespace),
            query=events_query(EVENTS_PER_PAGE, request.continue_token),
            timeout_seconds=_TIMEOUT_SECONDS,
            max_bytes=_MAX_PAGE_BYTES,
        )
        if response.status != 200:
            raise ApiStatusError.from_response(response)
        return read_events(response.body)

    def _pause_after(self, error: ApiStatusError | KubeUnreachable | UnreadableEvents, request: PageRequest) -> float:
        if isinstance(error, UnreadableEvents):
            found = Unreadable(Reason.FIELDS, str(error), namespace=request.namespace)
            self._malformed.note(found, effect="why pods of its gangs are not created is not reported", error=error)
            return 0.0
        if isinstance(error, ApiStatusError) and error.status == 403:
            if not self._logged_forbidden:
                self._logged_forbidden = True
                effect = "why controllers cannot create pods of gangs is not reported"
                _log.warning("events_forbidden", error=error.message, effect=effect)
            return _FORBIDDEN_SECONDS
        if isinstance(error, ResponseTooLong) or (isinstance(error, ApiStatusError) and error.status in (404, 410)):
            return 0.0  # only of this namespace: its events are long, it was removed, or its pages are outdated
        retry_after = error.retry_after_seconds if isinstance(error, ApiStatusError) else None
        return retry_after or _UNAVAILABLE_SECONDS
