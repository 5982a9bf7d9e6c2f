"""The question of `muster whatif`: the pods that manifests would create, with the priorities of admission."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from muster.cli.discovery import Kubectl
from muster.cli.errors import CliError
from muster.clusterstate.suite import SYSTEM_CLASSES, BadManifests, Edits, Priority, gangs_of, parse_manifests
from muster.gangs.facts import Batch

_PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"


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


def facts_asked_about(request: WhatIfRequest, classes: Mapping[str, Priority]) -> Batch:
    """The facts of the gangs. Raises CliError."""
    edits = Edits(request.count, request.topology, request.priority_class)
    try:
        manifests = [each for file in request.files for each in parse_manifests(_text(file), str(file))]
        return gangs_of(manifests, request.namespace, classes, edits, ", ".join(map(str, request.files)))
    except BadManifests as error:
        raise CliError(str(error), usage=True) from error


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{file} cannot be read: {error}", usage=True) from error


def priority_classes(kubectl: Kubectl | None) -> dict[str, Priority]:
    """The PriorityClasses that the user may read; the system's own without a cluster."""
    classes = dict(SYSTEM_CLASSES)
    if kubectl is None:
        return classes
    answer = kubectl.run("get", _PRIORITY_CLASSES, "-o", "json")
    if answer.returncode != 0:
        return classes
    for each in json.loads(answer.stdout).get("items", ()):
        never = each.get("preemptionPolicy") == "Never"
        classes[each["metadata"]["name"]] = Priority(int(each["value"]), never, bool(each.get("globalDefault")))
    return classes
