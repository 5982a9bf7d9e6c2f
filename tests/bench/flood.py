"""Many pending pods at once: cost, bounded memory, and starts at the head of the queue.

Once a second capacity for one gang becomes free, during the arrivals and after them: the head of the queue takes it.
"""

import asyncio
import time
from typing import Any

from bench import load
from bench.arrivals import quantiles
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from builders.gangs.manifests import Workload
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.rpc.channel import open_channel

_EVERY_SECONDS = 1.0
_LOOK_SECONDS = 0.002
_CALL_SECONDS = 60.0
_STARTED_SECONDS = 300.0
_ROUNDS_AFTER = 30
_SETTLE_SECONDS = 10.0  # conditions and events are written by then


async def flood(cluster: BenchCluster, size: int) -> dict[str, Any]:
    """Create the pods of the options in gangs of this size, on full nodes."""
    options = cluster.options
    say(f"filling {options.nodes} nodes; then {options.flood} pods in gangs of {size} come")
    await load.fill(cluster.session, cluster.namespace, options.nodes)
    await cluster.start_services()
    gangs = load.crowd(options.flood // size, size, cluster.namespace)
    head = _Head(cluster, gangs)
    await head.binds.start()
    before, began = cluster.costs(), time.monotonic()
    creating = asyncio.create_task(load.create(cluster.session, *gangs))
    while not creating.done():
        await head.room_comes(_EVERY_SECONDS)
    await creating
    created = time.monotonic()
    reported = await _all_told(cluster, len(gangs))
    settled = time.monotonic()
    await asyncio.sleep(_SETTLE_SECONDS)
    during, head.seconds = head.seconds, []
    after_flood = cluster.costs()
    say(f"{options.flood} pods wait; {_ROUNDS_AFTER} times room comes")
    for _ in range(_ROUNDS_AFTER):
        await head.room_comes(_EVERY_SECONDS)
    quiet_before, quiet_began = cluster.costs(), time.monotonic()
    await asyncio.sleep(options.seconds)
    seconds = time.monotonic() - quiet_began
    await head.binds.stop()
    return {
        "pods": options.flood,
        "gang_size": size,
        "created_seconds": round(created - began, 1),
        "all_known_and_told_seconds": round(settled - began, 1),
        "gangs_that_wait": reported,
        "room_to_last_bind_during_the_flood": quantiles(during) if len(during) > 1 else {},
        "room_to_last_bind_after_it": quantiles(head.seconds),
        "started_out_of_turn": head.out_of_turn,
        "processes": cluster.spent(before),
        "peak_mib_before": {name: round(cost.peak_mib, 1) for name, cost in before.items()},
        "peak_mib_after_the_flood": {name: round(cost.peak_mib, 1) for name, cost in after_flood.items()},
        "percent_of_a_core_when_quiet": cluster.percent_of_a_core(quiet_before, seconds),
    }


class _Head:
    """Frees one node after the other, and observes the pods that start there."""

    def __init__(self, cluster: BenchCluster, gangs: list[Workload]) -> None:
        self._cluster = cluster
        self.binds = BindTimes(cluster.session, cluster.namespace)
        self.seconds: list[float] = []
        self.out_of_turn = 0
        self._order = [[gang.pod_name(number) for number in range(gang.size)] for gang in gangs]
        self._per_room = load.IN_ONE_NODE // gangs[0].size
        self._freed = 0

    async def room_comes(self, every_seconds: float) -> None:
        """Free a node, and wait until the head of the queue uses all of it."""
        began = time.monotonic()
        wanted = (self._freed + 1) * (load.IN_ONE_NODE + 1)  # the deleted pod is observed on the node once more
        await load.remove_filler(self._cluster.session, self._cluster.namespace, self._freed)
        came = time.monotonic()
        self._freed += 1
        async with asyncio.timeout(_STARTED_SECONDS):
            while len(self.binds.seen) < wanted:  # noqa: ASYNC110 (a bench: the watch is as cheap as can be)
                await asyncio.sleep(_LOOK_SECONDS)
        self.seconds.append(time.monotonic() - came)
        first = {pod for pods in self._order[: self._freed * self._per_room] for pod in pods}
        self.out_of_turn = sum(pod.startswith(load.CROWD) for pod in self.binds.seen.keys() - first)
        await asyncio.sleep(max(0.0, began + every_seconds - time.monotonic()))


async def _all_told(cluster: BenchCluster, gangs: int) -> int:
    """Wait until the coordinator knows all gangs and a reason for each pending one; returns their number."""
    channel = open_channel(cluster.stack.addresses["coordinator"])
    async with channel, asyncio.timeout(_STARTED_SECONDS):
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)
        while True:
            listed = await stub.List(coordinator_pb2.ListRequest(namespace=cluster.namespace), timeout=_CALL_SECONDS)
            waiting = [gang for gang in listed.gangs if not gang.bound]
            if len(listed.gangs) >= gangs and all(gang.reason for gang in waiting):
                return len(waiting)
            await asyncio.sleep(_EVERY_SECONDS)
