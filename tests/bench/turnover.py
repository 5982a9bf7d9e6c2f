"""Pods of many classes come, are bound, and go, several times: no event loop is held for long, and nothing remains.

Invariants I11 and I12. Every class has inter-pod rules of its own.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from bench import load
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from bench.costs import memory_mib
from bench.exposed_metrics import metrics
from builders.wait import eventually
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.localcluster.stack import SERVICES
from muster.rpc.channel import open_channel
from muster.telemetry.metrics_server import MAX_EVENT_LOOP_HOLD, MAX_EVENT_LOOP_LAG, USED_MEMORY

_CALL_SECONDS = 60.0
_WAVE_SECONDS = 1800.0
_SAMPLE_SECONDS = 20.0
_FIRST_PODS = 8
"""A gang that comes and goes before memory is measured, so that what code paths load at their first use is there."""
_SETTLE_SECONDS = 100.0
"""Pod classes without pods are dropped, and memory is returned, by then."""


async def diversity(cluster: BenchCluster) -> dict[str, Any]:
    """Run all waves; seconds, MiB."""
    options = cluster.options
    await cluster.start_services()
    await _wave(cluster, 0, pods=_FIRST_PODS, classes=1)
    holds = LongestHolds(cluster)
    memory = [await _settled_memory(cluster)]
    waves = []
    for wave in range(1, options.waves + 1):
        say(f"wave {wave} of {options.waves}: {options.diverse_pods} pods of {options.classes} classes")
        waves.append(await _wave(cluster, wave, pods=options.diverse_pods, classes=options.classes))
        memory.append(await _settled_memory(cluster))
    return {
        "pods": options.diverse_pods,
        "classes": options.classes,
        "waves": waves,
        "longest": await holds.stop(),
        "mib_before_and_after_each_wave": _by_service(resident for resident, _ in memory),
        "mib_in_use_before_and_after_each_wave": _by_service(used for _, used in memory),
    }


async def _settled_memory(cluster: BenchCluster) -> tuple[dict[str, float], dict[str, float]]:
    """Resident memory of every service and what of it is in use (metric `muster_memory_used_bytes`), in MiB."""
    await asyncio.sleep(_SETTLE_SECONDS)
    addresses = {name: cluster.stack.metrics_addresses[name] for name in SERVICES}
    used = {name: (await metrics(address))[USED_MEMORY.name] for name, address in addresses.items()}
    return memory_mib(cluster.stack), {name: round(in_use / 2**20, 1) for name, in_use in used.items()}


def _by_service(moments: Iterable[dict[str, float]]) -> dict[str, list[float]]:
    rows = list(moments)
    return {name: [row[name] for row in rows] for name in SERVICES}


async def _wave(cluster: BenchCluster, wave: int, *, pods: int, classes: int) -> dict[str, Any]:
    gangs = load.diverse_gangs(wave, pods, classes, cluster.namespace)
    binds = BindTimes(cluster.session, cluster.namespace)
    await binds.start()
    began = time.monotonic()
    await load.create(cluster.session, *gangs)
    created = time.monotonic()
    await binds.all_of(load.pod_names(gangs), timeout_seconds=_WAVE_SECONDS)
    bound = time.monotonic()
    at_work = memory_mib(cluster.stack)
    await binds.stop()
    await load.delete_pods(cluster.session, cluster.namespace)
    await _all_gone(cluster)
    return {
        "created_seconds": round(created - began, 1),
        "bound_seconds": round(bound - began, 1),
        "gone_seconds": round(time.monotonic() - bound, 1),
        "mib_when_bound": at_work,
    }


async def _all_gone(cluster: BenchCluster) -> None:
    async with open_channel(cluster.stack.addresses["coordinator"]) as channel:
        stub = coordinator_pb2_grpc.CoordinatorServiceStub(channel)

        async def none_left() -> bool:
            request = coordinator_pb2.ListRequest(namespace=cluster.namespace)
            return not (await stub.List(request, timeout=_CALL_SECONDS)).gangs

        await eventually(none_left, "the coordinator knows no gang any more", seconds=_WAVE_SECONDS, every_seconds=0.5)


class LongestHolds:
    """The longest holds and delays of all event loops, read from the services' metrics."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._addresses = {name: cluster.stack.metrics_addresses[name] for name in SERVICES}
        self._longest = {
            metric.name: dict.fromkeys(SERVICES, 0.0) for metric in (MAX_EVENT_LOOP_HOLD, MAX_EVENT_LOOP_LAG)
        }
        self._task = asyncio.create_task(self._sample())

    async def stop(self) -> dict[str, dict[str, float]]:
        """Seconds by metric and service."""
        await self._read()
        self._task.cancel()
        return {
            metric: {name: round(seconds, 3) for name, seconds in longest.items()}
            for metric, longest in self._longest.items()
        }

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            await self._read()

    async def _read(self) -> None:
        for name, address in self._addresses.items():
            values = await metrics(address)
            for metric, longest in self._longest.items():
                longest[name] = max(longest[name], values[metric])
