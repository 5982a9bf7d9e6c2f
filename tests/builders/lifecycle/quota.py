"""Quota limits, groups and pods for unit tests of quota accounting."""

from collections.abc import Iterable

from muster.gangs.quantity import NANOS_PER_UNIT
from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage, ScopeRequirement, by_quota_names, quota_names
from muster.lifecycle.quota.accounting import QuotaAccount
from muster.lifecycle.quota.ledger import Ledger
from muster.lifecycle.quota.usage import NamespaceUsage, QuotaGroup, QuotaLimit, QuotaPod

TEAM = "kube-batch/ml/train"


def units(**amounts: float) -> Nanos:
    return {name: int(amount * NANOS_PER_UNIT) for name, amount in amounts.items()}


def limit(name: str = "team", *requirements: ScopeRequirement, **hard: float) -> QuotaLimit:
    return QuotaLimit(name, units(**hard), requirements)


def usage(traits: PodTraits | None = None, /, **requests: float) -> PodUsage:
    amounts = by_quota_names(units(**requests)) | dict.fromkeys(quota_names("pods"), NANOS_PER_UNIT)
    return PodUsage(tuple(sorted(amounts.items())), traits or PodTraits())


def group(name: str = "train", *, uid: str = "", revision: int = 0, created: int = 0, **total: float) -> QuotaGroup:
    amounts = tuple(sorted(by_quota_names(units(**total)).items()))
    title = f'PodGroup "ml/{name}"'
    return QuotaGroup(
        f"kube-batch/ml/{name}", uid or f"uid-{name}", title, "spec.totalResources", amounts, revision, created
    )


def observed(*parts: QuotaLimit | QuotaGroup | QuotaPod) -> NamespaceUsage:
    found = NamespaceUsage()
    for part in sorted(parts, key=lambda each: not isinstance(each, QuotaLimit)):
        if isinstance(part, QuotaLimit):
            found.limits[part.name] = part
        elif isinstance(part, QuotaGroup):
            found.groups[part.id] = part
        else:
            found.put(part)
    return found


def counted(uid: str, *, of: str = "", ended: str = "", revision: int = 1, **requests: float) -> QuotaPod:
    return QuotaPod(uid, uid, usage(**requests), of, ended, revision)


class QuotaReplica:
    """Sequential decisions of one replica about one namespace."""

    def __init__(self, seen: NamespaceUsage, ledger: Ledger | None = None) -> None:
        self.observed, self.ledger, self.now = seen, ledger or Ledger(), 1000.0

    @property
    def account(self) -> QuotaAccount:
        return QuotaAccount(self.observed, self.ledger, self.now)

    def admit(self, name: str, of: QuotaGroup | None = None, **requests: float) -> bool:
        """Reviews a pod; returns whether it was admitted."""
        account = self.account
        shortage = account.admit(name, name, usage(**requests), of)
        self.ledger = account.ledger
        return shortage is None

    def admit_all(self, names: Iterable[str], of: QuotaGroup | None = None, **requests: float) -> list[bool]:
        return [self.admit(name, of, **requests) for name in names]

    def reserve(self, wanted: QuotaGroup) -> bool:
        account = self.account
        shortage = account.reserve(wanted)
        self.ledger = account.ledger
        return shortage is None

    def settle(self) -> None:
        self.ledger = self.account.ledger

    def in_use(self, quota: str = "team", resource: str = "cpu") -> float:
        return self.account.in_use(self.observed.limits[quota])[resource] / NANOS_PER_UNIT
