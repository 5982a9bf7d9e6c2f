"""Namespaces with quotas, groups and pods for tests of what quota does, and a world in which replicas see them late."""

from collections.abc import Iterable

from muster.gangs.quantity import NANOS_PER_UNIT
from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import PodTraits, PodUsage, ScopeRequirement, by_quota_names, quota_names
from muster.lifecycle.quota.books import Books
from muster.lifecycle.quota.census import Bound, Census, CountedPod, Group
from muster.lifecycle.quota.ledger import Ledger

TEAM = "kube-batch/ml/train"


def units(**amounts: float) -> Nanos:
    return {name: int(amount * NANOS_PER_UNIT) for name, amount in amounts.items()}


def bound(name: str = "team", *requirements: ScopeRequirement, **hard: float) -> Bound:
    return Bound(name, units(**hard), requirements)


def usage(traits: PodTraits | None = None, /, **requests: float) -> PodUsage:
    amounts = by_quota_names(units(**requests)) | dict.fromkeys(quota_names("pods"), NANOS_PER_UNIT)
    return PodUsage(tuple(sorted(amounts.items())), traits or PodTraits())


def group(name: str = "train", *, uid: str = "", revision: int = 0, created: int = 0, **total: float) -> Group:
    amounts = tuple(sorted(by_quota_names(units(**total)).items()))
    title = f'PodGroup "ml/{name}"'
    return Group(
        f"kube-batch/ml/{name}", uid or f"uid-{name}", title, "spec.totalResources", amounts, revision, created
    )


def census(*parts: Bound | Group | CountedPod) -> Census:
    found = Census()
    for part in sorted(parts, key=lambda each: not isinstance(each, Bound)):
        if isinstance(part, Bound):
            found.bounds[part.name] = part
        elif isinstance(part, Group):
            found.groups[part.id] = part
        else:
            found.put(part)
    return found


def counted(uid: str, *, of: str = "", ended: str = "", revision: int = 1, **requests: float) -> CountedPod:
    return CountedPod(uid, uid, usage(**requests), of, ended, revision)


class Desk:
    """Decisions one after the other on one census, as one replica takes them."""

    def __init__(self, seen: Census, ledger: Ledger | None = None) -> None:
        self.census, self.ledger, self.now = seen, ledger or Ledger(), 1000.0

    @property
    def books(self) -> Books:
        return Books(self.census, self.ledger, self.now)

    def admit(self, name: str, of: Group | None = None, **requests: float) -> bool:
        """Let a pod in; whether it was."""
        books = self.books
        shortage = books.admit(name, name, usage(**requests), of)
        self.ledger = books.ledger
        return shortage is None

    def admit_all(self, names: Iterable[str], of: Group | None = None, **requests: float) -> list[bool]:
        return [self.admit(name, of, **requests) for name in names]

    def reserve(self, wanted: Group) -> bool:
        books = self.books
        shortage = books.reserve(wanted)
        self.ledger = books.ledger
        return shortage is None

    def settle(self) -> None:
        self.ledger = self.books.ledger

    def taken(self, quota: str = "team", resource: str = "cpu") -> float:
        return self.books.taken(self.census.bounds[quota])[resource] / NANOS_PER_UNIT
