"""Plays stories and scenarios on whichever core comes first on the path, until one goes wrong.

python tests/mutation/hunt.py SEEDS SCENARIOS...      exit code 1: something went wrong, and it is told
"""

import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

import muster.coordinator.core as core
from simulation.play import invent

FIRST_SEEDS = 60
"""They find most; then the scenarios are quicker than more of them."""


def main(seeds: int, scenarios: Sequence[str]) -> int:
    """Some stories, the scenarios, the other stories."""
    print(f"core: {Path(core.__file__).parent}")
    if _goes_wrong(range(min(seeds, FIRST_SEEDS))):
        return 1
    if scenarios and (code := pytest.main(["-q", "-x", "--tb=line", "-p", "no:cacheprovider", *scenarios])):
        return int(code)
    return int(_goes_wrong(range(FIRST_SEEDS, seeds)))


def _goes_wrong(seeds: range) -> bool:
    for seed in seeds:
        _, found = invent(seed)
        if found is not None:
            print(f"seed {seed}: {found.message}")
            return True
    return False


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
