"""Throughput and latency of gangs that have room."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from bench import load
from bench.binds import BindTimes
from bench.ground import Ground, say

BOUND_SECONDS = 300.0
_WARM_UP = 5  # gangs that arrive before the latency counts


async def throughput(ground: Ground, size: int) -> dict[str, Any]:
    """Pods first, then the scheduler starts."""
    gangs = load.gangs_of(size, ground.options.pods, ground.namespace)
    say(f"creating {len(gangs)} gangs of {size}")
    await load.create(ground.session, *gangs)
    binds = BindTimes(ground.session, ground.namespace)
    await binds.start()
    before = ground.costs()
    began = time.monotonic()
    await ground.start_services()
    ready = time.monotonic()
    pods = load.pod_names(gangs)
    await binds.all_of(pods, timeout_seconds=BOUND_SECONDS)
    first, last = min(binds.seen.values()), max(binds.seen.values())
    await binds.stop()
    result = {
        "pods_per_second": round(len(pods) / (last - first), 1),
        "pods_per_second_from_ready": round(len(pods) / (last - min(first, ready)), 1),
        "ready_seconds": round(ready - began, 3),
        "first_bind_seconds": round(first - began, 3),
        "last_bind_seconds": round(last - began, 3),
        "processes": ground.spent(before),
    }
    say(f"gangs of {size}: {result['pods_per_second']} pods/s")
    return result


async def latency(ground: Ground, arrivals: int) -> dict[str, Any]:
    """Gangs of 8 arrive one by one."""
    binds = BindTimes(ground.session, ground.namespace)
    await binds.start()
    await ground.start_services()
    before = ground.costs()
    say(f"{arrivals} gangs of 8 arrive one by one")
    seconds: list[float] = []
    for gang in load.gangs_of(8, 8 * (arrivals + _WARM_UP), ground.namespace):
        await load.create(ground.session, gang)
        created = time.monotonic()
        await binds.all_of(load.pod_names([gang]), timeout_seconds=BOUND_SECONDS)
        seconds.append(max(binds.seen[pod] for pod in load.pod_names([gang])) - created)
    await binds.stop()
    return {**quantiles(seconds[_WARM_UP:]), "gangs": arrivals, "processes": ground.spent(before)}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
        "worst_ms": round(max(seconds) * 1000, 2),
    }
