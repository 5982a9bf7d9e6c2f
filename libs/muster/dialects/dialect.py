"""The interface of a dialect: one value with the marks it reads, how it reads a declaration, and what it writes.

A dialect is a module with a constant `DIALECT`. Adding one takes that module, an entry in `registry.DIALECTS`, a test
file, and rows in the table of docs/gang-rules.md.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from muster.dialects.composites import Ancestry
from muster.dialects.definitions import ControllerGang, Definition, DefinitionKind
from muster.dialects.marks import NO_PRIORITIES, Annotations, GangMarks, MarkSet, Membership
from muster.dialects.progress import Progress, Writes
from muster.gangs.facts import GangFacts


class PodMarks(Struct, frozen=True):
    """The marks that a dialect reads on pods.

    `label_prefix` matches labels whose keys users complete (empty: none). `other` describes a mark that is neither a
    label nor an annotation, such as a field of the pod; it returns an empty string for pods without that mark. `naming`
    tells users how a pod names its gang, for error messages. `roles` are labels and annotations that are read of
    members, but also have a meaning on pods of other gangs. `shared`: another controller reads the marks too, so they
    are no mistake on pods of another dialect. `generated` returns whether a controller added a mark to a pod that had
    none.
    """

    naming: str
    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()
    label_prefix: str = ""
    other: Callable[[GangMarks], str] = lambda _: ""
    roles: frozenset[str] = frozenset()
    shared: bool = False
    generated: Callable[[GangMarks, str], bool] = lambda _marks, _key: False

    def reads(self, key: str) -> bool:
        """Returns whether the dialect reads the label or annotation."""
        if key in self.labels or key in self.annotations:
            return True
        return bool(self.label_prefix) and key.startswith(self.label_prefix)

    def of(self, marks: GangMarks) -> list[str]:
        """Returns the dialect's marks among those of a pod, in words, without generated ones."""
        found = [key for key in marks.keys if self.reads(key) and not self.generated(marks, key)]
        if other := self.other(marks):
            found.append(other)
        return found


class Declaration(Struct, frozen=True):
    """Everything users declared of one gang: the input of a dialect's `read`.

    `pods` has one entry for each distinct GangMarks among the gang's pods, ordered by their oldest pods. `priorities`
    maps names of priority classes to their values. `ancestry`: the sets of gangs that the definition names as parents.
    """

    namespace: str
    name: str
    definition: Definition | None = None
    pods: Sequence[MarkSet] = ()
    priorities: Mapping[str, int] = NO_PRIORITIES
    ancestry: Ancestry | None = None


class Dialect(Struct, frozen=True):
    """One way to declare gangs.

    `membership` returns the gang that a pod's marks name, or why they fail to; None if they name none. `read` turns a
    declaration into facts. `definition` is the kind of objects that define gangs of the dialect. The rest is optional:

    * `gang_name`: name of the gang that an object defines, if it is not the object's own name;
    * `controller_gang`: the controller whose pods are the gang that an object defines, if pods have no mark;
    * `write_progress`: writes to make when the progress of a gang changes;
    * `wanted_rank`: the rank that a member's annotations and labels ask for; -1: none;
    * `labels_at_bind`: labels that a member gets before it is bound, from its rank and the gang's number of attempts;
    * `timeout_annotations`: annotations of the pods of a gang that timed out (True) or may be tried again (False);
    * `event_reason`: reason of the events that report why a gang does not start;
    * `shares_ids_of`: the dialect whose gang ids this one uses, because pods of both have the same mark and only the
      definition tells them apart; empty: ids begin with the dialect's own name;
    * `counts_pods`: whether `read` needs the numbers of pods (MarkSet.pods) for a definition;
    * `has_plain_pods`: whether a definition makes no gang of the pods that name it: they are as without that mark;
    * `defined_by_pods`: whether an object without any pod of Muster's is no gang, because controllers create such
      objects for pods of every scheduler.
    """

    name: str
    marks: PodMarks
    membership: Callable[[GangMarks], Membership | None]
    read: Callable[[Declaration], GangFacts]
    definition: DefinitionKind | None = None
    gang_name: Callable[[Definition], str] = lambda definition: definition.name
    controller_gang: Callable[[Definition], ControllerGang | None] | None = None
    write_progress: Callable[[Progress], Writes] | None = None
    wanted_rank: Callable[[Mapping[str, str], Mapping[str, str]], int] | None = None
    labels_at_bind: Callable[[int | None, int], Mapping[str, str]] = lambda _rank, _attempts: {}
    timeout_annotations: Callable[[bool], Annotations] = lambda _timed_out: {}
    event_reason: str = "FailedScheduling"
    shares_ids_of: str = ""
    counts_pods: Callable[[Definition], bool] = lambda _definition: False
    has_plain_pods: Callable[[Definition], bool] = lambda _definition: False
    defined_by_pods: bool = False

    @property
    def id_prefix(self) -> str:
        """The first part of the ids of its gangs."""
        return self.shares_ids_of or self.name
