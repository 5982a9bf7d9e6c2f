"""Restarts crashed processes of a stack with exponential backoff."""

import asyncio
from collections.abc import Callable

from muster.localcluster.child_process import Child, how_it_ended
from muster.localcluster.stack import API_SERVER, Stack

_MIN_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 10.0
_RESET_SECONDS = 30.0  # uptime after which the backoff starts over


async def supervise(stack: Stack, report: Callable[[str], None]) -> None:
    """Restart children until cancelled; `report` receives a line per crash.

    Raises ChildDied when the embedded API server ends: the cluster was in its memory.
    """
    async with asyncio.TaskGroup() as group:
        for child in stack.children.values():
            group.create_task(_keep_running(child, report))


async def _keep_running(child: Child, report: Callable[[str], None]) -> None:
    clock = asyncio.get_running_loop().time
    backoff = _MIN_BACKOFF_SECONDS
    while True:
        started = clock()
        returncode = await child.wait()
        if not child.should_run:
            return
        if child.name == API_SERVER:
            raise child.died()
        if clock() - started > _RESET_SECONDS:
            backoff = _MIN_BACKOFF_SECONDS
        report(f"{child.name} {how_it_ended(returncode)}; restarting in {backoff:g} s (log: {child.log})")
        await asyncio.sleep(backoff)
        backoff = min(2 * backoff, _MAX_BACKOFF_SECONDS)
        await child.start()
