"""Measures the effect of outages on scheduling, with a gang of two pods created every 0.1 s.

python tests/chaos/outages.py [CASE ...] [--rounds 3] [--output table|json]

Two of every service and three members of etcd (with fsync), all on this machine. For each case, over the rounds:

longest_gap      the longest time without a permit, from the fault on (without a fault: about 0.1 s)
after_return     total outages only: time from recovery to the next permit; "-" where a replica took over
slowest_gang     longest time from creation to the last bind of a gang created from one second before the fault on
"""

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import structlog
import uvloop

from builders.e2e.cluster import Cluster, running_cluster
from builders.e2e.world import World
from chaos import bad_days
from chaos.chaos_run import REPLICAS
from chaos.faults import coordinator_leader, etcd_leader, paused, stopped
from chaos.probe_gangs import ProbeGangs

_STEADY_SECONDS = 3.0
_NODES, _PODS = 8, 10_000
Outage = Callable[[Cluster, int], AbstractAsyncContextManager[Any]]
"""Keeps up a fault in the block; the number of the round selects a replica."""


@dataclass(frozen=True)
class Case:
    """A fault and its duration."""

    outage: Outage
    seconds: float
    total: bool = False
    """No replica takes over: the time from recovery to the next permit is measured."""


def _one_of(service: str, cluster: Cluster, number: int, *, graceful: bool = False) -> Any:
    replicas = cluster.stack.replicas_of(service)
    return stopped(cluster, replicas[number % len(replicas)], graceful=graceful)


def _all_of(service: str, cluster: Cluster, _number: int) -> Any:
    return stopped(cluster, *cluster.stack.replicas_of(service))


@asynccontextmanager
async def _stopped_leader(cluster: Cluster, _number: int, *, graceful: bool = False) -> Any:
    async with stopped(cluster, await coordinator_leader(cluster.stack), graceful=graceful):
        yield


@asynccontextmanager
async def _frozen_leader(cluster: Cluster, _number: int) -> Any:
    async with paused(cluster, [await coordinator_leader(cluster.stack)]):
        yield


@asynccontextmanager
async def _stopped_etcd_leader(cluster: Cluster, _number: int) -> Any:
    async with stopped(cluster, await etcd_leader(cluster)):
        yield


def _etcd(members: slice, cluster: Cluster, _number: int) -> Any:
    return stopped(cluster, *list(cluster.stack.etcd_addresses)[members])


def _stopped_api_server(cluster: Cluster, _number: int) -> Any:
    return cluster.faults.away()


@asynccontextmanager
async def _broken_watches(cluster: Cluster, _number: int) -> Any:
    cluster.faults.break_watches()
    yield


CASES = {
    "nothing": Case(lambda _cluster, _number: stopped(_cluster), 3.0),
    "coordinator-killed": Case(_stopped_leader, 3.0),
    "coordinator-stopped": Case(partial(_stopped_leader, graceful=True), 3.0),
    "coordinator-paused": Case(_frozen_leader, 6.0),
    "placement-killed": Case(partial(_one_of, "placement"), 3.0),
    "placement-stopped": Case(partial(_one_of, "placement", graceful=True), 3.0),
    "binding-killed": Case(partial(_one_of, "binding"), 3.0),
    "binding-stopped": Case(partial(_one_of, "binding", graceful=True), 3.0),
    "cluster-state-killed": Case(partial(_one_of, "cluster-state"), 3.0),
    "cluster-state-stopped": Case(partial(_one_of, "cluster-state", graceful=True), 3.0),
    "all-placement-killed": Case(partial(_all_of, "placement"), 3.0, total=True),
    "all-binding-killed": Case(partial(_all_of, "binding"), 3.0, total=True),
    "all-cluster-state-killed": Case(partial(_all_of, "cluster-state"), 3.0, total=True),
    "all-coordinators-killed": Case(partial(_all_of, "coordinator"), 3.0, total=True),
    "etcd-leader-killed": Case(_stopped_etcd_leader, 5.0),
    "etcd-member-killed": Case(partial(_etcd, slice(2, 3)), 3.0),
    "etcd-without-quorum": Case(partial(_etcd, slice(1, 3)), 5.0, total=True),
    "etcd-restarted": Case(partial(_etcd, slice(0, 3)), 0.0, total=True),
    "api-server-restarted": Case(_stopped_api_server, 1.0, total=True),
    "api-server-down-30-s": Case(_stopped_api_server, 30.0, total=True),
    "api-server-429": Case(bad_days.throttled, 10.0, total=True),
    "watches-cut": Case(_broken_watches, 1.0),
    "api-server-429-2-min": Case(bad_days.throttled, 120.0, total=True),
    "api-server-slow": Case(bad_days.slow, 30.0),
    "nodes-flap": Case(bad_days.flapping_nodes, 30.0),
    "crowd-deleted": Case(bad_days.deleted_crowd, 3.0),
    "watches-lag": Case(bad_days.lagging_watches, 30.0),
}
CLOCK_CASES = ("clock-ahead", "clock-behind")
DISK_CASES = ("etcd-disks-full",)
SPECIAL_CASES = (*CLOCK_CASES, *DISK_CASES)
"""Cases that need libfaketime, or root, and run only if they are named."""


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"default: all of {', '.join(CASES)}; also {', '.join(SPECIAL_CASES)}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--directory", type=Path, help="where logs and etcd's files are kept; default: nowhere")
    options = parser.parse_args()
    if unknown := [case for case in options.cases if case not in (*CASES, *SPECIAL_CASES)]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join((*CASES, *SPECIAL_CASES))}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # kubelets run here
    with tempfile.TemporaryDirectory(prefix="muster-outages-") as files:
        directory = options.directory or Path(files)
        try:
            figures = uvloop.run(measure(directory, options.cases or list(CASES), options.rounds))
        except bad_days.Impossible as error:
            parser.error(str(error))
    print(json.dumps(figures, indent=2) if options.output == "json" else _table(figures))


async def measure(directory: Path, cases: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """Measures the cases one after the other on one cluster."""
    clock = bad_days.Clock(directory / "clock")
    disks = bad_days.Disks(directory, ["etcd", "etcd-2", "etcd-3"] if set(cases) & set(DISK_CASES) else [])
    special = {
        "clock-ahead": Case(partial(clock.jumps, 1), 20.0),
        "clock-behind": Case(partial(clock.jumps, -1), 20.0),
        "etcd-disks-full": Case(disks.full, 30.0, total=True),
    }
    environment = clock.environment if set(cases) & set(CLOCK_CASES) else {}
    try:
        await disks.mount()
        return await _measure(directory, {name: {**CASES, **special}[name] for name in cases}, rounds, environment)
    finally:
        await disks.unmount()


async def _measure(
    directory: Path, cases: dict[str, Case], rounds: int, environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    options: dict[str, Any] = {"replicas": REPLICAS, "etcd_members": 3, "durable": True}
    async with running_cluster(directory, service_environment=environment, **options) as cluster:
        world = World(cluster)
        await world.nodes(*[64] * _NODES, pods=_PODS)
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.name}})
        probes = ProbeGangs(cluster, world.name, world.here)
        load = asyncio.create_task(probes.load())
        try:
            await probes.bound_since(time.monotonic())
            for name, case in cases.items():
                found[name] = _summary([await _round(cluster, probes, case, number) for number in range(rounds)])
                print(name, found[name], file=sys.stderr, flush=True)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
    return found


async def _round(cluster: Cluster, probes: ProbeGangs, case: Case, number: int) -> dict[str, float]:
    await cluster.stack.ready()
    await probes.bound_since(time.monotonic())
    await asyncio.sleep(_STEADY_SECONDS)
    injected = time.monotonic()
    async with case.outage(cluster, number):
        await asyncio.sleep(case.seconds)
        restored = time.monotonic()
    await probes.bound_since(injected)
    until = time.monotonic()
    starts = [moment for moment in probes.starts(injected - 1.0) if moment <= until]
    gaps = [later - earlier for earlier, later in pairwise(starts) if later > injected]
    figures = {"longest_gap": max(gaps), "slowest_gang": max(probes.waited(injected - 1.0, until))}
    if case.total:
        figures["after_return"] = next(moment for moment in starts if moment > restored) - restored
    return figures


def _summary(rounds: list[dict[str, float]]) -> dict[str, Any]:
    return {
        name: {
            "median": round(statistics.median(each[name] for each in rounds), 2),
            "longest": round(max(each[name] for each in rounds), 2),
        }
        for name in rounds[0]
    }


def _table(figures: dict[str, dict[str, Any]]) -> str:
    def cell(figure: dict[str, float] | None) -> str:
        return f"{figure['median']:.2f} / {figure['longest']:.2f}" if figure else "-"

    names = ("longest_gap", "after_return", "slowest_gang")
    lines = [f"{'seconds: median / longest':28}" + "".join(f"{name:>18}" for name in names)]
    lines += [
        f"{case:28}" + "".join(f"{cell(found.get(name)):>18}" for name in names) for case, found in figures.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
