"""A namespace with its true state, and replicas that lag behind, share one ledger, and lose races for it.

The API server's own quota is part of it: it admits only pods that fit the present usage.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from builders.lifecycle.quota import group, limit, usage
from muster.gangs.quantity import NANOS_PER_UNIT
from muster.lifecycle.quota.accounting import ADMITTED_SECONDS, QuotaAccount
from muster.lifecycle.quota.ledger import Ledger
from muster.lifecycle.quota.usage import NamespaceUsage, QuotaGroup, QuotaPod

QUOTA = 10
REQUEST_SECONDS = 60.0


@dataclass
class AdmittedRequest:
    uid: str
    cpu: int
    group: str
    at: float


@dataclass
class Replica:
    observed: NamespaceUsage = field(default_factory=NamespaceUsage)
    seen: int = 0


class World:
    """A namespace, its true state, and lagging replicas. Every step keeps reservations and usage within the quota."""

    def __init__(self) -> None:
        self.revision, self.now = 0, 1000.0
        self.pods: dict[str, QuotaPod] = {}
        self.groups: dict[str, QuotaGroup] = {}
        self.history: list[Callable[[NamespaceUsage], None]] = []
        self.ledger = Ledger()
        self.replicas = [Replica(), Replica()]
        self.in_flight: list[AdmittedRequest] = []
        self.made = 0
        for replica in self.replicas:
            replica.observed.limits["team"] = limit(cpu=QUOTA)

    # -- users and kubelets

    def create_group(self, cpu: int) -> None:
        self.made += 1
        made = group(f"g{self.made}", cpu=cpu, created=self.made)
        self.groups[made.id] = made
        for replica in self.replicas:  # observed at once; late PodGroups are tested elsewhere
            replica.observed.groups[made.id] = made

    def delete_group(self, index: int) -> None:
        if self.groups:
            gone = sorted(self.groups)[index % len(self.groups)]
            del self.groups[gone]
            for replica in self.replicas:
                del replica.observed.groups[gone]

    def land(self, index: int) -> None:
        """Stores an admitted pod; the API server must never reject one."""
        if not self.in_flight:
            return
        pod = self.in_flight.pop(index % len(self.in_flight))
        if self.now - pod.at > REQUEST_SECONDS:
            return
        assert self._used() + pod.cpu <= QUOTA, "the API server rejects an admitted pod"
        self._happen(QuotaPod(pod.uid, pod.uid, usage(cpu=pod.cpu), pod.group, "", self.revision + 1))

    def lose(self, index: int) -> None:
        """Another webhook rejects an admitted pod."""
        if self.in_flight:
            self.in_flight.pop(index % len(self.in_flight))

    def end(self, index: int, phase: str) -> None:
        live = sorted(uid for uid, pod in self.pods.items() if not pod.ended)
        if live:
            pod = self.pods[live[index % len(live)]]
            self._happen(QuotaPod(pod.uid, pod.name, pod.usage, pod.group, phase, self.revision + 1))

    def delete(self, index: int) -> None:
        if self.pods:
            uid = sorted(self.pods)[index % len(self.pods)]
            del self.pods[uid]
            self.revision += 1
            at = self.revision
            self.history.append(lambda observed: observed.remove(uid, at))

    def wait(self, seconds: float) -> None:
        """Advances the clock; requests time out, and replicas lag less than the timeouts."""
        self.now += seconds
        self.in_flight = [each for each in self.in_flight if self.now - each.at <= REQUEST_SECONDS]
        if seconds >= ADMITTED_SECONDS - REQUEST_SECONDS:
            for index in range(len(self.replicas)):
                self.sync(index, len(self.history))

    # -- replicas

    def sync(self, index: int, changes: int) -> None:
        replica = self.replicas[index % len(self.replicas)]
        for change in self.history[replica.seen : replica.seen + changes]:
            change(replica.observed)
            replica.seen += 1

    def arrive(self, index: int, cpu: int, of: int, *, loses_race: bool) -> None:
        """Creates a pod: a replica decides, and records the decision unless it loses the race."""
        self.made += 1
        uid = f"p{self.made:05}"
        of_groups = [None, *(self.groups[each] for each in sorted(self.groups))]
        chosen = of_groups[of % len(of_groups)]

        def decide(account: QuotaAccount) -> bool:
            return account.admit(uid, uid, usage(cpu=cpu), chosen) is None

        if self._decided(index, decide, loses_race):
            self.in_flight.append(AdmittedRequest(uid, cpu, chosen.id if chosen else "", self.now))

    def keep(self, index: int, *, loses_race: bool) -> None:
        """The leader releases and reserves."""

        def decide(account: QuotaAccount) -> bool:
            account.drop_deleted_groups({"kube-batch": 1})
            for each in self.groups.values():
                account.reserve(each)
            return True

        self._decided(index, decide, loses_race)

    def _decided(self, index: int, decide: Callable[[QuotaAccount], bool], loses_race: bool) -> bool:
        replica = self.replicas[index % len(self.replicas)]
        while replica.seen < self.ledger.observed_revision:
            self.sync(index, 1)
        account = QuotaAccount(replica.observed, self.ledger, self.now)
        agreed = decide(account)
        if loses_race:
            return False  # another replica wrote first: this decision has no effect
        self.ledger = account.ledger
        return agreed

    # -- invariants

    def check(self) -> None:
        """Asserts that usage and reservations together are within the quota."""
        truth = NamespaceUsage()
        truth.limits["team"] = limit(cpu=QUOTA)
        truth.groups = dict(self.groups)
        for pod in self.pods.values():
            truth.put(pod)
        only_reservations = Ledger(self.ledger.reservations, {}, self.ledger.observed_revision)
        in_use = QuotaAccount(truth, only_reservations, self.now).in_use(truth.limits["team"])["cpu"]
        assert in_use <= QUOTA * NANOS_PER_UNIT, "reservations and usage exceed the quota"

    def _used(self) -> int:
        live = (pod for pod in self.pods.values() if not pod.ended)
        return sum(dict(pod.usage.amounts)["cpu"] for pod in live) // NANOS_PER_UNIT

    def _happen(self, pod: QuotaPod) -> None:
        self.revision += 1
        self.pods[pod.uid] = pod
        self.history.append(lambda observed: _put(observed, pod))


def _put(observed: NamespaceUsage, pod: QuotaPod) -> Any:
    return observed.put(pod)
