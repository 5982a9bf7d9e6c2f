"""Throughput, latency and idle cost of the whole path as JSON, on the embedded or a real API server.

python tests/bench/run.py [PART ...] [--kubeconfig FILE] [--nodes 1000] ...

throughput  nodes and pods exist before the services start (--pods, --sizes)
claims      the same, with a device for each pod: as an extended resource, then by a ResourceClaim; --kube-scheduler
            measures it on kube-apiserver, with plain pods of kube-scheduler beside the gangs (--repetitions)
latency     gangs of 8 arrive one by one, each when the one before is bound; from the response to the creation of the
            last pod to the last observed bind (--arrivals)
idle        a full cluster with infeasible gangs (--pending) and no changes (--seconds); then only irrelevant updates of
            other pods. CPU of every process as a share of one core, and the number of solves
flood       a full cluster, and --flood infeasible pods at once, in gangs of 8 and one by one; once a second a node
            becomes free, during the arrivals and after them: from that to the last bind at the head of the queue
freed       a full cluster with infeasible gangs (none, then --pending); capacity for one more gang becomes free by
            deleting a pod and by adding a node (--rounds each); from the server's response to the first and last bind
unschedulable
            gangs that do not fit arrive one by one (--sizes, --rounds): from the response to the creation of the last
            pod to the first and the last one with the reason that autoscalers act on
scale       a large cluster on kube-apiserver with running gangs (--bound): cold start, arrivals, requests to the API
            server, memory, longest holds of event loops, and a change of leaders with 1,000 and 20,000 gangs waiting
diversity   pods of many classes with inter-pod rules are created, bound and deleted, --waves times (--diverse-pods,
            --classes): longest hold of each event loop, memory of each service before the first and after each wave
churn       gangs of 4 to 64 pods come and go on kube-apiserver for a long time (--minutes): memory of each service,
            start latency while capacity is free, utilisation while more is wanted than fits
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's core logs a line for every process that is started
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import uvloop

from bench import arrivals, pending
from bench.bench_cluster import BenchCluster
from bench.beside_kube_scheduler import beside_kube_scheduler
from bench.churn import churn
from bench.device_claims import DEVICES_PER_NODE
from bench.flood import flood
from bench.scale import scale
from bench.turnover import diversity

PARTS = ("throughput", "claims", "latency", "idle", "freed", "flood", "unschedulable", "diversity", "scale", "churn")
BY_DEFAULT = ("throughput", "latency")


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; default: {' '.join(BY_DEFAULT)}")
    parser.add_argument("--kubeconfig", type=Path, help="API server to run on; default: the embedded one")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--sizes", default="8,500", help="sizes of gangs, one throughput run for each")
    parser.add_argument("--arrivals", type=int, default=100, help="gangs of 8 for the latency; 0: none")
    parser.add_argument("--pending", type=int, default=500, help="gangs that cannot fit")
    parser.add_argument("--seconds", type=float, default=60, help="how long idle processes are watched")
    parser.add_argument("--flood", type=int, default=20_000, help="pods that come at once")
    parser.add_argument("--diverse-pods", type=int, default=20_000, help="pods of a wave")
    parser.add_argument("--classes", type=int, default=5_000, help="pod classes of a wave, each with rules of its own")
    parser.add_argument("--bound", type=int, default=60_000, help="pods that run on a large cluster when Muster starts")
    parser.add_argument("--minutes", type=float, default=30, help="how long gangs come and go")
    parser.add_argument("--waves", type=int, default=3, help="how often they come and go")
    parser.add_argument(
        "--metrics", action=argparse.BooleanOptionalAction, default=True, help="whether services expose metrics"
    )
    parser.add_argument("--rounds", type=int, default=100, help="how often capacity becomes free")
    parser.add_argument(
        "--kube-scheduler", action="store_true", help="measure claims beside kube-scheduler: needs make kubernetes"
    )
    parser.add_argument("--device-webhook", action="store_true", help="the device webhook reviews each allocation")
    parser.add_argument(
        "--claim-protection", action="store_true", help="claims have the finalizer by the chart's policy"
    )
    parser.add_argument("--repetitions", type=int, default=1, help="of each measurement beside kube-scheduler")
    parser.add_argument(
        "--watch-pid", action="append", default=[], metavar="NAME=PID", help="a further process to count"
    )
    options = parser.parse_args()
    options.parts = options.parts or list(BY_DEFAULT)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(json.dumps(uvloop.run(bench(options)), indent=2))


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """Run the parts one after the other, each on its own cluster."""
    results: dict[str, Any] = {
        "api_server": "embedded" if options.kubeconfig is None else "real",
        "cores": os.cpu_count(),
        "nodes": options.nodes,
        "pods": options.pods,
    }
    if "throughput" in options.parts:
        results["throughput"] = {}
        for size in map(int, options.sizes.split(",")):
            async with BenchCluster(options) as cluster:
                results["throughput"][f"gangs_of_{size}"] = await arrivals.throughput(cluster, size)
    if "claims" in options.parts and options.kube_scheduler:
        results |= {"api_server": "kube-apiserver", "claims": await beside_kube_scheduler(options)}
    elif "claims" in options.parts:
        results["claims"] = {}
        for size in map(int, options.sizes.split(",")):
            for name, gpus in (("extended_resource", DEVICES_PER_NODE), ("claims", 0)):
                async with BenchCluster(options, gpus=gpus) as cluster:
                    measured = await arrivals.throughput(cluster, size, claims=not gpus)
                results["claims"][f"gangs_of_{size}_by_{name}"] = measured
    if "latency" in options.parts and options.arrivals:
        async with BenchCluster(options) as cluster:
            results["latency"] = await arrivals.latency(cluster, options.arrivals)
    if "idle" in options.parts:
        async with BenchCluster(options) as cluster:
            results["idle"] = await pending.idle(cluster)
    if "flood" in options.parts:
        results["flood"] = {}
        for size in (8, 1):
            async with BenchCluster(options) as cluster:
                results["flood"][f"gangs_of_{size}"] = await flood(cluster, size)
    if "unschedulable" in options.parts:
        results["unschedulable"] = {}
        for size in map(int, options.sizes.split(",")):
            async with BenchCluster(options) as cluster:
                results["unschedulable"][f"gangs_of_{size}"] = await arrivals.unschedulable(cluster, size)
    if "diversity" in options.parts:
        async with BenchCluster(options) as cluster:
            results["diversity"] = await diversity(cluster)
    if "scale" in options.parts:
        results |= {"api_server": "kube-apiserver", "scale": await scale(options)}
    if "churn" in options.parts:
        results |= {"api_server": "kube-apiserver", "churn": await churn(options)}
    if "freed" in options.parts:
        results["freed"] = []
        for others in sorted({0, options.pending}):
            async with BenchCluster(options) as cluster:
                results["freed"].append(await pending.freed(cluster, others))
    return results


if __name__ == "__main__":
    main()
