"""Collections of cyclic garbage that hold the event loop for a short time only (I12).

A full collection looks at every container there is: 0.1 to 0.4 s in a large cluster, in which nothing else runs. So
what survived a collection that took long is frozen, and the next ones look at newer objects only. Garbage in cycles of
frozen objects is collected when the process is idle: soon if few objects are frozen, as after a workload has gone, and
otherwise every FULL_SECONDS; in a process that is never idle every BUSY_SECONDS (I11). All other garbage, and in these
services that is nearly all, ends with its last reference.
"""

import gc
import time
from typing import Any, Final

_THRESHOLDS: Final = 5_000, 4, 4
"""New objects for the youngest generation, collections for the others."""
LONG_SECONDS: Final = 0.005
"""Objects that survive a collection of this length are frozen, unless it was of the youngest generation alone."""
_IDLE_SHARE: Final = 0.05
"""A process that used less processor time than this is idle: a full collection holds up nobody."""
_FEW_OBJECTS: Final = 1_000
"""New objects, in whose cycles little garbage can be."""
_FEW_FROZEN: Final = 50_000
"""Frozen objects besides the imported modules; to look at all of them takes less than 0.1 s."""
FULL_SECONDS: Final = 600.0
BUSY_SECONDS: Final = 3600.0


class GarbageCollection:
    """Replaces Python's thresholds. One for a process, whose objects at that time stay: the imported modules."""

    def __init__(self, long_seconds: float = LONG_SECONDS) -> None:
        self._long_seconds = long_seconds
        self._began = 0.0
        self._last_full = time.monotonic()
        self._modules = 0

    def start(self) -> None:
        """Exempt what exists now, and follow Python's collections. Garbage of imports goes with the first full one."""
        gc.freeze()
        self._modules = gc.get_freeze_count()
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._collects)

    def collect_if_idle(self, used_seconds: float, seconds: float) -> None:
        """A full collection if the process used little processor time, and has made objects since the last one."""
        young, *older = gc.get_count()
        since = time.monotonic() - self._last_full
        few = gc.get_freeze_count() - self._modules <= _FEW_FROZEN
        idle = used_seconds < _IDLE_SHARE * seconds and (young > _FEW_OBJECTS or any(older))
        if (idle and (few or since >= FULL_SECONDS)) or since >= BUSY_SECONDS:
            self._last_full += since
            gc.unfreeze()
            gc.collect()
            gc.freeze()

    def _collects(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] == 0:
            return
        if phase == "start":
            self._began = time.perf_counter()
        elif time.perf_counter() - self._began >= self._long_seconds:
            gc.freeze()
