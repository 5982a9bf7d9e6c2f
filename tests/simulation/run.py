"""Plays scenarios from seeds until one goes wrong, on all cores; shrinks and tells it.

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
from simulation.printing import narrate
from simulation.runner import Failure, failure_of, invent
from simulation.shrink import shrink

SEEDS_AT_ONCE = 20
MAX_FAILURES = 5
"""After so many, more would tell the same."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse, play, tell. Exit code 1: something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000, help="how many scenarios")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="play this scenario alone")
    parser.add_argument("--no-shrink", action="store_true", help="tell what went wrong as it is")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        _, found = invent(options.seed)
        failures = [] if found is None else [(options.seed, found)]
    else:
        failures = _play_all(range(options.first, options.first + options.seeds))
    for seed, found in failures[:1]:
        _tell(seed, found, shrinking=not options.no_shrink)
    for seed, found in failures[1:]:
        print(f"seed {seed}: {found.message}")
    if failures:
        print(f"\nagain: make simulate SEED={failures[0][0]}")
    return 1 if failures else 0


def _play_all(seeds: range) -> list[tuple[int, Failure]]:
    began, failures, done = time.monotonic(), list[tuple[int, Failure]](), 0
    with Pool(os.cpu_count()) as pool:
        for found in pool.imap_unordered(_play_some, _batches(seeds)):
            failures += found
            done += SEEDS_AT_ONCE
            _progress(min(done, len(seeds)), len(seeds), len(failures))
            if len(failures) >= MAX_FAILURES:
                pool.terminate()
                break
    seconds = time.monotonic() - began
    done = min(done, len(seeds))
    print(f"{done} scenarios in {seconds:.1f} s, {len(failures)} went wrong")
    return sorted(failures)


def _batches(seeds: range) -> Iterator[list[int]]:
    left = iter(seeds)
    while batch := list(islice(left, SEEDS_AT_ONCE)):
        yield batch


def _play_some(seeds: list[int]) -> list[tuple[int, Failure]]:
    return [(seed, found) for seed in seeds if (found := invent(seed)[1]) is not None]


def _progress(done: int, all_: int, failures: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == all_ else ""
        print(f"\r{done} of {all_} scenarios, {failures} went wrong ", end=end, file=sys.stderr, flush=True)


def _tell(seed: int, found: Failure, *, shrinking: bool) -> None:
    acts, _ = invent(seed)
    if shrinking:
        acts = shrink(acts)
    try:
        narrate(acts, print)
    except Exception as error:  # it is what there is to tell
        found = failure_of(error)
    print(f"\nseed {seed}: {found.message}\n\n{text(acts)}\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # so that a seed is the same scenario in every process
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
