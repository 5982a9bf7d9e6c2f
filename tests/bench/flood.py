"""A flood of pods that have no room: what it costs, that memory stays bounded, and that the head of the queue moves.

Room for one gang comes once a second, while the flood comes in and after it: the first in the queue takes it.
"""

import asyncio
import time
from typing import Any

from bench import load
from bench.arrivals import quantiles
from bench.binds import BindTimes
from bench.ground import Ground, say
from builders.gangs.workloads import Workload
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.rpc.channel import open_channel

_EVERY_SECONDS = 1.0
_LOOK_SECONDS = 0.002
_CALL_SECONDS = 60.0
_STARTED_SECONDS = 300.0
_ROUNDS_AFTER = 30
_SETTLE_SECONDS = 10.0  # what users are told is written by then


async def flood(ground: Ground, size: int) -> dict[str, Any]:
    """So many pods as the options say, in gangs of this size, on nodes that are full."""
    options = ground.options
    say(f"filling {options.nodes} nodes; then {options.flood} pods in gangs of {size} come")
    await load.fill(ground.session, ground.namespace, options.nodes)
    await ground.start_services()
    gangs = load.crowd(options.flood // size, size, ground.namespace)
    head = _Head(ground, gangs)
    await head.binds.start()
    before, began = ground.costs(), time.monotonic()
    creating = asyncio.create_task(load.create(ground.session, *gangs))
    while not creating.done():
        await head.room_comes(_EVERY_SECONDS)
    await creating
    created = time.monotonic()
    told = await _all_told(ground, len(gangs))
    settled = time.monotonic()
    await asyncio.sleep(_SETTLE_SECONDS)
    during, head.seconds = head.seconds, []
    after_flood = ground.costs()
    say(f"{options.flood} pods wait; {_ROUNDS_AFTER} times room comes")
    for _ in range(_ROUNDS_AFTER):
        await head.room_comes(_EVERY_SECONDS)
    quiet_before, quiet_began = ground.costs(), time.monotonic()
    await asyncio.sleep(options.seconds)
    seconds = time.monotonic() - quiet_began
    await head.binds.stop()
    return {
        "pods": options.flood,
        "gang_size": size,
        "created_seconds": round(created - began, 1),
        "all_known_and_told_seconds": round(settled - began, 1),
        "gangs_that_wait": told,
        "room_to_last_bind_during_the_flood": quantiles(during) if len(during) > 1 else {},
        "room_to_last_bind_after_it": quantiles(head.seconds),
        "started_out_of_turn": head.out_of_turn,
        "processes": ground.spent(before),
        "peak_mib_before": {name: round(cost.peak_mib, 1) for name, cost in before.items()},
        "peak_mib_after_the_flood": {name: round(cost.peak_mib, 1) for name, cost in after_flood.items()},
        "percent_of_a_core_when_quiet": ground.percent_of_a_core(quiet_before, seconds),
    }


class _Head:
    """Frees one node after the other, and sees who starts there."""

    def __init__(self, ground: Ground, gangs: list[Workload]) -> None:
        self._ground = ground
        self.binds = BindTimes(ground.session, ground.namespace)
        self.seconds: list[float] = []
        self.out_of_turn = 0
        self._order = [[gang.pod_name(number) for number in range(gang.size)] for gang in gangs]
        self._per_room = load.IN_ONE_NODE // gangs[0].size
        self._freed = 0

    async def room_comes(self, every_seconds: float) -> None:
        """A node is free: wait until those that stand first in the queue have it all."""
        began = time.monotonic()
        wanted = (self._freed + 1) * (load.IN_ONE_NODE + 1)  # whoever went from the node is seen there once more
        await load.remove_filler(self._ground.session, self._ground.namespace, self._freed)
        came = time.monotonic()
        self._freed += 1
        async with asyncio.timeout(_STARTED_SECONDS):
            while len(self.binds.seen) < wanted:  # noqa: ASYNC110 (a bench: the watch is as cheap as can be)
                await asyncio.sleep(_LOOK_SECONDS)
        self.seconds.append(time.monotonic() - came)
        first = {pod for pods in self._order[: self._freed * self._per_room] for pod in pods}
        self.out_of_turn = sum(pod.startswith(load.CROWD) for pod in self.binds.seen.keys() - first)
        await asyncio.sleep(max(0.0, began + every_seconds - time.monotonic()))


async def _all_told(ground: Ground, gangs: int) -> int:
    """Wait until the coordinator knows them all, and of each that waits why; returns how many wait."""
    channel = open_channel(ground.stack.addresses["coordinator"])
    async with channel, asyncio.timeout(_STARTED_SECONDS):
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        while True:
            listed = await stub.List(coordinator_pb2.ListRequest(namespace=ground.namespace), timeout=_CALL_SECONDS)
            waiting = [gang for gang in listed.gangs if not gang.bound]
            if len(listed.gangs) >= gangs and all(gang.reason for gang in waiting):
                return len(waiting)
            await asyncio.sleep(_EVERY_SECONDS)
