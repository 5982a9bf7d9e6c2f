"""Speed of the solver alone under constraints: medians in milliseconds, as a table or as JSON.

make bench-placement [ARGS="--nodes 1000,5000,15000,100000 --rounds 9 --output json --plot docs/placement-speed.svg"]

Clusters have 2 to 4 levels, four resources, and random load. A solve is timed from the free capacity of each node, in
the order of the tree, to the nodes and the members on each. Cold: the gang's class is not cached. Warm: it is, but a
tenth of the nodes changed since; taking over changes from the stream is measured by `make bench-mirror`. `answer_ms` is
the additional time to encode the answer.
"""

import argparse
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console
from rich.table import Table

from bench.plot import plot_speed
from builders.placement.clusters import GPU, alone
from muster.gangs.facts import PODS, Batch, NodeFacts, PodClass, PodFacts, TopologyTree, TreeLevel
from muster.gangs.solve import Role, SolveGang, SolveGroup
from muster.placement.solve.algorithms import STEPS_PER_GROUP
from muster.placement.solve.branch_and_bound import Budget
from muster.placement.solve.homogeneous import NoSeats, seats_for
from muster.placement.solve.instance import Placed, Solution, assignments_of, parts_of, result_of
from muster.placement.solve.solve import solve
from muster.placement.state.cluster import Cluster
from muster.placement.v1 import placement_pb2 as pb
from muster.rpc.solve_codec import encode_solve_result
from muster.topology.constraints import parse_constraints

GIB: Final = 2**30
LEVELS: Final = {1_000: 2, 5_000: 3, 15_000: 4, 100_000: 4}
NAMES: Final = ("zone", "row", "rack")
NODES_IN: Final = {"zone": 5_000, "row": 500, "rack": 20}
GANGS: Final = (8, 512, 4_096)
LOADS: Final = 32
CHANGES: Final = 5
"""Batches of changes, prepared and applied in turn."""
SOLVER_OF_SAKKARA: Final = {1_000: "0.7", 5_000: "6-8", 15_000: "20-24", 100_000: "155-170"}


def levels_of(nodes: int) -> tuple[str, ...]:
    """Names of the levels above the nodes, from the top."""
    return NAMES[len(NAMES) + 1 - LEVELS[nodes] :]


def policies(above: tuple[str, ...]) -> dict[str, str]:
    """Constraints by name; the first are the ones that figures compare."""
    upper, lowest = "".join(f"{name}: pack; " for name in above), above[-1]
    rest = "".join(f"{name}: pack; " for name in above[:-1])
    return {
        "pack above, spread on nodes": f"{upper}node: spread",
        "pack": f"{upper}node: pack",
        "spread": "".join(f"{name}: spread; " for name in above) + "node: spread",
        "hard pack": f"{rest}{lowest}: hard pack; node: spread",
        "hard spread": f"{rest}{lowest}: spread; node: hard spread",
        "partition": f"{rest}{lowest}: partition(4); node: pack",
        "hard partition": f"{rest}{lowest}: hard partition(4); node: spread",
        "range": f"{upper}node: spread, range(2,8)",
        "hard range": f"{upper}node: spread, hard range(2,8)",
        "factor": f"{upper}node: factor(4)",
        "hard factor": f"{rest}{lowest}: pack, hard factor(8); node: hard factor(4)",
    }


class LoadedCluster:
    """A cluster under random load, of which a tenth can be changed repeatedly."""

    def __init__(self, nodes: int, seed: int = 7) -> None:
        self.nodes = nodes
        self._chance = random.Random(seed)
        self._names = [f"node-{index:06}" for index in range(nodes)]
        self.cluster = Cluster()
        self._round = 0
        above = levels_of(nodes)
        member = PodClass("member", (("cpu", 2000), ("memory", 8 * GIB), (GPU, 1), (PODS, 1)))
        loads = [
            PodClass(f"load-{i}", (("cpu", i * 2000), ("memory", i * 7 * GIB), (GPU, i // 4), (PODS, 1)))
            for i in range(LOADS)
        ]
        offers = (("cpu", 64_000), ("memory", 256 * GIB), (GPU, 8), (PODS, 110))
        facts = tuple(
            NodeFacts(name, allocatable=offers, labels={each: f"{each}-{index // NODES_IN[each]:05}" for each in above})
            for index, name in enumerate(self._names)
        )
        pods = tuple(
            PodFacts(f"pod-{name}", "load", f"pod-{name}", f"load-{self._chance.randrange(LOADS)}", node=name)
            for name in self._names
        )
        tree = TopologyTree("labels", (*(TreeLevel(each, each) for each in above), TreeLevel("node")), default=True)
        self.cluster.apply(Batch(pod_classes=(member, *loads), nodes=facts, pods=pods, trees=(tree,)))
        self.cluster.state.refresh()
        tree_arrays = self.cluster.state.trees.get("")
        assert tree_arrays is not None
        self._changes = [self._some_changes() for _ in range(CHANGES)]

    def change_a_tenth(self) -> None:
        """Pods are added and removed on a tenth of the nodes, as one batch of the stream."""
        self.cluster.apply(self._changes[self._round % len(self._changes)])
        self._round += 1

    def _some_changes(self) -> Batch:
        names = self._chance.sample(self._names, self.nodes // 10)
        pods = tuple(
            PodFacts(f"pod-{name}", "load", f"pod-{name}", f"load-{self._chance.randrange(LOADS)}", node=name)
            for name in names
        )
        return Batch(pods=pods)

    def forget_classes(self) -> None:
        """Clears the cache of classes."""
        self.cluster.state.forget_classes()


def solve_times(loaded: LoadedCluster, gang: int, text: str, rounds: int) -> dict[str, Any]:
    """Medians for one gang."""
    state = loaded.cluster.state
    asked = SolveGang("g", gang, (Role("member", gang),), constraints=parse_constraints(text))
    group = SolveGroup("g", (asked,))
    parts = parts_of(group)
    placed = False

    def once() -> None:
        nonlocal placed
        state.refresh()
        seats = seats_for(state, asked, parts[0], Budget(STEPS_PER_GROUP))
        placed = not isinstance(seats, NoSeats)

    state.refresh()
    cold = median(once, rounds, loaded.forget_classes)
    warm = median(once, rounds, loaded.change_a_tenth)
    found = {"nodes": loaded.nodes, "gang": gang, "cold_ms": cold, "warm_ms": warm, "placed": placed}
    seats = seats_for(state, asked, parts[0], Budget(STEPS_PER_GROUP))
    if not isinstance(seats, NoSeats):
        solution = Solution([gang], [(0, seats)])

        def answer() -> None:
            result = result_of(group, Placed(assignments_of(state, group, parts, solution)))
            encode_solve_result(result, pb.GroupResult())

        found["answer_ms"] = median(answer, rounds)
    return found


def batch_time(loaded: LoadedCluster, rounds: int) -> dict[str, Any]:
    """500 gangs of 8 in one batch, with and without constraints."""
    constraints = parse_constraints(policies(levels_of(loaded.nodes))["pack above, spread on nodes"])
    shaped = [
        SolveGroup(f"g{i}", (SolveGang(f"g{i}", 8, (Role("member", 8),), constraints=constraints),)) for i in range(500)
    ]
    plain = [alone(f"g{i}", ("member", 8)) for i in range(500)]
    state = loaded.cluster.state

    def run(groups: list[SolveGroup]) -> int:
        state.refresh()
        placed = sum(isinstance(answer, Placed) for answer in solve(state, groups))
        state.rollback(0)
        return placed

    return {
        "nodes": loaded.nodes,
        "gangs": 500,
        "gang": 8,
        "placed": run(shaped),
        "constrained_ms": median(lambda: run(shaped), rounds),
        "free_ms": median(lambda: run(plain), rounds),
    }


def median(work: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> float:
    """Milliseconds; the setup of each round is not timed."""
    times = []
    work()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        before()
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1000)
    gc.enable()
    return round(statistics.median(times), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default=",".join(map(str, LEVELS)))
    parser.add_argument("--gangs", default=",".join(map(str, GANGS)))
    parser.add_argument("--policies", default="", help="only those whose name begins so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--plot", type=Path, help="write a picture of time over nodes (SVG)")
    options = parser.parse_args()
    solves: list[dict[str, Any]] = []
    batches = []
    for nodes in map(int, options.nodes.split(",")):
        if nodes not in LEVELS:
            parser.error(f"there is no cluster of {nodes} nodes; there are {', '.join(map(str, LEVELS))}")
        print(f"{nodes} nodes", file=sys.stderr)
        loaded = LoadedCluster(nodes)
        for name, text in policies(levels_of(nodes)).items():
            if name.startswith(options.policies):
                gangs = map(int, options.gangs.split(","))
                solves += [{"policies": name, **solve_times(loaded, gang, text, options.rounds)} for gang in gangs]
        if nodes == 5_000:
            batches.append(batch_time(loaded, options.rounds))
    summary = {"solves": solves, "batches": batches}
    if options.plot:
        plot_speed(solves, options.plot)
    if options.output == "json":
        print(json.dumps(summary, indent=2))
    else:
        show(summary)


def show(summary: dict[str, list[dict[str, Any]]]) -> None:
    """Print tables."""
    console = Console()
    table = Table("nodes", "gang", "policies", "placed", "cold ms", "warm ms", "answer ms", title="one gang")
    for each in summary["solves"]:
        figures = (f"{each[name]:.2f}" if name in each else "" for name in ("cold_ms", "warm_ms", "answer_ms"))
        table.add_row(
            f"{each['nodes']:,}", f"{each['gang']:,}", each["policies"], "yes" if each["placed"] else "no", *figures
        )
    console.print(table)
    for each in summary["batches"]:
        console.print(
            f"500 gangs of 8 in one batch on {each['nodes']:,} nodes: {each['constrained_ms']} ms with constraints "
            f"({each['placed']} placed), {each['free_ms']} ms without"
        )


if __name__ == "__main__":
    main()
