"""Order, bounds and ends of what is written."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from builders.wait import yield_to_loop
from muster.binding.pipeline import Flow, Job, Pipeline, Urgency
from muster.binding.retry_policy import DONE, Again, Strained, Verdict


class Work(Job):
    """Waits for its turn to end; then does as it was told, at last DONE."""

    def __init__(self, site: "Site", name: str, verdicts: Sequence[Verdict | Exception] = ()) -> None:
        super().__init__()
        self.site, self.name = site, name
        self.verdicts = list(verdicts)
        self.end = asyncio.Event()
        self.given_up = ""
        self.timeout_seconds = 0.0

    async def attempt(self, timeout_seconds: float) -> Verdict:
        self.site.started.append(self.name)
        self.site.running += 1
        self.site.most = max(self.site.most, self.site.running)
        self.timeout_seconds = timeout_seconds
        try:
            if self.site.held:
                await self.end.wait()
            await yield_to_loop()
        finally:
            self.site.running -= 1
        if self.verdicts:
            verdict = self.verdicts.pop(0)
            if isinstance(verdict, Exception):
                raise verdict
            return verdict
        self.site.finish(self.name)
        return DONE

    def give_up(self, why: str) -> None:
        self.given_up = why
        self.site.finish(self.name)


class Site:
    """Where work is done; `held`: jobs end when told to."""

    def __init__(self, *, held: bool = False) -> None:
        self.held = held
        self.started: list[str] = []
        self.finished: list[str] = []
        self.end_of_one = asyncio.Event()
        self.running = self.most = 0

    def jobs(self, prefix: str, count: int) -> list[Work]:
        return [Work(self, f"{prefix}{number}") for number in range(count)]

    async def until_finished(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.finished) < count:
                self.end_of_one.clear()
                await self.end_of_one.wait()

    def finish(self, name: str) -> None:
        self.finished.append(name)
        self.end_of_one.set()


def flow(pipeline: Pipeline, urgency: Urgency = Urgency.BIND, seconds: float | None = None) -> Flow:
    return pipeline.open(urgency, None if seconds is None else asyncio.get_running_loop().time() + seconds)


async def turns(count: int = 5) -> None:
    await yield_to_loop(count)


async def test_no_more_run_at_once_than_allowed() -> None:
    site = Site()
    pipeline = Pipeline(3)
    flow(pipeline).add(site.jobs("a", 20))
    await site.until_finished(20)
    assert site.most == 3


async def test_a_small_call_does_not_wait_for_a_large_one() -> None:
    site = Site()
    pipeline = Pipeline(1)
    flow(pipeline).add(site.jobs("large", 100))
    flow(pipeline).add(site.jobs("small", 3))
    await site.until_finished(103)
    assert max(site.started.index(f"small{number}") for number in range(3)) <= 7


async def test_equal_calls_take_turns() -> None:
    site = Site()
    pipeline = Pipeline(1)
    for prefix in "abc":
        flow(pipeline).add(site.jobs(prefix, 4))
    await site.until_finished(12)
    # The first may get ahead by the one that was started before the others came.
    for start in range(1, 8):
        assert len({name[0] for name in site.started[start : start + 3]}) == 3


async def test_binds_go_before_conditions_and_conditions_before_events() -> None:
    site = Site(held=True)
    pipeline = Pipeline(1)
    blocking = Work(site, "first")
    flow(pipeline).add([blocking])
    for urgency, prefix in ((Urgency.EVENT, "event"), (Urgency.CONDITION, "condition"), (Urgency.BIND, "bind")):
        flow(pipeline, urgency).add(site.jobs(prefix, 2))
    site.held = False
    await turns()
    blocking.end.set()
    await site.until_finished(7)
    assert [name.rstrip("01") for name in site.started] == [
        "first",
        *("bind", "bind"),
        *("condition", "condition"),
        *("event", "event"),
    ]


async def test_a_job_that_failed_is_repeated_and_goes_first() -> None:
    site = Site()
    pipeline = Pipeline(1)
    again = Work(site, "again", [Strained("busy", after_seconds=0)])
    flow(pipeline).add([again, *site.jobs("later", 3)])
    await site.until_finished(4)
    assert site.started[:2] == ["again", "again"]
    assert again.attempts == 2
    assert again.last_trouble == "busy"


async def test_one_that_pauses_lets_the_others_go_on() -> None:
    site = Site()
    pipeline = Pipeline(1)
    slow = Work(site, "slow", [Again("internal error", after_seconds=0.05)])
    flow(pipeline).add([slow, *site.jobs("other", 3)])
    await site.until_finished(4)
    assert site.finished[-1] == "slow"


async def test_when_the_api_server_asks_for_a_pause_nobody_sends() -> None:
    site = Site()
    pipeline = Pipeline(1)
    flow(pipeline).add([Work(site, "pushed back", [Strained("429", after_seconds=3600)])])
    flow(pipeline).add(site.jobs("other", 3))
    await turns(20)
    assert site.started == ["pushed back"]


async def test_what_waits_is_given_up_at_the_deadline() -> None:
    site = Site(held=True)
    pipeline = Pipeline(1)
    running, waiting = site.jobs("job", 2)
    flow(pipeline, seconds=0.02).add([running, waiting])
    await site.until_finished(1)
    assert waiting.given_up == "there was no time left"
    assert waiting.attempts == 0
    assert 0 < running.timeout_seconds <= 0.02, "an attempt may not take longer than there is time"
    running.end.set()
    await site.until_finished(2)
    assert running.given_up == "", "what is under way ends by itself"


async def test_what_is_given_up_says_what_happened_last() -> None:
    site = Site()
    pipeline = Pipeline(1)
    job = Work(site, "job", [Again("500: internal error", after_seconds=3600)])
    call = flow(pipeline)
    call.add([job])
    await turns(20)
    call.close("the caller has left")
    assert job.given_up == "the caller has left; last: 500: internal error"


async def test_closing_gives_up_what_waits_and_repeats_nothing() -> None:
    site = Site(held=True)
    pipeline = Pipeline(1)
    call = flow(pipeline)
    running = Work(site, "running", [Strained("503", after_seconds=0)])
    waiting = Work(site, "waiting")
    call.add([running, waiting])
    await turns()
    call.close("gone")
    call.close("again")
    assert waiting.given_up == "gone"
    running.end.set()
    await pipeline.drain()
    assert running.given_up == "gone; last: 503"
    late = Work(site, "late")
    call.add([late])
    assert late.given_up == "gone"
    assert site.started == ["running"]


async def test_drain_waits_for_what_is_under_way() -> None:
    site = Site(held=True)
    pipeline = Pipeline(4)
    jobs = site.jobs("job", 2)
    flow(pipeline).add(jobs)
    await turns()
    draining = asyncio.create_task(pipeline.drain())
    await turns()
    assert not draining.done()
    for job in jobs:
        job.end.set()
    async with asyncio.timeout(10):
        await draining


async def test_a_job_with_a_defect_ends_and_holds_up_nobody() -> None:
    site = Site()
    pipeline = Pipeline(1)
    broken = Work(site, "broken", [ValueError("a defect")])
    flow(pipeline).add([broken, *site.jobs("other", 2)])
    await site.until_finished(3)
    assert broken.given_up == "ValueError: a defect"


@pytest.mark.parametrize("limit", [1, 5, 64])
async def test_every_job_ends_exactly_once(limit: int) -> None:
    site = Site()
    pipeline = Pipeline(limit)
    troubles: itertools.cycle[list[Verdict]] = itertools.cycle(
        [[], [Again("x", 0.001)], [Strained("y", 0.001)], [Again("x", 0.0), Strained("z", 0.0)]]
    )
    jobs = [Work(site, str(number), next(troubles)) for number in range(200)]
    for start in range(0, 200, 40):
        flow(pipeline, seconds=10).add(jobs[start : start + 40])
    await site.until_finished(200)
    await pipeline.drain()
    assert sorted(site.finished) == sorted(job.name for job in jobs)
    assert site.most <= limit
