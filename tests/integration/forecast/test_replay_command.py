"""`muster replay` plays a trace through a placement process; `muster generate-trace` makes one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.forecast.redaction import redact
from muster.forecast.replay import uniform_nodes
from muster.forecast.snapshot import Snapshot, write
from muster.gangs.facts import GangFacts, PodClass, PodFacts, PodPhase
from muster.kube.pod_class import identified

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


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Files of a snapshot of 8 nodes, of which pods use one, and of the same redacted."""
    directory = tmp_path_factory.mktemp("snapshots")
    start = uniform_nodes(8, (("cpu", 96_000), ("memory", 2**40 * 1000), ("nvidia.com/gpu", 8), ("pods", 110)), 4)
    pod_class = identified(PodClass("", (("cpu", 1000), ("nvidia.com/gpu", 8), ("pods", 1))))
    name = start.batch.nodes[0].name
    pod = PodFacts("u", "ml", "p", pod_class.id, node=name, phase=PodPhase.RUNNING, gang="test/ml/g")
    gang = GangFacts("test/ml/g", "test", "ml", "g", incarnation="g", minimum=1)
    batch = replace(start.batch, pod_classes=(pod_class,), pods=(pod,), gangs=(gang,))
    snapshot = Snapshot(1e9, {"starvation-after-seconds": "600"}, (), batch)
    files = directory / "cluster.zip", directory / "redacted.zip"
    write(snapshot, files[0])
    write(redact(snapshot), files[1])
    return files


def test_a_replay_begins_with_a_snapshot_also_a_redacted_one(trace: Path, snapshots: tuple[Path, Path]) -> None:
    figures = []
    for file in snapshots:
        done = muster("replay", str(trace), "--snapshot", str(file), "-o", "json")
        assert done.returncode == 0, done.stderr
        (played,) = json.loads(done.stdout)["replays"]
        figures.append({key: value for key, value in played.items() if key not in ("steps", "solves")})
    assert figures[0] == figures[1]
    assert figures[0]["snapshot"]["running_pods"] == 1
    assert figures[0]["ended"] > 0
    assert "gangs of the snapshot that started" in muster("replay", str(trace), "--snapshot", str(file)).stdout


def test_wrong_uses_of_a_snapshot_are_errors(trace: Path, snapshots: tuple[Path, Path], tmp_path: Path) -> None:
    levels = tmp_path / "levels.jsonl"
    levels.write_text(
        '{"time": 0, "gang": "a", "members": 1, "requests": "cpu=1", "duration": 9, "topology": "zone: hard pack"}\n'
    )
    other = tmp_path / "other.zip"
    other.write_text("no archive")
    file = str(snapshots[0])
    for arguments, message in (
        ((str(trace),), "give either --nodes or --snapshot"),
        ((str(trace), "--nodes", "8", "--snapshot", file), "give either --nodes or --snapshot"),
        ((str(trace), "--snapshot", file, "--mode", "fcfs"), "mode fcfs cannot begin with a snapshot"),
        ((str(trace), "--snapshot", str(other)), "other.zip"),
        ((str(levels), "--snapshot", file), 'has no level "zone"; levels are rack, node'),
    ):
        failed = muster("replay", *arguments)
        assert failed.returncode == 2, failed.stderr
        assert message in " ".join(failed.stderr.split())


def test_a_trace_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    failed = muster("replay", str(tmp_path / "none.jsonl"), "--nodes", "8")

    assert failed.returncode == 2
    assert "none.jsonl" in failed.stderr
