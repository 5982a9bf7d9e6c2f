"""Reads PodGroups for the PodGroup controller."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.dialects import kube_batch, volcano
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.registry import defined_gang, read_gang
from muster.dialects.values import BadValue
from muster.kube.gang_marks import definition
from muster.kube.json_repair import shallow
from muster.kube.objects import UNREADABLE, PodGroup
from muster.kube.paths import object_path
from muster.lifecycle.pod_groups.members import Member, mark_sets


class Group(Struct, frozen=True):
    """A PodGroup with its whole status. `revision` is its resourceVersion."""

    gang_id: str
    kind: DefinitionKind
    definition: Definition
    status: Mapping[str, Any]
    revision: int

    @property
    def uid(self) -> str:
        return self.definition.uid

    @property
    def is_kube_batch(self) -> bool:
        return self.kind == kube_batch.DEFINITION

    @property
    def is_volcano(self) -> bool:
        return self.kind == volcano.DEFINITION

    @property
    def key(self) -> str:
        """The gang id; with a prefix for Volcano's, which share their ids with those of kube-batch."""
        return volcano_key(self.gang_id) if self.is_volcano else self.gang_id

    @property
    def path(self) -> str:
        """The object's path in the API."""
        defined = self.definition
        return object_path(defined.api_version, self.kind.plural, defined.namespace, defined.name)

    @property
    def restarts_after(self) -> float | None:
        """Seconds for which it may run with too few pods before it is restarted; None: forever."""
        if not self.is_kube_batch:
            return None
        try:
            return kube_batch.restart_after_seconds(self.definition.spec.get("policy"))
        except BadValue:  # the dialect reports it as a Warning
            return None

    def minimum(self, members: list[Member]) -> int:
        """Returns the number of pods that must run together; 0 if the declaration is invalid."""
        return read_gang(self.gang_id, self.definition, mark_sets(members)).minimum


def volcano_key(gang_id: str) -> str:
    """Returns the key of the Volcano PodGroup of a gang."""
    return f"{volcano.NAME} {gang_id}"


def group_of(seen: PodGroup, kind: DefinitionKind) -> Group | None:
    """Returns the PodGroup; None if it defines no gang."""
    defined = definition(seen, kind)
    gang_id = defined_gang(defined)
    if gang_id is None:
        return None
    return Group(gang_id, kind, defined, _object(seen.status), seen.metadata.revision)


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(shallow(bytes(raw)), type=dict[str, Any]) if bytes(raw) else {}
    except UNREADABLE:
        return {}
