"""Usage of one namespace as this replica observes it: quota limits, PodGroups, and sums over pods."""

from collections import defaultdict
from typing import Final

from msgspec import Struct

from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage, ScopeRequirement
from muster.lifecycle.quota.ledger import Amounts, Reservation

_MAX_DELETED: Final = 4096
"""Deleted pods that are remembered, so that an admitted pod that was created and deleted is recognised."""


class QuotaLimit(Struct, frozen=True):
    """A ResourceQuota: at most `hard` of each resource, for pods that meet the requirements.

    `reported_used` is the usage in its status, by which the API server rejects pods.
    """

    name: str
    hard: Nanos
    requirements: tuple[ScopeRequirement, ...] = ()
    reported_used: Nanos = {}


class QuotaGroup(Struct, frozen=True):
    """A PodGroup with a total to reserve. Its id is that of its gang; `title` names it in messages.

    `problem` says why its total is invalid; the group then waits, as if its total did not fit.
    """

    id: str
    uid: str
    title: str
    field: str
    total: Amounts = ()
    revision: int = 0
    created_seconds: int = 0
    priority_class: str = ""
    problem: str = ""

    @property
    def reservation(self) -> Reservation:
        """The initial reservation for its total."""
        return Reservation(self.uid, self.total, self.revision, self.priority_class)


class QuotaPod(Struct, frozen=True, gc=False):
    """A pod as quotas count it.

    `group` is the id of its gang if that may have reserved quota. `ended` is its final phase; empty while it uses
    resources.
    """

    uid: str
    name: str
    usage: PodUsage
    group: str = ""
    ended: str = ""
    revision: int = 0


class NamespaceUsage:
    """The usage of one namespace. Sums are by group and traits, of which there are few however many pods there are.

    Entries end with the pod, quota or group; of deleted pods only the latest are remembered (I11).
    """

    def __init__(self) -> None:
        self.limits: dict[str, QuotaLimit] = {}
        self.groups: dict[str, QuotaGroup] = {}
        self.pods: dict[str, QuotaPod] = {}
        self.named: dict[str, str] = {}
        """Uids by pod name; the latest one if several pods had the name."""
        self.live: dict[tuple[str, PodTraits], Nanos] = {}
        self.live_pods: defaultdict[str, int] = defaultdict(int)
        """Number of live pods by group."""
        self.ended: dict[str, dict[str, QuotaPod]] = {}
        """Ended pods by group and uid."""
        self.deleted: dict[str, int] = {}
        """Revisions at which pods were deleted, by uid."""

    @property
    def empty(self) -> bool:
        return not (self.limits or self.groups or self.pods)

    def put(self, pod: QuotaPod) -> bool:
        """Adds or updates a pod; returns whether that changes usage."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.named[pod.name] = pod.uid
        if before is not None and (before.usage, before.group, before.ended) == (pod.usage, pod.group, pod.ended):
            return False
        if before is not None:
            self._subtract(before)
        self._add(pod)
        return True

    def remove(self, uid: str, revision: int) -> None:
        """Removes a deleted pod."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._subtract(pod)
            if self.named.get(pod.name) == uid:
                del self.named[pod.name]
        if self.limits:  # without limits no pods are admitted by a ledger
            self.deleted[uid] = max(revision, pod.revision if pod is not None else 0)
        while len(self.deleted) > _MAX_DELETED:
            del self.deleted[next(iter(self.deleted))]

    def observed_revision(self, uid: str) -> int | None:
        """Returns the revision at which the pod was observed or deleted; None if it was never observed."""
        pod = self.pods.get(uid)
        return pod.revision if pod is not None else self.deleted.get(uid)

    def _add(self, pod: QuotaPod) -> None:
        if pod.ended:
            if pod.group:
                self.ended.setdefault(pod.group, {})[pod.uid] = pod
            return
        self.live_pods[pod.group] += 1
        sums = self.live.setdefault((pod.group, pod.usage.traits), {})
        for name, nanos in pod.usage.amounts:
            sums[name] = sums.get(name, 0) + nanos

    def _subtract(self, pod: QuotaPod) -> None:
        if pod.ended:
            of_group = self.ended.get(pod.group, {})
            of_group.pop(pod.uid, None)
            if not of_group:
                self.ended.pop(pod.group, None)
            return
        self.live_pods[pod.group] -= 1
        if not self.live_pods[pod.group]:
            del self.live_pods[pod.group]
        key = (pod.group, pod.usage.traits)
        sums = self.live[key]
        for name, nanos in pod.usage.amounts:
            sums[name] -= nanos
        if not any(sums.values()):
            del self.live[key]
