"""Marks: the labels, annotations and fields of pods that declare membership of a gang.

A gang of 5,000 pods is not read pod by pod. Its pods have few distinct marks, so cluster-state groups them:

    marks = registry.gang_marks(pod.namespace, pod.labels, pod.annotations)      # known keys only; hashable
    membership = registry.membership_of(marks)                                   # cached by marks
    group[marks] -> MarkSet(marks, oldest pod that has them)                     # at most a few per gang
    facts = registry.read_gang(membership.gang_id, definition, group.values())

When the pods of a gang disagree about a mark, the oldest pod that has the mark decides. The oldest pod of each mark set
is therefore enough: adding or removing a pod changes the facts only if it is the oldest or the only one with its marks.
A dialect that needs the numbers of pods says so (Dialect.counts_pods).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

Pairs = tuple[tuple[str, str], ...]
"""Keys and values, sorted by key."""

Annotations = dict[str, str | None]
"""Annotations to write, by key. None removes the annotation."""

NO_PRIORITIES: Final[Mapping[str, int]] = MappingProxyType({})
"""An empty set of priority classes."""

MAX_VALUE_LENGTH: Final = 65536
"""Characters kept of one mark's value. The longest valid value, a list of 100 gangs, is shorter."""


class GangMarks(Struct, frozen=True, gc=False):
    """The marks of a pod: labels and annotations that a dialect reads, its namespace, and two fields. Hashable.

    `pod_group` is spec.schedulingGroup.podGroupName. `controller` is the "Kind.name" of the pod's controller if that
    controller's pods are a gang (see ControllerGang), else empty.
    """

    namespace: str
    labels: Pairs = ()
    annotations: Pairs = ()
    pod_group: str = ""
    controller: str = ""

    def label(self, key: str) -> str | None:
        """Returns the label's value."""
        return next((value for each, value in self.labels if each == key), None)

    def annotation(self, key: str) -> str | None:
        """Returns the annotation's value."""
        return next((value for each, value in self.annotations if each == key), None)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of labels, then of annotations."""
        return tuple(key for key, _ in self.labels + self.annotations)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.pod_group or self.controller)


class PodAge(Struct, frozen=True, order=True, gc=False):
    """A pod's age. Orders pods by creation time, then by name, so that every replica finds the same oldest pod."""

    created_seconds: int
    name: str
    uid: str


MAX_DECLARATIONS: Final = 256
"""Different marks of a gang's pods that are read, those of the oldest pods; a change reads all of them again."""


class MarkSet(Struct, frozen=True, gc=False):
    """Marks that some pods of a gang share, and the oldest of these pods.

    `pods` is their number, for definitions whose dialect needs it (Dialect.counts_pods); otherwise 0, so that facts
    are not read again for every pod.
    """

    marks: GangMarks
    oldest: PodAge
    pods: int = 0


class Membership(Struct, frozen=True):
    """The gang of a pod, or the reason why its marks name none: exactly one of `gang_id` and `problem` is set.

    `timed_out`: the pod has the mark of a gang that exceeded its waiting time.
    """

    gang_id: str = ""
    problem: str = ""
    timed_out: bool = False
