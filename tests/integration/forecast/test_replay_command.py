"""`muster replay` plays a trace through a placement process; `muster generate-trace` makes one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MUSTER = (sys.executable, "-m", "muster.cli")


def muster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MUSTER, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = muster("generate-trace", "--days", "0.02", "--gpus", "64", "--load", "2")
    assert made.returncode == 0, made.stderr
    file = tmp_path_factory.mktemp("traces") / "trace.jsonl"
    file.write_text(made.stdout)
    return file


def test_modes_and_settings_are_compared(trace: Path) -> None:
    done = muster(
        *("replay", str(trace), "--nodes", "8", "--rack-size", "4", "-o", "json"),
        *("--mode", "muster", "--set", "starvation-after-seconds=30,600"),
    )

    assert done.returncode == 0, done.stderr
    replays = json.loads(done.stdout)["replays"]
    names = ["muster starvation-after-seconds=30", "muster starvation-after-seconds=600"]
    assert [each["name"] for each in replays] == names
    gangs = len(trace.read_text().splitlines())
    assert all(each["ended"] == each["gangs"] == gangs for each in replays)


def test_the_table_has_a_column_for_each_placement(trace: Path) -> None:
    done = muster("replay", str(trace), "--nodes", "8", "--placement", "placement", "--placement", "first-fit")

    assert done.returncode == 0, done.stderr
    assert "muster first-fit" in done.stdout
    assert "utilisation of nvidia.com/gpu" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--mode", "magic"), "modes are muster, fcfs, pod-by-pod"),
        (("--set", "speed=9"), 'no setting is named "speed"'),
        (("--set", "starvation-after-seconds=soon"), "soon"),
        (("--set", "starvation-after-seconds"), "is not NAME=VALUE"),
        (("--node", "cpu"), '"cpu" is not NAME=AMOUNT'),
    ],
)
def test_a_wrong_option_is_an_error_that_quotes_it(trace: Path, arguments: tuple[str, ...], message: str) -> None:
    failed = muster("replay", str(trace), "--nodes", "8", *arguments)

    assert failed.returncode == 2
    assert message in " ".join(failed.stderr.split())


def test_a_trace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    failed = muster("replay", str(tmp_path / "none.jsonl"), "--nodes", "8")

    assert failed.returncode == 2
    assert "none.jsonl" in failed.stderr
