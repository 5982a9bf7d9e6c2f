"""Queue of all writes: limits concurrency, orders by type of write and shares turns fairly between calls.

A call opens a flow and adds jobs. Among flows of the same type each gets one job in turn, so a gang of 8 need not wait
for a gang of 5,000. A job that is retried returns to the head of its flow. Attempts in flight are never cancelled:
closing a flow gives up only its waiting jobs.

Evictions may fill only a share of the window: the API server may keep each of them for many seconds while it retries
conflicting updates of a disruption budget, and binds must not wait for that.
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

from muster.binding.concurrency_limit import ConcurrencyLimit
from muster.binding.metrics import RETRIES
from muster.binding.retry_policy import Done, Retry, WriteOutcome
from muster.retry.retrying import jittered_seconds

_ATTEMPT_SECONDS: Final = 10.0  # then the answer is considered lost
_TIMER_SECONDS: Final = 0.01  # timers may fire so much earlier: the loop counts in milliseconds
_EVICTION_ATTEMPT_SECONDS: Final = 30.0  # the API server retries conflicts itself, up to 10 s for each step
_EVICTION_SHARE: Final = 4  # evictions fill at most one in this many requests
_RETRY_SECONDS: Final = (0.05, 2.0)

_log = structlog.get_logger()


class WriteType(IntEnum):
    """Types of writes; lower values are sent first."""

    BIND = 0
    EVICTION = 1
    CONDITION = 2
    EVENT = 3


class Job(ABC):
    """A write. It ends with exactly one of `attempt` returning DONE and `give_up`."""

    __slots__ = ("attempts", "last_failure")

    def __init__(self) -> None:
        self.attempts = 0
        """Attempts so far, the current one included."""
        self.last_failure = ""
        """Why it is retried; not that the deadline cut off the last attempt, if it failed before."""

    @abstractmethod
    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        """Try once; each request may take `timeout_seconds`."""

    @abstractmethod
    def give_up(self, reason: str) -> None:
        """Settle as failed; no further attempt follows."""


class Pipeline:
    """Owns the tasks that write. Use within one event loop."""

    def __init__(self, requests_in_flight: int) -> None:
        self._limit = ConcurrencyLimit(requests_in_flight)
        self._max_evictions = max(1, requests_in_flight // _EVICTION_SHARE)
        self._evictions = 0
        self._flows: dict[WriteType, deque[Flow]] = {write_type: deque() for write_type in WriteType}
        self._running: set[asyncio.Task[None]] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._wake: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def open(self, write_type: WriteType, deadline: float | None = None) -> "Flow":
        """A flow whose jobs are given up at `deadline`, a time of the event loop's clock."""
        return Flow(self, write_type, deadline)

    @property
    def waiting(self) -> int:
        """Number of queued jobs."""
        return sum(self.waiting_by_type().values())

    def waiting_by_type(self) -> dict[WriteType, int]:
        return {write_type: sum(len(flow.waiting) for flow in flows) for write_type, flows in self._flows.items()}

    @property
    def in_flight(self) -> int:
        """Number of attempts in flight."""
        return len(self._running)

    async def drain(self) -> None:
        """Wait until no attempt is in flight. Close the flows first; the wait is bounded by the attempts' timeouts."""
        await self._idle.wait()

    def dispatch(self) -> None:
        """Start as many jobs as the limit allows."""
        now = self._loop.time()
        if now < self._limit.paused_until:
            self._wake_at(self._limit.paused_until)
            return
        while len(self._running) < self._limit.window:
            found = self._next()
            if found is None:
                return
            self._start(*found)

    def _next(self) -> "tuple[Flow, Job] | None":
        for write_type, flows in self._flows.items():
            if write_type is WriteType.EVICTION and self._evictions >= self._max_evictions:
                continue
            while flows:
                flow = flows.popleft()
                if not flow.waiting:
                    flow.queued = False
                    continue
                job = flow.waiting.popleft()
                flows.append(flow)
                return flow, job
        return None

    def enqueue(self, flow: "Flow") -> None:
        """Queue a flow with waiting jobs."""
        if not flow.queued:
            flow.queued = True
            self._flows[flow.write_type].append(flow)
        self.dispatch()

    def _start(self, flow: "Flow", job: Job) -> None:
        task = self._loop.create_task(self._attempt(flow, job), context=flow.context)
        self._running.add(task)
        self._evictions += flow.write_type is WriteType.EVICTION
        self._idle.clear()
        task.add_done_callback(partial(self._ended, flow.write_type))

    def _ended(self, write_type: WriteType, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._evictions -= write_type is WriteType.EVICTION
        if not self._running:
            self._idle.set()
        self.dispatch()

    async def _attempt(self, flow: "Flow", job: Job) -> None:
        started = self._loop.time()
        seconds = flow.attempt_timeout(started)
        job.attempts += 1
        try:
            outcome = await job.attempt(seconds)
        except Exception as error:
            _log.exception("write_attempt_crashed")
            job.give_up(f"{type(error).__name__}: {error}")
            return
        if isinstance(outcome, Done):
            self._limit.succeeded(started)
            return
        cut_off = flow.is_cut_short(seconds) and self._loop.time() - started >= seconds - _TIMER_SECONDS
        if not (cut_off and job.last_failure):  # that the deadline came says less than why the write failed before
            job.last_failure = outcome.reason
        RETRIES.labels("write_failed" if isinstance(outcome, Retry) else "server_unavailable").add()
        if isinstance(outcome, Retry):
            pause = jittered_seconds(_RETRY_SECONDS, job.attempts)
            flow.retry(job, max(outcome.after_seconds or 0.0, pause))
            return
        self._limit.throttled(
            started, self._loop.time(), after_seconds=outcome.after_seconds, unreachable=outcome.unreachable
        )
        flow.retry(job, 0)

    def _wake_at(self, when: float) -> None:
        if self._wake is None:  # a timer that fires earlier reads the extended pause then
            self._wake = self._loop.call_at(when, self._woken)

    def _woken(self) -> None:
        self._wake = None
        self.dispatch()


class Flow:
    """The jobs of one call, until they have ended or its deadline passes (I11)."""

    def __init__(self, pipeline: Pipeline, write_type: WriteType, deadline: float | None) -> None:
        """Use `Pipeline.open`."""
        self.write_type = write_type
        self.waiting: deque[Job] = deque()
        self.queued = False
        self.context = contextvars.copy_context()  # so that log lines of jobs carry the call's trace
        self._pipeline = pipeline
        self._delayed: dict[Job, asyncio.TimerHandle] = {}
        self._close_reason = ""
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self.close, "the deadline passed")

    @property
    def closed(self) -> bool:
        """No attempt starts any more; one that is running may end with a retry, to be given up."""
        return bool(self._close_reason)

    def add(self, jobs: Iterable[Job]) -> None:
        """Queue jobs; a closed flow gives them up."""
        if self._close_reason:
            for job in jobs:
                self._give_up(job)
            return
        self.waiting.extend(jobs)
        self._pipeline.enqueue(self)

    def retry(self, job: Job, after_seconds: float) -> None:
        """Queue a job at the head, after a pause."""
        if self._close_reason:
            self._give_up(job)
        elif after_seconds > 0:
            self._delayed[job] = self._loop.call_later(after_seconds, self._return, job)
        else:
            self._return(job)

    def retry_now(self, job: Job) -> None:
        """End the pause of a job, if it is paused."""
        timer = self._delayed.get(job)
        if timer is not None:
            timer.cancel()
            self._return(job)

    def close(self, reason: str) -> None:
        """Give up all waiting jobs; attempts in flight end by themselves and are not retried."""
        if self._close_reason:
            return
        self._close_reason = reason
        if self._alarm is not None:
            self._alarm.cancel()
        given_up = [*self.waiting, *self._delayed]
        for timer in self._delayed.values():
            timer.cancel()
        self.waiting.clear()
        self._delayed.clear()
        for job in given_up:
            self._give_up(job)

    def attempt_timeout(self, now: float) -> float:
        """Seconds that an attempt which starts now may take."""
        return self._longest if self._deadline is None else max(0.001, min(self._longest, self._deadline - now))

    def is_cut_short(self, seconds: float) -> bool:
        """An attempt that may take so long is cut off by the deadline of the call."""
        return seconds < self._longest

    @property
    def _longest(self) -> float:
        return _EVICTION_ATTEMPT_SECONDS if self.write_type is WriteType.EVICTION else _ATTEMPT_SECONDS

    def _return(self, job: Job) -> None:
        self._delayed.pop(job, None)
        self.waiting.appendleft(job)
        self._pipeline.enqueue(self)

    def _give_up(self, job: Job) -> None:
        job.give_up(
            f"{self._close_reason}; last failure: {job.last_failure}" if job.last_failure else self._close_reason
        )
