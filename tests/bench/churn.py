"""Gangs of 4 to 64 pods come and go for a long time: memory, start latency while capacity is free, and utilisation.

Gangs arrive at a rate that does not depend on what has started, run for 30 to 120 s from their last bind, and are
deleted. The rate changes in a cycle of 10 minutes: most of the time the nodes suffice, then more arrives than fits,
then less, until nothing waits. All pods request a whole node, so that a perfect packing uses as many nodes as there is
demand for.
"""

import argparse
import asyncio
import itertools
import random
import time
from typing import Any, Final

import psutil

from bench import load
from bench.api_requests import requests
from bench.arrivals import quantiles
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from bench.costs import memory_mib
from bench.on_kube_apiserver import on_kube_apiserver
from bench.turnover import LongestHolds
from builders.gangs.manifests import Workload, gang
from muster.localcluster.stack import SERVICES

_SIZES: Final = (4, 64)
_LIFETIMES: Final = (30.0, 120.0)
_CYCLE: Final = ((420.0, 0.85), (90.0, 1.4), (90.0, 0.5))
"""Seconds, and demand as a share of all nodes."""
_SAMPLE_SECONDS: Final = 1.0
_REPORT_SECONDS: Final = 60.0
_WARM_UP_SECONDS: Final = 120.0
"""Until as many gangs end as begin; what is measured before does not count."""
_LABEL: Final = "muster.dev/bench-gang"


async def churn(options: argparse.Namespace) -> dict[str, Any]:
    """Run for `options.minutes` on `options.nodes` nodes. Raises NotBuilt."""
    async with on_kube_apiserver(options) as cluster:
        await cluster.start_services()
        return await _Churn(cluster).run(options.minutes * 60)


class _GangBinds(BindTimes):
    """Tells when all pods of a gang are bound. What is kept of a gang ends with `forget`."""

    def __init__(self, cluster: BenchCluster) -> None:
        super().__init__(cluster.session, cluster.namespace)
        self.bound = 0
        """Bound pods of gangs that run."""
        self.total = 0
        """Bound pods so far."""
        self._unbound: dict[str, int] = {}
        self._started: dict[str, asyncio.Future[float]] = {}

    def expect(self, arrived: Workload) -> asyncio.Future[float]:
        """The time of the last bind of a gang that is to be created."""
        self._unbound[arrived.name] = arrived.size
        self._started[arrived.name] = asyncio.get_running_loop().create_future()
        return self._started[arrived.name]

    def observed(self, pod: str) -> None:
        name = pod.rpartition("-")[0]
        if name not in self._unbound:  # it was deleted
            del self.seen[pod]
            return
        self.bound += 1
        self.total += 1
        self._unbound[name] -= 1
        if not self._unbound[name]:
            self._started[name].set_result(self.seen[pod])

    def end(self, running: Workload) -> None:
        """The pods of the gang are about to be deleted."""
        self.bound -= running.size

    def forget(self, ended: Workload) -> None:
        """The gang is deleted."""
        del self._unbound[ended.name], self._started[ended.name]
        for pod in load.pod_names([ended]):
            del self.seen[pod]


class _Churn:
    """The load, and what is measured."""

    def __init__(self, cluster: BenchCluster) -> None:
        self._cluster = cluster
        self._binds = _GangBinds(cluster)
        self._capacity = cluster.options.nodes
        self._random = random.Random(0)
        self._wanted = 0
        """Pods that exist, bound or not."""
        self._waiting = 0
        """Gangs that exist and have not started."""
        self._arrived = 0
        self._seconds: list[float] = []
        self._used = self._usable = 0
        self._memory: list[dict[str, float]] = []
        self._live: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> dict[str, Any]:
        """The figures after that time."""
        await self._binds.start()
        async with asyncio.TaskGroup() as self._tasks:
            endless = [self._tasks.create_task(each) for each in (self._binds.until_failed(), self._sample())]
            endless.append(self._tasks.create_task(self._arrive()))
            await asyncio.sleep(_WARM_UP_SECONDS)
            result = await self._measure(seconds)
            for task in (*endless, *self._live):
                task.cancel()
        await self._binds.stop()
        return result

    async def _measure(self, seconds: float) -> dict[str, Any]:
        self._seconds.clear()
        self._used = self._usable = 0
        holds = LongestHolds(self._cluster)
        before, arrived, bound = self._cluster.costs(), self._arrived, self._binds.total
        sent = await requests(self._cluster.session)
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            self._memory.append(memory_mib(self._cluster.stack))
            self._say(left)
            await asyncio.sleep(min(left, _REPORT_SECONDS))
        self._memory.append(memory_mib(self._cluster.stack))
        return {
            "minutes": seconds / 60,
            "gangs_arrived": self._arrived - arrived,
            "gangs_per_second": round((self._arrived - arrived) / seconds, 2),
            "start_latency_while_capacity_is_free": {**_quantiles(self._seconds), "gangs": len(self._seconds)},
            "utilisation_of_a_perfect_packing_percent": round(100 * self._used / max(1, self._usable), 2),
            "mib_each_minute": {name: [row[name] for row in self._memory] for name in SERVICES},
            "pods_bound": self._binds.total - bound,
            "requests": dict((await requests(self._cluster.session) - sent).most_common()),
            "longest": await holds.stop(),
            "processes": self._cluster.spent(before),
        }

    def _say(self, left: float) -> None:
        share = 100 * self._used / max(1, self._usable)
        say(
            f"{left:.0f} s left: {self._arrived} gangs arrived, {self._waiting} wait, {self._binds.bound} of "
            f"{self._wanted} pods bound, {_quantiles(self._seconds)}, utilisation {share:.1f} %, "
            f"idle {psutil.cpu_times_percent().idle:.0f} %, {self._memory[-1]}"
        )

    async def _arrive(self) -> None:
        per_pod = sum(_LIFETIMES) / 2
        mean_size = sum(_SIZES) / 2
        at = time.monotonic()
        for seconds, share in itertools.cycle(_CYCLE):
            until = at + seconds
            while at < until:
                at += self._random.expovariate(share * self._capacity / per_pod / mean_size)
                await asyncio.sleep(at - time.monotonic())
                task = self._tasks.create_task(self._live_once(self._random.randint(*_SIZES)))
                self._live.add(task)
                task.add_done_callback(self._live.discard)

    async def _live_once(self, size: int) -> None:
        self._arrived += 1
        name = f"churn-{self._arrived:06}"
        arrived = (
            gang(name)
            .of(size)
            .asking(cpu=load.CPUS, memory="1Gi")
            .in_namespace(self._cluster.namespace)
            .labelled(**{_LABEL: name})
        )
        fits = not self._waiting and self._wanted + size <= self._capacity
        self._wanted += size
        self._waiting += 1
        started = self._binds.expect(arrived)
        await load.create(self._cluster.session, arrived)
        created = time.monotonic()
        bound = await started
        self._waiting -= 1
        if fits:
            self._seconds.append(bound - created)
        await asyncio.sleep(self._random.uniform(*_LIFETIMES))
        self._binds.end(arrived)
        await load.delete_pods(self._cluster.session, self._cluster.namespace, {"labelSelector": f"{_LABEL}={name}"})
        self._wanted -= size
        self._binds.forget(arrived)

    async def _sample(self) -> None:
        """Used and usable pods whenever there is more demand than capacity."""
        while True:
            await asyncio.sleep(_SAMPLE_SECONDS)
            if self._wanted >= self._capacity:
                self._used += self._binds.bound
                self._usable += self._capacity


def _quantiles(seconds: list[float]) -> dict[str, float]:
    return quantiles(seconds) if len(seconds) > 1 else {}
