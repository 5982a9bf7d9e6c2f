"""Definition of a kind for the API server, and the registry of served kinds."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from muster.localcluster.apiserver.status import Cause
from muster.localcluster.apiserver.store import Object

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Rules:
    """Defaults and validation of a kind; this base class holds for all kinds."""

    counts_generations = False
    """Changes outside of metadata and status increment metadata.generation."""
    keeps_status_apart = True
    """Whether there is a status subresource: then other writes do not change status, and its writes nothing else."""
    checks_status = False
    """Whether `default` and `validate` also apply to writes of status."""
    status_changes_labels = True
    """Whether writes of status also change labels and annotations."""
    takes_status_of_new = False
    """Whether a create request may include the status."""
    empty_status: ClassVar[Object | None] = None
    """Initial status, in place of the one in the request; None: none."""

    def default(self, obj: Object) -> None:
        """Set defaults, in place."""

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        """Check or complete the object with the help of other objects. Raises StatusError."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Complete a changed object with the help of its previous version, in place; follows `default`."""

    def validate(self, obj: Object) -> Iterable[Cause]:
        """Problems of a new or changed object."""
        return ()

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        """Problems of the change, in addition to those of `validate`."""
        return ()


@dataclass(frozen=True)
class Column:
    """Column of kubectl's table. Priority 1: only with -o wide."""

    name: str
    type: str = "string"
    priority: int = 0
    format: str = ""
    description: str = ""

    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


NAME_COLUMN: Final = Column("Name", format="name", description="Name of the object, unique in its namespace.")
AGE_COLUMN: Final = Column("Age", description="Time since the object was created.")

Cells = Callable[[Object, float], list[Any]]
"""(object, current time in seconds since 1970) -> cells of its row."""


@dataclass(frozen=True)
class TableForm:
    """Table format of a kind."""

    columns: tuple[Column, ...]
    cells: Cells


@dataclass(frozen=True)
class Subresource:
    """Subresource in discovery documents. Empty group and version: those of the resource."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status")


@dataclass(frozen=True, eq=False)
class Kind:
    """Kind in one version of its group."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    rules: Rules = field(default_factory=Rules)
    table: TableForm | None = None
    selectable: tuple[str, ...] = ()
    """Field labels that selectors may use besides metadata.name and metadata.namespace."""
    singular: str = ""
    list_name: str = ""
    collection: str = ""
    """Collection of its objects; shared by all versions of a kind and by a kind in two groups."""
    to_stored: Callable[[Object], Object] | None = None
    """Converts an object of this version to the stored form; None: this version is stored."""
    from_stored: Callable[[Object], Object] | None = None
    stored_field: Callable[[str], str] = str
    """Path of a selector's field in the stored form."""
    custom: bool = False
    """Whether a CustomResourceDefinition defines it."""
    schema: Object | None = None
    """Structural schema of a custom kind."""

    def __post_init__(self) -> None:
        if not self.singular:
            object.__setattr__(self, "singular", self.name.lower())
        if not self.list_name:
            object.__setattr__(self, "list_name", f"{self.name}List")
        if not self.collection:
            object.__setattr__(self, "collection", self.qualified)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Plural with group: "pods", "podgroups.scheduling.x-k8s.io"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def subresource(self, name: str) -> Subresource | None:
        return next((each for each in self.subresources if each.name == name), None)


class Kinds:
    """Registry of served kinds."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self._by_resource: dict[tuple[str, str, str], Kind] = {}
        self._by_name: dict[tuple[str, str], Kind] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._by_resource.values()))

    def add(self, kind: Kind) -> None:
        self._by_resource[kind.group, kind.version, kind.plural] = kind
        self._by_name[kind.api_version, kind.name] = kind

    def remove(self, kind: Kind) -> None:
        self._by_resource.pop((kind.group, kind.version, kind.plural), None)
        self._by_name.pop((kind.api_version, kind.name), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._by_resource.get((group, version, plural))

    def named(self, api_version: str, name: str) -> Kind | None:
        """Kind of an object or a reference."""
        return self._by_name.get((api_version, name))

    def storing(self, collection: str) -> Kind | None:
        """Kind in whose form a collection is stored."""
        kinds = self._by_resource.values()
        return next((kind for kind in kinds if kind.collection == collection and kind.to_stored is None), None)

    def groups(self) -> dict[str, list[str]]:
        """Group -> versions, the preferred one first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._by_resource:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        """Kinds of a group and version."""
        return [kind for kind in self._by_resource.values() if (kind.group, kind.version) == (group, version)]
