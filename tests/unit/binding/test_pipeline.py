"""Order, concurrency and completion of queued writes."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from builders.wait import WAIT_SECONDS, yield_to_loop
from muster.binding.pipeline import Flow, Job, Pipeline, WriteType
from muster.binding.retry_policy import DONE, Retry, ServerUnavailable, WriteOutcome


class Work(Job):
    """A job that returns or raises the given outcomes in turn, then DONE."""

    def __init__(self, recorder: "Recorder", name: str, outcomes: Sequence[WriteOutcome | Exception] = ()) -> None:
        super().__init__()
        self.recorder, self.name = recorder, name
        self.outcomes = list(outcomes)
        self.end = asyncio.Event()
        self.given_up = ""
        self.timeout_seconds = 0.0

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        self.recorder.started.append(self.name)
        self.recorder.running += 1
        self.recorder.most = max(self.recorder.most, self.recorder.running)
        self.timeout_seconds = timeout_seconds
        try:
            if self.recorder.held:
                await self.end.wait()
            await yield_to_loop()
        finally:
            self.recorder.running -= 1
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome
        self.recorder.finish(self.name)
        return DONE

    def give_up(self, reason: str) -> None:
        self.given_up = reason
        self.recorder.finish(self.name)


class Recorder:
    """Records the jobs that run; `held`: each attempt waits for the job's `end`."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self.started: list[str] = []
        self.finished: list[str] = []
        self.end_of_one = asyncio.Event()
        self.running = self.most = 0

    def jobs(self, prefix: str, count: int) -> list[Work]:
        return [Work(self, f"{prefix}{number}") for number in range(count)]

    async def until_finished(self, count: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.finished) < count:
                self.end_of_one.clear()
                await self.end_of_one.wait()

    def finish(self, name: str) -> None:
        self.finished.append(name)
        self.end_of_one.set()


def flow(pipeline: Pipeline, write_type: WriteType = WriteType.BIND, seconds: float | None = None) -> Flow:
    return pipeline.open(write_type, None if seconds is None else asyncio.get_running_loop().time() + seconds)


async def turns(count: int = 5) -> None:
    await yield_to_loop(count)


async def test_concurrency_never_exceeds_the_limit() -> None:
    recorder = Recorder()
    pipeline = Pipeline(3)
    flow(pipeline).add(recorder.jobs("a", 20))
    await recorder.until_finished(20)
    assert recorder.most == 3


async def test_small_call_does_not_wait_for_a_large_one() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    flow(pipeline).add(recorder.jobs("large", 100))
    flow(pipeline).add(recorder.jobs("small", 3))
    await recorder.until_finished(103)
    assert max(recorder.started.index(f"small{number}") for number in range(3)) <= 7


async def test_calls_of_the_same_type_take_turns() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    for prefix in "abc":
        flow(pipeline).add(recorder.jobs(prefix, 4))
    await recorder.until_finished(12)
    # The first call is ahead by the job that started before the others were added.
    for start in range(1, 8):
        assert len({name[0] for name in recorder.started[start : start + 3]}) == 3


async def test_binds_precede_conditions_and_conditions_precede_events() -> None:
    recorder = Recorder(held=True)
    pipeline = Pipeline(1)
    blocking = Work(recorder, "first")
    flow(pipeline).add([blocking])
    for write_type, prefix in (
        (WriteType.EVENT, "event"),
        (WriteType.CONDITION, "condition"),
        (WriteType.BIND, "bind"),
    ):
        flow(pipeline, write_type).add(recorder.jobs(prefix, 2))
    recorder.held = False
    await turns()
    blocking.end.set()
    await recorder.until_finished(7)
    assert [name.rstrip("01") for name in recorder.started] == [
        "first",
        *("bind", "bind"),
        *("condition", "condition"),
        *("event", "event"),
    ]


async def test_failed_job_is_retried_first() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    retried = Work(recorder, "retried", [ServerUnavailable("busy", after_seconds=0)])
    flow(pipeline).add([retried, *recorder.jobs("later", 3)])
    await recorder.until_finished(4)
    assert recorder.started[:2] == ["retried", "retried"]
    assert retried.attempts == 2
    assert retried.last_failure == "busy"


async def test_paused_job_does_not_block_others() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    slow = Work(recorder, "slow", [Retry("internal error", after_seconds=0.05)])
    flow(pipeline).add([slow, *recorder.jobs("other", 3)])
    await recorder.until_finished(4)
    assert recorder.finished[-1] == "slow"


async def test_throttling_pauses_all_jobs() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    flow(pipeline).add([Work(recorder, "throttled", [ServerUnavailable("429", after_seconds=3600)])])
    flow(pipeline).add(recorder.jobs("other", 3))
    await turns(20)
    assert recorder.started == ["throttled"]


async def test_waiting_jobs_are_given_up_at_the_deadline() -> None:
    recorder = Recorder(held=True)
    pipeline = Pipeline(1)
    running, waiting = recorder.jobs("job", 2)
    flow(pipeline, seconds=0.02).add([running, waiting])
    await recorder.until_finished(1)
    assert waiting.given_up == "the deadline passed"
    assert waiting.attempts == 0
    assert 0 < running.timeout_seconds <= 0.02, "an attempt ends by the deadline"
    running.end.set()
    await recorder.until_finished(2)
    assert running.given_up == "", "attempts in flight are not cancelled"


async def test_given_up_job_reports_its_last_failure() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    job = Work(recorder, "job", [Retry("500: internal error", after_seconds=3600)])
    call = flow(pipeline)
    call.add([job])
    await turns(20)
    call.close("the caller disconnected")
    assert job.given_up == "the caller disconnected; last failure: 500: internal error"


async def test_closed_flow_gives_up_waiting_jobs_and_retries_none() -> None:
    recorder = Recorder(held=True)
    pipeline = Pipeline(1)
    call = flow(pipeline)
    running = Work(recorder, "running", [ServerUnavailable("503", after_seconds=0)])
    waiting = Work(recorder, "waiting")
    call.add([running, waiting])
    await turns()
    call.close("gone")
    call.close("again")
    assert waiting.given_up == "gone"
    running.end.set()
    await pipeline.drain()
    assert running.given_up == "gone; last failure: 503"
    late = Work(recorder, "late")
    call.add([late])
    assert late.given_up == "gone"
    assert recorder.started == ["running"]


class CutOff(Work):
    """A job whose first attempt fails at once, and whose next one has no answer until its time is over."""

    async def attempt(self, timeout_seconds: float) -> WriteOutcome:
        self.recorder.started.append(self.name)
        if self.attempts == 1:
            return Retry("a budget blocks it")
        await asyncio.wait([asyncio.create_task(self.end.wait())], timeout=timeout_seconds)
        return ServerUnavailable("no answer in time", unreachable=True)


async def test_a_failure_is_not_hidden_by_an_attempt_that_the_deadline_cuts_off() -> None:
    recorder = Recorder()
    job = CutOff(recorder, "a")
    flow(Pipeline(3), seconds=1).add([job])
    await recorder.until_finished(1)
    assert job.attempts > 1
    assert job.given_up == "the deadline passed; last failure: a budget blocks it"


async def test_drain_waits_for_attempts_in_flight() -> None:
    recorder = Recorder(held=True)
    pipeline = Pipeline(4)
    jobs = recorder.jobs("job", 2)
    flow(pipeline).add(jobs)
    await turns()
    draining = asyncio.create_task(pipeline.drain())
    await turns()
    assert not draining.done()
    for job in jobs:
        job.end.set()
    async with asyncio.timeout(WAIT_SECONDS):
        await draining


async def test_job_that_raises_is_given_up_and_blocks_no_other() -> None:
    recorder = Recorder()
    pipeline = Pipeline(1)
    broken = Work(recorder, "broken", [ValueError("a defect")])
    flow(pipeline).add([broken, *recorder.jobs("other", 2)])
    await recorder.until_finished(3)
    assert broken.given_up == "ValueError: a defect"


@pytest.mark.parametrize("limit", [1, 5, 64])
async def test_every_job_ends_exactly_once(limit: int) -> None:
    recorder = Recorder()
    pipeline = Pipeline(limit)
    outcomes: itertools.cycle[list[WriteOutcome]] = itertools.cycle(
        [[], [Retry("x", 0.001)], [ServerUnavailable("y", 0.001)], [Retry("x", 0.0), ServerUnavailable("z", 0.0)]]
    )
    jobs = [Work(recorder, str(number), next(outcomes)) for number in range(200)]
    for start in range(0, 200, 40):
        flow(pipeline, seconds=10).add(jobs[start : start + 40])
    await recorder.until_finished(200)
    await pipeline.drain()
    assert sorted(recorder.finished) == sorted(job.name for job in jobs)
    assert recorder.most <= limit
