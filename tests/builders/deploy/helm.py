"""Helm as a user runs it, and the rendered objects."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

CHART: Final = Path(__file__).parents[3] / "deploy" / "helm" / "muster"
RELEASE: Final = "muster"
NAMESPACE: Final = "muster-system"

JSON = dict[str, Any]

_KUBERNETES: Final = "1.36.0"  # a Helm built with `go install` has no version of its own
_SECONDS: Final = 60.0


def program() -> str:
    """Path of helm; skips the test without one."""
    built = Path(sys.prefix) / "tools" / "helm"
    if not built.exists():
        pytest.skip("helm is not there: make tools builds it where Go is")
    return str(built)


def helm(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it; returns the completed process."""
    command = [program(), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False, **options)


def template(*arguments: str, values: str = "", release: str = RELEASE) -> subprocess.CompletedProcess[str]:
    """Run `helm template` of the chart, with values as YAML."""
    where = ("--namespace", NAMESPACE, "--kube-version", _KUBERNETES)
    return helm("template", release, str(CHART), *where, "--values", "-", *arguments, input=values or "{}")


def rendered(values: str = "", release: str = RELEASE) -> list[JSON]:
    """The objects that the chart renders for values."""
    result = template(values=values, release=release)
    assert result.returncode == 0, result.stderr
    return [each for each in yaml.safe_load_all(result.stdout) if each]


def of_kind(objects: Sequence[JSON], kind: str) -> dict[str, JSON]:
    """Objects of a kind, by name."""
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pod_specs(objects: Sequence[JSON]) -> Iterator[tuple[str, JSON]]:
    """Workloads with their pod specs."""
    for each in objects:
        if each["kind"] == "Pod":
            yield each["metadata"]["name"], each["spec"]
        elif "template" in (each.get("spec") or {}):
            yield each["metadata"]["name"], each["spec"]["template"]["spec"]
