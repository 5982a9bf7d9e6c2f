"""Gangs of controllers: pods that form one gang because a definition has the same controller.

Definition and pods arrive in any order. So pods of ours are stored by their controller's uid and computed again when a
definition makes them a gang or ceases to. Pods of some kinds of controllers wait for their definition from the start;
for pods of other kinds, their own marks count until it arrives.

A controller keeps its gang while it has pods, even if the definition is removed: both are removed when the controller
is deleted, and the remaining pods must not start one by one meanwhile.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from muster.clusterstate.gang_incarnation import Member
from muster.dialects.definitions import ControllerGang, Definition
from muster.dialects.marks import GangMarks
from muster.kube.objects import OwnerReference

ControllerKey = tuple[str, str]
"""Namespace and uid: a definition does not apply to pods of other namespaces, whatever uid it names."""

_Age = tuple[int, str, str]
"""Creation time, name and uid of a definition."""


class OwnedPod(Struct, frozen=True, gc=False):
    """A pod of ours with a controller. `marks` contain the present gang of the controller."""

    marks: GangMarks
    member: Member


class ControllerGangs:
    """Controllers that have pods of ours or a definition, with which their entries end (I11)."""

    def __init__(self, waiting_kinds: Collection[str] = ()) -> None:
        """`waiting_kinds`: "Kind.group" of controllers whose pods always wait for their definition."""
        self._waiting_kinds = frozenset(waiting_kinds)
        self._owners: dict[ControllerKey, _Controller] = {}
        self._of_pod: dict[str, ControllerKey] = {}
        self._of_definition: dict[str, ControllerKey] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def job_of(self, namespace: str, controller: OwnerReference | None) -> ControllerGang | None:
        """The gang of a controller's pods; None: their own marks count."""
        if controller is None or not controller.uid:
            return None
        owner = self._owners.get((namespace, controller.uid))
        if owner is not None and (job := owner.job) is not None:
            return job
        waits = _kind(controller) in self._waiting_kinds
        return ControllerGang(controller.uid, f"{controller.kind}.{controller.name}") if waits else None

    def job_of_pod(self, uid: str) -> ControllerGang | None:
        """The gang of a pod's controller; None: the pod's own marks count."""
        key = self._of_pod.get(uid)
        return self.job_of(key[0], self._owners[key].controller) if key is not None else None

    # -- pods

    def put_pod(self, namespace: str, controller: OwnerReference, pod: OwnedPod) -> None:
        """Add or update a pod of ours with a controller."""
        uid, key = pod.member.age.uid, (namespace, controller.uid)
        if self._of_pod.get(uid, key) != key:
            self.drop_pod(uid)
        self._of_pod[uid] = key
        owner = self._owner(key)
        owner.controller = controller
        owner.pods[uid] = pod

    def drop_pod(self, uid: str) -> None:
        """A pod was removed, or has no controller."""
        key = self._of_pod.pop(uid, None)
        if key is not None:
            del self._owners[key].pods[uid]
            self._forget_if_empty(key)

    def pods_of(self, keys: Iterable[ControllerKey]) -> list[str]:
        """Uids of the pods of these controllers."""
        return [uid for key in keys if (owner := self._owners.get(key)) is not None for uid in owner.pods]

    def remark(self, uid: str) -> tuple[ControllerGang | None, OwnedPod, OwnedPod] | None:
        """Mark a pod with the present gang of its controller; returns the gang, and the pod before and after."""
        key = self._of_pod.get(uid)
        if key is None or (controller := self._owners[key].controller) is None:
            return None
        owner = self._owners[key]
        job = self.job_of(key[0], controller)
        before = owner.pods[uid]
        marks = replace(before.marks, controller=job.name if job is not None else "")
        after = owner.pods[uid] = replace(before, marks=marks)
        return job, before, after

    def set_marks(self, uid: str, marks: GangMarks) -> None:
        """Note the marks that a pod has now."""
        if (key := self._of_pod.get(uid)) is not None:
            pods = self._owners[key].pods
            pods[uid] = replace(pods[uid], marks=marks)

    # -- definitions

    def put_definition(self, definition: Definition, job: ControllerGang | None) -> Iterable[ControllerKey]:
        """Add or update a definition; returns the controllers whose gang may have changed."""
        key = (definition.namespace, job.owner_uid) if job is not None else None
        changed = set()
        before = self._of_definition.get(definition.uid)
        if before is not None and before != key:
            changed |= set(self.drop_definition(definition.uid))
        if job is not None and key is not None:
            self._of_definition[definition.uid] = key
            owner = self._owner(key)
            known = owner.job
            owner.put_job((definition.created_seconds, definition.name, definition.uid), job)
            if owner.job != known:
                changed.add(key)
        return changed

    def drop_definition(self, uid: str) -> Iterable[ControllerKey]:
        """A definition was removed, or has no controller any more."""
        key = self._of_definition.pop(uid, None)
        if key is None:
            return ()
        owner = self._owners[key]
        before = owner.job
        owner.drop_job(uid)
        changed = owner.job != before
        self._forget_if_empty(key)
        return (key,) if changed else ()

    def _owner(self, key: ControllerKey) -> "_Controller":
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = _Controller()
        return owner

    def _forget_if_empty(self, key: ControllerKey) -> None:
        owner = self._owners[key]
        if not owner.pods and not owner.jobs:
            del self._owners[key]


class _Controller:
    """One controller: its pods, and the definitions that make them a gang, of which the oldest applies."""

    __slots__ = ("_order", "controller", "former", "jobs", "pods")

    def __init__(self) -> None:
        self.controller: OwnerReference | None = None
        self.pods: dict[str, OwnedPod] = {}
        self.jobs: dict[str, tuple[_Age, ControllerGang]] = {}
        self.former: ControllerGang | None = None
        self._order: list[_Age] = []  # ages of its definitions, oldest first

    @property
    def job(self) -> ControllerGang | None:
        """The gang of its pods; without a definition the former one."""
        return self.jobs[self._order[0][2]][1] if self._order else self.former

    def put_job(self, age: _Age, job: ControllerGang) -> None:
        uid = age[2]
        if uid in self.jobs:
            self._leave(self.jobs[uid][0])
        self.jobs[uid] = (age, job)
        insort(self._order, age)

    def drop_job(self, uid: str) -> None:
        age, job = self.jobs.pop(uid)
        self._leave(age)
        if not self.jobs:
            self.former = replace(job, node_selector=(), source="")

    def _leave(self, age: _Age) -> None:
        del self._order[bisect_left(self._order, age)]


def _kind(controller: OwnerReference) -> str:
    group, slash, _ = controller.api_version.rpartition("/")
    return f"{controller.kind}.{group}" if slash else controller.kind
