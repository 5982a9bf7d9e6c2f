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
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import psutil
import uvloop

from compare.checks import CHECKS, NODES, run_check
from compare.cluster import ComparedCluster, compared_cluster
from compare.contenders import CONTENDERS, Contender, versions
from compare.measurements import (
    BARE,
    FULL_NODES,
    MEASUREMENTS,
    PREEMPTION,
    Amounts,
    Measurement,
    bare_binds,
    preemption,
)
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
    parser.add_argument("--add", action="store_true", help="to the repetitions of results.json; implies --write")
    parser.add_argument("--write", action="store_true", help="write results.json and docs/comparison.md")
    options = parser.parse_args()
    options.write |= options.add
    options.parts = options.parts or list(_PARTS)
    if unknown := [part for part in options.parts if part not in _PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(_PARTS)}")
    names = options.schedulers.split(",")
    if unknown := [name for name in names if name not in {each.name for each in CONTENDERS}]:
        parser.error(f"there is no scheduler {unknown[0]!r}; there are {', '.join(e.name for e in CONTENDERS)}")
    options.contenders = [each for each in CONTENDERS if each.name in names]
    uvloop.run(compare(options))


async def compare(options: argparse.Namespace) -> None:
    """Run all parts, and note each result as soon as it is there. Raises SystemExit if --add does not fit."""
    await _Comparison(options, await _results(options)).run()


async def _results(options: argparse.Namespace) -> Results:
    """Results that the run adds to or replaces, with this machine and these versions. Raises SystemExit."""
    everything = set(options.parts) == set(_PARTS) and not options.add
    results = Results() if everything or not options.write else read_results(add=options.add)
    found = {"machine": _machine(), "versions": await versions(), "pods": options.pods}
    for name, value in found.items():
        if options.add and not _contains(value, stored := getattr(results, name)):
            sys.exit(f"--add: results.json was measured with {name} {stored}, not {value}; run without --add")
        setattr(results, name, value)
    results.settings = {each.name: each.settings for each in CONTENDERS}
    return results


def _contains(value: object, stored: object) -> bool:
    """Whether the value agrees with what is stored; a dictionary may have more keys, and nothing may be stored yet."""
    if isinstance(value, dict) and isinstance(stored, dict):
        return stored.items() <= value.items()
    return stored in (value, 0)


class _Comparison:
    """One run."""

    def __init__(self, options: argparse.Namespace, results: Results) -> None:
        self._options, self._results = options, results
        self._amounts = partial(Amounts, pods=options.pods)

    async def run(self) -> None:
        options = self._options
        for repetition in range(options.repetitions):
            for nodes in map(int, options.nodes.split(",")) if "rates" in options.parts else ():
                for kind in options.contenders:
                    await self._rates(kind, nodes, repetition)
            for kind in options.contenders if "preemption" in options.parts else ():
                await self._preemption(kind, repetition)
        for kind in options.contenders if "checks" in options.parts else ():
            await self._checks(kind)
        print(json.dumps(self._results.as_json(), indent=2))

    async def _rates(self, kind: type[Contender], nodes: int, repetition: int) -> None:
        async with compared_cluster(kind, nodes) as cluster:
            measurements = dict(MEASUREMENTS)
            if kind is self._options.contenders[0]:
                measurements[BARE] = bare_binds
            for name, measure in measurements.items():
                if self._options.only in name:
                    await self._measure(cluster, kind, nodes, repetition, name, measure)

    async def _preemption(self, kind: type[Contender], repetition: int) -> None:
        async with compared_cluster(kind, FULL_NODES) as cluster:
            await self._measure(cluster, kind, FULL_NODES, repetition, PREEMPTION, preemption)

    async def _measure(
        self,
        cluster: ComparedCluster,
        kind: type[Contender],
        nodes: int,
        repetition: int,
        name: str,
        measure: Measurement,
    ) -> None:
        try:
            found = await measure(cluster, self._amounts(nodes))
        except (TimeoutError, ChildDied) as error:
            _say(f"{repetition}: {kind.name}, {nodes} nodes, {name}: failed, and is not counted: {error!r}")
            await cluster.contender.stop()
            await cluster.delete_pods()
            return
        self._results.add(nodes, name, BARE if name == BARE else kind.name, found)
        _say(f"{repetition}: {kind.name}, {nodes} nodes, {name}: {found}")
        self._note()

    async def _checks(self, kind: type[Contender]) -> None:
        for name, check in CHECKS.items():
            if self._options.only not in name:
                continue
            async with compared_cluster(kind, NODES) as cluster:
                verdict = await run_check(check, cluster)
            self._results.checks.setdefault(name, {})[kind.name] = [verdict.passed, verdict.seen]
            _say(f"{kind.name}, {NODES} nodes, {name}: {verdict}")
            self._note()

    def _note(self) -> None:
        if self._options.write:
            write_results(self._results)
            write_page(self._results)


def _machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())
    return {"processor": model, "cores": os.cpu_count(), "memory_gib": round(psutil.virtual_memory().total / 2**30)}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
