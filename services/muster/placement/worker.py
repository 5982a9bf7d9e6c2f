"""Worker thread of placement: long computations run in it one after another, so that the event loop is never held."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

_Result = TypeVar("_Result")


class Worker:
    """One thread. Python code in it gives way to the event loop every few milliseconds, kernels run beside it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="worker")

    async def run(self, work: Callable[[], _Result], abandon: Callable[[], None] | None = None) -> _Result:
        """The result of the work. A caller that is cancelled calls `abandon` and waits until the work has ended, so
        that what it holds, such as a lock, is still held as long as the work goes on.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, partial(copy_context().run, work))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if abandon is not None:
                abandon()
            while not future.done():
                try:
                    await asyncio.wait((future,))
                except asyncio.CancelledError:
                    continue
            if not future.cancelled():
                future.exception()  # retrieved: the caller is gone
            raise
