"""Cost of pending gangs that do not fit, and the latency of the next start when capacity becomes free."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from bench import load
from bench.arrivals import BOUND_SECONDS, quantiles
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from builders.e2e.solve_relay import SolveRelay
from builders.gangs.manifests import Workload
from builders.kube.nodes import Machine, make_nodes
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.localcluster.up.cluster_view import ClusterView, watch_gangs

UPDATES_PER_SECOND = 20
_QUIET_SECONDS = 10.0  # conditions and events are written by then
_BREATH_SECONDS = 0.3  # between rounds, so that each starts on an idle scheduler


async def idle(cluster: BenchCluster) -> dict[str, Any]:
    """A full cluster with infeasible gangs: first without any change, then with irrelevant changes only."""
    relay = SolveRelay(cluster.stack.addresses["placement"])
    async with waiting(cluster, cluster.options.pending, relay):
        asked = len(relay.asked)
        say(f"{cluster.options.pending} gangs wait; {asked} solves so far; watching for {cluster.options.seconds:g} s")
        idle_costs = await _watched(cluster, relay, asyncio.sleep(cluster.options.seconds))
        say(f"and for {cluster.options.seconds:g} s with {UPDATES_PER_SECOND} updates of other pods a second")
        trickle = await _watched(cluster, relay, _updates(cluster))
    return {
        "pending_gangs": cluster.options.pending,
        "solves_before": asked,
        "idle": idle_costs,
        "irrelevant_updates": {"updates_per_second": UPDATES_PER_SECOND, **trickle},
    }


async def freed(cluster: BenchCluster, pending: int) -> dict[str, Any]:
    """Latency from the API server's response to the change that frees capacity, to the first and last bind of the gang
    that then fits, with infeasible gangs ahead of it.
    """
    async with waiting(cluster, pending) as view:
        binds = BindTimes(cluster.session, cluster.namespace)
        await binds.start()
        rounds = cluster.options.rounds
        say(f"{rounds} rounds with a deleted pod, {rounds} with a new node; {pending} gangs pending")
        by_pod, by_node = _Latencies(cluster, view, binds), _Latencies(cluster, view, binds)
        for number in range(rounds):
            await by_pod.measure(
                f"pod-{number}", partial(load.remove_filler, cluster.session, cluster.namespace, number)
            )
            await by_node.measure(f"node-{number}", partial(_new_node, cluster, number))
        await binds.stop()
    return {
        "rounds": rounds,
        "pending_gangs": pending,
        "pod_deleted": by_pod.figures(),
        "node_added": by_node.figures(),
    }


@contextlib.asynccontextmanager
async def waiting(cluster: BenchCluster, pending: int, relay: SolveRelay | None = None) -> AsyncIterator[ClusterView]:
    """Fill every node, and create gangs that need two whole nodes; returns when each was tried once."""
    say(f"filling {cluster.options.nodes} nodes, creating {pending} gangs of 16")
    await load.fill(cluster.session, cluster.namespace, cluster.options.nodes)
    gangs = load.wide_gangs(pending, cluster.namespace)
    await load.create(cluster.session, *gangs)
    view = ClusterView()
    await cluster.start_services(relay)
    following = asyncio.ensure_future(watch_gangs(cluster.stack.addresses["coordinator"], view))
    try:
        await _tried(view, *gangs)
        await asyncio.sleep(_QUIET_SECONDS)
        yield view
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        if relay is not None:
            await relay.stop()


class _Latencies:
    """Measure rounds: a gang is pending, capacity becomes free, the gang starts."""

    def __init__(self, cluster: BenchCluster, view: ClusterView, binds: BindTimes) -> None:
        self._cluster, self._picture, self._binds = cluster, view, binds
        self._first: list[float] = []
        self._last: list[float] = []

    async def measure(self, name: str, free: Callable[[], Awaitable[None]]) -> None:
        gang = load.narrow_gang(name, self._cluster.namespace)
        await load.create(self._cluster.session, gang)
        await _tried(self._picture, gang)
        await asyncio.sleep(_BREATH_SECONDS)
        await free()
        came = time.monotonic()
        pods = load.pod_names([gang])
        await self._binds.all_of(pods, timeout_seconds=BOUND_SECONDS)
        seen = [self._binds.seen[pod] - came for pod in pods]
        self._first.append(min(seen))
        self._last.append(max(seen))

    def figures(self) -> dict[str, dict[str, float]]:
        return {"first_bind": quantiles(self._first), "last_bind": quantiles(self._last)}


async def _watched(cluster: BenchCluster, relay: SolveRelay, meanwhile: Awaitable[object]) -> dict[str, Any]:
    asked, before, began = len(relay.asked), cluster.costs(), time.monotonic()
    await meanwhile
    seconds = time.monotonic() - began
    return {
        "seconds": round(seconds, 1),
        "solves": len(relay.asked) - asked,
        "percent_of_a_core": cluster.percent_of_a_core(before, seconds),
    }


async def _updates(cluster: BenchCluster) -> None:
    began = time.monotonic()
    for number in range(int(cluster.options.seconds * UPDATES_PER_SECOND)):
        await asyncio.sleep(max(0.0, began + number / UPDATES_PER_SECOND - time.monotonic()))
        await load.touch_filler(cluster.session, cluster.namespace, number % cluster.options.nodes, f"update {number}")


async def _new_node(cluster: BenchCluster, number: int) -> None:
    await make_nodes(cluster.session, Machine(f"bench-late-{number:04}", load.ROOM, {load.LABEL: "true"}))


async def _tried(view: ClusterView, *gangs: Workload) -> None:
    def waits(id_: str) -> bool:
        found = view.gangs.get(id_)
        return found is not None and found.phase == Phase.PHASE_QUEUED and "fit" in found.reason

    async with asyncio.timeout(BOUND_SECONDS):
        version = -1
        while not all(waits(gang.id) for gang in gangs):
            version = await view.newer_than(version)
