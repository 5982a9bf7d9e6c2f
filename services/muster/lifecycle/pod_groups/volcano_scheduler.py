"""Observes whether Volcano's scheduler runs, which then writes the status of PodGroups itself."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from muster.kube.paths import object_path
from muster.kube.responses import ApiStatusError, KubeUnreachable
from muster.kube.session import KubeSession
from muster.lifecycle.lease import BadLease, LeaseObserver, decode_lease
from muster.lifecycle.settings import VolcanoSettings

LEASE: Final = "volcano"
"""Name of its Lease: its scheduler name, unless that is changed."""
RUNNING_PODS: Final = {"labelSelector": "app=volcano-scheduler", "fieldSelector": "status.phase=Running", "limit": "1"}
"""Query for its pods, with the label that its chart sets: the chart leaves leader election off."""

_POLL_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 5.0

_log = structlog.get_logger(__name__)


class VolcanoScheduler:
    """Whether Muster writes the status of Volcano's PodGroups.

    With the setting `auto` it does while no scheduler of Volcano renews its Lease, and none has a running pod, in the
    namespace of the setting. Until the first answer, and while the API server gives none, nothing changes.
    """

    def __init__(self, session: KubeSession, settings: VolcanoSettings, changed: Callable[[], None]) -> None:
        """`changed` is called when `absent` becomes true."""
        self.absent = settings.status == "write"
        self._session = session
        self._polls = settings.status == "auto"
        self._lease = object_path("coordination.k8s.io/v1", "leases", settings.namespace, LEASE)
        self._pods = f"/api/v1/namespaces/{settings.namespace}/pods"
        self._changed = changed
        self._needed = asyncio.Event()
        self._observer = LeaseObserver()
        self._last_error = ""

    async def run(self) -> None:
        """Observes from the first PodGroup on, until cancelled."""
        await self._needed.wait()
        while self._polls:
            await self.observe()
            await asyncio.sleep(_POLL_SECONDS)

    def start(self) -> None:
        """There is a PodGroup of Volcano."""
        self._needed.set()

    async def observe(self) -> None:
        """Reads the Lease and the pods once."""
        try:
            absent = await self._expired() and not await self._runs()
        except (ApiStatusError, KubeUnreachable, BadLease, msgspec.DecodeError) as error:
            if str(error) != self._last_error:
                _log.warning("volcano_scheduler_unknown", lease=self._lease, pods=self._pods, error=str(error))
            self._last_error = str(error)
            return
        self._last_error = ""
        before, self.absent = self.absent, absent
        if absent and not before:
            _log.info("volcano_scheduler_absent", lease=self._lease, pods=self._pods)
            self._changed()
        elif before and not absent:
            _log.info("volcano_scheduler_present", lease=self._lease, pods=self._pods)

    async def _expired(self) -> bool:
        response = await self._session.request("GET", self._lease, timeout_seconds=_TIMEOUT_SECONDS)
        if response.status == 404:
            return True
        if response.status >= 300:
            raise ApiStatusError.from_response(response)
        return self._observer.seconds_left(decode_lease(response.body), time.monotonic()) <= 0

    async def _runs(self) -> bool:
        """Returns whether it has a pod that runs, whether it is being deleted or not."""
        response = await self._session.request("GET", self._pods, query=RUNNING_PODS, timeout_seconds=_TIMEOUT_SECONDS)
        if response.status >= 300:
            raise ApiStatusError.from_response(response)
        return bool(msgspec.json.decode(response.body, type=_Pods).items)


class _Pods(msgspec.Struct):
    """A list of pods."""

    items: list[msgspec.Raw] = []
