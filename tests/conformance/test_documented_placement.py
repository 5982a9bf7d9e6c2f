"""The placement in Python of docs/writing-a-placement.md conforms, and `muster up` runs gangs on it."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-placement.md"
_SECONDS = 240.0

GANGS = """
apiVersion: v1
kind: Pod
metadata:
  name: pair-{number}
  labels: {{pod-group.scheduling.sigs.k8s.io/name: pair, pod-group.scheduling.sigs.k8s.io/min-available: "2"}}
spec:
  schedulerName: muster
  containers: [{{name: main, image: x, resources: {{requests: {{cpu: "1"}}}}}}]
"""


@asynccontextmanager
async def worst_fit(directory: Path) -> AsyncIterator[tuple[str, str]]:
    """The documented placement; yields its address, and that of the cluster-state that it watches."""
    [code] = re.findall(r"^```python$(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    program = directory / "worst_fit.py"
    program.write_text(code)
    target, cluster_state = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    child = Child("worst-fit", [sys.executable, str(program), target, cluster_state], directory / "log")
    await child.start()
    try:
        yield target, cluster_state
    finally:
        await child.stop()


async def muster(*arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")},
    )
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_the_documented_placement_conforms_and_its_failures_can_be_repeated(tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    async with worst_fit(tmp_path) as (target, listen):
        addresses = ("--target", target, "--listen", listen, "--output", "json")
        groups = [
            flag for group in ("safety", "revisions", "deadlines", "determinism") for flag in ("--require", group)
        ]
        only = [flag for prefix in ("S", "R", "L", "D", "C09", "C15", "C17", "E02") for flag in ("--only", prefix)]
        code, out, err = await muster(
            "conformance", "placement", *addresses, *groups, *only, "--failures", str(failures)
        )
        assert code == 0, out + err
        verdicts = {case["id"]: case["verdict"] for case in json.loads(out)["cases"]}
        assert [verdicts[each] for each in ("C09", "C17", "E02")] == ["skipped"] * 3
        assert verdicts["C15"] == "failed"  # it needs a search
        code, out, _ = await muster("conformance", "replay", str(failures / "C15.json"), *addresses)
        again = json.loads(out)
        assert (code, again["passed"], again["implementation"]) == (1, False, "worst-fit 1")
        assert again["problem"] in again["recorded"]


async def test_a_failed_call_that_another_placement_answers_correctly_passes(tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    async with worst_fit(tmp_path) as (target, listen):
        await muster(
            *("conformance", "placement", "--target", target, "--listen", listen),
            *("--only", "C15", "--failures", str(failures)),
        )
    file, target, listen = str(failures / "C15.json"), f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    argv = [sys.executable, "-m", "muster.cli", "run", "placement", "--listen", target, "--cluster-state", listen]
    best_fit = Child("placement", argv, tmp_path / "best-fit.log")
    await best_fit.start()
    try:
        code, out, err = await muster("conformance", "replay", file, "--target", target, "--listen", listen)
    finally:
        await best_fit.stop()
    assert code == 0, err
    assert out.startswith("case C15 failed: ")
    assert all(part in out for part in ("cluster", "request", "recorded answer", "answer of best-fit", "passes"))


async def test_a_file_that_is_no_failed_call_is_a_usage_error(tmp_path: Path) -> None:
    for name, content, words in (
        ("other.json", "{}", "is not a file of `muster conformance placement`"),
        ("later.json", '{"version": 9}', "has version 9, not 1"),
    ):
        (tmp_path / name).write_text(content)
        code, _, err = await muster("conformance", "replay", str(tmp_path / name))
        assert code == 2
        assert words in " ".join(err.split())
    code, _, err = await muster("conformance", "replay", str(tmp_path / "missing.json"))
    assert code == 2
    assert "cannot be read" in " ".join(err.split())


async def test_up_runs_gangs_on_a_placement_of_the_user(tmp_path: Path) -> None:
    examples = tmp_path / "examples"
    examples.mkdir()
    (examples / "pair.yaml").write_text("---".join(GANGS.format(number=number) for number in range(2)))
    async with worst_fit(tmp_path) as (target, listen):
        code, out, err = await muster(
            *("up", "--placement", target, "--listen", listen, "--nodes", "2", "--once", "--output", "json"),
            *("--examples", str(examples), "--state-dir", str(tmp_path / "state")),
            cwd=GUIDE.parents[1],
        )
    assert code == 0, err
    assert [each["bound"] for each in json.loads(out)["gangs"]] == [2]
    logs = {path.stem for path in (tmp_path / "state" / "logs").iterdir()}
    assert "forecast" in logs
    assert "placement" not in logs


async def test_up_refuses_a_placement_that_is_neither_a_name_nor_an_address(tmp_path: Path) -> None:
    code, _, err = await muster("up", "--placement", "luck", "--state-dir", str(tmp_path), cwd=GUIDE.parents[1])
    assert code == 2
    assert "--placement 'luck' is not a placement" in err
