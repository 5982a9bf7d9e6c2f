"""One term of leadership: feeds events to the machine and runs its effects until leadership is lost.

The inbox collects events from cluster-state, from calls that ended and from etcd. `_drive` gives them to
`Machine.slices`, the pure core, and hands the effects that it returns to `EffectRunner`. Nothing but the records in
etcd is kept between terms.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic, time
from typing import Final, TypeVar

import structlog

from muster.coordinator import records
from muster.coordinator.cluster_follower import ClusterFollower
from muster.coordinator.core import events
from muster.coordinator.core.effects import Effect
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.slices import Slices, parts
from muster.coordinator.effect_runner import Channels, EffectRunner
from muster.coordinator.records import RecordWriter
from muster.coordinator.settings import Settings
from muster.coordinator.term_metrics import TermMetrics
from muster.coordinator.traces import GangTraces
from muster.etcd.election import Leadership
from muster.etcd.errors import EtcdUnavailable, Fenced
from muster.etcd.store import Store

MAX_TURN_SECONDS: Final = 0.01
"""Longest time, and one slice, for which a step of the machine holds the event loop."""

_log = structlog.get_logger()

_T = TypeVar("_T")


class Term:
    """The machine of one term, with its inbox and its effects."""

    def __init__(
        self, settings: Settings, channels: Channels, store: Store, leadership: Leadership, cluster: ClusterFollower
    ) -> None:
        self.machine = Machine(settings.rules)
        self.traces = GangTraces()
        self.on_gang_changed: Callable[[str], None] = lambda _gang: None
        """Called with the id of every gang that changed."""
        self.on_synced: Callable[[], None] = lambda: None
        """Called after the first snapshot."""
        self.synced = False
        """The machine has processed the first snapshot of the cluster."""
        self._settings, self._store, self._leadership = settings, store, leadership
        self._channels, self._cluster = channels, cluster
        self._metrics = TermMetrics(self.machine, self.traces.root_of)
        self._effects = EffectRunner(
            settings,
            channels,
            RecordWriter(store, settings.etcd_prefix, leadership.fence, self.traces.root_of),
            leadership.fence.create_revision,
            self.machine,
            self.traces,
            self._metrics,
            self._enqueue,
            lambda gang: self.on_gang_changed(gang),
            self.settled,
        )
        self._inbox: deque[events.Event] = deque()
        """Events until the next step, which takes all of them."""
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    async def run(self) -> str:
        """Leads until leadership is lost. Returns why it ended."""
        try:
            loaded = await records.load(self._store, self._settings.etcd_prefix)
        except EtcdUnavailable as error:
            return str(error)
        for some in parts(tuple(loaded)):
            self.traces.recover(some)
            await asyncio.sleep(0)  # I12
        self._enqueue(events.Recovered(tuple(record for record, _ in loaded)))
        _log.info("term_started", epoch=self._leadership.fence.create_revision, records=len(loaded))
        work = {
            "leadership": self._wait_for_loss(),
            "cluster": self._cluster.lead(self._enqueue),
            "replicas": self._channels.placement.watch_count(lambda count: self._enqueue(events.Replicas(count))),
            "machine": self._drive(),
            **self._effects.tasks(),
        }
        tasks = [asyncio.create_task(each, name=name) for name, each in work.items()]
        self._metrics.begin(self._effects.pending_records)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return _end_reason(done) or self._leadership.loss_reason
        finally:
            self._metrics.end()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._effects.drain()

    async def _drive(self) -> None:
        """Gives the machine the events of the inbox, and runs its effects."""
        while True:
            wake = self.machine.next_wake()
            try:
                async with asyncio.timeout_at(_loop_time(wake)):
                    await self._arrived.wait()
            except TimeoutError:
                self._inbox.append(events.Tick())
            self._arrived.clear()
            arrived = list(self._inbox)
            self._inbox.clear()
            if not self._leadership.held:
                return
            effects = await self._in_turns(self.machine.slices(arrived, events.Now(monotonic(), time())))
            await self._in_turns(self._run(effects))
            self._metrics.stepped(arrived, effects)
            if not self.synced and any(isinstance(event, events.Snapshot) for event in arrived):
                self.synced = True
                self._effects.takes_over = False
                cache = self.machine.cache
                _log.info("term_synced", gangs=len(cache.gangs), nodes=len(cache.ledger.nodes))
                self.traces.keep(cache.gangs)
                self.on_synced()

    def _run(self, effects: Iterable[Effect]) -> Slices[None]:
        """Run effects: the first snapshot of a full cluster has tens of thousands."""
        for effect in effects:
            self._effects.run(effect)
            yield

    async def _in_turns(self, slices: Slices[_T]) -> _T:
        """Run the slices of a step; other tasks have turns meanwhile (I12)."""
        try:
            return await _run_slices(slices, self._interrupt_step)
        finally:
            self._settled.set()

    async def _interrupt_step(self) -> None:
        self._settled.clear()
        await asyncio.sleep(0)

    async def between_steps(self, slices: Slices[_T]) -> _T:
        """Run slices that read the state of the machine, none of them during a step; other tasks have turns meanwhile
        (I12). Steps may take place between two of them.
        """
        await self.settled()
        return await _run_slices(slices, self._await_next_step)

    async def _await_next_step(self) -> None:
        await asyncio.sleep(0)
        await self.settled()

    async def settled(self) -> None:
        """Return when no step of the machine is under way: then its state is complete, until the caller awaits."""
        while not self._settled.is_set():
            await self._settled.wait()

    def _enqueue(self, *events: events.Event) -> None:
        self._inbox.extend(events)
        self._arrived.set()

    async def _wait_for_loss(self) -> None:
        await self._leadership.lost.wait()


async def _run_slices(slices: Slices[_T], pause: Callable[[], Awaitable[None]]) -> _T:
    """Run all slices, with a pause whenever MAX_TURN_SECONDS have passed."""
    began = monotonic()
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: _T = end.value
            return result
        if monotonic() - began > MAX_TURN_SECONDS:
            await pause()
            began = monotonic()


def _end_reason(done: set[asyncio.Task[None]]) -> str:
    """Returns why etcd ended the term, "" if leadership was lost otherwise. Raises any other failure."""
    for task in done:
        error = task.exception()
        if isinstance(error, Fenced | EtcdUnavailable):
            return str(error)
        if error is not None:
            raise error
    return ""


def _loop_time(monotonic_seconds: float | None) -> float | None:
    """Converts a time of the monotonic clock into one of the event loop's clock."""
    if monotonic_seconds is None:
        return None
    return asyncio.get_running_loop().time() + (monotonic_seconds - monotonic())
