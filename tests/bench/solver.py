"""Time of the solver alone, as JSON: medians in milliseconds for batches on a cluster under random load.

python tests/bench/solver.py [--nodes 1000] [--rounds 15]
"""

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from builders.placement.clusters import GPU, alone
from muster.gangs.facts import PODS, Batch, NodeFacts, PodClass, PodFacts
from muster.gangs.solve import PodsOnNode, PotentialVictim, SolveGroup
from muster.placement.solve.instance import Placed
from muster.placement.solve.solve import solve
from muster.placement.state.capacity import NO_NOMINATIONS
from muster.placement.state.cluster import Cluster

GIB = 2**30
SHAPES = ((1000, 2), (500, 4), (2000, 8), (4000, 16))


def loaded_cluster(nodes: int, seed: int = 7) -> Cluster:
    """Nodes of 64 cpu, 256 GiB, every eighth with 8 GPUs, filled by a random share with pods of four classes."""
    chance = random.Random(seed)
    classes = [
        PodClass(f"class-{i}", (("cpu", cpu), ("memory", gib * GIB), (PODS, 1))) for i, (cpu, gib) in enumerate(SHAPES)
    ]
    classes.append(PodClass("gpu", (("cpu", 4000), ("memory", 16 * GIB), (GPU, 1), (PODS, 1))))
    members, pods = [], []
    for index in range(nodes):
        name = f"node-{index:06}"
        offers = [("cpu", 64_000), ("ephemeral-storage", 500 * GIB), ("memory", 256 * GIB), (PODS, 110)]
        if index % 8 == 0:
            offers.append((GPU, 8))
        members.append(NodeFacts(name, allocatable=tuple(sorted(offers)), labels={"rack": f"rack-{index // 32}"}))
        for number in range(chance.randrange(14)):
            uid = f"pod-{index}-{number}"
            pods.append(PodFacts(uid, "load", uid, f"class-{chance.randrange(4)}", node=name))
    cluster = Cluster()
    cluster.apply(Batch(pod_classes=tuple(classes), nodes=tuple(members), pods=tuple(pods)))
    return cluster


def batches(nodes: int) -> Iterator[tuple[str, list[SolveGroup]]]:
    """Name and groups of each batch."""
    mixed = (("class-3", 1), ("class-1", 7))
    yield "one gang of 8", [alone("g", ("class-1", 8))]
    yield "one gang of 500", [alone("g", ("class-0", 500))]
    yield "one mixed gang of 8", [alone("g", *mixed)]
    yield "one gang that does not fit", [alone("g", ("gpu", 8 * nodes))]
    yield "250 gangs of 8", [alone(f"g{i}", (f"class-{i % 4}", 8)) for i in range(250)]
    yield "250 mixed gangs of 8", [alone(f"g{i}", *mixed) for i in range(250)]
    yield "2000 singles of one class", [alone(f"g{i}", ("class-1", 1)) for i in range(2000)]
    yield "2000 singles of four classes in turn", [alone(f"g{i}", (f"class-{i % 4}", 1)) for i in range(2000)]
    yield "500 gangs that do not fit", [alone(f"g{i}", ("gpu", 8 * nodes)) for i in range(500)]


def full_cluster(nodes: int, levels: int, spare: int, seed: int = 7) -> tuple[Cluster, list[PotentialVictim]]:
    """Nodes of 20 cpu, full of gangs of 8 pods on random nodes, all of them potential victims."""
    chance = random.Random(seed)
    classes = [
        PodClass(f"{cpu} cpu", (("cpu", 1000 * cpu), ("memory", 4 * GIB * cpu), (PODS, 1))) for cpu in (1, 4, 16)
    ]
    offers = (("cpu", 20_000), ("memory", 80 * GIB), (PODS, 110))
    names = [f"node-{index:06}" for index in range(nodes)]
    slots = [name for name in names for _ in range(20)]
    chance.shuffle(slots)
    pods = [PodFacts(f"pod-{i}", "load", f"pod-{i}", "1 cpu", node=name) for i, name in enumerate(slots)]
    gangs = [
        PotentialVictim(
            f"gang-{start // 8}",
            start * levels // len(slots),
            spare,
            tuple(PodsOnNode(name, "1 cpu", 1) for name in slots[start : start + 8]),
        )
        for start in range(0, len(slots), 8)
    ]
    members = tuple(NodeFacts(name, allocatable=offers) for name in names)
    cluster = Cluster()
    cluster.apply(Batch(pod_classes=tuple(classes), nodes=members, pods=tuple(pods)))
    return cluster, gangs


def removals(nodes: int) -> Iterator[tuple[str, Cluster, list[PotentialVictim], SolveGroup]]:
    """Name, cluster, potential victims and the group that needs preemption, for each case."""
    cluster, gangs = full_cluster(120, levels=1, spare=0)
    yield "one of 300 gangs for 8 pods", cluster, gangs, alone("g", ("1 cpu", 8))
    yield "several of 300 gangs for 8 larger pods", cluster, gangs, alone("g", ("4 cpu", 8))
    yield "several of 300 gangs for a mixed gang", cluster, gangs, alone("g", ("16 cpu", 1), ("1 cpu", 7))
    cluster, gangs = full_cluster(120, levels=5, spare=2)
    yield "spare pods of 300 gangs for 64 pods", cluster, gangs, alone("g", ("1 cpu", 64))
    yield "gangs and spare pods of 300 gangs for 400 pods", cluster, gangs, alone("g", ("1 cpu", 400))
    cluster, gangs = full_cluster(nodes, levels=5, spare=0)
    yield "gangs of the whole cluster for 500 pods", cluster, gangs, alone("g", ("1 cpu", 500))
    yield "gangs of the whole cluster for 32 larger pods", cluster, gangs, alone("g", ("4 cpu", 32))
    cluster, gangs = full_cluster(nodes, levels=100, spare=8)
    yield "whoever ends first, for 32 pods that fill a node", cluster, gangs, alone("g", ("16 cpu", 32))
    yield "whoever ends first, for 500 larger pods", cluster, gangs, alone("g", ("4 cpu", 500))


def run(cluster: Cluster, groups: list[SolveGroup]) -> int:
    """Solve one batch; returns the number of placed groups."""
    cluster.state.refresh()
    placed = sum(isinstance(answer, Placed) for answer in solve(cluster.state, groups))
    cluster.state.rollback(0)
    return placed


def run_removal(cluster: Cluster, gangs: list[PotentialVictim], group: SolveGroup) -> int:
    """Find the victims; returns the number of pods."""
    cluster.state.refresh()
    [answer] = solve(cluster.state, [group], NO_NOMINATIONS, gangs)
    cluster.state.rollback(0)
    return sum(pods.count for gone in answer.victims for pods in gone.pods) if isinstance(answer, Placed) else 0


def median_milliseconds(work: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    return round(statistics.median(times), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    cluster = loaded_cluster(arguments.nodes)
    figures = []
    for name, groups in batches(arguments.nodes):
        placed = run(cluster, groups)
        figures.append(
            {
                "batch": name,
                "placed": placed,
                "milliseconds": median_milliseconds(partial(run, cluster, groups), arguments.rounds),
            }
        )
    summary = {"nodes": arguments.nodes, "pods": cluster.capacity.seats, "solves": figures}
    summary["removals"] = [
        {
            "removal": name,
            "potential_victims": sum(pods.count for gang in gangs for pods in gang.pods),
            "removed": run_removal(full, gangs, group),
            "milliseconds": median_milliseconds(partial(run_removal, full, gangs, group), arguments.rounds),
        }
        for name, full, gangs, group in removals(arguments.nodes)
    ]
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
