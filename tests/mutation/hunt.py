"""Plays stories and scenarios on whichever core comes first on the path, until one goes wrong.

python tests/mutation/hunt.py [--first FILE] SEEDS SCENARIOS...      exit code 1: something went wrong, and it is told

The scenarios of the file are played before anything else: who knows where something goes wrong is told soon.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

import muster.coordinator.core as core
from simulation.play import invent

FIRST_SEEDS = 60
"""They find most; then the scenarios are quicker than more of them."""


def main(seeds: int, first: str, scenarios: Sequence[str]) -> int:
    """The first scenarios, some stories, all scenarios, the other stories."""
    print(f"core: {Path(core.__file__).parent}")
    if first and (code := _play(first)):
        return code
    if _goes_wrong(range(min(seeds, FIRST_SEEDS))):
        return 1
    if scenarios and (code := _play(*scenarios)):
        return code
    return int(_goes_wrong(range(FIRST_SEEDS, seeds)))


def _play(*scenarios: str) -> int:
    return int(pytest.main(["-q", "-x", "--tb=line", "-p", "no:cacheprovider", *scenarios]))


def _goes_wrong(seeds: range) -> bool:
    for seed in seeds:
        _, found = invent(seed)
        if found is not None:
            print(f"seed {seed}: {found.message}")
            return True
    return False


if __name__ == "__main__":
    arguments = ArgumentParser()
    arguments.add_argument("seeds", type=int)
    arguments.add_argument("--first", default="")
    arguments.add_argument("scenarios", nargs="*")
    given = arguments.parse_args()
    sys.exit(main(given.seeds, given.first, given.scenarios))
