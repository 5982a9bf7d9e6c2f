"""The work queue: batching, one worker per key, retries, and only while this replica leads."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from builders.kube.kubeconfigs import write_kubeconfig
from muster.kube.responses import ApiStatusError
from muster.kube.session import KubeSession
from muster.lifecycle import election
from muster.lifecycle.election import Leadership
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.work_queue import WorkQueue

SECONDS = 60.0


class Bench:
    """A work queue with recorded reconciliations and scripted results."""

    def __init__(self, session: KubeSession) -> None:
        self.leadership = Leadership()
        self.informers = SharedInformers(session)
        self.looks: list[str] = []
        self.there: list[str] = []
        self.act: Callable[[str], Awaitable[float | None]] = self.nothing
        self.queue = WorkQueue(
            "test",
            self._reconcile,
            lambda: self.there,
            self.leadership,
            self.informers,
            namespace_of=lambda key: key.rpartition("/")[0],
            workers=2,
        )
        self._looked = asyncio.Condition()

    def lead(self) -> None:
        self.leadership.extend(election._now() + 3600)

    async def nothing(self, key: str) -> float | None:
        return None

    async def until(self, key: str, times: int = 1) -> None:
        """Waits until the key has been reconciled this many times."""
        async with asyncio.timeout(SECONDS), self._looked:
            await self._looked.wait_for(lambda: self.looks.count(key) >= times)

    async def _reconcile(self, key: str) -> float | None:
        async with self._looked:
            self.looks.append(key)
            self._looked.notify_all()
        return await self.act(key)


@asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(bench.informers.run()), asyncio.create_task(bench.queue.run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    session = await KubeSession.connect(write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    bench = Bench(session)
    async with running(bench):
        yield bench
    await session.close()


async def test_a_new_leader_reconciles_all_keys(bench: Bench) -> None:
    bench.there = ["a", "b"]
    bench.queue.add("ignored, since others lead")
    bench.lead()
    await bench.until("a")
    await bench.until("b")
    assert sorted(bench.looks) == ["a", "b"]


async def test_changes_within_the_delay_are_reconciled_once(bench: Bench) -> None:
    bench.lead()
    bench.queue.add("first")
    await bench.until("first")
    for _ in range(50):
        bench.queue.add("a", within_seconds=0.05)
    await bench.until("a")
    bench.queue.add("last")
    await bench.until("last")
    assert bench.looks.count("a") == 1


async def test_a_key_is_never_reconciled_concurrently_and_no_change_is_lost(bench: Bench) -> None:
    go_on = asyncio.Event()
    workers, most = 0, 0

    async def act(key: str) -> float | None:
        nonlocal workers, most
        workers += 1
        most = max(most, workers)
        await go_on.wait()
        workers -= 1
        return None

    bench.act = act
    bench.lead()
    bench.queue.add("a")
    await bench.until("a")
    bench.queue.add("a")
    bench.queue.add("fence")
    await bench.until("fence")
    assert bench.looks.count("a") == 1
    go_on.set()
    await bench.until("a", 2)
    assert most == 2, "a and fence, at the same time"


@pytest.mark.parametrize("error", [ApiStatusError(409, "Conflict", "changed"), RuntimeError("a mistake")])
async def test_a_failing_key_is_retried_without_blocking_others(bench: Bench, error: Exception) -> None:
    async def act(key: str) -> float | None:
        if key == "hard" and bench.looks.count(key) < 2:
            raise error
        return None

    bench.act = act
    bench.lead()
    bench.queue.add("hard")
    bench.queue.add("easy")
    await bench.until("easy")
    await bench.until("hard", 2)


async def test_losing_leadership_cancels_reconciliation(bench: Bench) -> None:
    stopped = asyncio.Event()

    async def act(key: str) -> float | None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return None

    bench.act = act
    bench.there = ["a"]
    bench.lead()
    await bench.until("a")
    bench.leadership.lose("the test says so")
    async with asyncio.timeout(SECONDS):
        await stopped.wait()
    bench.act = bench.nothing
    bench.lead()
    await bench.until("a", 2)


async def test_namespaces_take_turns(bench: Bench) -> None:
    """Behind thousands of keys of one namespace, that of another is reconciled next."""
    bench.there = [*(f"flood/{number}" for number in range(5_000)), "elsewhere/one", "elsewhere/two"]
    bench.lead()
    await bench.until("elsewhere/two")
    assert bench.looks.index("elsewhere/one") <= 2
    assert bench.looks.index("elsewhere/two") <= 4
    await bench.until("flood/4999")
    assert [key for key in bench.looks if key.startswith("flood/")] == bench.there[:5_000], "in order within one"


async def test_a_key_that_changes_while_it_is_reconciled_waits_behind_other_namespaces(bench: Bench) -> None:
    """A key that changes all the time takes turns with others, too."""

    async def act(key: str) -> float | None:
        if key.startswith("busy/") and bench.looks.count(key) < 100:
            bench.queue.add(key)
        return None

    bench.act = act
    bench.there = [f"busy/{number}" for number in range(10)]
    bench.lead()
    await bench.until("busy/0")
    bench.queue.add("elsewhere/one")
    before = len(bench.looks)
    await bench.until("elsewhere/one")
    assert bench.looks.index("elsewhere/one") <= before + 4
