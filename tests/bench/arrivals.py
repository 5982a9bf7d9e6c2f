"""Throughput and latency of gangs that fit, and how soon the others ask for nodes."""

import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bench import device_claims, load
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes, UnschedulableTimes
from builders.gangs.manifests import Workload

BOUND_SECONDS = 300.0
_WARM_UP = 5  # warm-up gangs, not measured


async def throughput(cluster: BenchCluster, size: int, claims: bool | None = None) -> dict[str, Any]:
    """Throughput: the pods exist before the scheduler starts. `claims`: each pod has a device, by a claim or as an
    extended resource.
    """
    gangs = load.gangs_of(size, cluster.options.pods, cluster.namespace, gpus=int(claims is False))
    say(f"creating {len(gangs)} gangs of {size}")
    result = await observed(cluster, gangs, claims, cluster.start_services)
    say(f"gangs of {size}: {result['pods_per_second']} pods/s")
    return result


async def observed(
    cluster: BenchCluster, workloads: Sequence[Workload], claims: bool | None, start: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """Create the pods, start a scheduler with `start`, which returns when it is ready, and observe the binds.

    The rate "from ready" ends with the last bind, as the other one, and begins when the scheduler is ready, or with the
    first bind if that is earlier.
    """
    if claims:
        await device_claims.publish(cluster.session, cluster.options.nodes)
    await (device_claims if claims else load).create(cluster.session, *workloads)
    binds = BindTimes(cluster.session, cluster.namespace)
    await binds.start()
    before = cluster.costs()
    began = time.monotonic()
    await start()
    ready = time.monotonic()
    pods = load.pod_names(workloads)
    await binds.all_of(pods, timeout_seconds=BOUND_SECONDS)
    first, last = min(binds.seen.values()), max(binds.seen.values())
    await binds.stop()
    return {
        "pods_per_second": round(len(pods) / (last - first), 1),
        "pods_per_second_from_ready": round(len(pods) / (last - min(first, ready)), 1),
        "ready_seconds": round(ready - began, 3),
        "first_bind_seconds": round(first - began, 3),
        "last_bind_seconds": round(last - began, 3),
        "processes": cluster.spent(before),
    }


async def latency(cluster: BenchCluster, arrivals: int) -> dict[str, Any]:
    """Latency: gangs of 8 arrive one by one."""
    binds = BindTimes(cluster.session, cluster.namespace)
    await binds.start()
    await cluster.start_services()
    before = cluster.costs()
    say(f"{arrivals} gangs of 8 arrive one by one")
    seconds: list[float] = []
    for gang in load.gangs_of(8, 8 * (arrivals + _WARM_UP), cluster.namespace):
        await load.create(cluster.session, gang)
        created = time.monotonic()
        await binds.all_of(load.pod_names([gang]), timeout_seconds=BOUND_SECONDS)
        seconds.append(max(binds.seen[pod] for pod in load.pod_names([gang])) - created)
    await binds.stop()
    return {**quantiles(seconds[_WARM_UP:]), "gangs": arrivals, "processes": cluster.spent(before)}


async def unschedulable(cluster: BenchCluster, size: int) -> dict[str, Any]:
    """Gangs that need one node more than there are arrive one by one: from the response to the creation of the last pod
    to the first and to the last pod with the reason Unschedulable.
    """
    seen = UnschedulableTimes(cluster.session, cluster.namespace)
    await seen.start()
    await cluster.start_services()
    first, last = [], []
    for number in range(_WARM_UP + cluster.options.rounds):
        gang = load.too_large_gang(f"large-{number:04}", size, cluster.options.nodes, cluster.namespace)
        pods = load.pod_names([gang])
        await load.create(cluster.session, gang)
        created = time.monotonic()
        await seen.all_of(pods, timeout_seconds=BOUND_SECONDS)
        times = [seen.seen[pod] - created for pod in pods]
        first.append(min(times))
        last.append(max(times))
        await load.delete_pods(cluster.session, cluster.namespace)
    await seen.stop()
    return {"first_pod": quantiles(first[_WARM_UP:]), "last_pod": quantiles(last[_WARM_UP:])}


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Percentiles in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
        "worst_ms": round(max(seconds) * 1000, 2),
    }
