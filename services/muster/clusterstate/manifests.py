"""The gangs that manifests would create, with the priorities of admission: the question of what-if."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import yaml
from msgspec import Struct

from muster.clusterstate.manifest_fields import BadWorkload, Manifest, objects_in
from muster.clusterstate.manifest_size import MAX_SIZE, MAX_VALUES, BoundedLoader, size_of
from muster.clusterstate.unsubmitted import UnreadableObject, facts_of
from muster.clusterstate.workload_pods import expanded
from muster.gangs.facts import Batch
from muster.gangs.quoting import quoted


class Priority(NamedTuple):
    """A PriorityClass."""

    value: int
    never_preempts: bool = False
    is_default: bool = False


SYSTEM_CLASSES: Final[Mapping[str, Priority]] = {
    "system-cluster-critical": Priority(2_000_000_000),
    "system-node-critical": Priority(2_000_001_000),
}


class BadManifests(ValueError):
    """Manifests of which the gangs cannot be told. The message quotes what is wrong and says what is expected."""


class Edits(Struct, frozen=True):
    """Changes of manifests: the number of pods of each template, `muster.dev/topology` of the pods, and their
    PriorityClass.
    """

    count: int | None = None
    topology: str = ""
    priority_class: str = ""


def parse_manifests(text: str, where: str) -> list[Manifest]:
    """The objects in YAML documents; lists are divided. `where` they are from, for messages. Raises BadManifests."""
    try:
        documents = list(yaml.load_all(text, BoundedLoader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: "2001-13-41" is taken for a date
        raise BadManifests(f"{where} is not YAML: {error}") from error
    found: list[Manifest] = []
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, Mapping):
            said = quoted(document) if isinstance(document, str) else f"a document of type {type(document).__name__}"
            raise BadManifests(f"{where}: {said} is not an object")
        if size_of(document) > MAX_SIZE:
            too_many = f"more than {MAX_VALUES} values, those of aliases included, or more than {MAX_SIZE} characters"
            raise BadManifests(f"{where}: an object has {too_many}")
        is_list = str(document.get("kind", "")).endswith("List")
        try:
            found += objects_in(document, "items", document) if is_list else [document]
        except BadWorkload as error:
            raise BadManifests(f"{where}: {error}") from error
    return found


def gangs_of(
    manifests: Sequence[Manifest], namespace: str, classes: Mapping[str, Priority], edits: Edits, where: str
) -> Batch:
    """The facts of the gangs. `namespace` is that of objects without one, `classes` the PriorityClasses by name. Raises
    BadManifests.
    """
    try:
        objects = expanded(manifests, namespace, edits.count)
    except BadWorkload as error:
        raise BadManifests(str(error)) from error
    schedulers = set()
    for each in objects:
        if each.get("kind") != "Pod":
            continue
        spec = each["spec"]
        if edits.priority_class:
            spec["priorityClassName"] = edits.priority_class
        if edits.topology:
            each["metadata"]["annotations"]["muster.dev/topology"] = edits.topology
        _admit(each, spec, classes)
        schedulers.add(str(spec.get("schedulerName", "default-scheduler")))
    try:
        facts = facts_of(objects, schedulers)
    except UnreadableObject as error:
        raise BadManifests(str(error)) from error
    if not facts.pods:
        raise BadManifests(f"{where}: no pods, and no workload whose pods are known")
    return facts


def proposable(classes: Mapping[str, Priority]) -> dict[str, int]:
    """Values of the classes that may be proposed, by name: not the system's own."""
    return {name: each.value for name, each in classes.items() if name not in SYSTEM_CLASSES}


def _admit(pod: dict[str, Any], spec: dict[str, Any], classes: Mapping[str, Priority]) -> None:
    """Set the priority as admission would. Raises BadManifests."""
    name = str(spec.get("priorityClassName") or "")
    if name and name not in classes:
        known = ", ".join(sorted(classes))
        raise BadManifests(f"pod {pod['metadata']['name']}: no PriorityClass is named {name!r}; there are {known}")
    found = classes[name] if name else next((each for each in classes.values() if each.is_default), Priority(0))
    spec["priority"] = found.value
    if found.never_preempts:
        spec.setdefault("preemptionPolicy", "Never")
