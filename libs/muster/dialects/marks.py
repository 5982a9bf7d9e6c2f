"""What dialects read: the gang marks of pods and the objects that define gangs, and what they say of membership.

A gang of 5,000 pods is not read pod by pod. Its pods carry few different marks, so whoever keeps them groups them:

    marks = registry.gang_marks(pod.namespace, pod.labels, pod.annotations)      # only what dialects know; hashable
    membership = registry.membership_of(marks)                                   # cached by marks
    group[marks] -> MarkSet(marks, oldest pod that has them)                     # at most a few per gang
    facts = registry.read_gang(membership.gang_id, definition, group.values())

A pod that comes or goes changes the facts only if it is the oldest with its marks or the only one. Of pods that
disagree, the oldest that says anything about a mark decides, so the oldest of each set is all that is needed.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from muster.gangs.facts import ObjectReference

Pairs = tuple[tuple[str, str], ...]
"""Keys and values, sorted by key."""


class GangMarks(Struct, frozen=True, gc=False):
    """What any dialect reads of a pod: labels and annotations, its namespace, and two fields. Hashable.

    `pod_group` is spec.schedulingGroup.podGroupName. `job` is "Kind.name" of the controller of a pod whose gang is that
    controller's pods; empty for all others.
    """

    namespace: str
    labels: Pairs = ()
    annotations: Pairs = ()
    pod_group: str = ""
    job: str = ""

    def label(self, key: str) -> str | None:
        """The label's value."""
        return next((value for each, value in self.labels if each == key), None)

    def annotation(self, key: str) -> str | None:
        """The annotation's value."""
        return next((value for each, value in self.annotations if each == key), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of labels, then of annotations."""
        return tuple(key for key, _ in self.labels + self.annotations)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.pod_group or self.job)


class PodAge(Struct, frozen=True, order=True, gc=False):
    """A pod, ordered by age: creation, then name, so that every replica finds the same one oldest."""

    created_seconds: int
    name: str
    uid: str


class MarkSet(Struct, frozen=True, gc=False):
    """Marks that pods of a gang have, and the oldest of these pods."""

    marks: GangMarks
    oldest: PodAge


class Owner(Struct, frozen=True):
    """The controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str


class Definition(Struct, frozen=True):
    """An object that defines a gang. `spec` is the data of a ConfigMap; of the status it has what its kind says."""

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
    controller: Owner | None = None

    @property
    def reference(self) -> ObjectReference:
        """What events about it name."""
        return ObjectReference(self.api_version, self.kind, self.namespace, self.name, self.uid)


class DefinitionKind(Struct, frozen=True):
    """A kind of object that defines gangs.

    `version` is the one that is asked for first; if the API server does not serve it, `older` ones are, in their order.
    `content` is the field with what users declare, `keys` are those in it that dialects read, empty: all; `status` are
    the fields of the status that dialects read (others change often, and nobody here needs them). `label_selector` says
    which objects matter, empty: all.
    """

    group: str
    version: str
    kind: str
    plural: str
    older: tuple[str, ...] = ()
    content: str = "spec"
    keys: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    label_selector: str = ""

    @property
    def api_version(self) -> str:
        """Group and version, as in the objects."""
        return self.api_versions[0]

    @property
    def api_versions(self) -> tuple[str, ...]:
        """All that are understood, the best first."""
        return tuple(f"{self.group}/{each}" if self.group else each for each in (self.version, *self.older))

    @property
    def revision_key(self) -> str:
        """The kind's name in revisions: of a part of a kind, with what selects it."""
        kind = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{kind}/{self.label_selector}" if self.label_selector else kind


class Job(Struct, frozen=True):
    """A controller whose pods are one gang, because an object says so that has the same controller.

    `owner_uid` is the controller's, `name` its "Kind.name", `gang_id` that of the gang. Its pods go only where
    `node_selector` lets them; `source` is where that stands, in words.
    """

    owner_uid: str
    name: str
    gang_id: str = ""
    node_selector: Pairs = ()
    source: str = ""


class Membership(Struct, frozen=True):
    """Of which gang a pod's marks make it a member, or why they fail to: one of `gang_id` and `problem` is set.

    `timed_out`: the pod bears the dialect's mark of a gang that waited longer than it may.
    """

    gang_id: str = ""
    problem: str = ""
    timed_out: bool = False


class Transition(Enum):
    """What happens to a gang, where a dialect has a mark for it."""

    TIMED_OUT = auto()
    """It waited longer than it may: its pods are not tried any more."""
    TRIED_ANEW = auto()
    """Its pods may be tried again."""


Annotations = dict[str, str | None]
"""Annotations to write, by key; None: the annotation is to go."""


NO_PRIORITIES: Final[Mapping[str, int]] = MappingProxyType({})
"""No priority class is known."""

LONGEST_VALUE: Final = 65536
"""Characters of one mark's value that are kept. The longest that means anything, a list of 100 gangs, is shorter."""
