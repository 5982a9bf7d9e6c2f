"""Logs what a process waits for that does not end soon after SIGTERM: SIGKILL at the end of the grace period would
leave no trace of it.
"""

import asyncio
import faulthandler
import gc
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, FrameType
from typing import Any, Final

import structlog

REPORT_AFTER_SECONDS: Final = 20.0
"""Before the grace period of pods ends, which is 30 s unless the user sets another."""
LOCKED_SECONDS: Final = 5.0
"""How late the report may be before the interpreter's lock is taken to be held for good."""
_MAX_REPORTED: Final = 50
"""Tasks, and threads."""

_log = structlog.get_logger()


def report_late_stop(
    loop: asyncio.AbstractEventLoop, after_seconds: float = REPORT_AFTER_SECONDS, locked_seconds: float = LOCKED_SECONDS
) -> threading.Timer:
    """Start a daemon thread that logs, after a while, where the tasks of `loop` and all threads are, even if the loop
    is blocked. The thread ends with the process.

    If it cannot, because some thread holds the interpreter's lock for good, the stacks of all threads are written to
    stderr `locked_seconds` later, not as JSON.
    """
    if sys.__stderr__ is not None:
        faulthandler.dump_traceback_later(after_seconds + locked_seconds, file=sys.__stderr__)
    timer = threading.Timer(after_seconds, _report, (loop, after_seconds))
    timer.daemon = True
    timer.start()
    return timer


def _report(loop: asyncio.AbstractEventLoop, after_seconds: float) -> None:
    tasks = [f"{task.get_name()}: {' > '.join(_awaits(task.get_coro()))}" for task in asyncio.all_tasks(loop)]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    threads = [
        f"{names.get(ident, ident)}: {' > '.join(_where(each, line) for each, line in traceback.walk_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    ]
    _log.warning(
        "stop_takes_long", seconds=after_seconds, tasks=sorted(tasks)[:_MAX_REPORTED], threads=threads[:_MAX_REPORTED]
    )
    faulthandler.cancel_dump_traceback_later()


def _awaits(awaitable: Any) -> Iterator[str]:
    """Where a coroutine is, and what it awaits, from the outside in."""
    for prefix in ("cr", "ag", "gi"):
        if hasattr(awaitable, f"{prefix}_frame"):
            frame: FrameType | None = getattr(awaitable, f"{prefix}_frame")
            if frame is not None:
                yield _where(frame, frame.f_lineno)
            yield from _awaits(getattr(awaitable, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await"))
            return
    # Only the garbage collector tells which generator an `asend` is of.
    generator = next((each for each in gc.get_referents(awaitable) if isinstance(each, AsyncGeneratorType)), None)
    if generator is not None:
        yield from _awaits(generator)
    elif awaitable is not None:
        yield type(awaitable).__name__


def _where(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{line})"
