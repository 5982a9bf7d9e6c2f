"""Throughput and latency of the whole path as one JSON object, on the embedded or a real API server.

python tests/bench/run.py [--kubeconfig FILE] [--nodes 1000] [--pods 2000] [--sizes 8,500] [--arrivals 100]

Throughput: nodes and pods are there first, then the four services are started. Latency: gangs of 8 arrive one by one,
each when the one before is bound; counted from the answer to the creation of the last pod to the last bind seen.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import uvloop

from bench import load
from bench.binds import BindTimes
from bench.costs import costs, spent
from muster.config.settings import KubeSettings
from muster.kube.session import KubeSession
from muster.localcluster.stack import API_SERVER, ETCD, SERVICES, Stack, StackOptions

_BOUND_SECONDS = 300.0
_WARM_UP = 5  # gangs that arrive before the latency counts


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, help="API server to run on; default: the embedded one")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--sizes", default="8,500", help="sizes of gangs, one throughput run for each")
    parser.add_argument("--arrivals", type=int, default=100, help="gangs of 8 for the latency; 0: none")
    parser.add_argument(
        "--watch-pid", action="append", default=[], metavar="NAME=PID", help="a further process to count"
    )
    options = parser.parse_args()
    print(json.dumps(uvloop.run(bench(options)), indent=2))


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """All runs, one after the other."""
    external = {name: int(pid) for name, _, pid in (item.partition("=") for item in options.watch_pid)}
    results: dict[str, Any] = {
        "api_server": "embedded" if options.kubeconfig is None else "real",
        "cores": os.cpu_count(),
        "nodes": options.nodes,
        "pods": options.pods,
        "throughput": {},
    }
    for size in map(int, options.sizes.split(",")):
        async with Ground(options, external) as ground:
            results["throughput"][f"gangs_of_{size}"] = await ground.throughput(size)
    if options.arrivals:
        async with Ground(options, external) as ground:
            results["latency"] = await ground.latency(options.arrivals)
    return results


class Ground:
    """A cluster with nodes and without pods."""

    def __init__(self, options: argparse.Namespace, external: dict[str, int]) -> None:
        self._options, self._external = options, external
        self._files = tempfile.TemporaryDirectory(prefix="muster-bench-")
        self._stack = Stack(
            StackOptions(
                directory=Path(self._files.name), kubeconfig=options.kubeconfig, kubelets=False, log_level="warning"
            )
        )

    async def __aenter__(self) -> "Ground":
        await self._stack.start([name for name in (ETCD, API_SERVER) if name in self._stack.children])
        self._session = await KubeSession.connect(KubeSettings(kubeconfig=self._stack.kubeconfig))
        _say(f"creating {self._options.nodes} nodes")
        await load.add_nodes(self._session, self._options.nodes)
        self._namespace = await load.add_namespace(self._session)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in SERVICES[::-1]:
            await self._stack.stop_one(name)
        if self._options.kubeconfig is not None:
            await load.clear(self._session, self._namespace)
        await self._session.close()
        await self._stack.stop()
        self._files.cleanup()

    async def throughput(self, size: int) -> dict[str, Any]:
        """Pods first, then the scheduler starts."""
        gangs = load.gangs_of(size, self._options.pods, self._namespace)
        _say(f"creating {len(gangs)} gangs of {size}")
        await load.create(self._session, *gangs)
        binds = BindTimes(self._session, self._namespace)
        await binds.start()
        before = costs(self._stack, self._external)
        began = time.monotonic()
        await self._stack.start(SERVICES)
        ready = time.monotonic()
        pods = load.pod_names(gangs)
        await binds.all_of(pods, timeout_seconds=_BOUND_SECONDS)
        first, last = min(binds.seen.values()), max(binds.seen.values())
        await binds.stop()
        result = {
            "pods_per_second": round(len(pods) / (last - first), 1),
            "pods_per_second_from_ready": round(len(pods) / (last - min(first, ready)), 1),
            "ready_seconds": round(ready - began, 3),
            "first_bind_seconds": round(first - began, 3),
            "last_bind_seconds": round(last - began, 3),
            "processes": spent(before, costs(self._stack, self._external)),
        }
        _say(f"gangs of {size}: {result['pods_per_second']} pods/s")
        return result

    async def latency(self, arrivals: int) -> dict[str, Any]:
        """Gangs of 8 arrive one by one."""
        binds = BindTimes(self._session, self._namespace)
        await binds.start()
        await self._stack.start(SERVICES)
        before = costs(self._stack, self._external)
        _say(f"{arrivals} gangs of 8 arrive one by one")
        seconds: list[float] = []
        for gang in load.gangs_of(8, 8 * (arrivals + _WARM_UP), self._namespace):
            await load.create(self._session, gang)
            created = time.monotonic()
            await binds.all_of(load.pod_names([gang]), timeout_seconds=_BOUND_SECONDS)
            seconds.append(max(binds.seen[pod] for pod in load.pod_names([gang])) - created)
        await binds.stop()
        return {**_quantiles(seconds[_WARM_UP:]), "processes": spent(before, costs(self._stack, self._external))}


def _quantiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {
        "p50_ms": round(cuts[49] * 1000, 2),
        "p99_ms": round(cuts[98] * 1000, 2),
        "worst_ms": round(max(seconds) * 1000, 2),
        "gangs": len(seconds),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
