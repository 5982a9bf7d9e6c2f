"""A namespace as it really is, and replicas that see it late, decide by one ledger, and lose races for it.

The API server's own quota is there, too: it lets in only what fits what is used at that moment.
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
class Arriving:
    uid: str
    cpu: int
    group: str
    at: float


@dataclass
class Replica:
    observed: NamespaceUsage = field(default_factory=NamespaceUsage)
    seen: int = 0


class World:
    """Every step keeps what is reserved and used within the quota, or fails."""

    def __init__(self) -> None:
        self.revision, self.now = 0, 1000.0
        self.pods: dict[str, QuotaPod] = {}
        self.groups: dict[str, QuotaGroup] = {}
        self.history: list[Callable[[NamespaceUsage], None]] = []
        self.ledger = Ledger()
        self.replicas = [Replica(), Replica()]
        self.arriving: list[Arriving] = []
        self.made = 0
        for replica in self.replicas:
            replica.observed.limits["team"] = limit(cpu=QUOTA)

    # -- what users and kubelets do

    def make_group(self, cpu: int) -> None:
        self.made += 1
        made = group(f"g{self.made}", cpu=cpu, created=self.made)
        self.groups[made.id] = made
        for replica in self.replicas:  # PodGroups are seen at once: that they come late is tested elsewhere
            replica.observed.groups[made.id] = made

    def delete_group(self, index: int) -> None:
        if self.groups:
            gone = sorted(self.groups)[index % len(self.groups)]
            del self.groups[gone]
            for replica in self.replicas:
                del replica.observed.groups[gone]

    def land(self, index: int) -> None:
        """A pod that was let in is stored; what was let in is never refused by the API server."""
        if not self.arriving:
            return
        pod = self.arriving.pop(index % len(self.arriving))
        if self.now - pod.at > REQUEST_SECONDS:
            return
        assert self._used() + pod.cpu <= QUOTA, "the API server refuses a pod that was let in"
        self._happen(QuotaPod(pod.uid, pod.uid, usage(cpu=pod.cpu), pod.group, "", self.revision + 1))

    def lose(self, index: int) -> None:
        """A pod that was let in is refused by somebody else."""
        if self.arriving:
            self.arriving.pop(index % len(self.arriving))

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
        """Requests do not last; replicas do not lag for so long that it would matter to time."""
        self.now += seconds
        self.arriving = [each for each in self.arriving if self.now - each.at <= REQUEST_SECONDS]
        if seconds >= ADMITTED_SECONDS - REQUEST_SECONDS:
            for index in range(len(self.replicas)):
                self.sync(index, len(self.history))

    # -- what replicas do

    def sync(self, index: int, changes: int) -> None:
        replica = self.replicas[index % len(self.replicas)]
        for change in self.history[replica.seen : replica.seen + changes]:
            change(replica.observed)
            replica.seen += 1

    def arrive(self, index: int, cpu: int, of: int, *, loses_race: bool) -> None:
        """A pod is created: a replica decides, and keeps the decision if nobody was quicker."""
        self.made += 1
        uid = f"p{self.made:05}"
        of_groups = [None, *(self.groups[each] for each in sorted(self.groups))]
        chosen = of_groups[of % len(of_groups)]

        def decide(account: QuotaAccount) -> bool:
            return account.admit(uid, uid, usage(cpu=cpu), chosen) is None

        if self._decided(index, decide, loses_race):
            self.arriving.append(Arriving(uid, cpu, chosen.id if chosen else "", self.now))

    def keep(self, index: int, *, loses_race: bool) -> None:
        """The leader returns and reserves."""

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
            return False  # somebody else's write came first: this decision was never made
        self.ledger = account.ledger
        return agreed

    # -- what must hold

    def check(self) -> None:
        """What is used, and what is kept for groups beyond that, is within the quota."""
        truth = NamespaceUsage()
        truth.limits["team"] = limit(cpu=QUOTA)
        truth.groups = dict(self.groups)
        for pod in self.pods.values():
            truth.put(pod)
        only_reservations = Ledger(self.ledger.reservations, {}, self.ledger.observed_revision)
        in_use = QuotaAccount(truth, only_reservations, self.now).in_use(truth.limits["team"])["cpu"]
        assert in_use <= QUOTA * NANOS_PER_UNIT, "more is reserved and used than there is"

    def _used(self) -> int:
        live = (pod for pod in self.pods.values() if not pod.ended)
        return sum(dict(pod.usage.amounts)["cpu"] for pod in live) // NANOS_PER_UNIT

    def _happen(self, pod: QuotaPod) -> None:
        self.revision += 1
        self.pods[pod.uid] = pod
        self.history.append(lambda observed: _put(observed, pod))


def _put(observed: NamespaceUsage, pod: QuotaPod) -> Any:
    return observed.put(pod)
