"""Caches quotas, PodGroups and pods of all namespaces, and the revisions up to which they are complete."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from muster.kube.api_resources import PODS, ApiResource, definitions
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Pod, PodGroup
from muster.kube.resource_quota import ResourceQuota, decode_quota
from muster.lifecycle.informers import SharedInformers
from muster.lifecycle.quota.pod_groups import QUOTA_GROUP_KINDS, ObservedGroup, QuotaGroupKind, observe_group, quota_pod
from muster.lifecycle.quota.usage import NamespaceUsage, QuotaLimit

QUOTAS: Final = ApiResource("resourcequotas", "/api/v1/resourcequotas", ResourceQuota, decode_quota)


class QuotaCache:
    """A cache of everything that quota depends on. Calls `changed` with each namespace whose quota changed.

    Entries end with their object, and namespaces with the last object in them (I11).
    """

    def __init__(self, informers: SharedInformers, changed: Callable[[str], None]) -> None:
        self.groups: dict[str, ObservedGroup] = {}
        """Observed groups by gang id."""
        self.groups_through: dict[str, int] = {}
        """Revisions up to which all PodGroups have been observed, by dialect."""
        self._changed = changed
        self._namespaces: dict[str, NamespaceUsage] = {}
        self._pods: dict[str, str] = {}  # uid -> namespace
        self._quotas: dict[str, tuple[str, str]] = {}  # uid -> namespace and name
        self._group_ids: dict[str, str] = {}  # uid -> id
        self._pods_through = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        informers.add_handler(PODS, self._on_pods)
        informers.add_handler(QUOTAS, self._on_quotas)
        for kind in QUOTA_GROUP_KINDS:
            informers.add_handler(definitions(kind.definition), partial(self._on_groups, kind))

    @property
    def namespaces_with_quota(self) -> list[str]:
        """Namespaces with a ResourceQuota."""
        return [name for name, observed in self._namespaces.items() if observed.limits]

    def usage(self, namespace: str) -> NamespaceUsage | None:
        """Returns the usage of a namespace; None if it has no quotas, groups or pods."""
        return self._namespaces.get(namespace)

    def groups_of(self, namespace: str) -> Iterable[ObservedGroup]:
        """Returns the PodGroups of a namespace, the oldest first."""
        observed = self._namespaces.get(namespace)
        ids = observed.groups if observed is not None else ()
        return sorted((self.groups[each] for each in ids), key=lambda seen: (seen.group.created_seconds, seen.group.id))

    async def synced(self, revision: int) -> None:
        """Waits until all pods up to the revision have been observed. The caller sets the deadline."""
        if self._pods_through < revision:
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, seen))
            await seen

    # -- informer handlers

    def _on_pods(self, changes: ObjectChanges[Pod]) -> None:
        touched: set[str] = set()
        for item in changes.items:
            if isinstance(item, Removed):
                namespace = self._pods.pop(item.uid, "")
                if observed := self._namespaces.get(namespace):
                    observed.remove(item.uid, item.revision)
                    touched.add(namespace)
                    self._drop_if_empty(namespace)
                continue
            pod = quota_pod(item)
            namespace = self._pods[pod.uid] = item.metadata.namespace
            if self._of(namespace).put(pod):
                touched.add(namespace)
        self._pods_through = max(self._pods_through, changes.through)
        self._resume_waiting()
        self._notify(touched)

    def _on_quotas(self, changes: ObjectChanges[ResourceQuota]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                namespace, name = self._quotas.pop(item.uid, ("", ""))
                if observed := self._namespaces.get(namespace):
                    observed.limits.pop(name, None)
                    self._drop_if_empty(namespace)
                self._changed(namespace)
                continue
            namespace, name = item.metadata.namespace, item.metadata.name
            self._quotas[item.metadata.uid] = namespace, name
            observed = self._of(namespace)
            before = observed.limits.get(name)
            observed.limits[name] = limit = QuotaLimit(name, item.hard, item.requirements, item.used)
            if before is None or (before.hard, before.requirements) != (limit.hard, limit.requirements):
                self._changed(namespace)  # its status changes with every pod; pods are counted anyway

    def _on_groups(self, kind: QuotaGroupKind, changes: ObjectChanges[PodGroup]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                self._drop_group(item.uid)
            else:
                self._put_group(observe_group(item, kind))
        through = max(self.groups_through.get(kind.dialect, 0), changes.through)
        self.groups_through[kind.dialect] = through

    def _put_group(self, seen: ObservedGroup) -> None:
        namespace = seen.reference.namespace
        self._group_ids[seen.group.uid] = seen.group.id
        self.groups[seen.group.id] = seen
        self._of(namespace).groups[seen.group.id] = seen.group
        self._changed(namespace)

    def _drop_group(self, uid: str) -> None:
        group_id = self._group_ids.pop(uid, "")
        seen = self.groups.get(group_id)
        if seen is None or seen.group.uid != uid:
            return
        del self.groups[group_id]
        namespace = seen.reference.namespace
        self._of(namespace).groups.pop(group_id, None)
        self._drop_if_empty(namespace)
        self._changed(namespace)

    # -- internals

    def _of(self, namespace: str) -> NamespaceUsage:
        return self._namespaces.setdefault(namespace, NamespaceUsage())

    def _drop_if_empty(self, namespace: str) -> None:
        observed = self._namespaces.get(namespace)
        if observed is not None and observed.empty:
            del self._namespaces[namespace]

    def _notify(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            observed = self._namespaces.get(namespace)
            if observed is not None and observed.limits:
                self._changed(namespace)

    def _resume_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for revision, seen in waiting:
            if seen.done():
                continue
            if revision <= self._pods_through:
                seen.set_result(None)
            else:
                self._waiting.append((revision, seen))
