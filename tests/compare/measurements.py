"""Measurements of a contender, each of which begins and ends with nodes without pods."""

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bench import load
from bench.api_requests import requests
from bench.binds import BindTimes
from compare.cluster import CPUS, MOST_SECONDS, ComparedCluster, bind_all, observed

Figures = dict[str, float]
Measurement = Callable[[ComparedCluster, "Amounts"], Awaitable[Figures]]

_ARRIVALS: Final = 20
_WARM_UP: Final = 3
FULL_NODES: Final = 300
"""Size of the cluster on which preemption is measured."""
_PREEMPTORS: Final = 64


@dataclass(frozen=True)
class Amounts:
    """Sizes of the cluster and of the work. `pods`: of each rate."""

    nodes: int
    pods: int


def rate(size: int, *, in_rack: bool = False, running: bool = False) -> Measurement:
    """Pods a second that are bound of gangs of one size: they exist when the contender is started, and time runs from
    the start, as do the requests that the API server counts, of all processes; or they are created while it is
    `running`, and time runs from the first creation.
    """

    async def measure(cluster: ComparedCluster, amounts: Amounts) -> Figures:
        binds = await cluster.begin()
        count = min(amounts.pods, 1000) if in_rack else amounts.pods
        gangs = [cluster.gang(f"g{number:04}", size, in_rack=in_rack) for number in range(max(1, count // size))]
        pods = load.pod_names(gangs)
        if running:
            await cluster.contender.start()
            await _first_gang(cluster, binds)
            began = time.monotonic()
            await cluster.create(*gangs)
        else:
            await cluster.create(*gangs)
            sent = (await requests(cluster.session)).total()
            began = time.monotonic()
            await cluster.contender.start()
        bound, seconds = await observed(binds, pods, began)
        await cluster.contender.stop()
        found = {"pods_per_second": round(bound / seconds, 1), "bound": bound / len(pods)}
        if not running and bound:
            found["requests_per_pod"] = round(((await requests(cluster.session)).total() - sent) / bound, 2)
        await cluster.end(binds)
        return found

    return measure


async def _first_gang(cluster: ComparedCluster, binds: BindTimes) -> None:
    """A gang starts, so that the contender is known to schedule."""
    first = cluster.gang("first", 8)
    await cluster.create(first)
    await binds.all_of(load.pod_names([first]), timeout_seconds=MOST_SECONDS)


async def latency(cluster: ComparedCluster, amounts: Amounts) -> Figures:
    """Milliseconds from the response to the creation of the last pod of a gang of 8 to its last observed bind; gangs
    arrive one by one.
    """
    binds = await cluster.begin()
    await cluster.contender.start()
    milliseconds = []
    for number in range(_WARM_UP + _ARRIVALS):
        gang = cluster.gang(f"g{number:04}", 8)
        await cluster.create(gang)
        _, seconds = await observed(binds, load.pod_names([gang]), time.monotonic())
        milliseconds.append(max(0.0, seconds * 1000))
    await cluster.contender.stop()
    await cluster.end(binds)
    measured = milliseconds[_WARM_UP:]
    return {"p50_ms": round(statistics.median(measured), 1), "worst_ms": round(max(measured), 1)}


async def preemption(cluster: ComparedCluster, amounts: Amounts) -> Figures:
    """Seconds from the creation of a gang of 64 pods, each of which needs a whole node, until all are bound; pods of
    low priority fill 300 nodes. No others have room.
    """
    binds = await cluster.begin()
    await cluster.contender.start()
    fillers = [cluster.gang(f"low-{number:04}", 1, CPUS, priority="low") for number in range(FULL_NODES)]
    await cluster.create(*fillers)
    await binds.all_of(load.pod_names(fillers), timeout_seconds=MOST_SECONDS)
    gang = cluster.gang("high", _PREEMPTORS, CPUS, priority="high")
    began = time.monotonic()
    await cluster.create(gang)
    bound, seconds = await observed(binds, load.pod_names([gang]), began)
    left = sum(1 for pod in await cluster.pods() if pod["metadata"]["name"].startswith("low-"))
    await cluster.contender.stop()
    await cluster.end(binds)
    return {"seconds": round(seconds, 2), "bound": bound / _PREEMPTORS, "evicted": FULL_NODES - left}


async def bare_binds(cluster: ComparedCluster, amounts: Amounts) -> Figures:
    """Pods a second that one client binds, which decides nothing."""
    binds = await cluster.begin()
    gangs = [cluster.gang(f"g{number:04}", 8) for number in range(amounts.pods // 8)]
    await cluster.create_pods(*(pod for each in gangs for pod in each.pods()))
    names = sorted(load.pod_names(gangs))
    seconds = await bind_all(cluster.session, cluster.namespace, names, amounts.nodes)
    await cluster.end(binds)
    return {"pods_per_second": round(len(names) / seconds, 1)}


MEASUREMENTS: Final[Mapping[str, Measurement]] = {
    "gangs of 8, from the start": rate(8),
    "gangs of 100, from the start": rate(100),
    "gangs of 1,000, from the start": rate(1000),
    "gangs of 8, running": rate(8, running=True),
    "gangs of 100, running": rate(100, running=True),
    "gangs of 1,000, running": rate(1000, running=True),
    "gangs of 10 in one rack each, from the start": rate(10, in_rack=True),
    "latency of a gang of 8": latency,
}
"""On clusters of every size, by name."""
PREEMPTION: Final = "64 pods preempt on 300 full nodes"
BARE: Final = "bare binds"
