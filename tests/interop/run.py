"""Runs every scenario with every kind of workload: real controllers on a real control plane, with Muster.

python tests/interop/run.py [--workload WORD ...] [--scenario WORD ...] [--size N] [--json FILE] [--write]

Prints progress to stderr, then a table. Exits with 1 if a scenario fails. `--write` stores the results in
tests/interop/results.json, replacing those of the scenarios that ran, and generates docs/interop.md.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # gRPC's core writes a line whenever a process is started
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")  # see muster.cli.main

import structlog
import uvloop

from interop.control_plane import NotBuilt
from interop.controllers import CONTROLLERS, version_of
from interop.environment import Environment, running_environment
from interop.kinds import KINDS
from interop.page import write_page
from interop.results import FILE, Outcome, Result, Run, counts, read_run, table, write_run
from interop.scenarios import SCENARIOS
from interop.scenarios.scenario import Scenario
from interop.workload_kind import WorkloadKind
from muster.localcluster.child_process import ChildDied


def main() -> int:
    """Parse the command line, run, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", action="append", help="only workloads whose name or controller contains this")
    parser.add_argument("--scenario", action="append", help="only scenarios whose name contains this")
    parser.add_argument("--size", type=int, default=3, help="pods of each gang; Jobs need minutes to recover with many")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--write", action="store_true", help="store the results and generate docs/interop.md")
    parser.add_argument("--directory", type=Path, help="where logs are kept; default: nowhere")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # kubelets run here
    kinds = [kind for kind in KINDS if _selected(kind.id, options.workload)]
    scenarios = [each for each in SCENARIOS if _selected(each.name, options.scenario)]
    if not kinds or not scenarios:
        parser.error("no workload or no scenario has this name")
    results: list[Result] = []
    violated = False
    with tempfile.TemporaryDirectory(prefix="muster-interop-") as files:
        try:
            uvloop.run(_run(options.directory or Path(files), options.size, kinds, scenarios, results))
        except (NotBuilt, ChildDied) as error:
            print(error, file=sys.stderr)
            return 2
        except AssertionError as error:  # an invariant or a permission, checked at the end
            print(error, file=sys.stderr)
            violated = True
    run = Run({each.name: version_of(each) for each in CONTROLLERS}, results)
    print(table(run))
    print(counts(results))
    if options.json:
        write_run(run, options.json)
    if options.write:
        write_run(_merged(run), FILE)
        write_page()
    return int(violated or any(each.outcome is Outcome.FAILS for each in results))


async def _run(
    directory: Path, size: int, kinds: list[WorkloadKind], scenarios: list[Scenario], results: list[Result]
) -> None:
    """Append the results."""
    async with running_environment(directory, size) as environment:
        for kind in kinds:
            problem = await _problem_of_start(environment, kind)
            for scenario in scenarios:
                if not scenario.applies(kind):
                    results.append(Result(kind.controller, kind.name, scenario.name, Outcome.DOES_NOT_APPLY))
                    continue
                if problem:
                    result = Result(kind.controller, kind.name, scenario.name, Outcome.FAILS, reason=problem)
                else:
                    result = await environment.run(kind, scenario)
                _say(f"{kind.id}: {scenario.name}: {result.outcome.value} in {result.seconds:.1f} s {result.reason}")
                results.append(result)


async def _problem_of_start(environment: Environment, kind: WorkloadKind) -> str:
    """Start the controller of a kind; returns why it cannot be started, so that the others are still tested."""
    try:
        await environment.use(kind)
    except Exception as error:
        return f"{kind.controller} does not start: {error or repr(error)}"
    return ""


def _selected(name: str, words: list[str] | None) -> bool:
    return not words or any(word in name for word in words)


def _merged(run: Run) -> Run:
    """The stored results of the same versions, and those of this run in place of theirs, in the order of the tables."""
    stored = read_run() if FILE.exists() else Run({}, [])
    found = {
        _key(each): each
        for each in stored.results
        if stored.versions.get(each.controller) == run.versions.get(each.controller)
    }
    found.update((_key(each), each) for each in run.results)
    order = [(kind.controller, kind.name, scenario.name) for kind in KINDS for scenario in SCENARIOS]
    return Run(run.versions, [found[key] for key in order if key in found])


def _key(result: Result) -> tuple[str, str, str]:
    return result.controller, result.workload, result.scenario


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
