"""What a kind is to the API server, and which kinds are served at the moment."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from muster.localcluster.apiserver.status import Cause
from muster.localcluster.apiserver.store import Object

if TYPE_CHECKING:
    from muster.localcluster.apiserver.cluster import Cluster

ALL_VERBS: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Rules:
    """What a kind demands of its objects. This base demands what holds for all of them."""

    counts_generations = False
    """metadata.generation rises when something other than metadata and status changes."""
    keeps_status_apart = True
    """Ordinary writes leave status alone, writes to the status subresource leave the rest alone."""
    checks_status = False
    """`default` and `validate` are asked about writes of status, too."""
    takes_status_of_new = False
    """Whoever creates an object may give it a status."""
    empty_status: ClassVar[Object | None] = None
    """Status of a new object, instead of the one its creator sent; None: none."""

    def default(self, obj: Object) -> None:
        """Fill in what the creator left out. The object belongs to the caller and may be changed."""

    def admit(self, cluster: "Cluster", obj: Object) -> None:
        """Look at what else there is: refuse the object with a StatusError, or complete it."""

    def validate(self, obj: Object) -> Iterable[Cause]:
        """What is wrong with a new or changed object."""
        return ()

    def validate_update(self, new: Object, old: Object) -> Iterable[Cause]:
        """What is wrong with the change, apart from what `validate` finds."""
        return ()


@dataclass(frozen=True)
class Column:
    """A column of a table as kubectl shows it. Priority 1: only with -o wide."""

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
"""The cells of an object's row, given the time in seconds since 1970."""


@dataclass(frozen=True)
class TableForm:
    """How objects of a kind look in a table."""

    columns: tuple[Column, ...]
    cells: Cells


@dataclass(frozen=True)
class Subresource:
    """A subresource as discovery shows it. Empty group and version: those of the resource."""

    name: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    kind: str = ""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind in one version of its group."""

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
    """Field labels that selectors may name, apart from metadata.name and metadata.namespace."""
    singular: str = ""
    list_name: str = ""
    collection: str = ""
    """Where its objects are stored; versions of a kind, and kinds with two homes, share one."""
    to_stored: Callable[[Object], Object] | None = None
    """Brings an object of this version into the form that is stored; None: it is that form."""
    from_stored: Callable[[Object], Object] | None = None
    stored_field: Callable[[str], str] = str
    """Path in the stored form of a field that a selector names."""
    custom: bool = False
    """Defined by a CustomResourceDefinition."""
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
        """Plural and group: "pods", "podgroups.scheduling.x-k8s.io"."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def subresource(self, name: str) -> Subresource | None:
        return next((each for each in self.subresources if each.name == name), None)


class Kinds:
    """The kinds that are served now."""

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
        """The kind that an object or a reference names."""
        return self._by_name.get((api_version, name))

    def storing(self, collection: str) -> Kind | None:
        """The kind in whose form the objects of a collection are stored."""
        kinds = self._by_resource.values()
        return next((kind for kind in kinds if kind.collection == collection and kind.to_stored is None), None)

    def groups(self) -> dict[str, list[str]]:
        """Versions by group, the preferred one first."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._by_resource:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

    def of(self, group: str, version: str) -> list[Kind]:
        """The kinds of a group and version."""
        return [kind for kind in self._by_resource.values() if (kind.group, kind.version) == (group, version)]
