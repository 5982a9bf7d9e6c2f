"""Every planted bug is detected by the simulator or by the tests of the core."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from mutation.bug import Bug
from mutation.capacity_bugs import CAPACITY_BUGS
from mutation.claim_bugs import CLAIM_BUGS
from mutation.device_bugs import DEVICE_BUGS
from mutation.elastic_bugs import ELASTIC_BUGS
from mutation.fence_bugs import FENCE_BUGS
from mutation.growth_bugs import GROWTH_BUGS
from mutation.loan_bugs import LOAN_BUGS
from mutation.preemption_bugs import PREEMPTION_BUGS
from mutation.restore_bugs import RESTORE_BUGS
from mutation.slice_bugs import SLICE_BUGS
from mutation.spin_bugs import SPIN_BUGS
from mutation.start_bugs import START_BUGS
from mutation.subgroup_bugs import SUBGROUP_BUGS
from mutation.turn_bugs import TURN_BUGS
from mutation.volume_bugs import VOLUME_BUGS
from mutation.wait_bugs import WAIT_BUGS

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "services/muster/coordinator/core"
FENCE = ROOT / "services/muster/binding/leader_fence.py"
TESTS = [str(ROOT / "tests/simulation/test_found_scenarios.py"), str(ROOT / "tests/unit/coordinator")]
BUGS = (
    *(*START_BUGS, *CAPACITY_BUGS, *PREEMPTION_BUGS, *CLAIM_BUGS),
    *(*SPIN_BUGS, *GROWTH_BUGS, *FENCE_BUGS, *TURN_BUGS, *VOLUME_BUGS, *RESTORE_BUGS, *SLICE_BUGS),
    *(*WAIT_BUGS, *SUBGROUP_BUGS, *ELASTIC_BUGS, *LOAN_BUGS, *DEVICE_BUGS),
)
SEEDS = 300
ENVIRONMENT = dict(os.environ)  # read once: pytest writes the name of the test into it while other threads would read


def detect(core: Path, first: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the detection on the core in this folder, which comes first on the import path (`muster` is a namespace
    package). `first`: a test, or a file of tests, to run first.
    """
    environment = {**ENVIRONMENT, "PYTHONPATH": str(core.parents[2]), "PYTHONHASHSEED": "0"}
    options = ["--first", str(ROOT / "tests" / first)] if first else []
    command = [sys.executable, str(Path(__file__).with_name("detect.py")), *options, str(SEEDS), *TESTS]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"core: {core}" in run.stdout, run.stdout + run.stderr
    return run


def copy_core(folder: Path) -> Path:
    """Copies the core, and binding's leader fence, to a source root of their own."""
    core = folder / "muster/coordinator/core"
    shutil.copytree(CORE, core, ignore=shutil.ignore_patterns("*.pyc.*"))  # bytecode that is being written
    fence = folder / FENCE.relative_to(ROOT / "services")
    fence.parent.mkdir(parents=True)
    shutil.copy(FENCE, fence)
    return core


def plant_and_detect(bug: Bug | None, folder: Path) -> subprocess.CompletedProcess[str] | str:
    """Returns the result of the detection on a core with this bug, or why it cannot be planted."""
    core = copy_core(folder)
    if bug is not None:
        source = (core / bug.file).read_text()
        if (times := source.count(bug.source)) != 1:
            return f"{bug.file} contains the source of this bug {times} times; update the table of bugs"
        (core / bug.file).write_text(source.replace(bug.source, bug.instead))
    return detect(core, bug.first if bug is not None else "")


Detections = dict[Bug | None, Future[subprocess.CompletedProcess[str] | str]]


@pytest.fixture(scope="module")
def detections(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detections]:
    """One detection for every selected bug and one without a bug, as many at a time as there are cores."""
    selected = {test.name for test in request.session.items}
    bugs = [bug for bug in BUGS if f"{test_a_planted_bug_is_caught.__name__}[{bug.what}]" in selected]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {bug: pool.submit(plant_and_detect, bug, tmp_path_factory.mktemp("root")) for bug in (None, *bugs)}
        pool.shutdown(cancel_futures=True)


@pytest.mark.timeout(1200)  # a detection waits for those before it
@pytest.mark.parametrize("bug", BUGS, ids=[bug.what for bug in BUGS])
def test_a_planted_bug_is_caught(bug: Bug, detections: Detections) -> None:
    run = detections[bug].result()
    assert not isinstance(run, str), run
    assert run.returncode == 1, f"nothing detected that {bug.what}:\n{run.stdout}{run.stderr}"


@pytest.mark.timeout(1200)
def test_without_a_bug_nothing_is_caught(detections: Detections) -> None:
    run = detections[None].result()
    assert not isinstance(run, str)
    assert run.returncode == 0, run.stdout + run.stderr
