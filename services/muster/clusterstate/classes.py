"""Pod classes that subscribers have been told of, for as long as pods have them and a while longer."""

from collections import Counter
from collections.abc import Sequence

from muster.gangs.facts import PodClass


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

    def __len__(self) -> int:
        return len(self._known)

    def add(self, pod_class: PodClass) -> bool:
        """One more pod has it. True: subscribers have to be told of it."""
        self._users[pod_class.id] += 1
        if pod_class.id in self._known:
            return False
        self._known[pod_class.id] = pod_class
        return True

    def drop(self, class_id: str) -> None:
        """One pod less has it."""
        self._users[class_id] -= 1
        if not self._users[class_id]:
            del self._users[class_id]

    def sweep(self) -> int:
        """Forget those that no pod had at the last sweep nor has now; returns how many."""
        unused = self._known.keys() - self._users.keys()
        forgotten = unused & self._idle
        for class_id in forgotten:
            del self._known[class_id]
        self._idle = unused - forgotten
        return len(forgotten)

    def all(self) -> Sequence[PodClass]:
        """All known classes."""
        return list(self._known.values())
