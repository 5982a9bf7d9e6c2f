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


def main(seeds: int, scenarios: Sequence[str]) -> int:
    """Stories first: they are quick and find most."""
    print(f"core: {Path(core.__file__).parent}")
    for seed in range(seeds):
        _, found = invent(seed)
        if found is not None:
            print(f"seed {seed}: {found.message}")
            return 1
    return int(pytest.main(["-q", "-x", "--tb=line", "-p", "no:cacheprovider", *scenarios])) if scenarios else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
