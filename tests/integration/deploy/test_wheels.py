"""Contents of the two wheels: production code, and the local cluster as a distribution of its own."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def built(project: Path, directory: Path) -> zipfile.ZipFile:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [wheel] = directory.iterdir()
    return zipfile.ZipFile(wheel)


def names(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def production(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(ROOT, tmp_path_factory.mktemp("muster"))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return built(ROOT / "deploy/local", tmp_path_factory.mktemp("muster-local"))


def test_the_production_wheel_does_not_contain_the_local_cluster(production: zipfile.ZipFile) -> None:
    assert "muster/cli/main.py" in names(production)
    assert "muster/coordinator/v1/coordinator_pb2.py" in names(production)
    assert not [name for name in names(production) if "localcluster" in name or "deploy" in name]
    for name in names(production):
        assert b"muster.localcluster" not in production.read(name), name


def test_the_local_wheel_contains_nothing_else(local: zipfile.ZipFile) -> None:
    assert "muster/localcluster/stack.py" in names(local)
    assert {name.split("/")[1] for name in names(local)} == {"localcluster"}


def test_the_local_wheel_contains_the_manifests_that_it_applies(local: zipfile.ZipFile) -> None:
    for folder in ("crds", "examples", "helm/muster/files/permissions"):
        for file in (ROOT / "deploy" / folder).rglob("*.yaml"):
            packaged = f"muster/localcluster/deploy/{folder}/{file.relative_to(ROOT / 'deploy' / folder)}"
            assert local.read(packaged) == file.read_bytes(), packaged


def test_both_distributions_have_one_version_and_the_extra_names_it() -> None:
    product = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = tomllib.loads((ROOT / "deploy/local/pyproject.toml").read_text())["project"]
    assert extra["version"] == product["version"]
    assert product["optional-dependencies"]["local"] == [f"{extra['name']}=={extra['version']}"]
    assert f"{product['name']}=={product['version']}" in extra["dependencies"]
