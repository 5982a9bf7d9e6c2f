"""Pod classes that subscribers have been told of, for as long as pods have them and a while longer."""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from muster.dialects.marks import Pairs
from muster.gangs.facts import PodClass
from muster.kube.pod_class import identified
from muster.kube.volume_facts import NodeTerms

_COMPLETED_KEPT: Final = 16384


class Classes:
    """Classes by id, with how many pods have each.

    Subscribers are told of a class before the first pod that has it, and again when it comes back after it was
    forgotten. A forgotten class is one that nobody had between two sweeps: Jobs that follow one another with the same
    template do not make it come and go.
    """

    def __init__(self) -> None:
        self._known: dict[str, PodClass] = {}
        self._users: Counter[str] = Counter()
        self._idle: set[str] = set()
        self._unsent: list[PodClass] = []
        self._completed: dict[tuple[str, tuple[str, ...], tuple[NodeTerms, ...], Pairs], PodClass] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __getitem__(self, class_id: str) -> PodClass:
        """The class with this id, that a pod has."""
        return self._known[class_id]

    def completed(
        self,
        pod_class: PodClass,
        selected_by: tuple[str, ...],
        volumes: tuple[NodeTerms, ...] = (),
        node_selector: Pairs | None = None,
    ) -> PodClass:
        """The class with what the pod alone does not tell. `node_selector` None: the pod's own."""
        selector = pod_class.node_selector if node_selector is None else node_selector
        if (pod_class.selected_by, pod_class.volumes, pod_class.node_selector) == (selected_by, volumes, selector):
            return pod_class
        key = (pod_class.id, selected_by, volumes, selector)
        found = self._completed.get(key)
        if found is None:
            if len(self._completed) >= _COMPLETED_KEPT:
                self._completed.clear()
            content = replace(pod_class, selected_by=selected_by, volumes=volumes, node_selector=selector)
            found = identified(content)
            self._completed[key] = found
        return found

    def add(self, pod_class: PodClass) -> None:
        """One more pod has it."""
        self._users[pod_class.id] += 1
        if pod_class.id not in self._known:
            self._known[pod_class.id] = pod_class
            self._unsent.append(pod_class)

    def drop(self, class_id: str) -> None:
        """One pod less has it."""
        self._users[class_id] -= 1
        if not self._users[class_id]:
            del self._users[class_id]

    def take_unsent(self) -> tuple[PodClass, ...]:
        """Those that subscribers have to be told of; they count as told then."""
        unsent, self._unsent = self._unsent, []
        return tuple(unsent)

    def sweep(self) -> int:
        """Forget those that no pod had at the last sweep nor has now; returns how many."""
        self._completed.clear()
        unused = self._known.keys() - self._users.keys()
        forgotten = unused & self._idle
        for class_id in forgotten:
            del self._known[class_id]
        self._idle = unused - forgotten
        return len(forgotten)

    def all(self) -> tuple[PodClass, ...]:
        """All known classes."""
        return tuple(self._known.values())
