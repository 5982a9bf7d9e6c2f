"""Pod classes, kept while pods have them and a while longer."""

from collections import Counter
from typing import Final

from msgspec.structs import replace

from muster.dialects.marks import Pairs
from muster.gangs.facts import PodClass
from muster.kube.pod_class import identified
from muster.kube.volume_facts import NodeTerms

_COMPLETED_KEPT: Final = 16384


class Classes:
    """Classes by id, with the number of pods of each.

    A class is sent to subscribers before the first pod that has it, and again if it comes back after it was dropped. A
    class is dropped when no pod had it between two sweeps, so that consecutive Jobs with the same template keep it.
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
        """The class with this id; some pod has it."""
        return self._known[class_id]

    def completed(
        self,
        pod_class: PodClass,
        selected_by: tuple[str, ...],
        volumes: tuple[NodeTerms, ...] = (),
        node_selector: Pairs | None = None,
    ) -> PodClass:
        """The class with the parts that do not follow from the pod alone. `node_selector` None: the pod's own."""
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
        """Count one more pod of the class."""
        self._users[pod_class.id] += 1
        if pod_class.id not in self._known:
            self._known[pod_class.id] = pod_class
            self._unsent.append(pod_class)

    def drop(self, class_id: str) -> None:
        """Count one pod of the class less."""
        self._users[class_id] -= 1
        if not self._users[class_id]:
            del self._users[class_id]

    def take_unsent(self) -> tuple[PodClass, ...]:
        """Classes that were not sent to subscribers yet; they count as sent from now on."""
        unsent, self._unsent = self._unsent, []
        return tuple(unsent)

    def sweep(self) -> int:
        """Drop classes that no pod had at the last sweep nor has now; returns their number."""
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
