"""ResourceQuotas: validation, admission, and the controller of their status.

Unfinished pods are charged by their requests, other objects by number. A quota is enforced once its status has `used`,
as on kube-apiserver.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from muster.gangs.quantity import NANOS_PER_UNIT, BadQuantity, parse_quantity
from muster.kube.objects import decode_pod
from muster.kube.pod_requests import Nanos
from muster.kube.resource_quota import (
    PodUsage,
    ResourceQuota,
    decode_quota,
    has_ended,
    pod_usage,
    shown_amount,
    shown_amounts,
)
from muster.localcluster.apiserver.cluster import Cluster
from muster.localcluster.apiserver.kinds import Kind, Rules
from muster.localcluster.apiserver.pod_defaults import containers_of
from muster.localcluster.apiserver.quantity_format import canonical
from muster.localcluster.apiserver.status import Cause, forbidden, invalid_value, not_supported, required
from muster.localcluster.apiserver.store import Change, Object, Record, in_namespace
from muster.localcluster.apiserver.store import Collection as Stored

QUOTAS: Final = "resourcequotas"

_PODS: Final = "pods"
_PAUSE_SECONDS: Final = 0.05  # collects bursts of changes
_SCOPES: Final = (
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort"),
    *("PriorityClass", "CrossNamespacePodAffinity"),
)
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NUMBERED: Final = frozenset(
    {
        *("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"),
        *("secrets", "services"),
    }
)
"""Kinds whose number a quota may limit without "count/"."""
_OF_CONTAINERS: Final = tuple(
    f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory")
)
"""Resources that every container must specify if a quota limits them."""


def _is_standard(name: str) -> bool:
    """Whether a quota may limit the resource under this name, as no extended resource."""
    plain = name.removeprefix("requests.").removeprefix("limits.")
    if plain in ("cpu", "memory", "ephemeral-storage") or plain.startswith("hugepages-"):
        return True
    return name in _NUMBERED or name in (_PODS, "requests.storage", "services.nodeports", "services.loadbalancers")


class QuotaRules(Rules):
    """Validation of ResourceQuotas."""

    def default(self, obj: Object) -> None:
        hard = obj.setdefault("spec", {}).get("hard") or {}
        for name, amount in hard.items():
            try:
                hard[name] = canonical(amount if isinstance(amount, str) else str(amount))
            except ValueError:
                continue  # `validate` reports it

    def validate(self, obj: Object) -> Iterable[Cause]:
        spec = obj["spec"]
        for name, amount in (spec.get("hard") or {}).items():
            try:
                nanos = parse_quantity(str(amount))
            except BadQuantity as error:
                yield invalid_value(f"spec.hard[{name}]", amount, str(error))
                continue
            if nanos < 0:
                yield invalid_value(f"spec.hard[{name}]", amount, "must be greater than or equal to 0")
            if "/" not in name and not _is_standard(name):
                yield invalid_value(f"spec.hard[{name}]", name, "must be a standard resource type or fully qualified")
        for scope in spec.get("scopes") or ():
            if scope not in _SCOPES:
                yield not_supported("spec.scopes", scope, _SCOPES)
        for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
            if each.get("scopeName") not in _SCOPES:
                yield not_supported("spec.scopeSelector.matchExpressions.scopeName", each.get("scopeName"), _SCOPES)
            if each.get("operator") in ("In", "NotIn") and not each.get("values"):
                message = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required("spec.scopeSelector.matchExpressions.values", message)
            if each.get("operator") not in _OPERATORS:
                yield not_supported("spec.scopeSelector.matchExpressions.operator", each.get("operator"), _OPERATORS)


def charge(cluster: Cluster, kind: Kind, record: Record, *, dry_run: bool) -> None:
    """Check a new object against the quotas of its namespace, and charge it to them.

    Raises StatusError 403.
    """
    quotas = cluster.store.collection(QUOTAS).records
    namespace = record.metadata.get("namespace")
    if not quotas or namespace is None:
        return
    usage = _usage_of_pod(record) if kind.collection == _PODS else None
    amounts = _number(kind.plural, kind.group) if usage is None else dict(usage.amounts)
    charged = []
    for quota in in_namespace(quotas.values(), namespace):
        if not _applies_to(decode_quota(quota.encoded), usage):
            continue
        status = quota.object.get("status") or {}
        hard, used = _read(status.get("hard")), _read(status.get("used"))
        requested_nanos = {name: amounts[name] for name in hard if amounts.get(name)}
        if usage is not None:
            _check_containers(kind, quota, hard, record.object)
        _check(kind, quota, record, hard, used, requested_nanos)
        charged.append((quota, {name: nanos + requested_nanos.get(name, 0) for name, nanos in used.items()}))
    if not dry_run:
        for quota, used in charged:
            _put(cluster, quota, {**(quota.object.get("status") or {}), "used": _written(used)})


def _check(kind: Kind, quota: Record, record: Record, hard: Nanos, used: Nanos, requested_nanos: Nanos) -> None:
    name, object_name = quota.metadata["name"], record.metadata.get("name", "")
    if unknown := sorted(each for each in requested_nanos if each not in used):
        message = f"status unknown for quota: {name}, resources: {','.join(unknown)}"
        raise forbidden(kind.plural, kind.group, object_name, message)
    exceeded = [each for each, nanos in requested_nanos.items() if used[each] + nanos > hard[each]]
    if exceeded:
        requested, in_use, limited = (
            shown_amounts({each: of[each] for each in exceeded}) for of in (requested_nanos, used, hard)
        )
        message = f"exceeded quota: {name}, requested: {requested}, used: {in_use}, limited: {limited}"
        raise forbidden(kind.plural, kind.group, object_name, message)


def _check_containers(kind: Kind, quota: Record, hard: Nanos, pod: Object) -> None:
    """Check that every container, or the pod as a whole, specifies the resources that the quota limits."""
    of_pod = (pod["spec"].get("resources") or {}).get("requests")
    demanded = () if of_pod else sorted(name for name in hard if name in _OF_CONTAINERS)
    missing = []
    for name in demanded:
        section, _, resource = name.rpartition(".")
        silent = sorted(
            each.get("name", "")
            for each in containers_of(pod["spec"])
            if resource not in ((each.get("resources") or {}).get(section or "requests") or {})
        )
        if silent:
            missing.append(f"{name} for: {','.join(silent)}")
    if missing:
        message = f"failed quota: {quota.metadata['name']}: must specify {'; '.join(missing)}"
        raise forbidden(kind.plural, kind.group, pod["metadata"].get("name", ""), message)


class ResourceQuotaController:
    """Updates the quotas of a namespace after changes of its objects."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._usages: dict[str, dict[str, tuple[int, PodUsage | None]]] = {}
        """Namespace -> key of a pod -> its revision and usage, None if it has ended."""

    def note(self, collection: Stored, change: Change) -> None:
        quotas = self._cluster.store.collection(QUOTAS).records
        namespace = change.record.metadata.get("namespace")
        if namespace is None or not quotas:
            return
        if collection.name == _PODS or change.type != "MODIFIED" or collection.name == QUOTAS:
            self._dirty.add(namespace)
            self._wake.set()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            dirty, self._dirty = self._dirty, set()
            for namespace in dirty:
                self._recount(namespace)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _recount(self, namespace: str) -> None:
        quotas = in_namespace(self._cluster.store.collection(QUOTAS).records.values(), namespace)
        if not quotas:
            self._usages.pop(namespace, None)
            return
        pods = self._pods(namespace)
        for quota in quotas:
            spec = decode_quota(quota.encoded)
            used = {name: self._used(namespace, name, spec, pods) for name in spec.hard}
            status = {"hard": dict(quota.object["spec"].get("hard") or {}), "used": _written(used)}
            if status != quota.object.get("status"):
                _put(self._cluster, quota, status)

    def _used(self, namespace: str, name: str, quota: ResourceQuota, pods: list[PodUsage]) -> int:
        plural = name.removeprefix("count/")
        if plural == _PODS or (plural == name and name not in _NUMBERED):
            return sum(dict(each.amounts).get(name, 0) for each in pods if each.traits.meets(quota.requirements))
        if quota.requirements:
            return 0
        counted = self._cluster.store.collections.get(plural)
        return NANOS_PER_UNIT * len(in_namespace(counted.records.values(), namespace)) if counted is not None else 0

    def _pods(self, namespace: str) -> list[PodUsage]:
        before = self._usages.get(namespace, {})
        now: dict[str, tuple[int, PodUsage | None]] = {}
        for record in in_namespace(self._cluster.store.collection(_PODS).records.values(), namespace):
            known = before.get(record.key)
            if known is None or known[0] != record.revision:
                pod = decode_pod(record.encoded)
                known = record.revision, None if has_ended(pod) else pod_usage(pod)
            now[record.key] = known
        self._usages[namespace] = now
        return [usage for _, usage in now.values() if usage is not None]


def _usage_of_pod(record: Record) -> PodUsage:
    return pod_usage(decode_pod(record.encoded))


def _applies_to(quota: ResourceQuota, usage: PodUsage | None) -> bool:
    """Whether the quota applies: those with scopes apply to pods only."""
    requirements = quota.requirements
    return not requirements if usage is None else usage.traits.meets(requirements)


def _number(plural: str, group: str) -> Nanos:
    qualified = f"{plural}.{group}" if group else plural
    names = [f"count/{qualified}", *([plural] if not group and plural in _NUMBERED else [])]
    return dict.fromkeys(names, NANOS_PER_UNIT)


def _read(amounts: Mapping[str, str] | None) -> Nanos:
    return {name: parse_quantity(str(amount)) for name, amount in (amounts or {}).items()}


def _written(amounts: Nanos) -> dict[str, str]:
    return {name: shown_amount(name, nanos) for name, nanos in sorted(amounts.items())}


def _put(cluster: Cluster, quota: Record, status: Object) -> None:
    cluster.store.put(QUOTAS, quota.key, {**quota.object, "metadata": dict(quota.metadata), "status": status})
