"""Runs random scenarios and tests against the first core on the import path until one fails.

python tests/mutation/detect.py [--first TEST] SEEDS TESTS...      exit code 1: a failure, which is printed

TEST, a file or FILE::TEST, runs before anything else. A scenario or a test that takes more than STUCK_SECONDS of CPU
time is a failure, too: the core is in an endless loop, which limits of the test world do not see
(`builders.core.step_limit`).
"""

import os
import signal
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pytest

import muster.coordinator.core as core
from simulation.runner import collect_rarely, generate

FIRST_SEEDS = 60
"""Random scenarios that run before the tests: they detect most bugs, and more of them take longer than the tests."""
STUCK_SECONDS = 20
"""Scenarios take 0.03 s, and no test more than 3 s."""


class _Watch:
    """Ends the process with exit code 1 if one test takes too long."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        _expect_progress()
        return (yield)


def _expect_progress() -> None:
    signal.setitimer(signal.ITIMER_PROF, STUCK_SECONDS)


def _stuck(_signal: int, frame: FrameType | None) -> None:
    print(f"stuck for {STUCK_SECONDS} s:")
    traceback.print_stack(frame, limit=-20, file=sys.stdout)
    sys.stdout.flush()
    os._exit(1)


def main(seeds: int, first: str, tests: Sequence[str]) -> int:
    """Runs the first tests, some random scenarios, all tests, and the other random scenarios."""
    print(f"core: {Path(core.__file__).parent}", flush=True)  # the watchdog ends the process without flushing
    collect_rarely()
    signal.signal(signal.SIGPROF, _stuck)
    if first and (code := _run_tests(first)):
        return code
    if _fails(range(min(seeds, FIRST_SEEDS))):
        return 1
    if tests and (code := _run_tests(*tests)):
        return code
    return int(_fails(range(FIRST_SEEDS, seeds)))


def _run_tests(*tests: str) -> int:
    options = ["-q", "-x", "--tb=line", "--disable-plugin-autoload", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, *tests], plugins=[_Watch()]))


def _fails(seeds: range) -> bool:
    for seed in seeds:
        _expect_progress()
        _, found = generate(seed)
        if found is not None:
            print(f"seed {seed}: {found.message}")
            return True
    return False


if __name__ == "__main__":
    arguments = ArgumentParser()
    arguments.add_argument("seeds", type=int)
    arguments.add_argument("--first", default="")
    arguments.add_argument("tests", nargs="*")
    given = arguments.parse_args()
    sys.exit(main(given.seeds, given.first, given.tests))
