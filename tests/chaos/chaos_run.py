"""One chaos run: load, one fault after the other, invariant checks, and a final check of the state at rest."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from builders.e2e.cluster import JSON, Cluster, running_cluster
from builders.e2e.device_invariants import DeviceInvariants
from builders.e2e.devices import gpus, with_claims
from builders.e2e.invariants import Invariants
from builders.e2e.world import World
from builders.gangs.manifests import Workload, gang
from builders.wait import eventually
from chaos.faults import Fault, resume_all, shuffled
from chaos.percentiles import percentiles
from chaos.traffic import Traffic
from muster.coordinator.v1.record_pb2 import GangRecord
from muster.localcluster.child_process import ChildDied
from muster.localcluster.kubelets.devices.cards import CardKind, Cards
from muster.localcluster.stack import SERVICES

REPLICAS = {"cluster-state": 2, "placement": 2, "binding": 2, "lifecycle": 2, "coordinator": 2}
NODES, CPUS, GPUS = 8, 8, 4
SHORT_TIMEOUTS = {
    "MUSTER_COORDINATOR_BIND_TIMEOUT_SECONDS": "5",
    "MUSTER_COORDINATOR_REPAIR_TIMEOUT_SECONDS": "5",
    "MUSTER_COORDINATOR_STARVATION_AFTER_SECONDS": "5",
}
"""Short timeouts, so that seconds show what would take minutes."""
_WAIT_PROBABILITY = 0.6
"""Probability that the next fault waits for recovery from the last; else it may hit a process that just started."""
_SAMPLE_SECONDS = 0.5
_SETTLE_SECONDS = 60.0
_RECORD_SECONDS = 90.0
_MAX_CHARACTERS = 1500
_FATAL = ('"term_failed"', '"controller_failed', "Traceback (most recent call last)", "Task exception was never")


class Broken(AssertionError):
    """An invariant was violated."""


@dataclass
class Result:
    """Result of a run."""

    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    permits: int = 0
    allocations: int = 0
    terms: int = 0
    waited: dict[str, dict[str, float]] = field(default_factory=dict)
    slowest: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Returns the result for people and programs."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "faults": sum(self.faults.values()),
            "kinds_of_faults": len(self.faults),
            "gangs_started": dict(self.started),
            "pods_evicted": self.evicted,
            "permits": self.permits,
            "claims_allocated": self.allocations,
            "terms": self.terms,
            "seconds_from_created_to_bound": self.waited,
            "slowest": self.slowest,
            "violations": self.violations,
        }


@contextlib.asynccontextmanager
async def chaos_cluster(directory: Path, **options: Any) -> AsyncIterator[Cluster]:
    """Starts a cluster with two replicas of every service and three members of etcd."""
    options = {"replicas": REPLICAS, "etcd_members": 3, "service_environment": SHORT_TIMEOUTS, **options}
    async with running_cluster(directory, **options) as cluster:
        cluster.invariants = Invariants(cluster.records, record_seconds=_RECORD_SECONDS)
        yield cluster


class ChaosRun:
    """A run of so many seconds by a seed; `say` is called with progress messages."""

    def __init__(self, cluster: Cluster, seed: int, say: Any = lambda _text: None) -> None:
        self._cluster, self._say = cluster, say
        self._random = Random(seed)
        self.result = Result(seed)
        self._epochs: set[int] = set()
        self._problems: list[str] = []
        self._active_fault: Fault | None = None
        self._devices = DeviceInvariants(cluster)

    async def run(self, seconds: float) -> Result:
        """Runs faults for so many seconds. Violations are part of the result."""
        began = time.monotonic()
        world = World(self._cluster)
        await world.nodes(*[CPUS] * NODES, cards=Cards(CardKind.GPU, GPUS))
        await self._devices.watch()
        self._cluster.on_record = self._recorded
        traffic = Traffic(world, Random(self._random.random()))
        of_traffic = self._cluster.on_pod

        def pod_changed(change: str, pod: JSON) -> None:
            self._devices.pod(change, pod)
            if of_traffic is not None:
                of_traffic(change, pod)

        self._cluster.on_pod = pod_changed
        load = asyncio.create_task(traffic.load())
        processes = asyncio.create_task(self._watch_processes())
        services = asyncio.create_task(self._watch_services(traffic))
        try:
            await self._inject_faults(began + seconds)
        finally:
            for task in (load, processes, services):
                task.cancel()
            await asyncio.gather(load, processes, services, return_exceptions=True)
            resume_all(self._cluster)
        self._say("the last fault is over; waiting for the cluster to settle")
        await self._settle(world, traffic)
        self.result.seconds = time.monotonic() - began
        self.result.started, self.result.evicted = traffic.started, traffic.evicted
        self.result.terms = len(self._epochs)
        self.result.waited = {kind: percentiles(waited) for kind, waited in sorted(traffic.waited_seconds.items())}
        self.result.slowest = [f"{seconds:.1f} s: {what}" for seconds, what in traffic.slowest]
        self.result.allocations = self._devices.allocations
        observed = [*self._cluster.invariants.violations, *self._devices.violations]
        self.result.violations = [*self._problems, *traffic.violations, *observed]
        await self._devices.close()
        self._cluster.invariants.violations.clear()
        return self.result

    async def _inject_faults(self, until: float) -> None:
        for fault in shuffled(self._cluster, self._random):
            await asyncio.sleep(self._random.uniform(0.0, 2.0))
            if self._random.random() < _WAIT_PROBABILITY:
                with contextlib.suppress(TimeoutError, ChildDied):
                    await asyncio.wait_for(self._cluster.stack.ready(), _SETTLE_SECONDS)
            if time.monotonic() >= until:
                return
            seconds = self._random.uniform(fault.shortest_seconds, fault.longest_seconds)
            self._say(f"{fault.name} for {seconds:.1f} s")
            self.result.faults[fault.name] += 1
            self._active_fault = fault
            await fault.inject(self._cluster, seconds)
            self._active_fault = None

    async def _settle(self, world: World, traffic: Traffic) -> None:
        """Waits until every gang was bound and deleted; then nothing is left and all capacity is free (I5)."""
        try:
            await self._cluster.stack.start(timeout_seconds=_SETTLE_SECONDS)
            await self._cluster.stack.ready()
            await asyncio.wait_for(traffic.drained(), 2 * _SETTLE_SECONDS)
            await self._nothing_kept()
            await self._devices.nothing_allocated()
            probe = gang("whole").of(NODES * CPUS)
            await world.create(probe)
            await world.bound(probe, seconds=_SETTLE_SECONDS)
            await world.delete(probe)
            await self._all_devices_are_free(world)
            await self._devices.settled()
            await world.clear()
            await self._devices.nothing_allocated()
            await self._cluster.invariants.check()
        except (AssertionError, TimeoutError, RuntimeError) as error:
            waiting = [f"{life.kind} {life.gangs[0].id}" for life in traffic.waiting()]
            self._problems.append(f"the cluster did not settle: {error!r}; pending: {waiting}")
        self._problems += self._logged()

    async def _all_devices_are_free(self, world: World) -> None:
        """Checks that the coordinator counts devices as the cluster does: all are free, and a gang can have them; then
        all are taken.
        """
        waiting = await with_claims(world, gang("waiting").of(1), gpus(world, GPUS + 1))
        await world.create(waiting)
        await self._counts(world, waiting, free=NODES * GPUS, taken=0)
        every = await with_claims(world, gang("every-gpu").of(NODES), gpus(world, GPUS))
        await world.create(every)
        await world.bound(every, seconds=_SETTLE_SECONDS)
        await self._counts(world, waiting, free=0, taken=NODES * GPUS)

    async def _counts(self, world: World, workload: Workload, *, free: int, taken: int) -> None:
        """Waits until the explanation of a waiting gang counts so many devices."""
        id_, found = world.here(workload).id, ""

        async def counted() -> bool:
            nonlocal found
            if id_ not in self._cluster.gangs:
                return False
            claimed = (await self._cluster.explain(id_)).claimed_devices
            found = "".join(map(str, claimed))
            return any((each.free, each.taken) == (free, taken) for of in claimed for each in of.requests)

        try:
            await eventually(counted, f"{free} devices are free", seconds=_SETTLE_SECONDS)
        except AssertionError as error:
            raise Broken(f"I5: {free} devices are free and {taken} taken, and the coordinator says {found}") from error

    async def _nothing_kept(self) -> None:
        """Checks that neither the watch of etcd nor etcd itself has a record of any gang (I5)."""
        records = self._cluster.records
        try:
            await self._cluster.until(lambda: not records.present, "no record is left", seconds=_SETTLE_SECONDS)
        except AssertionError as error:
            raise Broken(
                f"I5: records left in the watch {list(records.present)}, in etcd {await records.stored()}"
            ) from error
        if stored := await records.stored():
            raise Broken(f"I5: the watch shows no records, but etcd has {stored}")

    def _recorded(self, gang: str, record: GangRecord | None) -> None:
        self._devices.record(gang, record)
        if record is not None and record.state == GangRecord.STATE_BINDING:
            self.result.permits += 1
            self._epochs.add(record.leader_epoch)

    async def _watch_processes(self) -> None:
        """Checks that no process ends by itself and that every started process comes up."""
        ran: dict[str, int] = {}
        missed: dict[str, float] = {}
        while True:
            for name, child in self._cluster.stack.children.items():
                if child.running or not child.should_run:
                    missed.pop(name, None)
                    if child.running:
                        ran[name] = child.starts
                    continue
                # A process that is being started does not run yet.
                since = missed.setdefault(name, time.monotonic())
                if ran.get(name) == child.starts or time.monotonic() - since > _SETTLE_SECONDS:
                    self._problems.append(str(child.died())[:_MAX_CHARACTERS])
                    await child.start()
            await asyncio.sleep(_SAMPLE_SECONDS)  # the pace of sampling; nothing is waited for

    async def _watch_services(self, traffic: Traffic) -> None:
        """Records the times in which every service, the API server and etcd were available."""
        stack, seen = self._cluster.stack, time.monotonic()
        available = False
        while True:
            names = [[*stack.etcd_addresses][:1], *map(stack.replicas_of, SERVICES)]
            there = [any(await asyncio.gather(*map(stack.serving, replicas))) for replicas in names]
            before, seen = seen, time.monotonic()
            was_available, available = (
                available,
                all(there) and (self._active_fault is None or not self._active_fault.of_api_server),
            )
            if was_available and available:
                traffic.available.append((before, seen))
            await asyncio.sleep(_SAMPLE_SECONDS)  # likewise

    def _logged(self) -> list[str]:
        """Lists log lines that no service may write."""
        found = []
        stack = self._cluster.stack
        for log in [stack.children[name].log for service in SERVICES for name in stack.replicas_of(service)]:
            lines = log.read_text(errors="replace").splitlines()
            found += [
                f"{log.name}: {line[:_MAX_CHARACTERS]}" for line in lines if any(mark in line for mark in _FATAL)
            ][:3]
        return found
