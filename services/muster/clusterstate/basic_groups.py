"""Groups whose pods are plain pods: the basic PodGroups that workload controllers create for all of their pods.

Pods and groups arrive in any order. So pods of ours that name a group are stored by it and computed again when the
group turns out to be basic, or ceases to be. Such a pod has no mark of a group: it is a plain pod, or a member of the
gang that its other marks name.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.gang_incarnation import Member
from muster.dialects import registry
from muster.dialects.definitions import Definition
from muster.dialects.marks import GangMarks

GroupKey = tuple[str, str]
"""Namespace and name."""

_NO_PODS: Final[frozenset[str]] = frozenset()


class GroupedPod(Struct, frozen=True, gc=False):
    """A pod of ours that names a group. `marks` are those that apply: without the group's if it is basic."""

    group: str
    marks: GangMarks
    member: Member


class BasicGroups:
    """Basic groups by name, with their uids, and pods by the group that they name.

    A group's entry ends with its object, a pod's with the pod (I11).
    """

    def __init__(self) -> None:
        self._groups: dict[GroupKey, str] = {}
        self._of_definition: dict[str, GroupKey] = {}
        self._pods: dict[str, GroupedPod] = {}
        self._named: dict[GroupKey, set[str]] = {}

    def __len__(self) -> int:
        return len(self._groups) + len(self._pods)

    def applicable(self, marks: GangMarks) -> GangMarks:
        """The marks of a pod without that of a basic group."""
        if marks.pod_group and (marks.namespace, marks.pod_group) in self._groups:
            return replace(marks, pod_group="")
        return marks

    # -- pods

    def put_pod(self, group: str, marks: GangMarks, member: Member) -> None:
        """Add or update a pod of ours that names a group; an empty name: none."""
        uid = member.age.uid
        known = self._pods.get(uid)
        if known is not None and known.group != group:
            self.drop_pod(uid)
        if group:
            self._pods[uid] = GroupedPod(group, marks, member)
            self._named.setdefault((marks.namespace, group), set()).add(uid)

    def drop_pod(self, uid: str) -> None:
        """Remove a pod; without effect if it names no group."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        key = pod.marks.namespace, pod.group
        named = self._named[key]
        named.discard(uid)
        if not named:
            del self._named[key]

    def set_marks(self, uid: str, marks: GangMarks) -> None:
        """Note the marks that a pod has now."""
        if (pod := self._pods.get(uid)) is not None:
            self._pods[uid] = replace(pod, marks=marks)

    def remark(self, uid: str) -> tuple[GroupedPod, GroupedPod] | None:
        """Give a pod the marks that apply now; returns the pod before and after. None if it names no group."""
        before = self._pods.get(uid)
        if before is None:
            return None
        marks = self.applicable(replace(before.marks, pod_group=before.group))
        after = self._pods[uid] = replace(before, marks=marks)
        return before, after

    # -- definitions

    def put_definition(self, definition: Definition) -> Collection[str]:
        """Add or update a definition; returns the pods whose marks change."""
        key = definition.namespace, definition.name
        if not registry.has_plain_pods(definition):
            return self.drop_definition(definition.uid)
        before = self._of_definition.get(definition.uid)
        known = key in self._groups
        changed: Collection[str] = _NO_PODS if before in (None, key) else self.drop_definition(definition.uid)
        self._groups[key] = definition.uid
        self._of_definition[definition.uid] = key
        return changed if known else (*changed, *self._named.get(key, _NO_PODS))

    def drop_definition(self, uid: str) -> Collection[str]:
        """Remove a definition, or note that it is not basic; returns the pods whose marks change."""
        key = self._of_definition.pop(uid, None)
        if key is None or self._groups.get(key) != uid:  # another object may have its name by now
            return _NO_PODS
        del self._groups[key]
        return tuple(self._named.get(key, _NO_PODS))
