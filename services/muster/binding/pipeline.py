"""All writes go through here: a bounded number at once, the urgent first, and every call gets its turn.

A call opens a flow and adds jobs. Among flows of equal urgency one job is taken from each in turn, so a gang of 8 need
not wait for a gang of 5,000. A job that has to be repeated returns to the head of its flow. What is under way is never
broken off: closing a flow only gives up what waits.

Evictions may fill only a share of the window: the API server may keep each of them for many seconds, while it settles
with a disruption budget that others write to as well, and binds must not wait for that.
"""

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from typing import Final

import structlog

from muster.binding.concurrency_limit import Pace
from muster.binding.metrics import REPEATED
from muster.binding.retry_policy import Again, Done, Verdict
from muster.retry.retrying import jittered_seconds

_ATTEMPT_SECONDS: Final = 10.0  # then the answer is taken for lost
_EVICTION_ATTEMPT_SECONDS: Final = 30.0  # the API server itself repeats what conflicts, up to 10 s for each step
_EVICTION_SHARE: Final = 4  # one in so many
_RETRY_SECONDS: Final = (0.05, 2.0)

_log = structlog.get_logger()


class Urgency(IntEnum):
    """What goes first when several wait."""

    BIND = 0
    EVICTION = 1
    CONDITION = 2
    EVENT = 3


class Job(ABC):
    """One write. Exactly one of `attempt` returning DONE and `give_up` ends it."""

    __slots__ = ("attempts", "last_trouble")

    def __init__(self) -> None:
        self.attempts = 0
        """Tries so far."""
        self.last_trouble = ""
        """Why the last try has to be repeated."""

    @abstractmethod
    async def attempt(self, timeout_seconds: float) -> Verdict:
        """Try once; every request may take `timeout_seconds`."""

    @abstractmethod
    def give_up(self, why: str) -> None:
        """It will not be tried (again)."""


class Pipeline:
    """Owns the tasks that write. Use within one event loop."""

    def __init__(self, requests_in_flight: int) -> None:
        self._pace = Pace(requests_in_flight)
        self._most_evictions = max(1, requests_in_flight // _EVICTION_SHARE)
        self._evictions = 0
        self._turns: dict[Urgency, deque[Flow]] = {urgency: deque() for urgency in Urgency}
        self._running: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wake: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self, urgency: Urgency, deadline: float | None = None) -> "Flow":
        """A flow of jobs that are given up at `deadline`, a time of the event loop's clock."""
        return Flow(self, urgency, deadline)

    @property
    def waiting(self) -> int:
        """Jobs that wait for their turn."""
        return sum(self.waiting_by_urgency().values())

    def waiting_by_urgency(self) -> dict[Urgency, int]:
        """Jobs that wait for their turn."""
        return {urgency: sum(len(flow.waiting) for flow in turns) for urgency, turns in self._turns.items()}

    @property
    def in_flight(self) -> int:
        """Jobs that are being tried."""
        return len(self._running)

    async def drain(self) -> None:
        """Wait until nothing is under way. Bounded, as every attempt is; flows should be closed."""
        await self._idle.wait()

    def pump(self) -> None:
        """Start what may be started now."""
        now = self._loop.time()
        if now < self._pace.paused_until:
            self._wake_at(self._pace.paused_until)
            return
        while len(self._running) < self._pace.window:
            found = self._next()
            if found is None:
                return
            self._start(*found)

    def _next(self) -> "tuple[Flow, Job] | None":
        for urgency, turns in self._turns.items():
            if urgency is Urgency.EVICTION and self._evictions >= self._most_evictions:
                continue
            while turns:
                flow = turns.popleft()
                if not flow.waiting:
                    flow.in_turn = False
                    continue
                job = flow.waiting.popleft()
                turns.append(flow)
                return flow, job
        return None

    def enlist(self, flow: "Flow") -> None:
        """The flow has jobs waiting."""
        if not flow.in_turn:
            flow.in_turn = True
            self._turns[flow.urgency].append(flow)
        self.pump()

    def _start(self, flow: "Flow", job: Job) -> None:
        task = self._loop.create_task(self._try(flow, job), context=flow.context)
        self._running.add(task)
        self._evictions += flow.urgency is Urgency.EVICTION
        self._idle.clear()
        task.add_done_callback(partial(self._ended, flow.urgency))

    def _ended(self, urgency: Urgency, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._evictions -= urgency is Urgency.EVICTION
        if not self._running:
            self._idle.set()
        self.pump()

    async def _try(self, flow: "Flow", job: Job) -> None:
        started = self._loop.time()
        job.attempts += 1
        try:
            verdict = await job.attempt(flow.attempt_seconds(started))
        except Exception as error:
            _log.exception("a write failed in a way nobody thought of")
            job.give_up(f"{type(error).__name__}: {error}")
            return
        if isinstance(verdict, Done):
            self._pace.eased(started)
            return
        job.last_trouble = verdict.why
        REPEATED.labels("again" if isinstance(verdict, Again) else "strained").add()
        if isinstance(verdict, Again):
            pause = jittered_seconds(_RETRY_SECONDS, job.attempts)
            flow.again(job, max(verdict.after_seconds or 0.0, pause))
            return
        self._pace.strained(
            started, self._loop.time(), after_seconds=verdict.after_seconds, unreachable=verdict.unreachable
        )
        flow.again(job, 0)

    def _wake_at(self, when: float) -> None:
        if self._wake is None:  # else it wakes earlier, and then sees that the pause has become longer
            self._wake = self._loop.call_at(when, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.pump()


class Flow:
    """The jobs of one call."""

    def __init__(self, pipeline: Pipeline, urgency: Urgency, deadline: float | None) -> None:
        """Use `Pipeline.open`."""
        self.urgency = urgency
        self.waiting: deque[Job] = deque()
        self.in_turn = False
        self.context = contextvars.copy_context()  # so that what jobs log belongs to the call's trace
        self._pipeline = pipeline
        self._delayed: dict[Job, asyncio.TimerHandle] = {}
        self._closed_because = ""
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self.close, "there was no time left")

    def add(self, jobs: Iterable[Job]) -> None:
        """Have these done."""
        if self._closed_because:
            for job in jobs:
                self._give_up(job)
            return
        self.waiting.extend(jobs)
        self._pipeline.enlist(self)

    def again(self, job: Job, after_seconds: float) -> None:
        """Have this done before the others, after a pause."""
        if self._closed_because:
            self._give_up(job)
        elif after_seconds > 0:
            self._delayed[job] = self._loop.call_later(after_seconds, self._return, job)
        else:
            self._return(job)

    def hasten(self, job: Job) -> None:
        """If this one waits for its pause to end, it need not any more."""
        timer = self._delayed.get(job)
        if timer is not None:
            timer.cancel()
            self._return(job)

    def close(self, why: str) -> None:
        """Give up what waits; what is under way ends by itself, and is not repeated."""
        if self._closed_because:
            return
        self._closed_because = why
        if self._alarm is not None:
            self._alarm.cancel()
        given_up = [*self.waiting, *self._delayed]
        for timer in self._delayed.values():
            timer.cancel()
        self.waiting.clear()
        self._delayed.clear()
        for job in given_up:
            self._give_up(job)

    def attempt_seconds(self, now: float) -> float:
        """How long an attempt that starts now may take."""
        most = _EVICTION_ATTEMPT_SECONDS if self.urgency is Urgency.EVICTION else _ATTEMPT_SECONDS
        return most if self._deadline is None else max(0.001, min(most, self._deadline - now))

    def _return(self, job: Job) -> None:
        self._delayed.pop(job, None)
        self.waiting.appendleft(job)
        self._pipeline.enlist(self)

    def _give_up(self, job: Job) -> None:
        job.give_up(f"{self._closed_because}; last: {job.last_trouble}" if job.last_trouble else self._closed_because)
