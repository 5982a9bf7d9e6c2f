"""The question of `muster whatif`: the pods that manifests would create, with the priorities of admission."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from muster.cli.discovery import Kubectl
from muster.cli.errors import CliError
from muster.cli.workload_pods import BadWorkload, expanded
from muster.clusterstate.suite import UnreadableObject, facts_of
from muster.gangs.facts import Batch

_PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
_SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True)
class WhatIfRequest:
    """Options of one command."""

    files: Sequence[Path]
    namespace: str
    count: int | None = None
    topology: str = ""
    priority_class: str = ""
    without_gangs: Sequence[str] = ()
    without_nodes: Sequence[str] = ()
    add_nodes: int = 0
    like: str = ""
    horizon_seconds: float = 7 * 86_400.0
    limit_seconds: float = 30.0


class Priority(NamedTuple):
    """A PriorityClass."""

    value: int
    never_preempts: bool = False
    is_default: bool = False


def facts_asked_about(request: WhatIfRequest, classes: Mapping[str, Priority]) -> Batch:
    """The facts of the gangs. Raises CliError."""
    manifests = [each for file in request.files for each in _manifests(file)]
    try:
        objects = expanded(manifests, request.namespace, request.count)
    except BadWorkload as error:
        raise CliError(str(error), usage=True) from error
    names = set()
    for each in objects:
        if each.get("kind") != "Pod":
            continue
        spec = each["spec"]
        if request.priority_class:
            spec["priorityClassName"] = request.priority_class
        if request.topology:
            each["metadata"].setdefault("annotations", {})["muster.dev/topology"] = request.topology
        _admit(each, spec, classes)
        names.add(str(spec.get("schedulerName", "default-scheduler")))
    try:
        facts = facts_of(objects, names)
    except UnreadableObject as error:
        raise CliError(str(error), usage=True) from error
    if not facts.pods:
        files = ", ".join(map(str, request.files))
        raise CliError(f"{files}: no pods, and no workload whose pods are known", usage=True)
    return facts


def _admit(pod: dict[str, Any], spec: dict[str, Any], classes: Mapping[str, Priority]) -> None:
    """Set the priority as admission would. Raises CliError."""
    name = spec.get("priorityClassName")
    if name and name not in classes:
        known = ", ".join(sorted(classes))
        raise CliError(
            f"pod {pod['metadata']['name']}: no PriorityClass is named {name!r}", hint=f"there are {known}", usage=True
        )
    found = classes[name] if name else next((each for each in classes.values() if each.is_default), Priority(0))
    spec["priority"] = found.value
    if found.never_preempts:
        spec.setdefault("preemptionPolicy", "Never")


def _manifests(file: Path) -> list[Mapping[str, Any]]:
    """The objects of a file; lists are divided."""
    try:
        documents = list(yaml.safe_load_all(sys.stdin if str(file) == "-" else file.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", usage=True) from error
    except yaml.YAMLError as error:
        raise CliError(f"{file} is not YAML: {error}", usage=True) from error
    found: list[Mapping[str, Any]] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, Mapping):
            raise CliError(f"{file}: {str(document)[:60]!r} is not an object", usage=True)
        found += document.get("items") or () if str(document.get("kind", "")).endswith("List") else [document]
    return found


def priority_classes(kubectl: Kubectl | None) -> dict[str, Priority]:
    """The PriorityClasses that the user may read; the system's own without a cluster."""
    classes = {name: Priority(value) for name, value in _SYSTEM_CLASSES.items()}
    if kubectl is None:
        return classes
    answer = kubectl.run("get", _PRIORITY_CLASSES, "-o", "json")
    if answer.returncode != 0:
        return classes
    for each in json.loads(answer.stdout).get("items", ()):
        never = each.get("preemptionPolicy") == "Never"
        classes[each["metadata"]["name"]] = Priority(int(each["value"]), never, bool(each.get("globalDefault")))
    return classes


def values(classes: Mapping[str, Priority]) -> dict[str, int]:
    """Values of the classes that may be proposed, by name: not the system's own."""
    return {name: each.value for name, each in classes.items() if name not in _SYSTEM_CLASSES}
