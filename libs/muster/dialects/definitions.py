"""Objects that define gangs (PodGroup, SchedulingSpec, ConfigMap) and the kinds they belong to."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.dialects.marks import Pairs
from muster.gangs.facts import ObjectReference


class Owner(Struct, frozen=True):
    """The controller of an object, from the ownerReference with controller: true."""

    api_version: str
    kind: str
    name: str
    uid: str


class Definition(Struct, frozen=True):
    """An object that defines a gang.

    `spec` holds the declaration: the spec of a PodGroup, the data of a ConfigMap. `status` holds only the fields that
    the kind lists. `unknown` are keys of the declaration that nobody reads or writes: some, sorted.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    created_seconds: int = 0
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}
    unknown: tuple[str, ...] = ()
    controller: Owner | None = None

    @property
    def reference(self) -> ObjectReference:
        """The involved object of events about the definition."""
        return ObjectReference(self.api_version, self.kind, self.namespace, self.name, self.uid)


class DefinitionKind(Struct, frozen=True):
    """A kind of object that defines gangs.

    `version` is the preferred API version; `older` lists the versions to try, in order, if the API server does not
    serve it. `content` names the field with the declaration, `keys` the keys in it that the dialect reads (empty: all).
    `written` lists those that schedulers write; if it is not empty, every other key is unknown.
    `status` lists the status fields that the dialect reads; other fields change often and are dropped.
    `label_selector` restricts which objects are watched (empty: all).
    """

    group: str
    version: str
    kind: str
    plural: str
    older: tuple[str, ...] = ()
    content: str = "spec"
    keys: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    label_selector: str = ""

    @property
    def api_version(self) -> str:
        """The preferred group and version, as in the objects' apiVersion."""
        return self.api_versions[0]

    @property
    def api_versions(self) -> tuple[str, ...]:
        """All supported values of apiVersion, the preferred one first."""
        return tuple(f"{self.group}/{each}" if self.group else each for each in (self.version, *self.older))

    @property
    def revision_key(self) -> str:
        """The kind's name in revisions; with the label selector if the kind has one."""
        kind = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{kind}/{self.label_selector}" if self.label_selector else kind


class ControllerGang(Struct, frozen=True):
    """A gang that consists of the pods of one controller, because a definition has the same controller.

    `owner_uid` and `name` ("Kind.name") identify the controller. `node_selector` restricts the nodes of all its pods;
    `source` says where that selector is written.
    """

    owner_uid: str
    name: str
    gang_id: str = ""
    node_selector: Pairs = ()
    source: str = ""
