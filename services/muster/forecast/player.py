"""Plays the coordinator's machine on a virtual cluster, in virtual time.

Effects are carried out at once and never fail, and nothing happens between the times at which something is due.

The machine is the one of production (`muster.coordinator.core`), and solve requests are answered by a real placement.
What is left out: the time that solves, writes and binds take, and failures.
"""

import asyncio
import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from operator import attrgetter
from time import monotonic
from typing import Final, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from muster.coordinator.core import events
from muster.coordinator.core.effects import (
    Bind,
    Deallocate,
    Effect,
    Evict,
    MarkTimedOut,
    Persist,
    Report,
    Solve,
)
from muster.coordinator.core.events import (
    BindOutcome,
    BindResult,
    BindResults,
    DeallocateOutcome,
    DeallocateResult,
    DeallocateResults,
    Delta,
    Event,
    EvictOutcome,
    EvictResult,
    EvictResults,
    Now,
    Persisted,
    Record,
    Recovered,
    Rules,
    Solved,
    SolveFailed,
    Tick,
)
from muster.coordinator.core.machine import Machine
from muster.coordinator.core.slices import run_to_end
from muster.coordinator.core.term_state import TermState
from muster.forecast.snapshot import Snapshot
from muster.forecast.turns import in_turns
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import Batch, PodFacts, PodPhase

MAX_TURN_SECONDS: Final = 0.01
"""Longest time, and one slice, for which a step of the machine holds the event loop."""
MAX_STEPS_AT_ONCE: Final = 100_000
"""Steps at one virtual time; a machine that needs more is in an endless loop."""


class Solver(Protocol):
    """Answers solve requests for the virtual cluster."""

    async def solve(self, effect: Solve) -> Solved | SolveFailed: ...


class Endless(RuntimeError):
    """The machine does not come to rest at one virtual time."""


class Started(NamedTuple):
    """Pods were bound, of a gang and those that start together with it; `nodes` by uid."""

    gangs: tuple[str, ...]
    nodes: dict[str, str]


class Evicted(NamedTuple):
    """Pods of a gang were evicted, for another gang if `preemptor` is not empty; `again`: those that replace them."""

    gang: str
    pods: tuple[PodFacts, ...]
    preemptor: str
    again: tuple[PodFacts, ...] = ()


class Ended(NamedTuple):
    """Pods that ended because their time was over."""

    pods: tuple[PodFacts, ...]


Happening = Started | Evicted | Ended | Report
"""What observers are told, besides the reports of the machine."""


class Due(Struct, order=True):
    """Something that happens at a time, in the order in which it was added."""

    at: float
    number: int
    happen: Callable[[], Batch | None]
    """Returns the change of the cluster; None: it does not apply any more."""


class Player:
    """One machine on one virtual cluster. `now` are seconds of virtual time, which are those of the wall clock, too."""

    def __init__(
        self,
        cluster: VirtualCluster,
        solver: Solver,
        *,
        rules: Rules,
        now: float,
        on_change: Callable[[Batch], None],
        observe: Callable[[float, Happening], None],
        recreates: bool = True,
        resumes: TermState | None = None,
        run_seconds: Callable[[PodFacts], float] = attrgetter("expected_seconds"),
        precision: float = 0.0,
        reports: bool = True,
    ) -> None:
        """`resumes`: what the memory of the leader holds of whose cluster this is a copy. `on_change` gets every change
        of the cluster before the machine does. `recreates`: controllers create a pod for every one that is evicted.
        `run_seconds`: how long a pod runs from its start, whatever it declares; 0: it does not end. `precision`: share
        of the time since the begin to which ends may be rounded up, so that few distinct ones are played; 0: none are.
        `reports`: the machine reports reasons, which takes a third of its time.
        """
        self.cluster, self.now = cluster, now
        self.machine = Machine(rules, resumes, reports=reports)
        self.steps = 0
        self.solves = 0
        self._solver = solver
        self._on_change, self._observe, self._recreates = on_change, observe, recreates
        self._run_seconds, self._precision, self._began = run_seconds, precision, now
        self._due: list[Due] = []
        self._numbers = count()
        self._turn_began = monotonic()
        self.records: dict[str, Record] = {}
        """Those that are in etcd, by gang."""
        self._evicted_for: dict[str, str] = {}
        """Preemptors by victim, while the victim's record names one."""

    async def begin(self, records: Iterable[Record] = ()) -> None:
        """A leader takes over the cluster as it is, with these records in etcd; pods that run end when expected."""
        ends: dict[float, list[str]] = {}
        async for pod in in_turns(self.cluster.pods.values()):
            if pod.seated:
                self._note_end(pod, ends)
        self._end_at(ends)
        recovered = tuple(records)
        for record in recovered:
            self._note(record)
        await self._take(Recovered(recovered), events.Snapshot(self.cluster.whole()))

    def present(self, settings: Mapping[str, str]) -> Snapshot:
        """What another player needs to go on from here. `settings`: those of the rules."""
        state = run_to_end(self.machine.term_state(Now(self.now, self.now)))
        return Snapshot(self.now, dict(settings), tuple(self.records.values()), self.cluster.whole(), state)

    def at(self, seconds: float, happen: Callable[[], Batch | None]) -> None:
        """Something changes the cluster at a virtual time, at the earliest now."""
        heapq.heappush(self._due, Due(max(seconds, self.now), next(self._numbers), happen))

    async def change(self, *batches: Batch) -> None:
        """The cluster changes now; the machine sees all changes before it decides."""
        await self._take(*[self._changed(each) for each in batches])

    def next_time(self) -> float | None:
        """When something happens next; None: nothing will."""
        wake = self.machine.next_wake()
        times = [each for each in (wake, self._due[0].at if self._due else None) if each is not None]
        return max(self.now, min(times)) if times else None

    @property
    def next_due(self) -> float | None:
        """When something happens next that is not a timer of the machine."""
        return self._due[0].at if self._due else None

    async def advance(self, until: float) -> bool:
        """Go to the next time at which something happens, if that is no later; False: nothing happens until then."""
        at = self.next_time()
        if at is None or at > until:
            return False
        self.now = at
        happened: list[Event] = []
        while self._due and self._due[0].at <= at:
            batch = heapq.heappop(self._due).happen()
            if batch is not None:
                happened.append(self._changed(batch))
        await self._take(*(happened or [Tick()]))
        return True

    # -- the machine and its effects

    async def _take(self, *arrived: Event) -> None:
        """Give the machine events, and those that follow from its effects, until it rests."""
        waiting = deque(await self._step(arrived))
        for _ in range(MAX_STEPS_AT_ONCE):
            if not waiting:
                return
            waiting += await self._step(await self._carry_out(waiting.popleft()))
        raise Endless(f"the machine took {MAX_STEPS_AT_ONCE} steps at one time")

    async def _step(self, arrived: Sequence[Event]) -> Sequence[Effect]:
        """One step of the machine; other tasks have turns between its slices (I12)."""
        if not arrived:
            return ()
        self.steps += 1
        slices = self.machine.slices(arrived, Now(self.now, self.now))
        while True:
            try:
                next(slices)
            except StopIteration as end:
                effects: list[Effect] = end.value
                return effects
            if monotonic() - self._turn_began > MAX_TURN_SECONDS:
                await asyncio.sleep(0)
                self._turn_began = monotonic()

    async def _carry_out(self, effect: Effect) -> Sequence[Event]:
        """Returns what the machine is told of it."""
        match effect:
            case Solve():
                self.solves += 1
                return (await self._solver.solve(effect),)
            case Persist():
                for record in effect.puts:
                    self._note(record)
                for gang in effect.deletes:
                    self.records.pop(gang, None)
                    self._evicted_for.pop(gang, None)
                return (Persisted(effect.persist_id),)
            case Bind():
                return self._bind(effect)
            case Evict():
                return self._evict(effect)
            case Deallocate():
                results = [DeallocateResult(each.uid, DeallocateOutcome.DEALLOCATED) for each in effect.claims]
                return (DeallocateResults(effect.gang, tuple(results)),)
            case MarkTimedOut():
                marked = [self.cluster.pods[each.uid] for each in effect.pods if each.uid in self.cluster.pods]
                marks = tuple(replace(pod, timed_out=effect.timed_out) for pod in marked)
                return (self._changed(Batch(pods=marks)),) if marks else ()
            case Report():
                self._observe(self.now, effect)
        return ()

    def _note(self, record: Record) -> None:
        self.records[record.gang] = record
        if record.evicted_for or record.preempted_by:
            self._evicted_for[record.gang] = record.evicted_for or record.preempted_by
        else:
            self._evicted_for.pop(record.gang, None)

    def _changed(self, batch: Batch) -> Delta:
        stamped = self.cluster.apply(batch)
        self._on_change(stamped)
        return Delta(stamped)

    def _bind(self, effect: Bind) -> Sequence[Event]:
        results, bound = [], []
        for seat in effect.seats:
            pod = self.cluster.pods.get(seat.uid)
            if pod is None or pod.deleting:
                results.append(BindResult(seat.uid, BindOutcome.GONE))
            elif pod.node:
                outcome = BindOutcome.BOUND if pod.node == seat.node else BindOutcome.CONFLICT
                results.append(BindResult(seat.uid, outcome, pod.node))
            else:
                running = replace(
                    pod, node=seat.node, phase=PodPhase.RUNNING, started_seconds=int(self.now), nominated_node=""
                )
                bound.append(running)
                results.append(BindResult(seat.uid, BindOutcome.BOUND, seat.node))
        if not bound:
            return (BindResults(tuple(results)),)
        volumes = tuple(volume for seat in effect.seats for _, volume in seat.volumes)
        claims = tuple(f"{pod.namespace}/{claim}" for pod in bound for claim in pod.claims)
        batch = Batch(pods=tuple(bound), removed_static_volumes=volumes, removed_static_claims=claims)
        delta = self._changed(batch)
        self._observe(self.now, Started(tuple(effect.gangs), {pod.uid: pod.node for pod in bound}))
        self._end_later(bound)
        return delta, BindResults(tuple(results))

    def _evict(self, effect: Evict) -> Sequence[Event]:
        results, gone = [], []
        for name in effect.pods:
            pod = self.cluster.pods.get(name.uid)
            if pod is None or pod.phase.ended:
                results.append(EvictResult(name.uid, EvictOutcome.GONE))
            else:
                gone.append(pod)
                results.append(EvictResult(name.uid, EvictOutcome.EVICTED))
        if not gone:
            return (EvictResults(tuple(results)),)
        again = tuple(self._recreated(pod) for pod in gone) if self._recreates else ()
        delta = self._changed(Batch(removed_pods=tuple(pod.uid for pod in gone), pods=again))
        self._observe(self.now, Evicted(effect.gang, tuple(gone), self._evicted_for.get(effect.gang, ""), again))
        return delta, EvictResults(tuple(results))

    def _recreated(self, pod: PodFacts) -> PodFacts:
        """The pod that a controller creates in its place."""
        uid = f"{pod.uid.partition('#')[0]}#{next(self._numbers)}"
        return replace(
            pod,
            uid=uid,
            node="",
            phase=PodPhase.PENDING,
            started_seconds=0,
            created_seconds=int(self.now),
            nominated_node="",
            timed_out=False,
        )

    # -- ends of pods

    def _end_later(self, pods: Iterable[PodFacts]) -> None:
        """Pods whose duration is known end when it is over."""
        ends: dict[float, list[str]] = {}
        for pod in pods:
            self._note_end(pod, ends)
        self._end_at(ends)

    def _note_end(self, pod: PodFacts, ends: dict[float, list[str]]) -> None:
        if (seconds := self._run_seconds(pod)) > 0:
            ends.setdefault(self._rounded(pod.started_seconds + seconds), []).append(pod.uid)

    def _end_at(self, ends: Mapping[float, Sequence[str]]) -> None:
        """Pods that end together are one change, and one object here: very many would have the loop held by garbage
        collections (I12).
        """
        for end, uids in ends.items():
            self.at(end, lambda uids=uids: self._end(uids))  # type: ignore[misc]

    def _rounded(self, end: float) -> float:
        """The end, or a later time that ends near it share: multiples of a power of two."""
        after = end - self._began
        if not self._precision or after <= 0:
            return end
        step = 2.0 ** math.floor(math.log2(after * self._precision))
        return self._began + math.ceil(after / step) * step

    def _end(self, uids: Sequence[str]) -> Batch | None:
        """Ended pods of a gang with running ones stay, as succeeded; otherwise all are removed, and the gang."""
        pods = [pod for uid in uids if (pod := self.cluster.pods.get(uid)) is not None and pod.seated]
        if not pods:
            return None
        self._observe(self.now, Ended(tuple(pods)))
        ending = {pod.uid for pod in pods}
        all_pods, members = self.cluster.pods, self.cluster.members
        rest = {gang: [all_pods[uid] for uid in members[gang]] for gang in {pod.gang for pod in pods if pod.gang}}
        over = {gang for gang, members in rest.items() if all(pod.uid in ending or pod.phase.ended for pod in members)}
        removed = [pod.uid for gang in over for pod in rest[gang]]
        removed += [pod.uid for pod in pods if not pod.gang]
        succeeded = [replace(pod, phase=PodPhase.SUCCEEDED) for pod in pods if pod.gang and pod.gang not in over]
        return Batch(pods=tuple(succeeded), removed_pods=tuple(removed), removed_gangs=tuple(over))
