"""What this replica sees of all namespaces: their quotas, PodGroups and pods, and up to which revision."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from muster.kube.api_resources import PODS, ApiResource, definitions
from muster.kube.object_changes import ObjectChanges, Removed
from muster.kube.objects import Pod, PodGroup
from muster.kube.resource_quota import ResourceQuota, decode_quota
from muster.lifecycle.quota.asking import KINDS, AskingKind, SeenGroup, counted_pod, seen_group
from muster.lifecycle.quota.census import Bound, Census
from muster.lifecycle.watches import Watches

QUOTAS: Final = ApiResource("resourcequotas", "/api/v1/resourcequotas", ResourceQuota, decode_quota)


class Sight:
    """Follows what matters to quota; `changed` is called with each namespace in which something did."""

    def __init__(self, watches: Watches, changed: Callable[[str], None]) -> None:
        self.groups: dict[str, SeenGroup] = {}
        """By id."""
        self.groups_through: dict[str, int] = {}
        """By dialect: all its PodGroups up to that revision have been seen."""
        self._changed = changed
        self._censuses: dict[str, Census] = {}
        self._pods: dict[str, str] = {}  # uid -> namespace
        self._quotas: dict[str, tuple[str, str]] = {}  # uid -> namespace and name
        self._group_ids: dict[str, str] = {}  # uid -> id
        self._pods_through = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        watches.follow(PODS, self._take_pods)
        watches.follow(QUOTAS, self._take_quotas)
        for kind in KINDS:
            watches.follow(definitions(kind.definition), partial(self._take_groups, kind))

    @property
    def bounded(self) -> list[str]:
        """Namespaces that have quotas."""
        return [name for name, census in self._censuses.items() if census.bounds]

    def census(self, namespace: str) -> Census | None:
        """What is seen of a namespace; None: nothing."""
        return self._censuses.get(namespace)

    def groups_of(self, namespace: str) -> Iterable[SeenGroup]:
        """The PodGroups of a namespace, the oldest first."""
        census = self._censuses.get(namespace)
        ids = census.groups if census is not None else ()
        return sorted((self.groups[each] for each in ids), key=lambda seen: (seen.group.created_seconds, seen.group.id))

    async def reached(self, revision: int) -> None:
        """Wait until all pods up to the revision have been seen; set your own deadline."""
        if self._pods_through < revision:
            seen: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((revision, seen))
            await seen

    # -- what is told

    def _take_pods(self, changes: ObjectChanges[Pod]) -> None:
        touched: set[str] = set()
        for item in changes.items:
            if isinstance(item, Removed):
                namespace = self._pods.pop(item.uid, "")
                if census := self._censuses.get(namespace):
                    census.remove(item.uid, item.revision)
                    touched.add(namespace)
                    self._forget_if_empty(namespace)
                continue
            pod = counted_pod(item)
            namespace = self._pods[pod.uid] = item.metadata.namespace
            if self._of(namespace).put(pod):
                touched.add(namespace)
        self._pods_through = max(self._pods_through, changes.through)
        self._wake()
        self._tell(touched)

    def _take_quotas(self, changes: ObjectChanges[ResourceQuota]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                namespace, name = self._quotas.pop(item.uid, ("", ""))
                if census := self._censuses.get(namespace):
                    census.bounds.pop(name, None)
                    self._forget_if_empty(namespace)
                self._changed(namespace)
                continue
            namespace, name = item.metadata.namespace, item.metadata.name
            self._quotas[item.metadata.uid] = namespace, name
            census = self._of(namespace)
            before = census.bounds.get(name)
            census.bounds[name] = bound = Bound(name, item.hard, item.requirements, item.used)
            if before is None or (before.hard, before.requirements) != (bound.hard, bound.requirements):
                self._changed(namespace)  # its status changes with every pod, and they are counted by themselves

    def _take_groups(self, kind: AskingKind, changes: ObjectChanges[PodGroup]) -> None:
        for item in changes.items:
            if isinstance(item, Removed):
                self._drop_group(item.uid)
            else:
                self._put_group(seen_group(item, kind))
        through = max(self.groups_through.get(kind.dialect, 0), changes.through)
        self.groups_through[kind.dialect] = through

    def _put_group(self, seen: SeenGroup) -> None:
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
        self._forget_if_empty(namespace)
        self._changed(namespace)

    # -- bookkeeping

    def _of(self, namespace: str) -> Census:
        return self._censuses.setdefault(namespace, Census())

    def _forget_if_empty(self, namespace: str) -> None:
        census = self._censuses.get(namespace)
        if census is not None and census.empty:
            del self._censuses[namespace]

    def _tell(self, namespaces: Iterable[str]) -> None:
        for namespace in namespaces:
            census = self._censuses.get(namespace)
            if census is not None and census.bounds:
                self._changed(namespace)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for revision, seen in waiting:
            if seen.done():
                continue
            if revision <= self._pods_through:
                seen.set_result(None)
            else:
                self._waiting.append((revision, seen))
