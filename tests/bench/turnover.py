"""Pods of many classes come, are bound, and go, several times: no event loop is held for long, and nothing remains.

Invariants I11 and I12. Every class has inter-pod rules of its own.
"""

import asyncio
import time
from typing import Any

from bench import load
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from bench.costs import memory_mib
from builders.wait import eventually
from muster.coordinator.v1 import coordinator_pb2, coordinator_pb2_grpc
from muster.localcluster.stack import SERVICES
from muster.rpc.channel import open_channel
from muster.telemetry.metrics_server import MAX_EVENT_LOOP_LAG

_CALL_SECONDS = 60.0
_WAVE_SECONDS = 1800.0
_SAMPLE_SECONDS = 20.0
_SETTLE_SECONDS = 75.0
"""Pod classes without pods are dropped, and memory is returned, by then."""


async def diversity(cluster: BenchCluster) -> dict[str, Any]:
    """Run all waves; seconds, MiB."""
    options = cluster.options
    await cluster.start_services()
    lags = _LongestLags(cluster)
    await asyncio.sleep(_SETTLE_SECONDS)
    before = memory_mib(cluster.stack)
    waves = []
    for wave in range(options.waves):
        say(f"wave {wave + 1} of {options.waves}: {options.diverse_pods} pods of {options.classes} classes")
        waves.append(await _wave(cluster, wave))
    await asyncio.sleep(_SETTLE_SECONDS)
    return {
        "pods": options.diverse_pods,
        "classes": options.classes,
        "waves": waves,
        "longest_hold_of_the_event_loop_seconds": await lags.stop(),
        "mib_before": before,
        "mib_after": memory_mib(cluster.stack),
    }


async def _wave(cluster: BenchCluster, wave: int) -> dict[str, Any]:
    options = cluster.options
    gangs = load.diverse_gangs(wave, options.diverse_pods, options.classes, cluster.namespace)
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


class _LongestLags:
    """The longest delays of all event loops, read from the services' metrics."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._addresses = {name: cluster.stack.metrics_addresses[name] for name in SERVICES}
        self._longest = dict.fromkeys(SERVICES, 0.0)
        self._task = asyncio.create_task(self._sample())

    async def stop(self) -> dict[str, float]:
        await self._read()
        self._task.cancel()
        return {name: round(seconds, 3) for name, seconds in self._longest.items()}

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            await self._read()

    async def _read(self) -> None:
        for name, address in self._addresses.items():
            self._longest[name] = max(self._longest[name], await _metric(address, MAX_EVENT_LOOP_LAG.name))


async def _metric(address: str, name: str) -> float:
    """The value of a metric without labels."""
    host, _, port = address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    body = (await reader.read()).decode()
    writer.close()
    return next(float(line.split()[1]) for line in body.splitlines() if line.startswith(f"{name} "))
