"""The coordinator's core with real placement replicas: decisions take effect at once, no other service exists."""

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic, time

from builders.clusterstate.stream import ClusterStream, serving
from builders.wait import latency
from muster.coordinator.core import effects, events
from muster.coordinator.core.machine import Machine
from muster.coordinator.replicas import Endpoint, Replicas
from muster.coordinator.solver import Solver
from muster.gangs.facts import Batch
from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port
from muster.localcluster.probes import grpc_serving, wait_until_ready

_SECONDS = 60.0


@asynccontextmanager
async def placements(batch: Batch, count: int, directory: Path) -> AsyncIterator[list[str]]:
    """Runs placement processes that have the state of the cluster; yields their addresses."""
    stream = ClusterStream()
    stream.opens_with(batch, {"pods": 1, "nodes": 1})
    async with serving(stream) as cluster_state, AsyncExitStack() as stack:
        addresses = []
        for number in range(count):
            address = f"127.0.0.1:{free_port()}"
            command = [*(sys.executable, "-m", "muster.cli", "run", "placement", "--listen", address)]
            child = Child(
                f"placement-{number}", [*command, "--cluster-state", cluster_state], directory / f"{number}.log"
            )
            await child.start()
            stack.push_async_callback(child.stop)
            async with asyncio.timeout(_SECONDS):
                await wait_until_ready(child, grpc_serving(address))
            addresses.append(address)
        yield addresses


class _Counted(Replicas):
    """Replicas that count their calls."""

    calls: Counter[str]
    slower_by_seconds: float

    @asynccontextmanager
    async def acquire(self, excluded: Collection[Endpoint] = ()) -> AsyncIterator[Endpoint]:
        async with super().acquire(excluded) as place:
            self.calls[place.address] += 1
            yield place
            await latency(self.slower_by_seconds)


class Coordination:
    """One term: `run` ends when all gangs have started. Solves may take longer without work on this machine, as if
    they ran elsewhere.
    """

    def __init__(self, batch: Batch, addresses: list[str], *, slower_by_seconds: float = 0.0) -> None:
        self.machine = Machine()
        self._replicas = _Counted.at(",".join(addresses))
        self._solver = Solver(self._replicas, timeout_seconds=_SECONDS)
        self.calls = self._replicas.calls = Counter()
        self._replicas.slower_by_seconds = slower_by_seconds
        self.most_at_once = self._at_once = 0
        self.permits: list[events.Record] = []
        self.seconds = 0.0
        self._batch = batch
        self._inbox: deque[events.Event] = deque()
        self._arrived = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Ends when no gang is pending."""
        began = monotonic()
        self._tell(events.Recovered(()), events.Replicas(self._replicas.count), events.Snapshot(self._batch))
        async with asyncio.timeout(_SECONDS):
            while any(gang.phase is not effects.Phase.SATISFIED for gang in self.machine.cache.gangs.values()) or (
                not self.machine.cache.gangs
            ):
                await self._step()
        self.seconds = monotonic() - began
        await self._replicas.close()

    async def _step(self) -> None:
        if not self._inbox:
            wake = self.machine.next_wake()
            try:
                async with asyncio.timeout(None if wake is None else max(0.0, wake - monotonic())):
                    await self._arrived.wait()
            except TimeoutError:
                self._inbox.append(events.Tick())
        self._arrived.clear()
        arrived = list(self._inbox)
        self._inbox.clear()
        for effect in self.machine.step(arrived, events.Now(monotonic(), time())):
            self._do(effect)

    def _do(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Solve():
                task = asyncio.create_task(self._solve(effect))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case effects.Persist():
                self.permits += [record for record in effect.puts if record.seats]
                self._tell(events.Persisted(effect.persist_id))
            case effects.Bind():
                results = (events.BindResult(seat.uid, events.BindOutcome.BOUND, seat.node) for seat in effect.seats)
                self._tell(events.BindResults(tuple(results)))
            case _:
                pass

    async def _solve(self, effect: effects.Solve) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        answer = await self._solver.solve(effect, {})
        self._at_once -= 1
        self._tell(answer)

    def _tell(self, *events: events.Event) -> None:
        self._inbox.extend(events)
        self._arrived.set()
