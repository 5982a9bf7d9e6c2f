"""What is expected of the gangs in a set of manifests, and whether it came true."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from muster.cli.errors import CliError
from muster.coordinator.v1.coordinator_pb2 import Gang, Phase
from muster.dialects.registry import gang_marks, membership_of
from muster.localcluster.manifests import Manifest

EXPECT = "muster.dev/expect"
"""Annotation on a pod: what is to become of its gang. Only the command line reads it."""

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
    """Namespace and name of each."""

    def reached(self, gang: Gang | None) -> bool:
        """The gang is as it should be; one that waits also says why."""
        if gang is None:
            return False
        if self.expected is Expected.BOUND:
            return gang.phase == Phase.PHASE_SATISFIED and gang.bound == len(self.pods)
        return gang.phase in _WAITS and gang.bound == 0 and bool(gang.reason)


def examples_in(manifests: Iterable[Manifest]) -> list[Example]:
    """The gangs that the pods among the manifests make, in their order. Raises CliError for an unknown expectation."""
    examples: dict[str, Example] = {}
    for manifest in manifests:
        if manifest.api_version != "v1" or manifest.kind != "Pod":
            continue
        gang = _gang_of(manifest)
        if gang not in examples:
            name = gang.rpartition("/")[2]
            examples[gang] = Example(gang, manifest.namespace, name, _expected(manifest))
        examples[gang].pods.add((manifest.namespace, manifest.name))
    return list(examples.values())


def _gang_of(manifest: Manifest) -> str:
    membership = membership_of(gang_marks(manifest.namespace, _texts(manifest.labels), _texts(manifest.annotations)))
    named = membership.gang_id if membership else ""
    return named or f"plain/{manifest.namespace}/{manifest.name}"


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
