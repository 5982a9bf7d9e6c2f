"""Description of a kind of workload: how its controller declares, scales, restarts and replaces a gang."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from interop.gang import JSON, Gang


class OnFailure(Enum):
    """Reaction of the controller to a failed member."""

    REPLACED = "creates a pod in its place"
    RESTARTS_GANG = "deletes and creates all pods"
    STAYS = "leaves the other members running"


@dataclass(frozen=True)
class Patch:
    """A merge patch of one object."""

    object: JSON
    """Its apiVersion, kind and metadata."""
    body: JSON


@dataclass(frozen=True)
class Withheld:
    """A setting with which a controller does not create all members before some run."""

    change: Callable[[list[JSON]], None]
    """Sets it in the objects of a workload."""
    says: str
    """Words of the explanation."""
    reason: str = ""
    """Words of the reason that the coordinator gives of the gang."""


@dataclass(frozen=True)
class WorkloadKind:
    """One row of the table of workloads. Scenarios know a controller only by this."""

    controller: str
    """Name in the table of controllers."""
    name: str
    user_sets: str
    """Settings that the user must make so that the pods are one gang, as Markdown."""
    objects: Callable[[Gang], Sequence[JSON]]
    """Objects to create, the workload last. They are deleted in reverse order."""
    on_failure: OnFailure
    notes: str = ""
    """Behaviour of the controller that users should know, as Markdown."""
    scaled: Callable[[Gang, int], Sequence[Patch]] | None = None
    """Patches that change the number of pods; None: it is fixed."""
    elastic: Mapping[str, Any] = field(default_factory=dict)
    """Options of a gang of which pods are taken and come back while the others run."""
    restart: Callable[[Gang], Sequence[Patch]] | None = None
    """Patches that make the controller delete all pods and create them again, each applied when the pods of the time
    before are terminating. None: only a failed member does that, or nothing.
    """
    created: Callable[[Gang], Sequence[JSON]] = lambda gang: ()
    """Objects that the controller creates and the user deletes with the others."""
    failing: Callable[[Sequence[JSON]], JSON] = lambda pods: pods[-1]
    """The pod, of all by name, whose failure has this effect."""
    recovers: bool = True
    """Creates pods again after Muster evicted them."""
    finished: Callable[[JSON], bool] | None = None
    """Whether the workload says that the workload has completed, after all pods succeeded; None: it never does."""
    finishing: Callable[[Gang], str] | None = None
    """Name of the pod whose success completes the workload; None: that of all members does."""
    has_plain_pods: bool = False
    """Has pods that belong to no gang, beside the gang's."""
    starts_whole: bool = True
    """All members exist before the first starts, and must start together."""

    withheld: Sequence[Withheld] = ()
    """Controls that withhold members, as `kubectl muster explain` recognises them."""
    documented: str = ""
    """The heading in docs/migration.md with a command that creates one; empty: there is none."""
    is_example: bool = False
    """docs/interop.md has its manifest."""

    @property
    def id(self) -> str:
        return f"{self.controller}: {self.name}"

    @property
    def restarts(self) -> bool:
        """Whether anything makes the controller delete all pods and create them again."""
        return self.restart is not None or self.on_failure is OnFailure.RESTARTS_GANG


def patch_of(gang: Gang, api_version: str, kind: str, body: JSON) -> Patch:
    """A patch of the object that has the gang's name."""
    return Patch({"apiVersion": api_version, "kind": kind, "metadata": gang.metadata()}, body)


def suspended_and_resumed(gang: Gang, api_version: str, kind: str) -> list[Patch]:
    """Patches that set spec.suspend, and take it back."""
    return [patch_of(gang, api_version, kind, {"spec": {"suspend": suspend}}) for suspend in (True, False)]


def has_condition(*types: str) -> Callable[[JSON], bool]:
    """Whether an object has one of these conditions with status True."""

    def check(found: JSON) -> bool:
        conditions = (found.get("status") or {}).get("conditions") or ()
        return any(one["type"] in types and one["status"] == "True" for one in conditions)

    return check
