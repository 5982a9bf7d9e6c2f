"""A process that does not end after SIGTERM says what it waits for."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

from structlog.testing import capture_logs

from builders.wait import WAIT_SECONDS
from muster.rpc.stop_report import report_late_stop


async def waits_for_the_peer(asked: asyncio.Event, answer: asyncio.Event) -> None:
    async with aclosing(answers(asked, answer)) as all_answers:
        async for _ in all_answers:
            pass


async def answers(asked: asyncio.Event, answer: asyncio.Event) -> AsyncGenerator[None, None]:
    asked.set()
    await answer.wait()
    yield


async def test_the_report_names_what_each_task_awaits() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(waits_for_the_peer(asked, answer), name="the call")
    await asked.wait()
    with capture_logs() as lines:
        await asyncio.to_thread(report_late_stop(asyncio.get_running_loop(), 0.0).join)
    answer.set()
    await waiting
    (line,) = lines
    assert line["event"] == "stop_takes_long"
    (call,) = (task for task in line["tasks"] if task.startswith("the call: "))
    outer, _, inner = call.partition(" > ")
    assert outer.startswith("the call: waits_for_the_peer (test_stop_report.py:")
    assert "Event.wait (locks.py:" in inner


async def test_the_report_comes_from_a_blocked_loop_and_names_the_line_that_blocks_it() -> None:
    with capture_logs() as lines:
        report_late_stop(asyncio.get_running_loop(), 0.0).join()
    (line,) = lines
    assert any(
        "MainThread: " in thread and "test_the_report_comes_from_a_blocked_loop" in thread for thread in line["threads"]
    )


async def test_a_process_whose_interpreter_is_locked_says_where() -> None:
    source = """
import asyncio, ctypes
from muster.rpc.stop_report import report_late_stop
def holds_the_lock():
    ctypes.PyDLL(None).pause()
report_late_stop(asyncio.new_event_loop(), 2.0, 0.1)
holds_the_lock()
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source, stderr=asyncio.subprocess.PIPE)
    try:
        assert process.stderr is not None
        async with asyncio.timeout(WAIT_SECONDS):
            await process.stderr.readuntil(b" in holds_the_lock")
    finally:
        process.kill()
        await process.wait()
