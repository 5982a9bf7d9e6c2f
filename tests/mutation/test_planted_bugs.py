"""Every bug of the tables is caught by the simulator's stories or by the scenarios of the core."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from mutation.bug import Bug
from mutation.bugs_of_room import BUGS_OF_ROOM
from mutation.bugs_of_starting import BUGS_OF_STARTING

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "services/muster/coordinator/core"
SCENARIOS = [str(ROOT / "tests/simulation/test_stories_found.py"), str(ROOT / "tests/unit/coordinator")]
BUGS = (*BUGS_OF_STARTING, *BUGS_OF_ROOM)
SEEDS = 300


def hunt(core: Path, first: str = "") -> subprocess.CompletedProcess[str]:
    """Play on the core in this folder: it comes first on the path, and `muster` has room for more than one root.
    `first`: a file of scenarios that is played before all else.
    """
    environment = {**os.environ, "PYTHONPATH": str(core.parents[2]), "PYTHONHASHSEED": "0"}
    options = ["--first", str(ROOT / "tests" / first)] if first else []
    command = [sys.executable, str(Path(__file__).with_name("hunt.py")), *options, str(SEEDS), *SCENARIOS]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"core: {core}" in run.stdout, run.stdout + run.stderr
    return run


def copied(folder: Path) -> Path:
    """A copy of the core under a root of its own."""
    core = folder / "muster/coordinator/core"
    shutil.copytree(CORE, core, ignore=shutil.ignore_patterns("__pycache__"))
    return core


def planted(bug: Bug | None, folder: Path) -> subprocess.CompletedProcess[str] | str:
    """What becomes of a core with this bug, or why it cannot be planted."""
    core = copied(folder)
    if bug is not None:
        source = (core / bug.file).read_text()
        if (times := source.count(bug.source)) != 1:
            return f"{bug.file} has the source of this bug {times} times; bring its table up to date"
        (core / bug.file).write_text(source.replace(bug.source, bug.instead))
    return hunt(core, bug.first if bug is not None else "")


Hunts = dict[Bug | None, Future[subprocess.CompletedProcess[str] | str]]


@pytest.fixture(scope="module")
def hunts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hunts]:
    """One for every bug, and one without, as many at a time as there are cores."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {bug: pool.submit(planted, bug, tmp_path_factory.mktemp("root")) for bug in (None, *BUGS)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.what for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, hunts: Hunts) -> None:
    run = hunts[bug].result()
    assert not isinstance(run, str), run
    assert run.returncode == 1, f"nothing noticed that {bug.what}:\n{run.stdout}{run.stderr}"


def test_without_a_bug_nothing_is_caught(hunts: Hunts) -> None:
    run = hunts[None].result()
    assert not isinstance(run, str)
    assert run.returncode == 0, run.stdout + run.stderr
