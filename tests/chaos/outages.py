"""How long an outage is felt: what fails is struck while a gang of two comes every 0.1 s, and the gaps are measured.

python tests/chaos/outages.py [CASE ...] [--rounds 3] [--output table|json]

Two of every service and three members of etcd (with fsync), all on this machine. For each case, over the rounds:

longest_gap      the longest time in which no gang was permitted, from the blow on (without a blow: about 0.1 s)
after_return     of what was away altogether: from its return to the next permit; "-" where others stood in
slowest_gang     from the creation of a gang to its last bind, of those that came from one second before the blow on
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
from builders.e2e.faults import EVERYTHING
from builders.e2e.world import Scene
from chaos.blows import dead, frozen, leader_of_coordinators, leader_of_etcd
from chaos.play import REPLICAS
from chaos.probes import Probes

_STEADY_SECONDS = 3.0
_NODES, _PODS = 8, 10_000
Away = Callable[[Cluster, int], AbstractAsyncContextManager[Any]]
"""In the block something is away; the number of the round chooses among replicas."""


@dataclass(frozen=True)
class Case:
    """What is struck, and for how long."""

    away: Away
    seconds: float
    altogether: bool = False
    """Nobody stands in: what counts is the time from its return on."""


def _one_of(service: str, cluster: Cluster, number: int, *, in_order: bool = False) -> Any:
    replicas = cluster.stack.replicas_of(service)
    return dead(cluster, replicas[number % len(replicas)], in_order=in_order)


def _all_of(service: str, cluster: Cluster, _number: int) -> Any:
    return dead(cluster, *cluster.stack.replicas_of(service))


@asynccontextmanager
async def _leader(cluster: Cluster, _number: int, *, in_order: bool = False) -> Any:
    async with dead(cluster, await leader_of_coordinators(cluster), in_order=in_order):
        yield


@asynccontextmanager
async def _frozen_leader(cluster: Cluster, _number: int) -> Any:
    async with frozen(cluster, [await leader_of_coordinators(cluster)]):
        yield


@asynccontextmanager
async def _etcd_leader(cluster: Cluster, _number: int) -> Any:
    async with dead(cluster, await leader_of_etcd(cluster)):
        yield


def _etcd(members: slice, cluster: Cluster, _number: int) -> Any:
    return dead(cluster, *list(cluster.stack.etcd_addresses)[members])


def _api_server(cluster: Cluster, _number: int) -> Any:
    return cluster.faults.away()


@asynccontextmanager
async def _storm(cluster: Cluster, _number: int) -> Any:
    with cluster.faults.refuse(EVERYTHING, 429, headers={"Retry-After": "1"}):
        yield


@asynccontextmanager
async def _cut_watches(cluster: Cluster, _number: int) -> Any:
    cluster.faults.break_watches()
    yield


CASES = {
    "nothing": Case(lambda _cluster, _number: dead(_cluster), 3.0),
    "coordinator-killed": Case(_leader, 3.0),
    "coordinator-stopped": Case(partial(_leader, in_order=True), 3.0),
    "coordinator-frozen": Case(_frozen_leader, 6.0),
    "placement-killed": Case(partial(_one_of, "placement"), 3.0),
    "placement-stopped": Case(partial(_one_of, "placement", in_order=True), 3.0),
    "binding-killed": Case(partial(_one_of, "binding"), 3.0),
    "binding-stopped": Case(partial(_one_of, "binding", in_order=True), 3.0),
    "cluster-state-killed": Case(partial(_one_of, "cluster-state"), 3.0),
    "cluster-state-stopped": Case(partial(_one_of, "cluster-state", in_order=True), 3.0),
    "all-placement-killed": Case(partial(_all_of, "placement"), 3.0, altogether=True),
    "all-binding-killed": Case(partial(_all_of, "binding"), 3.0, altogether=True),
    "all-cluster-state-killed": Case(partial(_all_of, "cluster-state"), 3.0, altogether=True),
    "all-coordinators-killed": Case(partial(_all_of, "coordinator"), 3.0, altogether=True),
    "etcd-leader-killed": Case(_etcd_leader, 5.0),
    "etcd-member-killed": Case(partial(_etcd, slice(2, 3)), 3.0),
    "etcd-without-quorum": Case(partial(_etcd, slice(1, 3)), 5.0, altogether=True),
    "etcd-restarted": Case(partial(_etcd, slice(0, 3)), 0.0, altogether=True),
    "api-server-restarted": Case(_api_server, 1.0, altogether=True),
    "api-server-away-30-s": Case(_api_server, 30.0, altogether=True),
    "api-server-429": Case(_storm, 10.0, altogether=True),
    "watches-cut": Case(_cut_watches, 1.0),
}


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"default: all; {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--directory", type=Path, help="where logs and etcd's files are kept; default: nowhere")
    options = parser.parse_args()
    if unknown := [case for case in options.cases if case not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are {', '.join(CASES)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # kubelets run here
    with tempfile.TemporaryDirectory(prefix="muster-outages-") as files:
        directory = options.directory or Path(files)
        figures = uvloop.run(measure(directory, options.cases or list(CASES), options.rounds))
    print(json.dumps(figures, indent=2) if options.output == "json" else _table(figures))


async def measure(directory: Path, cases: list[str], rounds: int) -> dict[str, dict[str, Any]]:
    """The cases one after the other on one cluster."""
    found: dict[str, dict[str, Any]] = {}
    async with running_cluster(directory, replicas=REPLICAS, etcd_members=3, durable=True) as cluster:
        scene = Scene(cluster)
        await scene.nodes(*[64] * _NODES, pods=_PODS)
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scene.name}})
        probes = Probes(cluster, scene.name, scene.here)
        flow = asyncio.create_task(probes.flow())
        try:
            await probes.bound_since(time.monotonic())
            for name in cases:
                found[name] = _over([await _round(cluster, probes, CASES[name], number) for number in range(rounds)])
                print(name, found[name], file=sys.stderr, flush=True)
        finally:
            flow.cancel()
            await asyncio.gather(flow, return_exceptions=True)
    return found


async def _round(cluster: Cluster, probes: Probes, case: Case, number: int) -> dict[str, float]:
    await cluster.stack.ready()
    await probes.bound_since(time.monotonic())
    await asyncio.sleep(_STEADY_SECONDS)
    blow = time.monotonic()
    async with case.away(cluster, number):
        await asyncio.sleep(case.seconds)
        back = time.monotonic()
    await probes.bound_since(blow)
    until = time.monotonic()
    starts = [moment for moment in probes.starts(blow - 1.0) if moment <= until]
    gaps = [later - earlier for earlier, later in pairwise(starts) if later > blow]
    figures = {"longest_gap": max(gaps), "slowest_gang": max(probes.waited(blow - 1.0, until))}
    if case.altogether:
        figures["after_return"] = next(moment for moment in starts if moment > back) - back
    return figures


def _over(rounds: list[dict[str, float]]) -> dict[str, Any]:
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
