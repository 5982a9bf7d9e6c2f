"""Runs the conformance suite against the placements that ship with Muster, as processes, with the user's commands."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.localcluster.child_process import Child
from muster.localcluster.ports import free_port

_SECONDS = 1200.0  # of the suite on a busy machine; it takes two minutes on two idle cores

SEARCHES = {"C10", "C11", "C12", "C13", "C15"}
"""Cases that need a search."""
FIRST_FIT_FAILS = SEARCHES | {"E04"}
FIRST_FIT_FEATURES = ["explanations", "host-ports", "node-selection", "pod-anti-affinity", "volumes"]


async def conformance(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `muster conformance placement`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "muster.cli", "conformance", "placement", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if not key.startswith("MUSTER_")},
    )
    out, err = await asyncio.wait_for(process.communicate(), _SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def report_on(service: str, directory: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A service of `muster run` against the suite: exit code and report."""
    listen, target = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    argv = [sys.executable, "-m", "muster.cli", "run", service, "--listen", target, "--cluster-state", listen]
    child = Child(service, argv, directory / "log")
    await child.start()
    try:
        code, out, err = await conformance("--target", target, "--listen", listen, "--output", "json", *arguments)
    finally:
        await child.stop()
    assert out, err
    return code, json.loads(out)


def failures(report: dict[str, Any]) -> dict[str, str]:
    return {case["id"]: case["reason"] for case in report["cases"] if case["verdict"] == "failed"}


@pytest.mark.timeout(1300)
async def test_placement_passes_every_case(tmp_path: Path) -> None:
    code, report = await report_on("placement", tmp_path, "--require", "all")
    assert failures(report) == {}
    assert (code, report["conforms"], report["skipped"]) == (0, True, 0)
    assert report["implementation"] == "best-fit"


@pytest.mark.timeout(1300)
async def test_first_fit_fails_only_cases_that_need_a_search(tmp_path: Path) -> None:
    code, report = await report_on("first-fit", tmp_path)
    assert failures(report).keys() <= FIRST_FIT_FAILS, failures(report)
    assert (code, report["conforms"], report["features"]) == (0, True, FIRST_FIT_FEATURES)
    assert all(case["needs"] for case in report["cases"] if case["verdict"] == "skipped")


async def test_require_selects_groups(tmp_path: Path) -> None:
    code, report = await report_on("first-fit", tmp_path, "--only", "C12", "--require", "completeness")
    assert (code, report["conforms"]) == (1, False)
    assert [case["id"] for case in report["cases"]] == ["C12"]


async def test_the_table_shows_each_case_and_the_verdict(tmp_path: Path) -> None:
    listen, target = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    argv = [sys.executable, "-m", "muster.cli", "run", "first-fit", "--listen", target, "--cluster-state", listen]
    child = Child("first-fit", argv, tmp_path / "log")
    await child.start()
    try:
        code, out, err = await conformance(
            *("--target", target, "--listen", listen, "--only", "S01", "--only", "C12", "--only", "T01")
        )
    finally:
        await child.stop()
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["S01", "passed"]
    assert lines[1].split()[:2] == ["C12", "failed"]
    assert "fits, but the answer is OUTCOME_NOT_FOUND" in lines[2]
    assert lines[3].endswith("(needs constraints)")
    assert lines[-2:] == ["1 passed, 1 failed, 1 skipped; required: safety", "conforms"]


@pytest.mark.parametrize(("host", "flags"), [("127.0.0.1", ()), ("0.0.0.0", ("--insecure",))])
async def test_an_implementation_that_does_not_subscribe_is_an_error(host: str, flags: tuple[str, ...]) -> None:
    listen = f"{host}:{free_port()}"
    code, _, err = await conformance("--listen", listen, "--wait", "0.2", *flags)
    assert code == 1
    assert f"start the implementation with {listen} as the address of its cluster-state" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "Z9"), "no case has an id that begins with Z9"),
        (("--require", "luck"), "'luck' is not a valid CaseGroup"),
    ],
)
async def test_unknown_cases_and_groups_are_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    code, _, err = await conformance(*arguments)
    assert code == 2
    assert words in err


async def test_cases_can_be_listed() -> None:
    code, out, _ = await conformance("--list", "--output", "json")
    cases = json.loads(out)["cases"]
    assert code == 0
    assert len({case["id"] for case in cases}) == len(cases)
    assert all(case["title"] for case in cases)
    assert {"safety", "topology", "deadlines"} <= {case["group"] for case in cases}
