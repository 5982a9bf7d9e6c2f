"""A large cluster on kube-apiserver: the cold start, arrivals, requests to the API server, and a change of leaders.

All nodes and bound pods exist before Muster starts. They are gangs of 8 that run already, so that Muster takes up all
of them. The API server, etcd with fsync, all services and the load generator share this machine.
"""

import argparse
import asyncio
import time
from typing import Any, Final

from bench import load
from bench.api_requests import requests
from bench.arrivals import quantiles
from bench.bench_cluster import BenchCluster, say
from bench.binds import BindTimes
from bench.costs import memory_mib
from bench.on_kube_apiserver import on_kube_apiserver
from bench.turnover import LongestHolds
from builders.gangs.manifests import gang
from chaos.faults import coordinator_leader
from muster.kube.session import KubeSession

_BOUND_SECONDS: Final = 600.0
_WARM_UP: Final = 5
_GANGS_AT_ONCE: Final = 250
_RATE_PODS: Final = 2000
_SIZES: Final = (8, 500)
_QUIET_SECONDS: Final = 5.0
_QUIET_REQUESTS: Final = 10
_SINGLE: Final = ("POST", "PUT", "PATCH", "DELETE", "GET")


async def scale(options: argparse.Namespace) -> dict[str, Any]:
    """All measurements on one cluster of `options.nodes` nodes and `options.bound` bound pods. Raises NotBuilt."""
    async with on_kube_apiserver(options, {"coordinator": 2}) as cluster:
        await _add_bound_pods(cluster, options.bound)
        return await _measure(cluster)


async def _measure(cluster: BenchCluster) -> dict[str, Any]:
    binds = BindTimes(cluster.session, cluster.namespace)
    await binds.start()
    result: dict[str, Any] = {"nodes": cluster.options.nodes, "bound_pods": cluster.options.bound}
    first = load.gangs_of(8, 8, cluster.namespace)
    await load.create(cluster.session, *first)
    await _until_quiet(cluster.session)
    before = cluster.costs()
    began = time.monotonic()
    await cluster.start_services()
    ready = time.monotonic()
    await binds.all_of(load.pod_names(first), timeout_seconds=_BOUND_SECONDS)
    result["cold_start"] = {
        "ready_seconds": round(ready - began, 2),
        "first_bind_seconds": round(min(binds.seen.values()) - began, 2),
        "processes": cluster.spent(before),
    }
    say(f"cold start: {result['cold_start']}")
    holds = LongestHolds(cluster)
    result["latency_of_a_gang_of_8"] = await _arrivals(cluster, binds, "one-by-one", cluster.options.arrivals)
    result["binds"] = {f"gangs_of_{size}": await _binds(cluster, binds, size) for size in _SIZES}
    result["memory_mib"] = memory_mib(cluster.stack)
    result["longest"] = await holds.stop()
    say(f"arrivals: {result['latency_of_a_gang_of_8']}, binds: {result['binds']}, memory: {result['memory_mib']}")
    for waiting in (1_000, 20_000):
        result[f"leader_killed_with_{waiting}_gangs_waiting_seconds"] = await _leader_killed(cluster, binds, waiting)
        say(f"leader killed with {waiting} gangs waiting: {result}")
    await binds.stop()
    return result


async def _arrivals(cluster: BenchCluster, binds: BindTimes, name: str, count: int) -> dict[str, float]:
    """From the response to the creation of the last pod of a gang to its last observed bind."""
    seconds = []
    for number in range(_WARM_UP + count):
        arrived = gang(f"{name}-{number:04}").of(8).asking(cpu=1).in_namespace(cluster.namespace)
        await load.create(cluster.session, arrived)
        created = time.monotonic()
        pods = load.pod_names([arrived])
        await binds.all_of(pods, timeout_seconds=_BOUND_SECONDS)
        seconds.append(max(binds.seen[pod] for pod in pods) - created)
    return quantiles(seconds[_WARM_UP:])


async def _binds(cluster: BenchCluster, binds: BindTimes, size: int) -> dict[str, Any]:
    """2,000 pods in gangs of one size at once: pods a second, requests of Muster to the API server for each, and the
    processor time of each process.
    """
    gangs = [
        gang(f"rate-{size}-{number:04}").of(size).asking(cpu=1).in_namespace(cluster.namespace)
        for number in range(_RATE_PODS // size)
    ]
    pods = load.pod_names(gangs)
    requests_before, costs_before = await _requests(cluster.session), cluster.costs()
    began = time.monotonic()
    await load.create(cluster.session, *gangs)
    created = time.monotonic()
    await binds.all_of(pods, timeout_seconds=_BOUND_SECONDS)
    last = max(binds.seen[pod] for pod in pods)
    costs = cluster.spent(costs_before)
    sent = await _requests(cluster.session) - requests_before - len(pods)  # the creations
    return {
        "created_seconds": round(created - began, 2),
        "pods_per_second_with_creation": round(len(pods) / (last - began), 1),
        "requests_per_pod": round(sent / len(pods), 2),
        "cpu_ms_per_pod": {name: round(cost["cpu_seconds"] / len(pods) * 1000, 2) for name, cost in costs.items()},
    }


async def _leader_killed(cluster: BenchCluster, binds: BindTimes, waiting: int) -> float:
    """Seconds from the end of the leader to the bind of a gang that arrived while it was killed, with so many gangs of
    2 waiting that fit nowhere.
    """
    too_large = [
        gang(f"waits-{waiting}-{number:05}").of(2).asking(cpu=load.CPUS + 1).in_namespace(cluster.namespace)
        for number in range(waiting)
    ]
    for start in range(0, waiting, _GANGS_AT_ONCE):
        await load.create(cluster.session, *too_large[start : start + _GANGS_AT_ONCE])
    await _until_quiet(cluster.session)
    await _arrivals(cluster, binds, f"before-{waiting}", 2)
    leader = await coordinator_leader(cluster.stack)
    await cluster.stack.kill(leader)
    killed = time.monotonic()
    arrived = gang(f"after-{waiting}").of(8).asking(cpu=1).in_namespace(cluster.namespace)
    await load.create(cluster.session, arrived)
    pods = load.pod_names([arrived])
    await binds.all_of(pods, timeout_seconds=_BOUND_SECONDS)
    await cluster.stack.start([leader])
    return round(min(binds.seen[pod] for pod in pods) - killed, 2)


async def _until_quiet(session: KubeSession) -> None:
    """Wait until hardly a request is sent any more: kube-controller-manager has finished with new nodes, and Muster has
    written the reasons of all gangs that wait.
    """
    before = await _requests(session)
    while True:
        await asyncio.sleep(_QUIET_SECONDS)
        now = await _requests(session)
        if now - before <= _QUIET_REQUESTS:
            return
        before = now


async def _add_bound_pods(cluster: BenchCluster, count: int) -> None:
    """Create running gangs of 8, each on a node of its own in turn."""
    nodes = cluster.options.nodes
    say(f"creating {count} bound pods")
    namespace = await load.add_namespace(cluster.session)
    gangs = [
        gang(f"running-{number:05}")
        .of(8)
        .asking(cpu=1, memory="1Gi")
        .in_namespace(namespace)
        .with_spec(nodeName=f"bench-{number % nodes:04}")
        for number in range(count // 8)
    ]
    for start in range(0, len(gangs), _GANGS_AT_ONCE):
        await load.create(cluster.session, *gangs[start : start + _GANGS_AT_ONCE])


async def _requests(session: KubeSession) -> int:
    """Requests that change objects, and reads of single ones: without watches and lists."""
    counted = await requests(session)
    return sum(number for name, number in counted.items() if name.partition(" ")[0] in _SINGLE)
