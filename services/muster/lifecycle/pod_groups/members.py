"""Keeps the pods of all gangs, as the PodGroup controller needs them."""

from collections.abc import Iterable
from sys import intern

from msgspec import Struct
from msgspec.structs import replace

from muster.dialects.marks import MAX_DECLARATIONS, GangMarks, MarkSet, PodAge
from muster.dialects.registry import membership_of
from muster.kube.gang_marks import gang_marks, pod_age
from muster.kube.object_changes import Removed
from muster.kube.objects import Pod


class Member(Struct, frozen=True, gc=False):
    """A pod of a gang. `phase` is that of its status; `controller`: a controller will replace it when it is deleted;
    `ours`: Muster schedules it.
    """

    uid: str
    namespace: str
    name: str
    gang_id: str
    marks: GangMarks
    age: PodAge
    phase: str = "Pending"
    node: str = ""
    deleting: bool = False
    controller: bool = False
    owners: tuple[str, ...] = ()
    ours: bool = True

    @property
    def runs(self) -> bool:
        """Whether the pod is running and not being deleted."""
        return self.phase == "Running" and not self.deleting

    @property
    def ended(self) -> bool:
        """Whether the pod has succeeded or failed."""
        return self.phase in ("Succeeded", "Failed")


class GangChange(Struct, frozen=True):
    """A change of a gang; `stopped`: a running member stopped."""

    gang_id: str
    stopped: bool = False


class Members:
    """The members of all gangs, each until its pod is removed (I11)."""

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        self._scheduler_names = frozenset(scheduler_names)
        self._by_uid: dict[str, Member] = {}
        self._by_gang: dict[str, dict[str, Member]] = {}
        self._deleted: set[str] = set()

    def put(self, change: Pod | Removed) -> list[GangChange]:
        """Applies a change of a pod; returns the gangs that it changes."""
        if isinstance(change, Removed):
            self._deleted.discard(change.uid)
            uid, after = change.uid, None
        else:
            uid, after = change.metadata.uid, self._member(change)
        before = self._by_uid.get(uid)
        if before == after:
            return []
        self._replace(before, after)
        stopped = before is not None and before.runs and (after is None or not after.runs)
        changes = [] if before is None else [GangChange(before.gang_id, stopped)]
        if after is not None and (before is None or before.gang_id != after.gang_id):
            changes.append(GangChange(after.gang_id))
        return changes

    def mark_deleted(self, member: Member) -> None:
        """Marks a member as deleted, even if an older state of it is delivered later."""
        if self._by_uid.get(member.uid) == member:
            self._deleted.add(member.uid)
            self._replace(member, replace(member, deleting=True))

    def of(self, gang_id: str) -> list[Member]:
        """Returns the members of a gang that Muster schedules, the oldest first."""
        members = self._by_gang.get(gang_id, {}).values()
        return sorted((member for member in members if member.ours), key=lambda member: member.age)

    def is_foreign(self, gang_id: str) -> bool:
        """Returns whether the gang has pods and all of them belong to other schedulers."""
        members = self._by_gang.get(gang_id, {}).values()
        return bool(members) and not any(member.ours for member in members)

    def _member(self, pod: Pod) -> Member | None:
        marks = gang_marks(pod)
        membership = membership_of(marks) if marks else None
        if membership is None or not membership.gang_id:
            return None
        metadata, gang_id = pod.metadata, intern(membership.gang_id)
        return Member(
            metadata.uid,
            intern(metadata.namespace),
            metadata.name,
            gang_id,
            self._shared_marks(gang_id, marks),
            pod_age(pod),
            pod.status.phase or "Pending",
            intern(pod.spec.node_name or ""),
            metadata.deletion_timestamp is not None or metadata.uid in self._deleted,
            bool(metadata.controller),
            tuple(sorted(owner.name for owner in metadata.owner_references or ())),
            pod.spec.scheduler_name in self._scheduler_names,
        )

    def _shared_marks(self, gang_id: str, marks: GangMarks) -> GangMarks:
        """The marks, as another member of the gang has them if they are equal: usually those of all members are."""
        other = next(iter(self._by_gang.get(gang_id, {}).values()), None)
        return other.marks if other is not None and other.marks == marks else marks

    def _replace(self, before: Member | None, after: Member | None) -> None:
        if before is not None:
            del self._by_uid[before.uid]
            of_gang = self._by_gang[before.gang_id]
            del of_gang[before.uid]
            if not of_gang:
                del self._by_gang[before.gang_id]
        if after is not None:
            self._by_uid[after.uid] = after
            self._by_gang.setdefault(after.gang_id, {})[after.uid] = after


def mark_sets(members: Iterable[Member]) -> list[MarkSet]:
    """Returns the mark sets of members, which are ordered by age: the first MAX_DECLARATIONS."""
    oldest: dict[GangMarks, PodAge] = {}
    for member in members:
        oldest.setdefault(member.marks, member.age)
        if len(oldest) == MAX_DECLARATIONS:
            break
    return [MarkSet(marks, age) for marks, age in oldest.items()]
