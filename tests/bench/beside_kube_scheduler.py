"""Devices on kube-apiserver: gangs by Muster, and plain pods by kube-scheduler, one after the other in the same run.

Each measurement has a control plane of its own (etcd with fsync, kube-apiserver, kube-controller-manager). All pods,
claims and ResourceSlices exist before the scheduler starts. kube-scheduler has its default plugins, and no limit of
requests that it would reach.
"""

import argparse
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import arrivals, device_claims, load
from bench.bench_cluster import BenchCluster, say
from bench.device_claims import DEVICES_PER_NODE
from bench.exposed_metrics import metrics
from interop.control_plane import running_control_plane
from interop.kube_scheduler import SCHEDULER_NAME, KubeScheduler

_CONTROLLERS: Final = "*,-node-lifecycle-controller"
"""The bench's nodes have no kubelets, so that they would be marked as not ready."""
_REQUESTS_PER_SECOND: Final = 5000


@dataclass(frozen=True)
class _Measurement:
    """`size`: of Muster's gangs; None: plain pods of kube-scheduler."""

    size: int | None
    claims: bool

    @property
    def name(self) -> str:
        pods = "kube_scheduler" if self.size is None else f"gangs_of_{self.size}"
        return f"{pods}_by_{'claims' if self.claims else 'extended_resource'}"


async def beside_kube_scheduler(options: argparse.Namespace) -> dict[str, Any]:
    """All measurements, `repetitions` times in turn. Raises NotBuilt."""
    sizes = [*map(int, options.sizes.split(",")), None]
    measurements = [_Measurement(size, claims) for size in sizes for claims in (False, True)]
    runs: dict[str, list[dict[str, Any]]] = {each.name: [] for each in measurements}
    for _ in range(options.repetitions):
        for each in measurements:
            runs[each.name].append(await _measure(options, each))
    return {name: {"median": _medians(found), "runs": found} for name, found in runs.items()}


def _medians(runs: list[dict[str, Any]]) -> dict[str, float]:
    names = [name for name, value in runs[0].items() if isinstance(value, float)]
    return {name: round(statistics.median(run[name] for run in runs), 3) for name in names}


async def _measure(options: argparse.Namespace, measurement: _Measurement) -> dict[str, Any]:
    say(f"{measurement.name}: starting a control plane")
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        directory = Path(name)
        plane_directory = directory / "control-plane"
        async with running_control_plane(plane_directory, durable=True, controllers=_CONTROLLERS) as plane:
            pids = [*options.watch_pid, f"kube-apiserver={plane.api_server.pid}"]
            here = argparse.Namespace(**{**vars(options), "kubeconfig": plane.kubeconfig, "watch_pid": pids})
            gpus = 0 if measurement.claims else DEVICES_PER_NODE
            async with BenchCluster(here, gpus=gpus, clear=False) as cluster:
                if options.claim_protection:
                    await device_claims.protect(cluster.session)
                if measurement.size is not None:
                    return await _by_muster(cluster, measurement.size, measurement.claims)
                return await _by_kube_scheduler(cluster, directory, measurement.claims)


async def _by_muster(cluster: BenchCluster, size: int, claims: bool) -> dict[str, Any]:
    result = await arrivals.throughput(cluster, size, claims)
    exposed = await metrics(cluster.stack.metrics_addresses["placement"])
    seconds, count = (exposed[f"muster_solve_duration_seconds_{part}"] for part in ("sum", "count"))
    return {**result, "solve_seconds": round(seconds, 3), "solves": int(count)}


async def _by_kube_scheduler(cluster: BenchCluster, directory: Path, claims: bool) -> dict[str, Any]:
    scheduler = KubeScheduler(directory, cluster.stack.kubeconfig, requests_per_second=_REQUESTS_PER_SECOND)
    pods = load.plain_pods(cluster.options.pods, cluster.namespace, SCHEDULER_NAME, gpus=int(not claims))

    async def start() -> None:
        await scheduler.start()
        cluster.count("kube-scheduler", scheduler.child.pid)

    try:
        result = await arrivals.observed(cluster, pods, claims, start)
        exposed = await scheduler.metrics()
    finally:
        await scheduler.stop()
    seconds, count = (exposed[f"scheduler_scheduling_algorithm_duration_seconds_{part}"] for part in ("sum", "count"))
    return {**result, "solve_seconds": round(seconds, 3), "solves": int(count)}
