"""Finds why a controller does not create members that a gang waits for, and what to set.

The controllers are read with kubectl, so with the user's rights, and only when an incomplete gang is explained. What
may not be read, or is not installed, makes a hint.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from muster.cli.controller_rules import Controller, creation_failures, why_incomplete
from muster.cli.discovery import Kubectl
from muster.cli.errors import CliError
from muster.coordinator.v1.coordinator_pb2 import ExplainResponse, Phase
from muster.dialects.registry import DIALECTS
from muster.gangs.quoting import printable

_MAX_PODS: Final = 5
"""Members whose controllers are read. They are spread over the gang, because its roles may have controllers each."""
_MAX_OBJECTS: Final = 12
"""Controllers that are read of one gang: a chain such as Job, JobSet, TrainJob for each of a few roles."""
_MAX_ADVICE: Final = 8
_GONE: Final = ("deleting", "ended")
"""States of members in whose place controllers create others; of gated and invalid ones none is created."""
_CREATION_FAILS: Final = "cannot create more pods: "
"""In the reason of a gang if its controllers' events were read by cluster-state; they are then not read here."""
_NAMES: Final = ("Forbidden", "NotFound", "the server doesn't have a resource type")


def missing_members(kubectl: Kubectl, answer: ExplainResponse) -> list[str]:
    """Reasons why members do not exist, with what to do, most specific first; empty for a gang that is complete."""
    gang = answer.gang
    exist = sum(each.state not in _GONE for each in answer.members)
    if gang.phase != Phase.PHASE_GATHERING or max(gang.members, exist) >= gang.minimum:
        return []
    chain, hints = _Chain(kubectl, gang.namespace), list[str]()
    try:
        for start in (*_pods(kubectl, gang.namespace, answer), *_definitions(kubectl, answer)):
            hints += chain.follow(start)
        reasons = why_incomplete(tuple(chain.found.values()), gang.minimum, gang.members)
        told = _CREATION_FAILS in gang.reason
        for each in () if told else chain.found.values():
            if each.creates_pods:
                reasons += creation_failures(each, _events(kubectl, each))
    except CliError as error:
        return [f"its controllers were not read: {error.message}"]
    return [printable(each) for each in dict.fromkeys([*reasons, *hints])][:_MAX_ADVICE]


class _Chain:
    """The controllers above some objects by uid, each read once; at most _MAX_OBJECTS, for one explanation (I11)."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self.found: dict[str, Controller] = {}
        self._kubectl, self._namespace = kubectl, namespace
        self._failed: set[str] = set()
        """Uids of those that cannot be read."""

    def follow(self, child: dict[str, Any]) -> Iterator[str]:
        """Read the controllers of an object up to the topmost one; returns a hint for one that cannot be read."""
        while (owner := _owner(child)) is not None and len(self.found) + len(self._failed) < _MAX_OBJECTS:
            uid = str(owner.get("uid"))
            if uid in self.found or uid in self._failed:
                return
            kind, name = str(owner.get("kind")), str(owner.get("name"))
            read = _get(self._kubectl, self._namespace, _resource(str(owner.get("apiVersion")), kind), name)
            if isinstance(read, str):
                self._failed.add(uid)
                yield f"{kind} {self._namespace}/{name}, which creates its pods, cannot be read: {read}"
                return
            child = read
            self.found[uid] = Controller(kind, self._namespace, name, uid, read)


def _pods(kubectl: Kubectl, namespace: str, answer: ExplainResponse) -> Sequence[dict[str, Any]]:
    """Some members."""
    names = [each.pod.rpartition("/")[2] for each in answer.members]
    step = max(1, -(-len(names) // _MAX_PODS))
    return [
        pod
        for name in names[::step]
        if isinstance(pod := _get(kubectl, namespace, "pod", name), dict)  # it may have ended since
    ]


def _definitions(kubectl: Kubectl, answer: ExplainResponse) -> Sequence[dict[str, Any]]:
    """The object that defines the gang, which has a controller even if no pod exists."""
    gang = answer.gang
    kinds = [each.definition for each in DIALECTS if each.name == gang.dialect and each.definition is not None]
    read = (
        _get(kubectl, gang.namespace, f"{kind.plural}.{kind.group}", gang.name)
        for kind in kinds
        if kind.group and kind.kind == "PodGroup"
    )
    return [each for each in read if isinstance(each, dict)]


def _events(kubectl: Kubectl, controller: Controller) -> list[dict[str, Any]]:
    """Events about pods that the controller could not create."""
    selector = f"involvedObject.uid={controller.uid},reason=FailedCreate,type=Warning"
    ran = kubectl.run("get", "events", "-n", controller.namespace, "--field-selector", selector, "-o", "json")
    items = _decoded(ran.stdout).get("items") if ran.returncode == 0 else None
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []


def _get(kubectl: Kubectl, namespace: str, resource: str, name: str) -> dict[str, Any] | str:
    """An object, or why it cannot be read. Owners are named by whoever created a pod: no name is an option."""
    ran = kubectl.run("get", "-n", namespace, "-o", "json", "--", resource, name)
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines()
        return next((line for line in lines if any(each in line for each in _NAMES)), (lines or ["no output"])[-1])
    return _decoded(ran.stdout)


def _decoded(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CliError(f"kubectl printed no object: {error}") from error


def _owner(child: dict[str, Any]) -> dict[str, Any] | None:
    """The ownerReference with controller: true, else the only one."""
    metadata = child.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    listed = [each for each in owners if isinstance(each, dict)] if isinstance(owners, list) else []
    controlling = [each for each in listed if each.get("controller")]
    found = controlling or (listed if len(listed) == 1 else [])
    return found[0] if found else None


def _resource(api_version: str, kind: str) -> str:
    """A kind with version and group, as kubectl reads it: "Job.v1.batch"."""
    group, _, version = api_version.rpartition("/")
    return f"{kind}.{version}.{group}"
