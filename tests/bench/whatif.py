"""Checks what-if on many random clusters: what it says must be what happens when the gang is then submitted.

    python tests/bench/whatif.py --clusters 300

Prints the clusters for which it is not, and exits with 1 if there are any.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders.forecast.truth import Truth, by_first_fit, by_placement


async def _compare(truth: Truth, seeds: range) -> int:
    verdicts, remedies, false, began = Counter[str](), 0, 0, time.monotonic()
    for seed in seeds:
        compared = await truth.compare(seed)
        verdicts[compared.said.verdict.value] += 1
        remedies += compared.remedies
        if not compared.true:
            false += 1
            print(compared)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    seconds = time.monotonic() - began
    print(f"{len(seeds) - false} of {len(seeds)} answers true ({counts}), {remedies} remedies, {seconds:.0f} s")
    return false


async def _run(options: argparse.Namespace) -> int:
    seeds = range(options.first, options.first + options.clusters)
    if options.first_fit:
        return await _compare(by_first_fit(), seeds)
    async with by_placement() as truth:
        return await _compare(truth, seeds)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=300, help="number of clusters")
    parser.add_argument("--first", type=int, default=0, help="seed of the first cluster")
    parser.add_argument("--first-fit", action="store_true", help="the solver of scenarios, which is faster")
    sys.exit(1 if asyncio.run(_run(parser.parse_args())) else 0)


if __name__ == "__main__":
    main()
