"""A PodGroup as it was seen last."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.dialects import kube_batch
from muster.dialects.definitions import Definition, DefinitionKind
from muster.dialects.registry import defined_gang, read_gang
from muster.dialects.values import BadValue
from muster.kube.gang_marks import definition
from muster.kube.objects import UNREADABLE, PodGroup
from muster.kube.paths import object_path
from muster.lifecycle.pod_groups.members import Member, mark_sets


class Group(Struct, frozen=True):
    """What it declares, and its whole status. `revision` is its resourceVersion."""

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
    def path(self) -> str:
        """Where the API has it."""
        declared = self.definition
        return object_path(declared.api_version, self.kind.plural, declared.namespace, declared.name)

    @property
    def restarts_after(self) -> float | None:
        """Seconds that it may run with too few pods before it is restarted; None: for ever."""
        if not self.is_kube_batch:
            return None
        try:
            return kube_batch.restart_after_seconds(self.definition.spec.get("policy"))
        except BadValue:  # the gang has a Warning about it: see the dialect
            return None

    def minimum(self, members: list[Member]) -> int:
        """How many of its pods must run together; 0 if what is declared cannot be read."""
        return read_gang(self.gang_id, self.definition, mark_sets(members)).minimum


def group_of(seen: PodGroup, kind: DefinitionKind) -> Group | None:
    """None: it defines no gang."""
    declared = definition(seen, kind)
    gang_id = defined_gang(declared)
    if gang_id is None:
        return None
    return Group(gang_id, kind, declared, _object(seen.status), seen.metadata.revision)


def _object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return msgspec.json.decode(raw, type=dict[str, Any]) if bytes(raw) else {}
    except UNREADABLE:
        return {}
