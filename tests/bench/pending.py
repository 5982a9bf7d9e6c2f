"""What gangs without room cost while they wait, and how fast the next one starts when room comes."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from bench import load
from bench.arrivals import BOUND_SECONDS, quantiles
from bench.binds import BindTimes
from bench.ground import Ground, say
from builders.e2e.solve_relay import SolveRelay
from builders.gangs.workloads import Workload
from builders.kube.nodes import Machine, make_nodes
from muster.coordinator.v1.coordinator_pb2 import Phase
from muster.localcluster.up.cluster_view import ClusterView, watch_gangs

UPDATES_PER_SECOND = 20
_QUIET_SECONDS = 10.0  # what users are told is written by then
_BREATH_SECONDS = 0.3  # between rounds, so that each is measured on a scheduler at rest


async def idle(ground: Ground) -> dict[str, Any]:
    """A full cluster, gangs that cannot fit, and nothing happens; then only what concerns nobody."""
    relay = SolveRelay(ground.stack.addresses["placement"])
    async with waiting(ground, ground.options.pending, relay):
        asked = len(relay.asked)
        say(f"{ground.options.pending} gangs wait; {asked} solves so far; watching for {ground.options.seconds:g} s")
        nothing = await _watched(ground, relay, asyncio.sleep(ground.options.seconds))
        say(f"and for {ground.options.seconds:g} s with {UPDATES_PER_SECOND} updates of other pods a second")
        trickle = await _watched(ground, relay, _updates(ground))
    return {
        "pending_gangs": ground.options.pending,
        "solves_before": asked,
        "nothing_happens": nothing,
        "pods_of_others_change": {"updates_per_second": UPDATES_PER_SECOND, **trickle},
    }


async def freed(ground: Ground, pending: int) -> dict[str, Any]:
    """From the answer of the API server that frees room to the first and last bind of the gang that fits in it, while
    so many others wait ahead of it that do not fit.
    """
    async with waiting(ground, pending) as view:
        binds = BindTimes(ground.session, ground.namespace)
        await binds.start()
        rounds = ground.options.rounds
        say(f"{rounds} times room for one gang comes by a deleted pod, {rounds} times by a new node; {pending} wait")
        by_pod, by_node = _Latencies(ground, view, binds), _Latencies(ground, view, binds)
        for number in range(rounds):
            await by_pod.measure(f"pod-{number}", partial(load.remove_filler, ground.session, ground.namespace, number))
            await by_node.measure(f"node-{number}", partial(_new_node, ground, number))
        await binds.stop()
    return {
        "rounds": rounds,
        "pending_gangs": pending,
        "pod_deleted": by_pod.figures(),
        "node_added": by_node.figures(),
    }


@contextlib.asynccontextmanager
async def waiting(ground: Ground, pending: int, relay: SolveRelay | None = None) -> AsyncIterator[ClusterView]:
    """Every node is full, and so many gangs that need two whole nodes have been tried once."""
    say(f"filling {ground.options.nodes} nodes, creating {pending} gangs of 16")
    await load.fill(ground.session, ground.namespace, ground.options.nodes)
    gangs = load.wide_gangs(pending, ground.namespace)
    await load.create(ground.session, *gangs)
    view = ClusterView()
    await ground.start_services(relay)
    following = asyncio.ensure_future(watch_gangs(ground.stack.addresses["coordinator"], view))
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
    """Rounds: a gang waits, room comes, it starts."""

    def __init__(self, ground: Ground, view: ClusterView, binds: BindTimes) -> None:
        self._ground, self._picture, self._binds = ground, view, binds
        self._first: list[float] = []
        self._last: list[float] = []

    async def measure(self, name: str, free: Callable[[], Awaitable[None]]) -> None:
        gang = load.narrow_gang(name, self._ground.namespace)
        await load.create(self._ground.session, gang)
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


async def _watched(ground: Ground, relay: SolveRelay, meanwhile: Awaitable[object]) -> dict[str, Any]:
    asked, before, began = len(relay.asked), ground.costs(), time.monotonic()
    await meanwhile
    seconds = time.monotonic() - began
    return {
        "seconds": round(seconds, 1),
        "solves": len(relay.asked) - asked,
        "percent_of_a_core": ground.percent_of_a_core(before, seconds),
    }


async def _updates(ground: Ground) -> None:
    began = time.monotonic()
    for number in range(int(ground.options.seconds * UPDATES_PER_SECOND)):
        await asyncio.sleep(max(0.0, began + number / UPDATES_PER_SECOND - time.monotonic()))
        await load.touch_filler(ground.session, ground.namespace, number % ground.options.nodes, f"update {number}")


async def _new_node(ground: Ground, number: int) -> None:
    await make_nodes(ground.session, Machine(f"bench-late-{number:04}", load.ROOM, {load.LABEL: "true"}))


async def _tried(view: ClusterView, *gangs: Workload) -> None:
    def waits(id_: str) -> bool:
        found = view.gangs.get(id_)
        return found is not None and found.phase == Phase.PHASE_QUEUED and "fit" in found.reason

    async with asyncio.timeout(BOUND_SECONDS):
        version = -1
        while not all(waits(gang.id) for gang in gangs):
            version = await view.newer_than(version)
