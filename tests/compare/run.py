"""Compares Muster with other gang schedulers on the same machine and the same work, one after the other in turn.

python tests/compare/run.py [--nodes 1000,5000] [--repetitions 5] [--write] ...

Each measurement runs on a control plane of its own for each scheduler: etcd with fsync, kube-apiserver,
kube-controller-manager and hollow nodes. What is measured is in measurements.py, what is checked in checks.py. Prints
results as JSON; --write also writes results.json and docs/comparison.md.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import psutil
import uvloop

from compare.checks import CHECKS, NODES, run_check
from compare.cluster import compared_cluster
from compare.contenders import CONTENDERS, Contender, versions
from compare.measurements import BARE, FULL_NODES, MEASUREMENTS, PREEMPTION, Amounts, bare_binds, preemption
from compare.page import write_page
from compare.results import Results, read_results, write_results
from muster.localcluster.child_process import ChildDied

_PARTS = ("rates", "preemption", "checks")


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(_PARTS)}; default: all")
    parser.add_argument("--nodes", default="1000,5000", help="sizes of clusters")
    parser.add_argument("--pods", type=int, default=2000, help="of each rate")
    parser.add_argument("--repetitions", type=int, default=5, help="of each measurement; each check runs once")
    parser.add_argument("--schedulers", default=",".join(each.name for each in CONTENDERS))
    parser.add_argument("--only", default="", help="measurements and checks whose name contains this")
    parser.add_argument("--write", action="store_true", help="write results.json and docs/comparison.md")
    options = parser.parse_args()
    options.parts = options.parts or list(_PARTS)
    if unknown := [part for part in options.parts if part not in _PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(_PARTS)}")
    names = options.schedulers.split(",")
    if unknown := [name for name in names if name not in {each.name for each in CONTENDERS}]:
        parser.error(f"there is no scheduler {unknown[0]!r}; there are {', '.join(e.name for e in CONTENDERS)}")
    options.contenders = [each for each in CONTENDERS if each.name in names]
    uvloop.run(compare(options))


async def compare(options: argparse.Namespace) -> None:
    """Run all parts, and note each result as soon as it is there."""
    results = read_results() if options.write and set(options.parts) != set(_PARTS) else Results()
    results.machine = _machine()
    results.versions = await versions()
    results.settings = {each.name: each.settings for each in CONTENDERS}
    results.pods = options.pods

    def note() -> None:
        if options.write:
            write_results(results)
            write_page(results)

    for repetition in range(options.repetitions):
        for nodes in map(int, options.nodes.split(",")) if "rates" in options.parts else ():
            for kind in options.contenders:
                await _rates(options, results, kind, nodes, repetition)
                note()
        for kind in options.contenders if "preemption" in options.parts else ():
            async with compared_cluster(kind, FULL_NODES) as cluster:
                found = await preemption(cluster, Amounts(FULL_NODES, options.pods))
            results.add(FULL_NODES, PREEMPTION, kind.name, found, repetition)
            _say(repetition, kind, FULL_NODES, PREEMPTION, found)
            note()
    for kind in options.contenders if "checks" in options.parts else ():
        for name, check in CHECKS.items():
            if options.only in name:
                async with compared_cluster(kind, NODES) as cluster:
                    verdict = await run_check(check, cluster)
                results.checks.setdefault(name, {})[kind.name] = [verdict.passed, verdict.seen]
                _say(0, kind, NODES, name, verdict)
                note()
    print(json.dumps(results.as_json(), indent=2))


async def _rates(
    options: argparse.Namespace, results: Results, kind: type[Contender], nodes: int, repetition: int
) -> None:
    amounts = Amounts(nodes, options.pods)
    async with compared_cluster(kind, nodes) as cluster:
        measurements = dict(MEASUREMENTS)
        if kind is options.contenders[0]:
            measurements[BARE] = bare_binds
        for name, measure in measurements.items():
            if options.only not in name:
                continue
            try:
                found = await measure(cluster, amounts)
            except (TimeoutError, ChildDied) as error:
                _say(repetition, kind, nodes, name, f"failed, and is not counted: {error!r}")
                await cluster.contender.stop()
                await cluster.delete_pods()
                continue
            results.add(nodes, name, BARE if name == BARE else kind.name, found, repetition)
            _say(repetition, kind, nodes, name, found)


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "cores": os.cpu_count(), "memory_gib": round(psutil.virtual_memory().total / 2**30)}


def _say(repetition: int, kind: type[Contender], nodes: int, name: str, found: object) -> None:
    print(f"{repetition}: {kind.name}, {nodes} nodes, {name}: {found}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
