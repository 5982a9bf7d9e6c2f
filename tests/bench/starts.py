"""Expected starts at scale: how many are found in a time, and how long the event loop is held meanwhile.

    python tests/bench/starts.py --nodes 5000 --pods 40000 --gangs 500 --limit 30

Nodes in racks run gangs of eight pods that declare how long they run; gangs of 8 to 64 members wait. Prints the starts
that were found, of how many, with their ranges, and the holds of the event loop (I12: at most 0.1 s).
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from muster.forecast.cluster_stream import ClusterStream
from muster.forecast.placement_process import own_placement
from muster.forecast.replay import EPOCH, uniform_nodes
from muster.forecast.run_lengths import RunLengths
from muster.forecast.snapshot import Snapshot
from muster.forecast.start_errors import LEAST_SAMPLES, StartErrors
from muster.forecast.starts import StartForecaster
from muster.forecast.submissions import parse_requests
from muster.forecast.virtual_cluster import VirtualCluster
from muster.gangs.facts import PODS, Batch, GangFacts, PodClass, PodFacts, PodPhase
from muster.kube.pod_class import identified
from muster.rpc.process import run_async

RUNNING_MEMBERS = 8
SHAPE = parse_requests("cpu=12,memory=96Gi,nvidia.com/gpu=1")
NODE = parse_requests("cpu=96,memory=1Ti,nvidia.com/gpu=8")
TICK_SECONDS = 0.005


def cluster(nodes: int, pods: int, gangs: int, seed: int) -> Snapshot:
    """Full nodes, and gangs that wait for ends."""
    random = Random(seed)
    start = uniform_nodes(nodes, tuple(sorted({**dict(NODE), PODS: 110}.items())), 16)
    pod_class = identified(PodClass("", tuple(sorted({**dict(SHAPE), PODS: 1}.items()))))
    facts: list[GangFacts] = []
    members: list[PodFacts] = []
    names = [node.name for node in start.batch.nodes]

    def add(name: str, size: int, *, on: list[str], seconds: float, created: int) -> None:
        id_ = f"bench/team-{len(facts) % 20}/{name}"
        namespace = id_.split("/")[1]
        facts.append(
            GangFacts(id_, "bench", namespace, name, incarnation=id_, minimum=size, priority=0, created_seconds=created)
        )
        members.extend(
            PodFacts(
                f"{id_}-{at}",
                namespace,
                f"{name}-{at}",
                pod_class.id,
                gang=id_,
                node=on[at] if on else "",
                phase=PodPhase.RUNNING if on else PodPhase.PENDING,
                created_seconds=created,
                started_seconds=created if on else 0,
                expected_seconds=seconds,
            )
            for at in range(size)
        )

    for number in range(pods // RUNNING_MEMBERS):
        seats = [names[(number * RUNNING_MEMBERS + at) // 8 % len(names)] for at in range(RUNNING_MEMBERS)]
        add(f"run-{number}", RUNNING_MEMBERS, on=seats, seconds=random.uniform(1800, 40_000), created=EPOCH - 900)
    for number in range(gangs):
        size = random.choice((8, 16, 32, 64))
        add(f"wait-{number}", size, on=[], seconds=random.uniform(1800, 20_000), created=EPOCH - gangs + number)
    whole = VirtualCluster()
    whole.apply(start.batch)
    whole.apply(Batch(pod_classes=(pod_class,), gangs=tuple(facts), pods=tuple(members)))
    return Snapshot(float(EPOCH), {}, (), whole.whole())


def known_errors() -> StartErrors:
    """As many as are needed for ranges, so that the cluster is played once."""
    errors = StartErrors()
    for number in range(LEAST_SAMPLES):
        errors.expect([(f"earlier-{number}", EPOCH + 1000.0)], float(EPOCH))
        errors.started(f"earlier-{number}", EPOCH + 500.0 + 50 * number)
    return errors


async def watch_loop(holds: list[tuple[float, float]]) -> None:
    """Note by how much each short sleep was late, and the processor time of the loop's thread meanwhile: on a busy
    machine only the latter is the program's own.
    """
    while True:
        began, cpu = time.monotonic(), time.thread_time()
        await asyncio.sleep(TICK_SECONDS)
        holds.append((time.monotonic() - began - TICK_SECONDS, time.thread_time() - cpu))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of one call."""
    present = cluster(options.nodes, options.pods, options.gangs, options.seed)
    stream, holds = ClusterStream(VirtualCluster()), list[tuple[float, float]]()
    async with own_placement(stream) as solver:
        watching = asyncio.create_task(watch_loop(holds))
        began, cpu = time.monotonic(), time.process_time()
        found = await StartForecaster(stream, solver).starts(
            present,
            RunLengths(),
            known_errors() if options.ranges_known else None,
            horizon_seconds=7 * 86_400.0,
            limit_seconds=options.limit,
        )
        seconds, cpu = time.monotonic() - began, time.process_time() - cpu
        watching.cancel()
    return {
        "gangs": len(found.gangs),
        "with_a_start": sum(each.expected is not None for each in found.gangs),
        "with_a_range": sum(each.earliest is not None and each.latest is not None for each in found.gangs),
        "partial": found.partial,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "longest_hold_seconds": round(max(late for late, _ in holds), 3),
        "longest_hold_cpu_seconds": round(max(cpu for _, cpu in holds), 3),
        "cpu_holds_above_0.1_s": sum(cpu > 0.1 for _, cpu in holds),
    }


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=40_000, help="pods that run")
    parser.add_argument("--gangs", type=int, default=500, help="gangs that wait")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds for the answer")
    parser.add_argument("--ranges-known", action="store_true", help="as after some hours, when errors were compared")
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(run_async(measure(parser.parse_args())), indent=2))


if __name__ == "__main__":
    main()
