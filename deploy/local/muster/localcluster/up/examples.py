"""Gangs of a set of manifests, with the outcome that an annotation expects of each."""

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
"""Annotation on a pod or its controller with the expected outcome of the gang. Only `muster up` reads it."""

_PENDING_PHASES = (Phase.PHASE_GATHERING, Phase.PHASE_QUEUED, Phase.PHASE_WAITING, Phase.PHASE_TIMED_OUT)


class Expected(StrEnum):
    """Expected outcome of a gang."""

    BOUND = "bound"
    WAITING = "waiting"


@dataclass
class Example:
    """Gang of the manifests."""

    id: str
    namespace: str
    name: str
    expected: Expected
    pods: set[tuple[str, str]] = field(default_factory=set)
    """Namespace and name of each pod; empty if a controller creates them."""

    def expected_bound(self, gang: Gang) -> int:
        """Number of pods to be bound: those of the manifests, else all members of the gang."""
        return len(self.pods) or max(gang.members, gang.minimum)

    def reached(self, gang: Gang | None) -> bool:
        """Whether the gang is as expected; a pending one must have a reason."""
        if gang is None:
            return False
        if self.expected is Expected.BOUND:
            return gang.phase == Phase.PHASE_SATISFIED and gang.bound == self.expected_bound(gang)
        return gang.phase in _PENDING_PHASES and gang.bound == 0 and bool(gang.reason)


def examples_in(manifests: Iterable[Manifest]) -> list[Example]:
    """Gangs of the pods and of the annotated controllers, in order. Raises CliError for an unknown expectation."""
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
    """Gang that the pod template declares, else the gang of all pods of the controller."""
    template = (manifest.body.get("spec") or {}).get("template") or {}
    job = f"{kube_arbitrator.NAME}/{manifest.namespace}/{manifest.kind}.{manifest.name}"
    return _marked(manifest.namespace, template) or job


def _marked(namespace: str, pod: Mapping[str, Any]) -> str:
    """Gang that a pod or pod template declares; empty if none."""
    metadata, group = pod.get("metadata") or {}, (pod.get("spec") or {}).get("schedulingGroup") or {}
    annotations = gang_marks(
        namespace,
        _texts(metadata.get("labels") or {}),
        _texts(metadata.get("annotations") or {}),
        str(group.get("podGroupName") or ""),
    )
    membership = membership_of(annotations)
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
