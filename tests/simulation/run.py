"""Runs scenarios from seeds on all cores until some fail; shrinks and prints the first failure.

python tests/simulation/run.py [--seeds 2000] [--first 0] [--seed N] [--no-shrink]
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from multiprocessing import Pool
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simulation.actions import text
from simulation.printing import print_scenario
from simulation.runner import Failure, collect_rarely, failure_of, generate
from simulation.shrink import shrink

SEEDS_AT_ONCE = 20
MAX_FAILURES = 5
"""Stops after so many failures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run. Exit code 1: a scenario failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000, help="how many scenarios")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this scenario alone")
    parser.add_argument("--no-shrink", action="store_true", help="print the failure without shrinking it")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        _, found = generate(options.seed)
        failures = [] if found is None else [(options.seed, found)]
    else:
        failures = _play_all(range(options.first, options.first + options.seeds))
    for seed, found in failures[:1]:
        _print_failure(seed, found, shrinking=not options.no_shrink)
    for seed, found in failures[1:]:
        print(f"seed {seed}: {found.message}")
    if failures:
        print(f"\nrepeat: make simulate SEED={failures[0][0]}")
    return 1 if failures else 0


def _play_all(seeds: range) -> list[tuple[int, Failure]]:
    began, failures, done = time.monotonic(), list[tuple[int, Failure]](), 0
    with Pool(os.cpu_count(), collect_rarely) as pool:
        for found in pool.imap_unordered(_play_some, _batches(seeds)):
            failures += found
            done += SEEDS_AT_ONCE
            _progress(min(done, len(seeds)), len(seeds), len(failures))
            if len(failures) >= MAX_FAILURES:
                pool.terminate()
                break
    seconds = time.monotonic() - began
    done = min(done, len(seeds))
    print(f"{done} scenarios in {seconds:.1f} s, {len(failures)} failed")
    return sorted(failures)


def _batches(seeds: range) -> Iterator[list[int]]:
    left = iter(seeds)
    while batch := list(islice(left, SEEDS_AT_ONCE)):
        yield batch


def _play_some(seeds: list[int]) -> list[tuple[int, Failure]]:
    return [(seed, found) for seed in seeds if (found := generate(seed)[1]) is not None]


def _progress(done: int, all_: int, failures: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == all_ else ""
        print(f"\r{done} of {all_} scenarios, {failures} failed ", end=end, file=sys.stderr, flush=True)


def _print_failure(seed: int, found: Failure, *, shrinking: bool) -> None:
    actions, _ = generate(seed)
    if shrinking:
        actions = shrink(actions)
    try:
        print_scenario(actions, print)
    except Exception as error:  # the failure to print
        found = failure_of(error)
    print(f"\nseed {seed}: {found.message}\n\n{text(actions)}\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # so that a seed gives the same scenario in every process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
