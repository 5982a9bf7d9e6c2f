"""PodGroups with ResourceClaims, and the claims that their pods use because of them."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.kube.pod_device_claims import DeviceClaimOfPod
from muster.kube.pod_group_claims import GroupClaims

GroupKey = tuple[str, str]
"""Namespace and name."""

_Claims = tuple[DeviceClaimOfPod, ...]


class DeviceClaimGroups:
    """PodGroups with claims, and pods with claims that name a PodGroup. Entries end with the PodGroup, and with the pod
    (I11). Bound pods of other schedulers only count.
    """

    def __init__(self) -> None:
        self._groups: dict[GroupKey, GroupClaims] = {}
        self._keys: dict[str, GroupKey] = {}  # by uid of the PodGroup
        self._pods: dict[str, tuple[GroupKey, _Claims]] = {}  # with the claims of the pods' own lists
        self._members: dict[GroupKey, set[str]] = {}
        self._others: dict[GroupKey, set[str]] = {}
        """Bound pods of other schedulers by PodGroup."""
        self._group_of_other: dict[str, GroupKey] = {}

    def is_group(self, uid: str) -> bool:
        """Whether this is the uid of a PodGroup with claims."""
        return uid in self._keys

    def has_others(self, uid: str) -> bool:
        """Whether bound pods of other schedulers belong to the PodGroup, and may use its claims."""
        return self._keys.get(uid) in self._others

    def claims_of(self, key: GroupKey) -> tuple[DeviceClaimOfPod, ...]:
        """The claims of a PodGroup; empty if it has none."""
        group = self._groups.get(key)
        return group.claims if group is not None else ()

    def put_other(self, uid: str, group: GroupKey) -> bool:
        """Add a bound pod of another scheduler. Returns whether it is the first one of the PodGroup."""
        if uid in self._group_of_other:
            return False
        self._group_of_other[uid] = group
        others = self._others.setdefault(group, set())
        others.add(uid)
        return len(others) == 1

    def drop_other(self, uid: str) -> GroupKey | None:
        """A pod is gone. Returns its PodGroup if it was the last such pod of that."""
        group = self._group_of_other.pop(uid, None)
        if group is None:
            return None
        others = self._others[group]
        others.discard(uid)
        if others:
            return None
        del self._others[group]
        return group

    def put_pod(self, uid: str, group: GroupKey, claims: _Claims) -> _Claims:
        """Add or update a pod that names a PodGroup; returns the claims that it uses."""
        if uid in self._pods and self._pods[uid][0] != group:
            self.drop_pod(uid)
        self._pods[uid] = group, claims
        self._members.setdefault(group, set()).add(uid)
        return self._resolved(group, claims)

    def drop_pod(self, uid: str) -> None:
        """The pod is gone, or names no PodGroup."""
        group, _ = self._pods.pop(uid, (None, ()))
        if group is None:
            return
        members = self._members[group]
        members.discard(uid)
        if not members:
            del self._members[group]

    def put(self, group: GroupClaims | None, uid: str) -> Mapping[str, _Claims]:
        """A PodGroup was added, changed or, if None, has no claims or is gone; returns the claims of its pods if they
        changed.
        """
        before = self._keys.get(uid)
        if group is None:
            if before is None:
                return {}
            del self._keys[uid]
            if self._groups[before].uid == uid:
                del self._groups[before]
            return self._of(self._members.get(before, ()))
        key = (group.namespace, group.name)
        if self._groups.get(key) == group:
            return {}
        if (other := self._groups.get(key)) is not None and other.uid != uid:
            self._keys.pop(other.uid, None)
        self._groups[key], self._keys[uid] = group, key
        return self._of(self._members.get(key, ()))

    def _of(self, pods: Iterable[str]) -> dict[str, _Claims]:
        return {uid: self._resolved(*self._pods[uid]) for uid in pods}

    def _resolved(self, key: GroupKey, claims: _Claims) -> _Claims:
        group = self._groups.get(key)
        if group is None:
            return claims
        found = []
        for each in claims:
            of_group = group.claim_of(each)
            found.append(each if of_group is None else replace(of_group, group=group.uid))
        return tuple(found)
