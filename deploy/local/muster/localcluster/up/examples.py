"""What is expected of the gangs in a set of manifests, and whether it came true."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from muster.cli.errors import CliError
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase
from muster.dialects import kube_arbitrator
from muster.dialects.registry import gang_marks, membership_of
from muster.localcluster.manifests import Manifest

EXPECT = "muster.dev/expect"
"""Annotation on a pod, or on the object that makes the pods: what is to become of the gang. Only the command line reads
it.
"""

_WAITS = (Phase.PHASE_GATHERING, Phase.PHASE_QUEUED, Phase.PHASE_WAITING, Phase.PHASE_TIMED_OUT)


class Expected(StrEnum):
    """What is to become of a gang."""

    BOUND = "bound"
    WAITING = "waiting"


@dataclass
class Example:
    """A gang of the manifests."""

    id: str
    namespace: str
    name: str
    expected: Expected
    pods: set[tuple[str, str]] = field(default_factory=set)
    """Namespace and name of each; none if a controller makes them."""

    def wanted(self, gang: Gang) -> int:
        """How many pods are to be bound: those of the manifests, else so many as the gang has."""
        return len(self.pods) or max(gang.members, gang.minimum)

    def reached(self, gang: Gang | None) -> bool:
        """The gang is as it should be; one that waits also says why."""
        if gang is None:
            return False
        if self.expected is Expected.BOUND:
            return gang.phase == Phase.PHASE_SATISFIED and gang.bound == self.wanted(gang)
        return gang.phase in _WAITS and gang.bound == 0 and bool(gang.reason)


def examples_in(manifests: Iterable[Manifest]) -> list[Example]:
    """The gangs that the pods among the manifests make, and those that other objects say an expectation of, in their
    order. Raises CliError for an unknown expectation.
    """
    examples: dict[str, Example] = {}
    for manifest in manifests:
        is_pod = manifest.api_version == "v1" and manifest.kind == "Pod"
        if not is_pod and EXPECT not in manifest.annotations:
            continue
        gang = _gang_of_pod(manifest) if is_pod else _gang_of_controller(manifest)
        if gang not in examples:
            name = gang.rpartition("/")[2]
            examples[gang] = Example(gang, manifest.namespace, name, _expected(manifest))
        if is_pod:
            examples[gang].pods.add((manifest.namespace, manifest.name))
    return list(examples.values())


def _gang_of_pod(manifest: Manifest) -> str:
    return _marked(manifest.namespace, manifest.body) or f"plain/{manifest.namespace}/{manifest.name}"


def _gang_of_controller(manifest: Manifest) -> str:
    """The gang that the pods of its template name, else that of all pods which it controls."""
    template = (manifest.body.get("spec") or {}).get("template") or {}
    job = f"{kube_arbitrator.NAME}/{manifest.namespace}/{manifest.kind}.{manifest.name}"
    return _marked(manifest.namespace, template) or job


def _marked(namespace: str, pod: Mapping[str, Any]) -> str:
    """The gang that a pod, or the template of one, names; empty: none."""
    metadata, group = pod.get("metadata") or {}, (pod.get("spec") or {}).get("schedulingGroup") or {}
    marks = gang_marks(
        namespace,
        _texts(metadata.get("labels") or {}),
        _texts(metadata.get("annotations") or {}),
        str(group.get("podGroupName") or ""),
    )
    membership = membership_of(marks)
    return membership.gang_id if membership else ""


def _texts(pairs: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in pairs.items()}


def _expected(manifest: Manifest) -> Expected:
    value = manifest.annotations.get(EXPECT, Expected.BOUND)
    try:
        return Expected(value)
    except ValueError:
        raise CliError(
            f"{manifest}: annotation {EXPECT} is {value!r}", hint='it may be "bound" or "waiting"', usage=True
        ) from None
