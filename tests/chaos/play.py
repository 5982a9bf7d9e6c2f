"""One run: traffic flows, blow follows blow, the invariants are watched, and at the end everything is settled."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.invariants import Invariants
from builders.e2e.world import Scene
from builders.gangs.workloads import gang
from chaos.blows import Blow, shuffled, thaw
from chaos.figures import spread
from chaos.traffic import Traffic
from muster.coordinator.v1.record_pb2 import GangRecord
from muster.localcluster.child_process import ChildDied
from muster.localcluster.stack import SERVICES

REPLICAS = {"cluster-state": 2, "placement": 2, "binding": 2, "lifecycle": 2, "coordinator": 2}
NODES, CPUS = 8, 8
HASTE = {
    "MUSTER_COORDINATOR_BIND_TIMEOUT_SECONDS": "5",
    "MUSTER_COORDINATOR_REPAIR_TIMEOUT_SECONDS": "5",
    "MUSTER_COORDINATOR_STARVATION_AFTER_SECONDS": "5",
}
"""So that what a minute would show shows in seconds."""
_RECOVERED = 0.6
"""How often the next blow waits until the last one is over; otherwise they may fall on who has just come back."""
_SETTLE_SECONDS = 60.0
_RECORD_SECONDS = 90.0
_MOST_LETTERS = 1500
_FATAL = ('"term_failed"', '"controller failed', "Traceback (most recent call last)", "Task exception was never")


class Broken(AssertionError):
    """Something that must hold did not."""


@dataclass
class Told:
    """What came of a run."""

    seed: int
    seconds: float = 0.0
    blows: Counter[str] = field(default_factory=Counter)
    started: Counter[str] = field(default_factory=Counter)
    evicted: int = 0
    permits: int = 0
    terms: int = 0
    waited: dict[str, dict[str, float]] = field(default_factory=dict)
    slowest: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """For people and programs."""
        return {
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "blows": sum(self.blows.values()),
            "kinds_of_blows": len(self.blows),
            "gangs_started": dict(self.started),
            "pods_evicted": self.evicted,
            "permits": self.permits,
            "terms": self.terms,
            "seconds_from_created_to_bound": self.waited,
            "slowest": self.slowest,
            "violations": self.violations,
        }


@contextlib.asynccontextmanager
async def ground(directory: Path, **options: Any) -> AsyncIterator[Cluster]:
    """Two of every service, three members of etcd."""
    options = {"replicas": REPLICAS, "etcd_members": 3, "service_environment": HASTE, **options}
    async with running_cluster(directory, **options) as cluster:
        cluster.invariants = Invariants(cluster.records, record_seconds=_RECORD_SECONDS)
        yield cluster


class Play:
    """A run of so many seconds by a seed; `say` is told what happens."""

    def __init__(self, cluster: Cluster, seed: int, say: Any = lambda _text: None) -> None:
        self._cluster, self._say = cluster, say
        self._random = Random(seed)
        self.told = Told(seed)
        self._epochs: set[int] = set()
        self._trouble: list[str] = []
        self._struck: Blow | None = None

    async def run(self, seconds: float) -> Told:
        """Always ends; what was violated is in what it returns."""
        began = time.monotonic()
        scene = Scene(self._cluster)
        await scene.nodes(*[CPUS] * NODES)
        self._cluster.on_record = self._recorded
        traffic = Traffic(scene, Random(self._random.random()))
        flow = asyncio.create_task(traffic.flow())
        alive = asyncio.create_task(self._watch_processes())
        whole = asyncio.create_task(self._watch_services(traffic))
        try:
            await self._strike(began + seconds)
        finally:
            for task in (flow, alive, whole):
                task.cancel()
            await asyncio.gather(flow, alive, whole, return_exceptions=True)
            thaw(self._cluster)
        self._say("the last blow has fallen; all is to settle")
        await self._settle(scene, traffic)
        self.told.seconds = time.monotonic() - began
        self.told.started, self.told.evicted = traffic.started, traffic.evicted
        self.told.terms = len(self._epochs)
        self.told.waited = {kind: spread(waited) for kind, waited in sorted(traffic.waited_seconds.items())}
        self.told.slowest = [f"{seconds:.1f} s: {what}" for seconds, what in traffic.slowest]
        self.told.violations = [*self._trouble, *traffic.violations, *self._cluster.invariants.violations]
        self._cluster.invariants.violations.clear()
        return self.told

    async def _strike(self, until: float) -> None:
        for blow in shuffled(self._cluster, self._random):
            await asyncio.sleep(self._random.uniform(0.0, 2.0))
            if self._random.random() < _RECOVERED:
                with contextlib.suppress(TimeoutError, ChildDied):
                    await asyncio.wait_for(self._cluster.stack.ready(), _SETTLE_SECONDS)
            if time.monotonic() >= until:
                return
            seconds = self._random.uniform(blow.shortest_seconds, blow.longest_seconds)
            self._say(f"{blow.name} for {seconds:.1f} s")
            self.told.blows[blow.name] += 1
            self._struck = blow
            await blow.strike(self._cluster, seconds)
            self._struck = None

    async def _settle(self, scene: Scene, traffic: Traffic) -> None:
        """Everything runs; every gang ends bound and goes; nothing is left of them; all the room is free (I5)."""
        try:
            await self._cluster.stack.start(timeout_seconds=_SETTLE_SECONDS)
            await self._cluster.stack.ready()
            await asyncio.wait_for(traffic.drained(), 2 * _SETTLE_SECONDS)
            await self._nothing_kept()
            whole = gang("whole").of(NODES * CPUS)
            await scene.create(whole)
            await scene.bound(whole, seconds=_SETTLE_SECONDS)
            await scene.clear()
            await self._cluster.invariants.check()
        except (AssertionError, TimeoutError, RuntimeError) as error:
            waiting = [f"{life.kind} {life.gangs[0].id}" for life in traffic.waiting()]
            self._trouble.append(f"it did not settle: {error!r}; waiting: {waiting}")
        self._trouble += self._logged()

    async def _nothing_kept(self) -> None:
        """Neither this watch of etcd nor etcd itself has a record of any gang (I5)."""
        records = self._cluster.records
        try:
            await self._cluster.until(lambda: not records.present, "no record is left", seconds=_SETTLE_SECONDS)
        except AssertionError as error:
            raise Broken(f"I5: seen in etcd {list(records.present)}, there {await records.kept()}") from error
        if kept := await records.kept():
            raise Broken(f"I5: nothing was seen in etcd any more, and these records are there: {kept}")

    def _recorded(self, _gang: str, record: GangRecord | None) -> None:
        if record is not None and record.state == GangRecord.STATE_BINDING:
            self.told.permits += 1
            self._epochs.add(record.leader_epoch)

    async def _watch_processes(self) -> None:
        """Nobody ends unasked, and whoever is started comes up."""
        ran: dict[str, int] = {}
        missed: dict[str, float] = {}
        while True:
            for name, child in self._cluster.stack.children.items():
                if child.running or not child.wanted:
                    missed.pop(name, None)
                    if child.running:
                        ran[name] = child.starts
                    continue
                # Who is being started does not run yet, for as long as the machine takes.
                since = missed.setdefault(name, time.monotonic())
                if ran.get(name) == child.starts or time.monotonic() - since > _SETTLE_SECONDS:
                    self._trouble.append(str(child.died())[:_MOST_LETTERS])
                    await child.start()
            await asyncio.sleep(0.5)

    async def _watch_services(self, traffic: Traffic) -> None:
        """For how long somebody of every service, the API server and etcd have been there."""
        stack, seen = self._cluster.stack, time.monotonic()
        whole = False
        while True:
            names = [[*stack.etcd_addresses][:1], *map(stack.replicas_of, SERVICES)]
            there = [any(await asyncio.gather(*map(stack.serving, replicas))) for replicas in names]
            before, seen = seen, time.monotonic()
            was_whole, whole = whole, all(there) and (self._struck is None or not self._struck.of_api_server)
            if was_whole and whole:
                traffic.whole.append((before, seen))
            await asyncio.sleep(0.5)

    def _logged(self) -> list[str]:
        """What should not be in the log of any service."""
        found = []
        stack = self._cluster.stack
        for log in [stack.children[name].log for service in SERVICES for name in stack.replicas_of(service)]:
            lines = log.read_text(errors="replace").splitlines()
            found += [f"{log.name}: {line[:_MOST_LETTERS]}" for line in lines if any(mark in line for mark in _FATAL)][
                :3
            ]
        return found
