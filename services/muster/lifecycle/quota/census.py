"""What this replica sees of a namespace that quotas are about: its quotas, its PodGroups, and its pods in sums."""

from collections import defaultdict
from typing import Final

from msgspec import Struct

from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage, ScopeRequirement
from muster.lifecycle.quota.ledger import Amounts, Reservation

_GONE_KEPT: Final = 4096
"""Uids of pods that are gone which are remembered, so that who let them in learns that they came and went."""


class Bound(Struct, frozen=True):
    """A ResourceQuota: no more than `hard` of each resource, for pods that meet the requirements. `told` is what the
    API server said last that is used: it refuses what does not fit that.
    """

    name: str
    hard: Nanos
    requirements: tuple[ScopeRequirement, ...] = ()
    told: Nanos = {}


class Group(Struct, frozen=True):
    """A PodGroup that asks for quota in total. Its id is that of its gang; `title` is its name in words.

    `problem` says why its total cannot be read; it waits then, as one that does not fit.
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
        """What is to be kept for it at first."""
        return Reservation(self.uid, self.total, self.revision, self.priority_class)


class CountedPod(Struct, frozen=True, gc=False):
    """A pod as quotas see it. `group`: id of the gang that it names, if that may have quota; `ended`: its last phase,
    empty while it uses something.
    """

    uid: str
    name: str
    usage: PodUsage
    group: str = ""
    ended: str = ""
    revision: int = 0


class Census:
    """One namespace, kept up to date. Sums are by group and traits: there are few of these, however many pods."""

    def __init__(self) -> None:
        self.bounds: dict[str, Bound] = {}
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, CountedPod] = {}
        self.named: dict[str, str] = {}
        """Uids by name; of pods of one name the one that was seen last."""
        self.live: dict[tuple[str, PodTraits], Nanos] = {}
        self.live_pods: defaultdict[str, int] = defaultdict(int)
        """By group."""
        self.ended: dict[str, dict[str, CountedPod]] = {}
        """By group and uid."""
        self.gone: dict[str, int] = {}
        """Pods that were here, by uid, with the revision at which they went."""

    @property
    def empty(self) -> bool:
        return not (self.bounds or self.groups or self.pods)

    def put(self, pod: CountedPod) -> bool:
        """A pod came or changed; true if that matters to quota."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        self.named[pod.name] = pod.uid
        if before is not None and (before.usage, before.group, before.ended) == (pod.usage, pod.group, pod.ended):
            return False
        if before is not None:
            self._take_out(before)
        self._take_in(pod)
        return True

    def remove(self, uid: str, revision: int) -> None:
        """A pod is gone."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            self._take_out(pod)
            if self.named.get(pod.name) == uid:
                del self.named[pod.name]
        if self.bounds:  # elsewhere nobody is let in by a ledger
            self.gone[uid] = max(revision, pod.revision if pod is not None else 0)
        while len(self.gone) > _GONE_KEPT:
            del self.gone[next(iter(self.gone))]

    def seen_at(self, uid: str) -> int | None:
        """The revision at which the pod was seen, whether or not it is still there; None: it was not."""
        pod = self.pods.get(uid)
        return pod.revision if pod is not None else self.gone.get(uid)

    def _take_in(self, pod: CountedPod) -> None:
        if pod.ended:
            if pod.group:
                self.ended.setdefault(pod.group, {})[pod.uid] = pod
            return
        self.live_pods[pod.group] += 1
        sums = self.live.setdefault((pod.group, pod.usage.traits), {})
        for name, nanos in pod.usage.amounts:
            sums[name] = sums.get(name, 0) + nanos

    def _take_out(self, pod: CountedPod) -> None:
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
