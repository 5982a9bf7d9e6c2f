"""Gangs created at a constant rate that always fit, so that any delay is the effect of a fault."""

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from builders.e2e.cluster import JSON, Cluster, node_of
from builders.gangs.manifests import Workload, gang
from muster.coordinator.v1.record_pb2 import GangRecord

INTERVAL_SECONDS = 0.1
SIZE = 2
_BOUND_SECONDS = 180.0


@dataclass
class Probe:
    """One gang; times are monotonic seconds, 0 if not yet."""

    workload: Workload
    created: float
    permitted: float = 0.0
    epoch: int = 0
    bound: float = 0.0
    pods: set[str] = field(default_factory=set)


class ProbeGangs:
    """All gangs created so far, in order."""

    def __init__(self, cluster: Cluster, namespace: str, place: Callable[[Workload], Workload]) -> None:
        self._cluster, self._namespace, self._place = cluster, namespace, place
        self.all: list[Probe] = []
        self._by_id: dict[str, Probe] = {}
        self._by_pod: dict[str, Probe] = {}
        self._changed = asyncio.Event()
        cluster.on_pod = self._pod_changed
        cluster.on_record = self._recorded

    async def load(self) -> None:
        """Creates gangs until cancelled."""
        began = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, began + number * INTERVAL_SECONDS - time.monotonic()))
            workload = self._place(gang(f"p{number:05}").of(SIZE).asking(cpu="1m").in_namespace(self._namespace))
            probe = Probe(workload, time.monotonic())
            self._by_id[workload.id] = probe
            self._by_pod.update((workload.pod_name(each), probe) for each in range(SIZE))
            await self._cluster.apply(*workload.pods())
            self.all.append(probe)

    async def bound_since(self, moment: float) -> None:
        """Waits until all gangs created so far are bound, and a later one exists."""
        now = time.monotonic()
        async with asyncio.timeout(_BOUND_SECONDS):
            while not (self.all and self.all[-1].created > now) or any(
                not probe.bound for probe in self.all if probe.created <= now
            ):
                self._changed.clear()
                await self._changed.wait()

    def starts(self, since: float) -> list[float]:
        """Returns the times of permits after that moment."""
        return sorted(probe.permitted for probe in self.all if probe.permitted > since)

    def binds(self, since: float) -> list[float]:
        """Returns the times after that moment at which gangs were completely bound."""
        return sorted(probe.bound for probe in self.all if probe.bound > since)

    def waited(self, since: float, until: float) -> list[float]:
        """Returns seconds from creation to the last bind, for gangs created in that interval."""
        return [probe.bound - probe.created for probe in self.all if since <= probe.created <= until and probe.bound]

    @property
    def epoch(self) -> int:
        """Epoch of the leader that gave the last permit."""
        return max((probe.epoch for probe in self.all), default=0)

    def _recorded(self, id_: str, record: GangRecord | None) -> None:
        probe = self._by_id.get(id_)
        if (
            probe is not None
            and record is not None
            and record.state == GangRecord.STATE_BINDING
            and not probe.permitted
        ):
            probe.permitted, probe.epoch = time.monotonic(), record.leader_epoch
            self._changed.set()

    def _pod_changed(self, change: str, pod: JSON) -> None:
        name = pod["metadata"]["name"]
        probe = self._by_pod.get(name)
        if probe is None or change == "DELETED" or not node_of(pod) or name in probe.pods:
            return
        probe.pods.add(name)
        if len(probe.pods) == SIZE:
            probe.bound = time.monotonic()
            self._changed.set()
