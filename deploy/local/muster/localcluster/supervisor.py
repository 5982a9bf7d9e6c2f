"""Keeps the processes of a stack running: what crashes is started again after a pause."""

import asyncio
from collections.abc import Callable

from muster.localcluster.child_process import Child, how_it_ended
from muster.localcluster.stack import API_SERVER, Stack

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 30.0  # having run for so long, the next crash counts as the first

Tell = Callable[[str], None]


async def supervise(stack: Stack, tell: Tell) -> None:
    """Watch all children for ever; `tell` gets a line per crash and restart.

    Raises ChildDied when the embedded API server ends: the cluster was in its memory.
    """
    async with asyncio.TaskGroup() as group:
        for child in stack.children.values():
            group.create_task(_keep_running(child, tell))


async def _keep_running(child: Child, tell: Tell) -> None:
    clock = asyncio.get_running_loop().time
    pause = _FIRST_PAUSE_SECONDS
    while True:
        started = clock()
        returncode = await child.wait()
        if not child.wanted:
            return
        if child.name == API_SERVER:
            raise child.died()
        if clock() - started > _STEADY_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        tell(f"{child.name} {how_it_ended(returncode)}; starting it again in {pause:g} s (see {child.log})")
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        await child.start()
