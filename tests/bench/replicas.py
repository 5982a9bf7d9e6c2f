"""Time to start many gangs with one and with several placement replicas, as JSON; all on this machine.

python tests/bench/replicas.py [--nodes 5000] [--gangs 400] [--replicas 1,2] [--rounds 3] [--elsewhere 0]

apart   gangs alternate between two node pools: the solves have disjoint node sets
same    all gangs may use all nodes: concurrent solves conflict

With --elsewhere every solve takes this many seconds longer without work on this machine, as if the replicas had their
own machines. There is no API server and no etcd: decisions take effect at once. A gang has 8 members of two sizes, with
a soft constraint to one rack.
"""

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import structlog

from builders.core.replicas import Coordination, placements
from muster.coordinator.core.effects import RejectionReason
from muster.gangs.facts import PODS, Batch, GangFacts, NodeFacts, PodClass, PodFacts, TopologyTree, TreeLevel
from muster.topology.constraints import parse_constraints

POOLS = ("one", "two")
SIZES = ((4, 2000), (4, 7000))
"""Members and their requests in milli-CPUs."""
TREE = TopologyTree("racks", (TreeLevel("rack", "rack"), TreeLevel("node")), default=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=400)
    parser.add_argument("--replicas", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elsewhere", type=float, default=0.0, metavar="SECONDS")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(json.dumps(asyncio.run(bench(options)), indent=2))


async def bench(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both cases with each number of replicas."""
    found: dict[str, Any] = {"cores": os.cpu_count(), "nodes": options.nodes, "gangs": options.gangs}
    for case in ("apart", "same"):
        batch = waiting(options.nodes, options.gangs, apart=case == "apart")
        found[case] = {}
        for replicas in map(int, options.replicas.split(",")):
            with tempfile.TemporaryDirectory(prefix="muster-bench-") as files:
                async with placements(batch, replicas, Path(files)) as addresses:
                    rounds = [await started(batch, addresses, options.elsewhere) for _ in range(options.rounds)]
            found[case][f"{replicas}_replicas"] = reported(rounds)
    return found


async def started(batch: Batch, addresses: list[str], elsewhere_seconds: float) -> Coordination:
    """One round."""
    coordination = Coordination(batch, addresses, slower_by_seconds=elsewhere_seconds)
    await coordination.run()
    return coordination


def reported(rounds: Sequence[Coordination]) -> dict[str, Any]:
    """Summarise the rounds."""
    last = rounds[-1]
    return {
        "seconds": round(min(each.seconds for each in rounds), 3),  # lets the other process use the machine
        "solves": sum(last.calls.values()),
        "solves_at_once": last.most_at_once,
        "rejected_by_conflict": last.machine.rejections.counts[RejectionReason.CONFLICT],
    }


def waiting(nodes: int, gangs: int, *, apart: bool) -> Batch:
    """A cluster of two node pools, and pending gangs; `apart`: they alternate between the pools."""
    classes = {
        (pool, cpu): PodClass(
            f"{pool}-{cpu}", (("cpu", cpu), (PODS, 1)), node_selector=(("pool", pool),) if apart else ()
        )
        for pool in POOLS
        for _, cpu in SIZES
    }
    gang_facts, pods = [], []
    for number in range(gangs):
        name = f"gang-{number:05}"
        gang_facts.append(
            GangFacts(
                id=f"test/bench/{name}",
                dialect="test",
                namespace="bench",
                name=name,
                incarnation="1",
                minimum=8,
                total=8,
                created_seconds=number,
                constraints=parse_constraints("rack: pack"),
            )
        )
        for count, cpu in SIZES:
            pod_class = classes[POOLS[number % len(POOLS)] if apart else POOLS[0], cpu]
            for member in range(count):
                uid = f"{name}-{cpu}-{member}"
                pods.append(PodFacts(uid, "bench", uid, pod_class.id, gang=f"test/bench/{name}"))
    return Batch(
        pod_classes=tuple(classes.values()),
        nodes=tuple(map(_node, range(nodes))),
        pods=tuple(pods),
        gangs=tuple(gang_facts),
        trees=(TREE,),
    )


def _node(number: int) -> NodeFacts:
    labels = {"pool": POOLS[number // 32 % len(POOLS)], "rack": f"rack-{number // 32}"}
    offers = (("cpu", 8000 + 8000 * (number % 4)), (PODS, 110))
    return NodeFacts(f"node-{number:06}", allocatable=offers, labels=labels)


if __name__ == "__main__":
    main()
