"""CompositePodGroups, the groups in them with their conditions, and which of them have pods of Muster's."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from muster.dialects import native
from muster.dialects.composite_groups import CompositeGroups, CompositeKey
from muster.dialects.composites import MAX_DEPTH, MAX_GANGS, parent_of
from muster.dialects.registry import membership_of
from muster.gangs.quoting import quoted
from muster.kube.gang_marks import definition, gang_marks
from muster.kube.object_changes import Removed
from muster.kube.objects import NOTHING, Pod, PodGroup
from muster.lifecycle.composite_groups import condition
from muster.lifecycle.composite_groups.condition import Child, Standing

_MAX_CHILDREN: Final = 1_000
"""Children of a basic CompositePodGroup that are looked at; others have at most MAX_GANGS."""


class Composite(Struct, frozen=True):
    """A CompositePodGroup: its uid, API version, and condition."""

    uid: str
    api_version: str
    standing: Standing


class _Group(Struct, frozen=True):
    """A PodGroup that names a parent: its uid, and its condition."""

    uid: str
    standing: Standing


class CompositeCache:
    """Facts from which the conditions of CompositePodGroups follow. Updates return the CompositePodGroups that they
    concern.

    What is kept of a CompositePodGroup or PodGroup ends with it; of a pod, its gang, until it is removed (I11).
    """

    def __init__(self, scheduler_names: Iterable[str]) -> None:
        self._scheduler_names = frozenset(scheduler_names)
        self._trees = CompositeGroups()
        self.composites: dict[CompositeKey, Composite] = {}
        self._composite_keys: dict[str, CompositeKey] = {}
        self._groups: dict[CompositeKey, _Group] = {}
        self._group_keys: dict[str, CompositeKey] = {}
        self._gang_of: dict[str, str] = {}
        """Gangs of pods of Muster's in PodGroups of Kubernetes, by uid."""
        self._ours: Counter[str] = Counter()
        """Pods of Muster's by gang."""

    def __len__(self) -> int:
        groups = len(self.composites) + len(self._composite_keys) + len(self._groups) + len(self._group_keys)
        return len(self._trees) + groups + len(self._gang_of) + len(self._ours)

    # -- updates

    def update_composite(self, item: PodGroup | Removed) -> list[CompositeKey]:
        """Applies a change of a CompositePodGroup."""
        if isinstance(item, Removed):
            concerned: list[CompositeKey] = []
            key = self._composite_keys.pop(item.uid, None)
            if key is not None and self.composites[key].uid == item.uid:
                concerned = self._around(key)
                del self.composites[key]
            self._trees.drop_composite(item.uid)
            return concerned
        defined = definition(item, native.COMPOSITE)
        key = (defined.namespace, defined.name)
        before = self._trees.parent(key)
        if (known := self.composites.get(key)) is not None and known.uid != defined.uid:
            del self._composite_keys[known.uid]
        standing = condition.standing_of(item.status, condition.TYPE)
        self.composites[key] = Composite(defined.uid, defined.api_version, standing)
        self._composite_keys[defined.uid] = key
        self._trees.put_composite(defined)
        return [*self._around(key), *([before] if before is not None else [])]

    def update_group(self, item: PodGroup | Removed) -> list[CompositeKey]:
        """Applies a change of a PodGroup."""
        if isinstance(item, Removed):
            concerned = self._forget_group(item.uid)
            self._trees.drop_group(item.uid)
            return concerned
        defined = definition(item, native.DEFINITION)
        key, parent = (defined.namespace, defined.name), parent_of(defined.spec)
        known = self._groups.get(key)
        concerned = self._forget_group(known.uid if known is not None else defined.uid)
        self._trees.put_group(defined)
        if parent:
            self._group_keys[defined.uid] = key
            self._groups[key] = _Group(defined.uid, condition.standing_of(item.status, native.SCHEDULED))
            concerned.append((key[0], parent))
        return concerned

    def update_pod(self, item: Pod | Removed) -> list[CompositeKey]:
        """Applies a change of a pod."""
        uid = item.uid if isinstance(item, Removed) else item.metadata.uid
        after = "" if isinstance(item, Removed) else self._native_gang(item)
        before = self._gang_of.pop(uid, "")
        if after:
            self._gang_of[uid] = after
        concerned: list[CompositeKey] = []
        if before and before != after:
            self._ours[before] -= 1
            if not self._ours[before]:
                del self._ours[before]
        if after and before != after:
            self._ours[after] += 1
            if self._ours[after] == 1:  # its CompositePodGroups may be ours since
                concerned = list(self._above(after))
        return concerned

    def note_written(self, key: CompositeKey, before: Composite, standing: Standing) -> None:
        """A condition was written; the informer delivers that later."""
        if self.composites.get(key) is before:
            self.composites[key] = Composite(before.uid, before.api_version, standing)

    # -- queries

    def is_ours(self, key: CompositeKey) -> bool:
        """Returns whether a PodGroup below has a pod of Muster's."""
        return any(gang_id in self._ours for gang_id in self._trees.gangs_below(key))

    def next_standing(self, key: CompositeKey) -> Standing:
        """Returns what the condition of a CompositePodGroup is to say."""
        problem, minimum = self._trees.problem(key), self._trees.minimum(key)
        return condition.next_standing(problem, minimum, self._children(key))

    def _children(self, key: CompositeKey) -> Iterator[Child]:
        for is_composite, child in islice(self._trees.children(key), _MAX_CHILDREN):
            name = quoted("/".join(child))
            found = self.composites.get(child) if is_composite else self._groups.get(child)
            kind = native.COMPOSITE.kind if is_composite else native.DEFINITION.kind
            yield Child(f"{kind} {name}", found.standing if found is not None else condition.NOTHING)

    def _forget_group(self, uid: str) -> list[CompositeKey]:
        key = self._group_keys.pop(uid, None)
        if key is None:
            return []
        parent = self._trees.parent_of_group(key)
        del self._groups[key]
        return [parent] if parent is not None else []

    def _native_gang(self, pod: Pod) -> str:
        """The gang of a pod of Muster's, if it is a PodGroup of Kubernetes; empty: it is not."""
        if pod.spec.scheduling_group is NOTHING or pod.spec.scheduler_name not in self._scheduler_names:
            return ""
        membership = membership_of(gang_marks(pod))
        gang_id = membership.gang_id if membership is not None else ""
        return gang_id if gang_id.startswith(f"{native.NAME}/") else ""

    def _above(self, gang_id: str) -> Iterator[CompositeKey]:
        """The CompositePodGroups above a gang, one more than are supported."""
        _, namespace, name = gang_id.split("/", 2)
        at = self._trees.parent_of_group((namespace, name))
        for _ in range(MAX_DEPTH + 1):
            if at is None:
                return
            yield at
            at = self._trees.parent(at)

    def _around(self, key: CompositeKey) -> list[CompositeKey]:
        """A CompositePodGroup, its parent, and those below, as far as they are supported."""
        parent = self._trees.parent(key)
        return [*([parent] if parent is not None else []), *islice(self._below(key), MAX_GANGS + 1)]

    def _below(self, key: CompositeKey) -> Iterator[CompositeKey]:
        seen, waiting = {key}, [key]
        while waiting:
            at = waiting.pop()
            yield at
            if len(seen) <= MAX_GANGS:
                new = [child for child in islice(self._trees.composites_in(at), MAX_GANGS + 1) if child not in seen]
                seen.update(new)
                waiting.extend(new)
