"""Runs a service process on uvloop until SIGTERM or SIGINT."""

import asyncio
import ctypes
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import uvloop

from muster.gangs.byte_cache import age_caches
from muster.rpc.garbage import GarbageCollection
from muster.rpc.stop_report import report_late_stop

_T = TypeVar("_T")

# Threads that wait for etcd need the interpreter soon even if the loop is busy: with Python's default of 5 ms the
# slowest of a hundred commits took 180 ms on a busy loop, with 1 ms it took 30 ms.
_SWITCH_SECONDS = 0.001
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_RETURN_MEMORY_SECONDS = 10.0
_AGE_CACHES_SECONDS = 30.0
"""Results that only a workload of the past needed are dropped after one to two of these."""
_M_ARENA_MAX = -8
"""mallopt's parameter; see malloc.h of the GNU C library."""


class _Stop:
    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.waiting = 0

    def request(self) -> None:
        if not self.requested.is_set():
            report_late_stop(asyncio.get_running_loop())
        self.requested.set()


_stops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Stop] = WeakKeyDictionary()


async def until_stopped() -> None:
    """Return on SIGTERM or SIGINT. Any number of tasks may wait; after the signal, none waits any more.

    Only for loops of the main thread, which receives the signals.
    """
    loop = asyncio.get_running_loop()
    stop = _stops.setdefault(loop, _Stop())
    if stop.waiting == 0:
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop.request)
    stop.waiting += 1
    try:
        await stop.requested.wait()
    finally:
        stop.waiting -= 1
        # After the first signal, further ones are ignored: draining has its own time limits.
        if stop.waiting == 0 and not stop.requested.is_set():
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


def run_async(main: Coroutine[Any, Any, _T]) -> _T:
    """asyncio.run on uvloop, with collections of garbage that do not hold the event loop for long."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    garbage = GarbageCollection()
    garbage.start()
    return uvloop.run(_returning_memory(main, garbage))


async def _forget_the_past(garbage: GarbageCollection) -> None:
    """Age the caches, and collect the garbage of a workload that has gone: without new objects nothing else would."""
    spent = time.process_time()
    while True:
        await asyncio.sleep(_AGE_CACHES_SECONDS)
        age_caches()
        before, spent = spent, time.process_time()
        garbage.collect_if_idle(spent - before, _AGE_CACHES_SECONDS)


async def _returning_memory(main: Coroutine[Any, Any, _T], garbage: GarbageCollection) -> _T:
    """Forget what caches hold of a workload that has gone, and return its memory to the operating system (I11).

    The C library keeps what is free in the middle of a heap, and each thread has a heap of its own.
    """
    tasks = [asyncio.create_task(_forget_the_past(garbage))]
    allocator = ctypes.CDLL(None)
    if hasattr(allocator, "malloc_trim"):  # the GNU C library
        allocator.mallopt(_M_ARENA_MAX, 1)
        tasks.append(asyncio.create_task(_trim(allocator)))
    try:
        return await main
    finally:
        for task in tasks:
            task.cancel()


async def _trim(allocator: ctypes.CDLL) -> None:
    while True:
        await asyncio.sleep(_RETURN_MEMORY_SECONDS)
        await asyncio.to_thread(allocator.malloc_trim, 0)
