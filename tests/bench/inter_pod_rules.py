"""Solve time of gangs with inter-pod rules: medians in milliseconds, as a table or as JSON.

make bench-inter-pod-rules [ARGS="--nodes 5000,15000 --gangs 8,512,4096 --rounds 5 --output json"]

Racks of 20 nodes in three zones, each node half full. The time is that of a solve in memory whose class has been seen
before; "plain" is a class without any rule.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from builders.placement.clusters import alone, answers, cluster, node, pod_class
from builders.placement.inter_pod_rules import (
    HOST,
    RACK,
    ZONE,
    affinity,
    anti_affinity,
    host_port,
    member,
    preferred_affinity,
    spread,
)
from muster.gangs.facts import SpreadConstraint
from muster.placement.state.cluster import Cluster

_BOTH: Final = (SpreadConstraint(1, ZONE, "job"), SpreadConstraint(1, HOST, "job"))
CLASSES: Final = (
    pod_class("plain", 4),
    member("a host port", 4, **host_port(8080)),
    member("one per node", 4, **anti_affinity(HOST)),
    member("one per rack", 4, **anti_affinity(RACK)),
    member("in one zone", 4, **affinity(ZONE)),
    member("spread over zones", 4, **spread(ZONE)),
    member("spread over racks", 4, **spread(RACK)),
    member("spread over nodes", 4, **spread(HOST)),
    member("spread over zones and nodes", 4, spread=_BOTH),
    member("prefers spreading over zones", 4, **spread(ZONE, hard=False)),
    member("prefers separate nodes", 4, **preferred_affinity(-100, HOST)),
)


def main() -> None:
    asked = _arguments()
    found = [
        {"nodes": nodes, "gang": gang, "rule": rule, "answer": answer, "milliseconds": milliseconds}
        for nodes in asked.nodes
        for built in [build(nodes)]
        for rule in [each.id for each in CLASSES]
        for gang in asked.gangs
        for answer, milliseconds in [measure(built, rule, gang, asked.rounds)]
    ]
    if asked.output == "json":
        print(json.dumps({"solves": found}))
        return
    table = Table("nodes", "members", "rule", "answer", "ms", box=None)
    for each in found:
        table.add_row(*(str(value) for value in each.values()))
    Console().print(table)


def build(nodes: int) -> Cluster:
    """Nodes of 16 members' size, half full."""
    machines = [
        node(f"n{i:06}", 64, labels={HOST: f"n{i:06}", RACK: f"r{i // 20:05}", ZONE: f"z{i // 20 % 3}"})
        for i in range(nodes)
    ]
    load = [(f"p{i}", "load", machine.name) for i, machine in enumerate(machines)]
    return cluster(machines, [*CLASSES, pod_class("load", 32)], load)


def measure(built: Cluster, rule: str, gang: int, rounds: int) -> tuple[str, float]:
    """The answer and the median time of the rounds after a first one."""
    [answer] = answers(built, alone("g", (rule, gang)))
    spent = []
    for _ in range(rounds):
        started = time.perf_counter()
        answers(built, alone("g", (rule, gang)))
        spent.append(time.perf_counter() - started)
    return type(answer).__name__, round(statistics.median(spent) * 1000, 2)


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(each) for each in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=numbers, default=[5_000, 15_000], help="sizes of the cluster")
    parser.add_argument("--gangs", type=numbers, default=[8, 512, 4_096], help="sizes of the gang")
    parser.add_argument("--rounds", type=int, default=5, help="timed solves per row")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    return parser.parse_args()


if __name__ == "__main__":
    main()
