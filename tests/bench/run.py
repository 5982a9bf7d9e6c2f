"""Throughput, latency and idle cost of the whole path as one JSON object, on the embedded or a real API server.

python tests/bench/run.py [PART ...] [--kubeconfig FILE] [--nodes 1000] ...

throughput  nodes and pods are there first, then the four services are started (--pods, --sizes)
latency     gangs of 8 arrive one by one, each when the one before is bound; from the answer to the creation of the
            last pod to the last bind seen (--arrivals)
idle        a full cluster, gangs that cannot fit (--pending), and nothing happens (--seconds); then only updates of
            other pods. CPU of every process as a share of one core, and the number of solves
flood       a full cluster, and --flood pods that do not fit come at once, in gangs of 8 and one by one; once a second
            a node becomes free, during the flood and after it: from that to the last bind of those that stand first
freed       a full cluster, gangs that cannot fit (none, then --pending); room for one more gang comes by the deletion
            of a pod and by a new node (--rounds each); from the answer of the API server to the first and last bind
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's core writes a line whenever a process is started
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import uvloop

from bench import arrivals, pending
from bench.flood import flood
from bench.ground import Ground

PARTS = ("throughput", "latency", "idle", "freed", "flood")
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
    parser.add_argument(
        "--metrics", action=argparse.BooleanOptionalAction, default=True, help="whether services tell metrics"
    )
    parser.add_argument("--rounds", type=int, default=100, help="how often room comes")
    parser.add_argument(
        "--watch-pid", action="append", default=[], metavar="NAME=PID", help="a further process to count"
    )
    options = parser.parse_args()
    options.parts = options.parts or list(BY_DEFAULT)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    print(json.dumps(uvloop.run(bench(options)), indent=2))


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """The parts, one after the other, each on ground of its own."""
    results: dict[str, Any] = {
        "api_server": "embedded" if options.kubeconfig is None else "real",
        "cores": os.cpu_count(),
        "nodes": options.nodes,
        "pods": options.pods,
    }
    if "throughput" in options.parts:
        results["throughput"] = {}
        for size in map(int, options.sizes.split(",")):
            async with Ground(options) as ground:
                results["throughput"][f"gangs_of_{size}"] = await arrivals.throughput(ground, size)
    if "latency" in options.parts and options.arrivals:
        async with Ground(options) as ground:
            results["latency"] = await arrivals.latency(ground, options.arrivals)
    if "idle" in options.parts:
        async with Ground(options) as ground:
            results["idle"] = await pending.idle(ground)
    if "flood" in options.parts:
        results["flood"] = {}
        for size in (8, 1):
            async with Ground(options) as ground:
                results["flood"][f"gangs_of_{size}"] = await flood(ground, size)
    if "freed" in options.parts:
        results["freed"] = []
        for others in sorted({0, options.pending}):
            async with Ground(options) as ground:
                results["freed"].append(await pending.freed(ground, others))
    return results


if __name__ == "__main__":
    main()
